"""Decides what to tell about a pod that cannot start: obstacles counted over nodes, the most common first.

Given reasons as they came up; says need, have and numbers in one line. Never leaves anything out silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.model import plan, pods, requests
from dovetail.model.reasons import Reason, ReasonCode

SHOWN: Final = 4  # obstacles in the summary; all of them are in the refusal
SHOWN_POOLS: Final = 3  # node pools named with an obstacle


class Tally:
    """Counts obstacles over nodes. Of equal ones the reason that came nearest is kept."""

    def __init__(self) -> None:
        self.nodes = 0
        self.is_undecided = False
        self._found: dict[tuple[ReasonCode, str], tuple[int, Reason]] = {}
        self._pools: dict[tuple[ReasonCode, str], Counter[str]] = {}

    def add(self, reasons: Iterable[Reason], *, is_undecided: bool = False, nodes: int = 1) -> None:
        """One more node is out, or several, for these reasons."""
        self.nodes += nodes
        self.is_undecided |= is_undecided
        for reason in {(one.code, one.subject): one for one in reversed(tuple(reasons))}.values():
            key = (reason.code, reason.subject)
            if reason.pool:
                self._pools.setdefault(key, Counter())[reason.pool] += nodes
                reason = msgspec.structs.replace(reason, pool="")  # counted beside it
            count, nearest = self._found.get(key, (0, reason))
            self._found[key] = (count + nodes, max(nearest, reason, key=_nearness))

    def plus(self, other: Tally) -> Tally:
        """Both counts together, the nodes of one being none of the other's."""
        both = Tally()
        both.nodes = self.nodes + other.nodes
        both.is_undecided = self.is_undecided or other.is_undecided
        both._found = {**self._found}
        for key, (count, reason) in other._found.items():
            known, nearest = both._found.get(key, (0, reason))
            both._found[key] = (known + count, max(nearest, reason, key=_nearness))
        for pools in (self._pools, other._pools):
            for key, counts in pools.items():
                both._pools.setdefault(key, Counter()).update(counts)
        return both

    def obstacles(self) -> tuple[plan.Obstacle, ...]:
        """By count, then by name."""
        found = sorted(self._found.items(), key=lambda item: (-item[1][0], item[0]))
        return tuple(
            plan.Obstacle(reason=reason, nodes=count, pools=_ranked(self._pools.get(key)))
            for key, (count, reason) in found
        )


def is_to_be_continued(refusal: plan.Refusal) -> bool:
    """Whether nothing stands in the pod's way but that a budget ended: the next decision goes on."""
    codes = {one.reason.code for one in refusal.obstacles}
    return refusal.is_undecided and codes == {ReasonCode.TO_BE_CONTINUED}


def over_nodes(
    pod: pods.Pod, tally: Tally, *, names: Mapping[str, str], holding: tuple[plan.ClaimRef, ...] = ()
) -> plan.Refusal:
    """The refusal of a pod no node can take. `names` are the pod's own for what was judged under other names."""
    if not tally.nodes:
        return of_pod(pod, (Reason(code=ReasonCode.NO_NODES, detail="the cluster has no nodes"),))
    obstacles = tuple(_renamed(one, names) for one in tally.obstacles())
    parts = [_phrase(one) + _in_pools(one, of=tally.nodes) for one in obstacles[:SHOWN]]
    if len(obstacles) > SHOWN:
        parts.append(f"{len(obstacles) - SHOWN} more reasons")
    counted = "1 node" if tally.nodes == 1 else f"{tally.nodes} nodes"
    return plan.Refusal(
        pod=plan.pod_ref(pod),
        summary=f"{counted}: {', '.join(parts)}",
        obstacles=obstacles,
        is_undecided=tally.is_undecided,
        holding=holding,
    )


def beside(refusal: plan.Refusal, reason: Reason) -> plan.Refusal:
    """The same refusal where a bound ruled some nodes out before anybody looked at them."""
    obstacles = (plan.Obstacle(reason=reason), *refusal.obstacles)
    return msgspec.structs.replace(refusal, summary=f"{reason}; elsewhere: {refusal.summary}", obstacles=obstacles)


def kept_back(refusal: plan.Refusal, kept: Mapping[Reason, int]) -> plan.Refusal:
    """The same refusal where nodes that would do are kept for others: for whom, and how many nodes each."""
    if not kept:
        return refusal
    added = tuple(plan.Obstacle(reason=reason, nodes=count) for reason, count in kept.items())
    nodes = sum(kept.values())
    phrases = ", ".join(map(_phrase, added[:SHOWN]))
    summary = f"{nodes} {'node' if nodes == 1 else 'nodes'}: {phrases}"
    others = tuple(one for one in refusal.obstacles if one.reason.code is not ReasonCode.NO_NODES)
    if others:
        summary = f"{summary}; elsewhere: {refusal.summary}"
    return msgspec.structs.replace(refusal, summary=summary, obstacles=(*added, *others))


def also(refusal: plan.Refusal, reason: Reason) -> plan.Refusal:
    """The same refusal with something more to know about it."""
    obstacles = (*refusal.obstacles, plan.Obstacle(reason=reason))
    return msgspec.structs.replace(refusal, summary=f"{refusal.summary}; {reason}", obstacles=obstacles)


def of_pod(pod: pods.Pod, reasons: tuple[Reason, ...], *, is_undecided: bool = False) -> plan.Refusal:
    """The refusal of a pod for reasons of its own."""
    return plan.Refusal(
        pod=plan.pod_ref(pod),
        summary="; ".join(map(str, reasons)),
        obstacles=tuple(plan.Obstacle(reason=reason) for reason in reasons),
        is_undecided=is_undecided,
    )


