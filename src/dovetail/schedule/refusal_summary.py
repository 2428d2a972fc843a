"""Summarizes why a pod cannot start: obstacles counted over nodes, those of the nearest nodes first.

Given reasons as they came up; states need, have and numbers in one line. Never leaves out a reason silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.allocate.explain import nearest_devices, stage_notes
from dovetail.kubetypes.core import pods
from dovetail.model import plan, pod_requests
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import nearness

SHOWN: Final = 4  # obstacles in the summary; all of them are in the refusal
SHOWN_POOLS: Final = 3  # node pools named with an obstacle
MAX_VALUES_LENGTH: Final = 200  # characters of the values that came nearest

# Reasons that are counted together: by code, subject, and how many devices of the class their nodes have. So nodes of
# four GPUs and nodes of eight are counted apart.
_Key = tuple[ReasonCode, str, int]


class Tally:
    """Counts obstacles over nodes. Of equal ones the reason that came nearest is kept."""

    def __init__(self) -> None:
        self.nodes = 0
        self.is_undecided = False
        self._found: dict[_Key, tuple[int, Reason]] = {}
        self._pools: dict[_Key, Counter[str]] = {}

    def add(self, reasons: Iterable[Reason], *, is_undecided: bool = False, nodes: int = 1) -> None:
        """One more node is out, or several, for these reasons."""
        self.nodes += nodes
        self.is_undecided |= is_undecided
        # Of equal reasons the first counts: it overwrites the later ones.
        distinct = {_key(reason): reason for reason in reversed(tuple(reasons))}
        for key, reason in distinct.items():
            if reason.pool:
                self._pools.setdefault(key, Counter())[reason.pool] += nodes
                reason = msgspec.structs.replace(reason, pool="")  # counted apart
            count, nearest = self._found.get(key, (0, reason))
            self._found[key] = (count + nodes, max(nearest, reason, key=_shortage_key))

    def plus(self, addend: Tally) -> Tally:
        """Both counts together; no node is in both."""
        both = Tally()
        both.nodes = self.nodes + addend.nodes
        both.is_undecided = self.is_undecided or addend.is_undecided
        both._found = {**self._found}
        for key, (count, reason) in addend._found.items():
            own_count, nearest = both._found.get(key, (0, reason))
            both._found[key] = (own_count + count, max(nearest, reason, key=_shortage_key))
        for pools in (self._pools, addend._pools):
            for key, counts in pools.items():
                both._pools.setdefault(key, Counter()).update(counts)
        return both

    def obstacles(self) -> tuple[plan.Obstacle, ...]:
        """Those of the nearest nodes first, then by count, then by name."""
        obstacles = {
            key: plan.Obstacle(reason=reason, nodes=count, pools=_ranked(self._pools.get(key)))
            for key, (count, reason) in self._found.items()
        }
        ranked = sorted(obstacles.items(), key=lambda item: _rank(item[0], item[1]))
        return tuple(obstacle for _, obstacle in ranked)


def _key(reason: Reason) -> _Key:
    return reason.code, reason.subject, -1 if reason.offered is None else reason.offered


def _rank(key: _Key, obstacle: plan.Obstacle) -> tuple[int, float, int, _Key]:
    """Lower comes first."""
    filter_rank, part_had = nearness.nearness(obstacle.reason)
    return -filter_rank, -part_had, -obstacle.nodes, key


def is_to_be_continued(refusal: plan.Refusal) -> bool:
    """Whether the only obstacle is a spent budget: the next decision continues."""
    codes = {obstacle.reason.code for obstacle in refusal.obstacles}
    return refusal.is_undecided and codes == {ReasonCode.TO_BE_CONTINUED}


def over_nodes(
    pod: pods.Pod,
    tally: Tally,
    *,
    names: Mapping[str, str],
    holding: tuple[plan.ClaimRef, ...] = (),
) -> plan.Refusal:
    """The refusal of a pod that fits no node. `names` maps stand-in names to those that the pod uses."""
    if not tally.nodes:
        return of_pod(pod, (Reason(code=ReasonCode.NO_NODES, detail="the cluster has no nodes"),))
    obstacles = tuple(_renamed(obstacle, names) for obstacle in tally.obstacles())
    shown = _shown(obstacles)
    parts = [
        _phrase(obstacle, is_nearest=place == 0) + _in_pools(obstacle, of=tally.nodes)
        for place, obstacle in enumerate(shown)
    ]
    unnamed = len(obstacles) - len(shown)
    if unnamed:
        parts.append(f"{unnamed} more {'reason' if unnamed == 1 else 'reasons'}")
    counted = "1 node" if tally.nodes == 1 else f"{tally.nodes} nodes"
    return plan.Refusal(
        pod=plan.pod_ref(pod),
        summary=f"{counted}: {', '.join(parts)}",
        obstacles=obstacles,
        is_undecided=tally.is_undecided,
        holding=holding,
    )


def with_nodes_ruled_out(refusal: plan.Refusal, reason: Reason) -> plan.Refusal:
    """The same refusal where a bound ruled some nodes out before they were evaluated."""
    obstacles = (plan.Obstacle(reason=reason), *refusal.obstacles)
    return msgspec.structs.replace(
        refusal, summary=f"{reason}; elsewhere: {refusal.summary}", obstacles=obstacles
    )


def with_reserved_nodes(
    refusal: plan.Refusal, nodes_by_reason: Mapping[Reason, int]
) -> plan.Refusal:
    """The same refusal where nodes that fit are reserved for others: by reason, how many."""
    if not nodes_by_reason:
        return refusal
    added = tuple(
        plan.Obstacle(reason=reason, nodes=count) for reason, count in nodes_by_reason.items()
    )
    nodes = sum(nodes_by_reason.values())
    phrases = ", ".join(map(_phrase, added[:SHOWN]))
    summary = f"{nodes} {'node' if nodes == 1 else 'nodes'}: {phrases}"
    remaining = tuple(
        obstacle
        for obstacle in refusal.obstacles
        if obstacle.reason.code is not ReasonCode.NO_NODES
    )
    if remaining:
        summary = f"{summary}; elsewhere: {refusal.summary}"
    return msgspec.structs.replace(refusal, summary=summary, obstacles=(*added, *remaining))


def with_reason(refusal: plan.Refusal, reason: Reason) -> plan.Refusal:
    """The same refusal with a further reason."""
    obstacles = (*refusal.obstacles, plan.Obstacle(reason=reason))
    return msgspec.structs.replace(
        refusal, summary=f"{refusal.summary}; {reason}", obstacles=obstacles
    )


def of_pod(
    pod: pods.Pod, reasons: tuple[Reason, ...], *, is_undecided: bool = False
) -> plan.Refusal:
    """The refusal of a pod for reasons that do not depend on nodes."""
    return plan.Refusal(
        pod=plan.pod_ref(pod),
        summary="; ".join(map(str, reasons)),
        obstacles=tuple(plan.Obstacle(reason=reason) for reason in reasons),
        is_undecided=is_undecided,
    )


def _shown(obstacles: tuple[plan.Obstacle, ...]) -> list[plan.Obstacle]:
    """The nearest; and the most common taint of nodes, since the only free devices may be behind it."""
    shown = list(obstacles[:SHOWN])
    taints = [obstacle for obstacle in obstacles if obstacle.reason.code is ReasonCode.NODE_TAINT]
    if taints and taints[0] not in shown:
        shown.append(taints[0])
    return shown


def _ranked(counts: Counter[str] | None) -> tuple[tuple[str, int], ...]:
    """By count, then by name."""
    return tuple(sorted((counts or {}).items(), key=lambda item: (-item[1], item[0])))


def _in_pools(obstacle: plan.Obstacle, *, of: int) -> str:
    """The node pools of these nodes, unless all nodes are meant."""
    if not obstacle.pools or obstacle.nodes == of:
        return ""
    shown = [f"{name} {count}" for name, count in obstacle.pools[:SHOWN_POOLS]]
    unnamed = len(obstacle.pools) - len(shown)
    return f" (of pool {', '.join(shown)}{f' and {unnamed} more' if unnamed else ''})"


def _phrase(obstacle: plan.Obstacle, *, is_nearest: bool = False) -> str:
    """The obstacle as a verb phrase whose subject is its number of nodes: `3 lack label zone`.

    That of the nearest nodes also says which values a selector read there: they are what the pod missed it by.
    """
    reason, count = obstacle.reason, obstacle.nodes
    is_many = count != 1
    be, has, lack, belong = _PLURAL if is_many else _SINGULAR
    match reason.code:
        case ReasonCode.ROOM:
            need = pod_requests.amount_text(reason.subject, reason.need or 0)
            have = pod_requests.amount_text(reason.subject, reason.have or 0)
            hint = f"; {reason.detail}" if reason.detail else ""
            return f"{count} {lack} {reason.subject} (needs {need}, at most {have} free{hint})"
        case ReasonCode.OTHER_NODE:
            return f"{count} {be} not node {reason.subject}"
        case ReasonCode.CORDONED:
            return f"{count} {be} cordoned"
        case ReasonCode.NOT_OWNED if not reason.subject:
            return f"{count} {belong} to another scheduler"
        case ReasonCode.NODE_TAINT:
            return f"{count} {has} taint {reason.subject} that the pod does not tolerate"
        case ReasonCode.NODE_LABELS:
            return f"{count} {lack} the labels the pod asks for: {reason.subject}"
        case ReasonCode.NODE_FEATURES:
            return f"{count} {lack} feature {reason.subject}"
        case ReasonCode.IMAGE_REQUIREMENTS:
            return f"{count} {has} another driver than {reason.subject} asks for: {reason.detail}"
        case ReasonCode.POD_AFFINITY | ReasonCode.POD_ANTI_AFFINITY if not reason.subject:
            return f"{count} {_plural(reason.detail) if is_many else reason.detail}"
        case ReasonCode.SPREAD:
            return (
                f"{count} would spread such pods over {reason.subject} by more than {reason.need}"
            )
        case ReasonCode.SPREAD_LABEL:
            return f"{count} {lack} label {reason.subject}, over which such pods are spread"
        case ReasonCode.HOST_PORT:
            return f"{count} {has} {reason.subject} in use"
        case ReasonCode.NOMINATED | ReasonCode.PROMISED:
            return f"{count} {be} kept for {reason.subject}"
        case ReasonCode.CLAIM_ELSEWHERE:
            return f"{count} cannot reach the devices of {reason.subject}"
        case code if code in _VOLUME_CODES:
            return f"{count} {_volume_phrase(reason, is_many=is_many)}"
        case _ if reason.subject:
            return f"{count} cannot serve {reason.subject}: {_brief(reason, is_many=is_many, is_nearest=is_nearest)}"
        case _:
            return f"{count} {reason}"


_SINGULAR: Final = ("is", "has", "lacks", "belongs")
_PLURAL: Final = ("are", "have", "lack", "belong")
_VOLUME_CODES: Final = frozenset(
    {
        ReasonCode.VOLUME_NODE,
        ReasonCode.VOLUME_NONE,
        ReasonCode.VOLUME_SPACE,
        ReasonCode.VOLUME_LIMIT,
        ReasonCode.VOLUME_DRIVER,
        ReasonCode.VOLUME_IN_USE,
    }
)


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
            return f"cannot reach the volume of {reason.subject}" + (
                f" ({reason.detail})" if reason.detail else ""
            )


def _brief(reason: Reason, *, is_many: bool, is_nearest: bool) -> str:
    """The end of the chain from all devices to too few, with taints and values that are in the way.

    How many devices of all types a node has is left out: it says nothing about those that could serve the request.
    """
    text, _, tainted = reason.detail.rpartition(stage_notes.TAINTED)
    rules, _, values = (text or reason.detail).partition(nearest_devices.NEAREST)
    chain = rules.split(" -> ")
    ending = chain[1:][-2:] or chain
    if is_many and reason.have and reason.code in _VARYING:
        ending = [*ending[:-1], f"at most {ending[-1]}"]  # of several nodes, that of the nearest

    needs = [f"needs {reason.need}"] if reason.need is not None else []
    notes = [f"tainted: {tainted}"] if text else []
    if is_nearest and values and reason.code is ReasonCode.SELECTOR:
        notes.append(f"nearest: {_cut(values)}")
    amounts = "; ".join(needs + notes)
    return " ".join(" -> ".join(ending).split()) + (f" ({amounts})" if amounts else "")


def _cut(values: str) -> str:
    return values if len(values) <= MAX_VALUES_LENGTH else f"{values[: MAX_VALUES_LENGTH - 3]}..."


# What nodes with the same devices differ in, from one moment to the next.
_VARYING: Final = frozenset(
    {
        ReasonCode.TAINT,
        ReasonCode.IN_USE,
        ReasonCode.ALL_DEVICES,
        ReasonCode.CAPACITY,
        ReasonCode.COUNTERS,
    }
)


def _renamed(obstacle: plan.Obstacle, names: Mapping[str, str]) -> plan.Obstacle:
    reason = obstacle.reason
    subject, detail = reason.subject, reason.detail
    for stand_in, name in names.items():
        subject = subject.replace(stand_in, name)
        detail = detail.replace(stand_in, name)
    if (subject, detail) == (reason.subject, reason.detail):
        return obstacle
    if detail != reason.detail:
        detail = _without_expressions(detail)
    renamed = msgspec.structs.replace(reason, subject=subject, detail=detail)
    return plan.Obstacle(reason=renamed, nodes=obstacle.nodes, pools=obstacle.pools)


def _without_expressions(detail: str) -> str:
    """The chain without the nearest devices, if these quote a selector that the pod's author did not write."""
    rules, _, note = detail.partition(nearest_devices.NEAREST)
    values, mark, tainted = note.partition(stage_notes.TAINTED)
    return f"{rules}{mark}{tainted}" if "`" in values else detail


def _shortage_key(reason: Reason) -> tuple[int, str, int, int]:
    """How near to enough it came; then by text and amounts, so that the order of nodes does not show."""
    need, have = reason.need or 0, reason.have or 0
    short = need - have if reason.need is not None and reason.have is not None else 0
    return -short, reason.detail, need, have
