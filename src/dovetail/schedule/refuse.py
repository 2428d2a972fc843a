"""Decides what to tell about a pod that cannot start: obstacles counted over nodes, the most common first.

Given reasons as they came up; says need, have and numbers in one line. Never leaves anything out silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.model import plan, pods, requests
from dovetail.model.reasons import Reason, ReasonCode

SHOWN: Final = 4  # obstacles in the summary; all of them are in the refusal


class Tally:
    """Counts obstacles over nodes. Of equal ones the reason that came nearest is kept."""

    def __init__(self) -> None:
        self.nodes = 0
        self.is_undecided = False
        self._found: dict[tuple[ReasonCode, str], tuple[int, Reason]] = {}

    def add(self, reasons: Iterable[Reason], *, is_undecided: bool = False, nodes: int = 1) -> None:
        """One more node is out, or several, for these reasons."""
        self.nodes += nodes
        self.is_undecided |= is_undecided
        for reason in {(one.code, one.subject): one for one in reversed(tuple(reasons))}.values():
            key = (reason.code, reason.subject)
            count, nearest = self._found.get(key, (0, reason))
            self._found[key] = (count + nodes, max(nearest, reason, key=_nearness))

    def obstacles(self) -> tuple[plan.Obstacle, ...]:
        """By count, then by name."""
        found = sorted(self._found.items(), key=lambda item: (-item[1][0], item[0]))
        return tuple(plan.Obstacle(reason=reason, nodes=count) for _, (count, reason) in found)


def over_nodes(
    pod: pods.Pod, tally: Tally, *, names: Mapping[str, str], holding: tuple[plan.ClaimRef, ...] = ()
) -> plan.Refusal:
    """The refusal of a pod no node can take. `names` are the pod's own for what was judged under other names."""
    if not tally.nodes:
        return of_pod(pod, (Reason(code=ReasonCode.NO_NODES, detail="the cluster has no nodes"),))
    obstacles = tuple(_renamed(one, names) for one in tally.obstacles())
    parts = [_phrase(one) for one in obstacles[:SHOWN]]
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


def of_pod(pod: pods.Pod, reasons: tuple[Reason, ...], *, is_undecided: bool = False) -> plan.Refusal:
    """The refusal of a pod for reasons of its own."""
    return plan.Refusal(
        pod=plan.pod_ref(pod),
        summary="; ".join(map(str, reasons)),
        obstacles=tuple(plan.Obstacle(reason=reason) for reason in reasons),
        is_undecided=is_undecided,
    )


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
        case ReasonCode.CLAIM_ELSEWHERE:
            return f"{count} cannot reach the devices of {reason.subject}"
        case _:
            return f"{count} cannot serve {reason.subject}: {_brief(reason)}" if reason.subject else f"{count} {reason}"


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
    return plan.Obstacle(reason=renamed, nodes=obstacle.nodes)


def _nearness(reason: Reason) -> tuple[int, str, int, int]:
    """How near to enough it came; then by text and amounts, so that the order of nodes does not show."""
    need, have = reason.need or 0, reason.have or 0
    short = need - have if reason.need is not None and reason.have is not None else 0
    return -short, reason.detail, need, have
