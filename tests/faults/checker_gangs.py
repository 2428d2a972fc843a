"""Gangs start as a whole or not at all, and no pod yields in vain.

A gang is what its pods' labels say, with the minimum they say. Pods that end are no part of it any more. Who yields to
whom is read from the condition that a victim is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.faults import checker_scene
from tests.faults.checker_scene import Bounds, Judge, Scene, Step, Violation
from tests.faults.records import Tree

GANG: Final = "dovetail.dev/gang"
LEAST: Final = "dovetail.dev/gang-min"
TARGET: Final = "DisruptionTarget"
YIELDS: Final = re.compile(r"yields to (\S+/gang/\S+) \(")
LARGEST: Final = (
    4  # pods of a gang: a set of victims may be larger than needed by one gang but one pod
)


class _Clock(NamedTuple):
    since: float
    revision: int


class Gangs:
    """What became of each gang so far."""

    def __init__(self, judge: Judge, bounds: Bounds) -> None:
        self._judge = judge
        self._bounds = bounds
        self._members: dict[str, dict[str, Tree]] = {}  # gang -> pods by identity
        self._ran: set[str] = set()  # gangs that had their minimum once
        self._lost: dict[str, float] = {}  # when a pod of it ended last
        self._half: dict[str, _Clock] = {}
        self._victims: dict[str, set[str]] = {}  # gang -> pods that yielded to it
        self._owed: dict[str, _Clock] = {}  # gangs that a pod yielded to and that have not started

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """Judges changes of pods."""
        if step.revision.kind != "pods":
            return
        yield from self._late(step.revision.seconds)
        yield from self._yielded(step)
        gang = gang_of(step.object)
        if not gang or not self._judge.is_ours(step.object):
            return
        members = self._members.setdefault(gang, {})
        if step.after is None or step.after["metadata"].get("deletionTimestamp"):
            self._lost[gang] = step.revision.seconds
        if step.after is None:
            members.pop(checker_scene.uid_of(step.object), None)
        else:
            members[checker_scene.uid_of(step.after)] = step.after
        if self._is_binding(step):
            yield from self._apart(gang, step, scene)
        self._count(gang, step)

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """Clocks that still run."""
        yield from self._late(seconds)

    def _is_binding(self, step: Step) -> bool:
        is_new = checker_scene.node_of(step.after) and not checker_scene.node_of(step.before)
        return bool(is_new) and step.revision.writer in self._judge.ours

    def _apart(self, gang: str, step: Step, scene: Scene) -> Iterator[Violation]:
        if step.revision.seconds - self._lost.get(gang, float("-inf")) < self._bounds.visible:
            return  # the gang is being deleted
        members = self._members[gang].values()
        ready = sum(_is_ready(pod, scene) for pod in members)
        if gang not in self._ran and ready < least_of(step.object):
            yield step.violates(
                "apart", f"of {len(members)} pods of {gang} only {ready} had their claims"
            )

    def _count(self, gang: str, step: Step) -> None:
        placed = sum(_is_placed(pod) for pod in self._members[gang].values())
        least = least_of(step.object)
        if placed >= least:
            self._ran.add(gang)
            self._owed.pop(gang, None)
        is_half = 0 < placed < least and gang not in self._ran
        if not is_half:
            self._half.pop(gang, None)
        else:
            self._half.setdefault(gang, _Clock(step.revision.seconds, step.revision.number))
        if not self._members[gang]:
            self._forget(gang)

    def _forget(self, gang: str) -> None:
        """No pod is left of it: a later gang of that name is another one."""
        for table in (self._half, self._owed, self._victims, self._members):
            table.pop(gang, None)  # type: ignore[attr-defined]
        self._ran.discard(gang)

    def _yielded(self, step: Step) -> Iterator[Violation]:
        gang = beneficiary_of(step.after)
        if not gang or not checker_scene.uid_of(step.object) or gang not in self._members:
            return
        if not step.object["metadata"].get("deletionTimestamp"):
            return  # it has the condition, and is not terminating yet
        victims = self._victims.setdefault(gang, set())
        victims.add(checker_scene.uid_of(step.object))
        if gang not in self._ran:
            self._owed[gang] = _Clock(step.revision.seconds, step.revision.number)
        needed = len(self._members[gang])
        if len(victims) >= needed + LARGEST:
            yield step.violates("greedy", f"{len(victims)} pods yielded to the {needed} of {gang}")

    def _late(self, seconds: float) -> Iterator[Violation]:
        for rule, clocks, bound in (
            ("half-bound", self._half, self._bounds.gang),
            ("in vain", self._owed, self._bounds.hold),
        ):
            for gang, clock in list(clocks.items()):
                if seconds - clock.since > bound:
                    del clocks[gang]
                    yield Violation(
                        rule, clock.revision, f"{gang} for {seconds - clock.since:.0f} s"
                    )


def gang_of(pod: Tree) -> str:
    """The gang's name as messages spell it, "" for none."""
    name = (pod["metadata"].get("labels") or {}).get(GANG, "")
    return f"{pod['metadata']['namespace']}/gang/{name}" if name else ""


def least_of(pod: Tree) -> int:
    """The pods without which its gang is nothing."""
    return int((pod["metadata"].get("labels") or {}).get(LEAST, "1"))


def beneficiary_of(pod: Tree | None) -> str:
    """The gang a pod yields to, as its condition says."""
    for item in ((pod or {}).get("status") or {}).get("conditions") or ():
        if item["type"] == TARGET and (result := YIELDS.search(item.get("message") or "")):
            return result.group(1)
    return ""


def _is_placed(pod: Tree) -> bool:
    is_ending = bool(pod["metadata"].get("deletionTimestamp")) or checker_scene.is_over(pod)
    return bool(checker_scene.node_of(pod)) and not is_ending


def _is_ready(pod: Tree, scene: Scene) -> bool:
    """Whether every claim of the pod has devices and is reserved for it."""
    namespace, uid = pod["metadata"]["namespace"], checker_scene.uid_of(pod)
    for _, name in checker_scene.claims_of(pod):
        claim = scene.get("resourceclaims", f"{namespace}/{name}") if name else None
        if checker_scene.allocation_of(claim) is None or uid not in checker_scene.users_of(claim):
            return False
    return True
