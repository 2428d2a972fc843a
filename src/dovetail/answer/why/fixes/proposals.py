"""What a rule proposes: changes of pods or of other objects, not yet tried, in steps from the smallest to the largest.

Plain data. A change of pods is a function of the part that pods and pod templates share (metadata and spec), so that
the same change goes to the object that a person wrote and to the pods that its controller makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from dovetail.answer.replica import patches
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.fixes import owner_patches
from dovetail.answer.why.fixes.tree_paths import Tree
from dovetail.answer.why.why_answer import Who
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.model.reasons import Reason, ReasonCode

Edit = Callable[[Tree], Tree]


class Intent(IntEnum):
    """How far a change departs from what the author wanted, the least first."""

    CORRECTED = 0  # a name or value that exists nowhere becomes one that does
    ALLOWED = (
        1  # something more is accepted: a taint, a gate is opened, a rule becomes a preference
    )
    REPLACED = 2  # another kind of the same thing: a queue, a class, a profile
    LOWERED = 3  # less of the same
    RAISED = 4  # more is granted: a limit, a priority
    DROPPED = 5  # a rule is gone
    TAKEN = 6  # others lose something


class PodChange(NamedTuple):
    """A change of the pods of one role: of the template they come from, or of each where there is none."""

    member: str  # the id of one of these pods
    edit: Edit  # returns the same tree where it does not apply
    of_all_roles: bool = False  # of the whole workload, not just of the role of the member


class ObjectChange(NamedTuple):
    """A change of one other object; without an edit it is deleted."""

    object: patches.ObjectRef
    edit: Edit | None


Change = PodChange | ObjectChange


class Candidate(NamedTuple):
    """A change that may let the pod start."""

    title: str
    changes: tuple[Change, ...]
    intent: Intent
    who: Who = Who.USER


class Ladder(NamedTuple):
    """Candidates that are the same in substance, the smallest change first: the first that works is the fix."""

    name: tuple[str, ...]
    rungs: tuple[Candidate, ...]
    is_monotone: bool = False  # where one works, all after it do
    unless: tuple[str, ...] = ()  # a ladder that makes this one needless where it works


class Case(NamedTuple):
    """A pod that waits, and what keeps it from starting."""

    replica: Replica
    pod_id: str
    pod: pods.Pod
    reasons: tuple[Reason, ...]
    authors: owner_patches.Authors
    gang: tuple[pods.Pod, ...]  # its pods without a node, this one included
    queues: Mapping[str, queues.QueueStatus]  # the numbers that the engine decided with

    def has(self, *codes: ReasonCode) -> bool:
        """Whether one of these is in the way."""
        return any(reason.code in codes for reason in self.reasons)

    def subjects(self, *codes: ReasonCode) -> list[str]:
        """What reasons with one of these codes are about, each once."""
        return list(
            dict.fromkeys(reason.subject for reason in self.reasons if reason.code in codes)
        )

    def pod_change(self, edit: Edit) -> tuple[Change, ...]:
        """A change of the pods of this one's role."""
        return (PodChange(self.pod_id, edit),)


def single(name: tuple[str, ...], candidate: Candidate) -> Ladder:
    """A ladder of one rung."""
    return Ladder(name, (candidate,))


def by_intent(name: tuple[str, ...], rungs: Sequence[Candidate]) -> Iterator[Ladder]:
    """Corrections of spelling apart from other changes: together with another change they may be what was meant."""
    spelling = (*name, "spelling")
    corrected = tuple(rung for rung in rungs if rung.intent is Intent.CORRECTED)
    if corrected:
        yield Ladder(spelling, corrected)
    others = tuple(rung for rung in rungs if rung.intent is not Intent.CORRECTED)
    yield Ladder(name, others, unless=spelling)
