"""Judges a campaign from the history of honest pods alone: each got its node in time, and had a reason while it waited.

Given every version of every honest pod with the time it was seen. Shares no code with the scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.support.rest import Seen


class Violation(NamedTuple):
    """An honest pod that suffered."""

    rule: str
    text: str


class Verdict(NamedTuple):
    """What became of the honest pods."""

    waits: list[float]  # seconds from creation to node, of those that got one, sorted
    violations: list[Violation]

    def percentile(self, part: float) -> float:
        """The wait that this part of the bound pods did not exceed; NaN where no pod was bound."""
        if not self.waits:
            return math.nan
        return self.waits[min(len(self.waits) - 1, int(part * len(self.waits)))]


def judged(history: Iterable[Seen], *, ended: float, bound_seconds: float) -> Verdict:
    """Every pod got a node within the bound, or was deleted before, or is younger than that at the end."""
    by_uid: dict[str, list[Seen]] = {}
    for seen in history:
        by_uid.setdefault(seen.object["metadata"]["uid"], []).append(seen)
    waits: list[float] = []
    violations: list[Violation] = []
    for versions in by_uid.values():
        name = versions[0].object["metadata"]["name"]
        created, bound = versions[0].at, _bound_at(versions)
        waited = (bound if bound is not None else _gone_at(versions, ended)) - created
        if bound is not None:
            waits.append(waited)
        if waited > bound_seconds:
            outcome = "got its node after" if bound is not None else "waits without a node for"
            violations.append(
                Violation(
                    "late", f"{name} {outcome} {waited:.1f} s; last reason: {_reason(versions)}"
                )
            )
    return Verdict(sorted(waits), violations)


def _bound_at(versions: Sequence[Seen]) -> float | None:
    return next((seen.at for seen in versions if seen.object["spec"].get("nodeName")), None)


def _gone_at(versions: Sequence[Seen], ended: float) -> float:
    """When its owner gave up on it, or the end of the history."""
    for seen in versions:
        if seen.type == "DELETED" or seen.object["metadata"].get("deletionTimestamp"):
            return seen.at
    return ended


def _reason(versions: Sequence[Seen]) -> str:
    for condition in versions[-1].object["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled":
            return str(condition.get("message", ""))
    return "nothing"
