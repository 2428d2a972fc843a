"""Asks what changes would do, stated as people type them: nodes, queues, devices, work that does not exist yet.

Given the replica of a cluster. Raises InputError for a change that cannot be. Never changes a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from dovetail import errors
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import changes, consequences, what_if_answer
from dovetail.ask import catalogue_machines, cluster_view
from dovetail.kubetypes import object_set, registry
from dovetail.manifest import manifests
from dovetail.quantity import durations

VERBS: Final = ("add", "remove", "cordon", "uncordon", "drain", "set", "end")
DEFAULT_HORIZON: Final = "24h"
LONGEST_HORIZON: Final = 366 * 86_400


def work_kinds() -> tuple[registry.Kind, ...]:
    """What is read besides for work that does not exist yet."""
    from dovetail.ask import new_work

    return new_work.FRAME


def what_if(
    replica: Replica,
    stated: Sequence[changes.Stated],
    *,
    horizon_seconds: int,
    prices: Mapping[str, Fraction] | None = None,
) -> what_if_answer.Answer:
    """What changes would do, in the order given."""
    return consequences.consequences(
        replica,
        stated,
        horizon_seconds=horizon_seconds,
        build=catalogue_machines.build,
        prices=prices,
    )


def stated_work(
    loaded: Mapping[str, Sequence[manifests.ManifestObject]], seen: cluster_view.View
) -> dict[str, changes.Stated]:
    """The changes of files, by name; a file may use what an earlier one brings, such as a claim template."""
    known = seen.objects
    stated: dict[str, changes.Stated] = {}
    for name, objects in loaded.items():
        from dovetail.ask import new_work  # loads the controllers of the embedded cluster

        created = new_work.expanded(objects, known, seen.now)
        known = object_set.joined(known, object_set.of(known.cluster, created))
        change = changes.NewWork(file=name, objects=created)
        stated[name] = changes.Stated(f"-f {name}", change)
    return stated


def horizon_seconds(text: str) -> int:
    """How far ahead starts are worked out."""
    seconds = durations.seconds(text)
    if seconds is None or seconds > LONGEST_HORIZON:
        raise errors.InputError(
            f'--horizon "{text}": expected a duration of at most a year, such as 24h or 7d'
        )
    return seconds


def price(where: str, text: str) -> Fraction:
    """What one GPU-hour costs."""
    try:
        amount = Fraction(text.strip()) if len(text) <= 32 else Fraction(-1)
    except (ValueError, ZeroDivisionError):
        amount = Fraction(-1)
    if amount < 0:
        raise errors.InputError(f'--price {where}: "{text}" is not a price of one GPU-hour')
    return amount


def prices_of_file(name: str) -> dict[str, Fraction]:
    """The prices in a YAML file of lines such as `h100: 2.5`."""
    from dovetail.files import bounded_files
    from dovetail.manifest import yaml_text

    try:
        trees = [document.tree for document in yaml_text.documents(bounded_files.text(name))]
    except yaml_text.TextError as error:
        raise errors.InputError(f"--price {name}: {error}") from None
    if len(trees) != 1 or not isinstance(trees[0], dict):
        raise errors.InputError(f"--price {name}: expected lines such as h100: 2.5")
    return {str(key): price(f"{name}: {key}", str(amount)) for key, amount in trees[0].items()}
