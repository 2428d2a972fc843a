"""The settings of the engine's policy that a study of queues can tell apart, as coordinates between 0 and 1.

Given coordinates, returns values by the path they have in the scheduler's configuration; given values, a policy or a
configuration to write. Left out is what promises something to users (`queues.preemptibleBelow`) and what no job of a
study touches: past usage, checkpoints by annotation, images, shares of GPUs, preferences. Never runs anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dovetail.model import configuration, policy

Value = int | float | bool | str
Settings = dict[str, Value]
DAY: Final = 86_400


class Setting(NamedTuple):
    """One setting: values to choose from, in an order in which neighbours are alike."""

    path: str
    choices: tuple[Value, ...]


PROMISES: Final = "queues.promises"
SETTINGS: Final = (
    Setting(PROMISES, (0, 1, 2, 4, 8, 16)),
    Setting("queues.consolidationVictims", (0, 2, 4, 8, 16, 32, 64)),
    Setting("queues.reclaimMayMove", (False, True)),
    Setting("queues.ageSaturationSeconds", (60, 600, 3600, 6 * 3600, DAY, 7 * DAY)),
    Setting("decide.placement", (policy.Placement.TIGHT_FIT.value, policy.Placement.EXPECTED_LOSS.value)),
    Setting("decide.weights.tightFitPerGpu", (0, 3, 10, 30, 100, 300)),
    Setting("decide.weights.unusable", (0, 300, 1000, 3000, 10_000)),
    Setting("decide.weights.repeatedFillPercent", (0, 5, 20, 50, 100)),
)  # fmt: skip


def searched(*, has_promises: bool) -> tuple[Setting, ...]:
    """The settings to search; promises stay as they are where the study fixes them."""
    return tuple(each for each in SETTINGS if has_promises or each.path != PROMISES)


def default(settings: Sequence[Setting]) -> Settings:
    """What the scheduler does without a configuration."""
    defaults = {field.path: field.default for field in configuration.fields()}
    return {each.path: defaults[each.path] for each in settings}


def values(settings: Sequence[Setting], point: Sequence[float]) -> Settings:
    """The values at a point: every choice has an equal part of its coordinate."""
    return {
        each.path: each.choices[min(int(place * len(each.choices)), len(each.choices) - 1)]
        for each, place in zip(settings, point, strict=True)
    }


def point(settings: Sequence[Setting], given: Settings) -> tuple[float, ...]:
    """The middle of the part of each value."""
    return tuple(
        (each.choices.index(given[each.path]) + 0.5) / len(each.choices) for each in settings
    )


def changed(given: Settings) -> Settings:
    """Those that differ from the default."""
    usual = default(SETTINGS)
    return {path: value for path, value in given.items() if value != usual[path]}


def tree(given: Settings) -> dict[str, Any]:
    """A configuration of the scheduler with what differs from the default."""
    document: dict[str, Any] = {
        "apiVersion": configuration.API_VERSION,
        "kind": configuration.KIND,
    }
    for path, value in changed(given).items():
        *sections, name = path.split(".")
        section = document
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = value
    return document


def policy_of(given: Settings) -> policy.Policy:
    """The engine's policy with these settings."""
    read = msgspec.convert(tree(given), configuration.SchedulerConfiguration)
    # A configuration narrows the policy to the scheduler's own pods; all pods of a study are its own.
    return msgspec.structs.replace(configuration.policy_of(read), scheduler_names=())


def said(given: Mapping[str, Value]) -> str:
    """Settings as a line."""
    return ", ".join(f"{path} {_shown(value)}" for path, value in given.items()) or "the default"


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)
