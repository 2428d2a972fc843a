"""Asks which device work should use, by what was recorded of it, and what the change would do to a cluster.

Given where the records are, how far back to look and, where there is one, the replica of a cluster. Raises InputError
for what cannot be read. Never changes a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.answer.cost.cost_window import Window
from dovetail.answer.replica.replica import Replica
from dovetail.answer.right_size import cluster_work, in_cluster, right_size
from dovetail.answer.right_size.right_size_answer import Answer
from dovetail.answer.why.fixes import owner_patches
from dovetail.ask import recorded_history
from dovetail.kubetypes import registry
from dovetail.model.accounting import records
from dovetail.quantity import durations

DEFAULT_WINDOW: Final = "14d"
LONGEST_WINDOW: Final = 366 * 86_400
KINDS: Final[Sequence[registry.Kind]] = owner_patches.KINDS  # read besides those of every question


class RecordedWork(NamedTuple):
    """Records, and the window that they are asked about."""

    records: records.Records
    window: Window


def recorded_work(history: str, *, window: str, namespace: str | None) -> RecordedWork:
    """The records of the window: until now from a store, until the last record from a document."""
    seconds = durations.seconds(window)
    if not seconds or seconds > LONGEST_WINDOW:
        raise errors.InputError(
            f'--window "{window}": expected a duration of at most a year, such as 24h or 14d'
        )
    now = int(time.time() * 1000)
    asked, recorded = recorded_history.read_last(history, seconds * 1000, now)
    return RecordedWork(_of_namespace(recorded.records, namespace), asked)


def right_sizes(
    given: RecordedWork, replica: Replica | None, *, prices: Mapping[str, Fraction] | None = None
) -> Answer:
    """The recommendations; with a cluster also patches, and what the engine says about them."""
    answer = right_size.right_size(
        given.records,
        given.window.start,
        given.window.end,
        prices=prices,
        programs=None if replica is None else cluster_work.programs(replica),
    )
    return answer if replica is None else in_cluster.completed(answer, replica)


def _of_namespace(given: records.Records, namespace: str | None) -> records.Records:
    if namespace is None:
        return given
    kept = tuple(each for each in given.allocations if each.owner.namespace == namespace)
    return msgspec.structs.replace(given, allocations=kept)
