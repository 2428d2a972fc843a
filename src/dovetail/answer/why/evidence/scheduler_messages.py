"""Reads kube-scheduler's messages: how many nodes fail for which reason, and what its preemption says.

The forms of Kubernetes up to 1.34 and since 1.35 differ (since then a taint is no longer named). Given text, returns a
summary; unknown reasons are kept in their words. Never decides whether a message still holds.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence.sources import quoting

_HEAD: Final = re.compile(r"(?P<fit>\d{1,9})/(?P<total>\d{1,9}) nodes are available: ?")
_PREEMPTION: Final = re.compile(r"[.,]?\s{0,4}preemption: (?P<preemption>.*)", re.DOTALL)
_BETWEEN: Final = re.compile(r", (?=\d+ )")
_ALONE_ENDS: Final = re.compile(r"\. (?=\d+ )")
_COUNTED: Final = re.compile(r"(?P<count>\d{1,9}) (?P<reason>.+)", re.DOTALL)
# What the claim plugin appends after the histogram.
_AFTER: Final = re.compile(
    r"\. (?:still not schedulable|no new claims to deallocate)\b.*", re.DOTALL
)
_MAX_LENGTH: Final = 32_768
_NODES: Final = "node(s) "  # before most reasons; the count says the same
_VICTIMS_SOUGHT: Final = "No preemption victims found"
# What other pods may hold.
_SHORT: Final = frozenset({CauseCode.BUSY, CauseCode.DEVICES_BUSY, CauseCode.CLAIM_IN_USE})

# Each form of reason in kube-scheduler's plugins, and the cause it stands for. The first match counts.
_FORMS: Final = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"^Insufficient (?P<subject>\S+)", CauseCode.BUSY),
        (r"^Too many pods", CauseCode.BUSY),
        (r"had untolerated taint", CauseCode.TAINT),
        (r"didn't match (?:Pod's|scheduler-enforced) node affinity", CauseCode.NODE_LABELS),
        (r"were unschedulable", CauseCode.CORDONED),
        (r"had unknown conditions|were not ready", CauseCode.NOT_READY),
        (r"anti-affinity rules", CauseCode.POD_ANTI_AFFINITY),
        (r"didn't match pod affinity rules", CauseCode.POD_AFFINITY),
        (r"topology spread constraints", CauseCode.SPREAD),
        (r"didn't have free ports", CauseCode.HOST_PORT),
        (r"didn't match the requested node name", CauseCode.NODE_NAME),
        (r"required features", CauseCode.NODE_FEATURES),
        (r"unbound immediate PersistentVolumeClaims", CauseCode.VOLUME_UNBOUND),
        (r'persistentvolumeclaim "(?P<subject>[^"]+)" not found', CauseCode.VOLUME_MISSING),
        (r"didn't find available persistent volumes", CauseCode.VOLUME_NONE),
        (r"did not have enough free storage", CauseCode.VOLUME_NONE),
        (r"PersistentVolume's node affinity|no available volume zone", CauseCode.VOLUME_ELSEWHERE),
        (r"volume node affinity conflict", CauseCode.VOLUME_ELSEWHERE),
        (r"exceed max volume count", CauseCode.VOLUME_LIMIT),
        (r"ReadWriteOncePod access mode", CauseCode.VOLUME_IN_USE),
        (r"device class (?P<subject>\S+) does not exist", CauseCode.CLASS_MISSING),
        (r"CEL (?:compile|runtime) error", CauseCode.CEL_ERROR),
        (r"timed out trying to allocate devices", CauseCode.SEARCH_UNFINISHED),
        (r"invalid resource pools were encountered", CauseCode.POOL_INVALID),
        (r"resource pool \S+ is currently being updated", CauseCode.POOL_INCOMPLETE),
        (r"exceeds the claim limit", CauseCode.CLAIM_INVALID),
        (r"unknown request type|has subrequests, but", CauseCode.CLAIM_INVALID),
        (r"claim constraint would not be satisfied", CauseCode.CONSTRAINT),
        (r"resourceclaim in use|cannot be shared across pods", CauseCode.CLAIM_IN_USE),
        (r"resourceclaim not available on the node", CauseCode.CLAIM_ELSEWHERE),
        (r"cannot allocate all claims", CauseCode.DEVICES_BUSY),
        (r"cannot schedule extended resource claim|cannot fit resource", CauseCode.DEVICES_BUSY),
        (r"in the process of being allocated", CauseCode.CLAIM_IN_USE),
        (r"waiting for (?:minCount pods from a gang|pods's pod group)", CauseCode.GANG_INCOMPLETE),
        (r"minCount \(\d+\) cannot be satisfied", CauseCode.GANG_CANNOT_START),
        (r"waiting for scheduling gates", CauseCode.GATED),
    )
)


class CountedReason(NamedTuple):
    """A reason and on how many nodes it was the first; 0 nodes for a reason about the pod alone."""

    nodes: int
    reason: str
    code: CauseCode | None  # None: a form that is not known


class Message(NamedTuple):
    """One message about a pod that found no node."""

    total: int
    reasons: tuple[CountedReason, ...]  # most nodes first
    preemption: tuple[CountedReason, ...]
    preemption_text: str

    @property
    def leading(self) -> CountedReason | None:
        """The reason to remove first, as far as words show it; None where no form is known.

        Nodes that lack room or devices passed the rules before: where preemption looked for victims there, others hold
        what is missing. Else the reason that holds on most nodes counts, and one about the pod alone before all.
        """
        known = [each for each in self.reasons if each.code is not None]
        alone = [each for each in known if not each.nodes]
        short = [each for each in known if each.code in _SHORT]
        is_held = any(_VICTIMS_SOUGHT in each.reason for each in self.preemption)
        others = [each for each in known if each.code not in _SHORT]
        chosen = alone or (short if is_held else others) or known
        return chosen[0] if chosen else None

    @property
    def summary(self) -> str:
        """The reasons in a few words: `3 of 4 nodes: Insufficient nvidia.com/gpu; 1: ...`."""
        parts = []
        for each in self.reasons[:3]:
            count = f"{each.nodes} of {self.total} nodes: " if each.nodes else ""
            parts.append(f"{count}{quoting.words(each.reason.removeprefix(_NODES), 80)}")
        return "; ".join(parts)


def message(text: str) -> Message | None:
    """The message taken apart; None where it has another form."""
    head = _HEAD.search(text[:_MAX_LENGTH])
    if head is None:
        return None
    body = text[head.end() : _MAX_LENGTH]
    preemption_text = ""
    if preemption := _PREEMPTION.search(body):
        preemption_text = preemption["preemption"]
        body = body[: preemption.start()]
    body = _AFTER.sub("", body)
    preempted = _HEAD.sub("", preemption_text, count=1) if preemption_text else ""
    return Message(
        total=int(head["total"]),
        reasons=_histogram(body),
        preemption=_histogram(preempted),
        preemption_text=preemption_text,
    )


def code_of(reason: str) -> CauseCode | None:
    """The cause that a reason in kube-scheduler's words stands for."""
    for pattern, code in _FORMS:
        if pattern.search(reason):
            return code
    return None


def _histogram(body: str) -> tuple[CountedReason, ...]:
    """Reasons are joined by commas and may hold commas themselves: only one before a number separates.

    A reason about the pod alone comes first, without a number, and ends with a full stop.
    """
    body = body.strip().rstrip(".")
    parts: list[str] = []
    if not body[:1].isdecimal():
        alone, _, body = _split_alone(body)
        parts.append(alone)
    parts += _BETWEEN.split(body)
    counts: dict[str, int] = {}
    for part in parts:
        counted = _COUNTED.fullmatch(part)
        reason = counted["reason"] if counted else part
        if reason:
            counts[reason] = counts.get(reason, 0) + (int(counted["count"]) if counted else 0)
    reasons = [CountedReason(count, reason, code_of(reason)) for reason, count in counts.items()]
    return tuple(sorted(reasons, key=lambda each: (-each.nodes, each.reason)))


def _split_alone(body: str) -> tuple[str, str, str]:
    end = _ALONE_ENDS.search(body)
    return (body[: end.start()], end[0], body[end.end() :]) if end else (body, "", "")