def _ranked(counts: Counter[str] | None) -> tuple[tuple[str, int], ...]:
    """By count, then by name."""
    return tuple(sorted((counts or {}).items(), key=lambda item: (-item[1], item[0])))


def _in_pools(obstacle: plan.Obstacle, *, of: int) -> str:
    """Which pools these nodes are of, where that tells them from the rest."""
    if not obstacle.pools or obstacle.nodes == of:
        return ""
    shown = [f"{name} {count}" for name, count in obstacle.pools[:SHOWN_POOLS]]
    more = len(obstacle.pools) - len(shown)
    return f" (of pool {', '.join(shown)}{f' and {more} more' if more else ''})"


def _phrase(obstacle: plan.Obstacle) -> str:
    reason, count = obstacle.reason, obstacle.nodes
    many = count != 1
    match reason.code:
        case ReasonCode.ROOM:
            need, have = (requests.amount_text(reason.subject, amount or 0) for amount in (reason.need, reason.have))
            return f"{count} lack{'' if many else 's'} {reason.subject} (needs {need}, at most {have} free)"
        case ReasonCode.OTHER_NODE:
            return f"{count} {'are' if many else 'is'} not node {reason.subject}"
        case ReasonCode.CORDONED:
            return f"{count} {'are' if many else 'is'} cordoned"
        case ReasonCode.NOT_OWNED if not reason.subject:
            return f"{count} belong{'' if many else 's'} to another scheduler"
        case ReasonCode.NODE_TAINT:
            return f"{count} {'have' if many else 'has'} taint {reason.subject} that the pod does not tolerate"
        case ReasonCode.NODE_LABELS:
            return f"{count} lack{'' if many else 's'} the labels the pod asks for"
        case ReasonCode.NODE_FEATURES:
            return f"{count} lack{'' if many else 's'} feature {reason.subject}"
        case ReasonCode.POD_AFFINITY | ReasonCode.POD_ANTI_AFFINITY if not reason.subject:
            return f"{count} {reason.detail}" if not many else f"{count} {_plural(reason.detail)}"
        case ReasonCode.SPREAD:
            return f"{count} would spread such pods over {reason.subject} by more than {reason.need}"
        case ReasonCode.SPREAD_LABEL:
            return f"{count} lack{'' if many else 's'} label {reason.subject}, over which such pods are spread"
        case ReasonCode.HOST_PORT:
            return f"{count} {'have' if many else 'has'} {reason.subject} in use"
        case ReasonCode.NOMINATED | ReasonCode.PROMISED:
            return f"{count} {'are' if many else 'is'} kept for {reason.subject}"
        case ReasonCode.CLAIM_ELSEWHERE:
            return f"{count} cannot reach the devices of {reason.subject}"
        case (
            ReasonCode.VOLUME_NODE
            | ReasonCode.VOLUME_NONE
            | ReasonCode.VOLUME_SPACE
            | ReasonCode.VOLUME_LIMIT
            | ReasonCode.VOLUME_DRIVER
            | ReasonCode.VOLUME_IN_USE
        ):
            return f"{count} {_volume_phrase(reason, is_many=many)}"
        case _:
            return f"{count} cannot serve {reason.subject}: {_brief(reason)}" if reason.subject else f"{count} {reason}"


def _plural(sentence: str) -> str:
    return f"have {sentence.removeprefix('has ')}"


def _volume_phrase(reason: Reason, *, is_many: bool) -> str:
    has = "have" if is_many else "has"
    match reason.code:
        case ReasonCode.VOLUME_NONE:
            return f"{has} no free volume that fits {reason.subject}"
        case ReasonCode.VOLUME_SPACE:
            return f"{has} too little storage left for {reason.subject}"
        case ReasonCode.VOLUME_LIMIT:
            return f"can attach too few volumes of {reason.subject} (needs {reason.need}, at most {reason.have} more)"
        case ReasonCode.VOLUME_DRIVER:
            return f"{'do' if is_many else 'does'} not run {reason.subject}"
        case ReasonCode.VOLUME_IN_USE:
            return f"{has} a pod that uses the same disk"
        case _:
            return f"cannot reach the volume of {reason.subject}" + (f" ({reason.detail})" if reason.detail else "")


def _brief(reason: Reason) -> str:
    """The end of the chain from all devices to too few, without the values that came nearest."""
    chain = reason.detail.partition("; nearest")[0].split(" -> ")
    amounts = f" (needs {reason.need})" if reason.need is not None else ""
    return " ".join(" -> ".join(chain[-2:]).split()) + amounts


def _renamed(obstacle: plan.Obstacle, names: Mapping[str, str]) -> plan.Obstacle:
    reason = obstacle.reason
    subject, detail = reason.subject, reason.detail
    for stand_in, name in names.items():
        subject = subject.replace(stand_in, name)
        detail = detail.replace(stand_in, name)
    if (subject, detail) == (reason.subject, reason.detail):
        return obstacle
    renamed = msgspec.structs.replace(reason, subject=subject, detail=detail)
    return plan.Obstacle(reason=renamed, nodes=obstacle.nodes, pools=obstacle.pools)


def _nearness(reason: Reason) -> tuple[int, str, int, int]:
    """How near to enough it came; then by text and amounts, so that the order of nodes does not show."""
    need, have = reason.need or 0, reason.have or 0
    short = need - have if reason.need is not None and reason.have is not None else 0
    return -short, reason.detail, need, have
