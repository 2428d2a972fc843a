"""The causes that keep one pod from starting, the first being the one to remove first.

Given the engine's plan and refusal, and the World with everything else that the plan starts. Preconditions come first;
then the nearest way to start on a node; then what a queue, a promise or a gang makes the pod wait for. Never decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.causes import (
    gang_causes,
    gang_members,
    node_sentences,
    reason_causes,
    way_causes,
)
from dovetail.answer.why.causes.reason_causes import cause
from dovetail.answer.why.obstacles import relation_blocks, ways
from dovetail.answer.why.obstacles.blocks import Block, Layer
from dovetail.answer.why.obstacles.node_blocks import NodeBlocks
from dovetail.answer.why.why_answer import Cause
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.model import plan, policy
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.node import preconditions
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims
from dovetail.world.world import World

MOST_KINDS: Final = 8  # of pods in one gang that are asked about
_NEAR_PART: Final = 0.5  # of the weight of a condition that nearly names something that exists
_FIRST: Final = frozenset(
    {ReasonCode.QUEUE_UNUSABLE, ReasonCode.GANG_INCOMPLETE, ReasonCode.CLAIM_QUEUE}
)
_QUOTAS: Final = frozenset({ReasonCode.QUEUE_LIMIT, ReasonCode.QUEUE_QUOTA, ReasonCode.POWER_CAP})
_POLICIES: Final = frozenset({ReasonCode.PROMISED, ReasonCode.TOO_YOUNG})
_SHARES: Final = frozenset({ReasonCode.QUEUE_SHARE, ReasonCode.QUEUE_BEHIND})


class PodCauses(NamedTuple):
    """The causes, and where the pod would start without them."""

    causes: tuple[Cause, ...]
    obstacles: NodeBlocks | None = None
    way: ways.Way | None = None


def causes_of(
    world: World, pod: pods.Pod, refusal: plan.Refusal | None, policy_: policy.Policy
) -> PodCauses:
    """Why the pod does not start. Asked inside a trial in which the rest of the plan is carried out."""
    reasons = () if refusal is None else tuple(item.reason for item in refusal.obstacles)
    own = _alone(world, pod, reasons, policy_)
    if own.way is None or own.way.layer > Layer.OTHERS:
        return own
    members = gang_members.members_of(world, pod)
    member = None if members is None else _hopeless_member(world, pod, members, policy_)
    if member is not None:
        return member
    assert own.obstacles is not None
    causes = _of_waiting(own.way, own.obstacles, own.causes, refusal, members)
    if not own.way.blocks:  # it would fit alone: those in the way are on the full nodes
        full = [way for way in ways.all_ways(own.obstacles.by_node()) if way.layer == Layer.OTHERS]
        own = own._replace(way=ways.nearest(full, _weigher(own.obstacles)) or own.way)
    return own._replace(causes=causes)


def _alone(
    world: World, pod: pods.Pod, reasons: tuple[Reason, ...], policy_: policy.Policy
) -> PodCauses:
    """What keeps the pod from starting, were it not part of a gang."""
    needs = preconditions.needs(pod, ClaimLookup(world))
    if not isinstance(needs, PodClaims):
        return _unready(world, pod, needs, policy_)
    wanted = [(pod_claim.name, pod_claim.claim) for pod_claim in needs.fresh]
    before = tuple(reason_causes.of_claims(wanted, world))
    before += tuple(reason_causes.of_reasons(relation_blocks.pod_reasons(pod, world), pod, world))
    before += _of_codes(_FIRST, reasons, pod, world)
    obstacles = NodeBlocks(world, policy_, pod, needs)
    if before:
        return PodCauses(before, obstacles)
    if not world.nodes:
        return PodCauses((cause(CauseCode.NO_NODES, "the cluster has no nodes"),), obstacles)

    way = ways.nearest(ways.all_ways(obstacles.by_node()), _weigher(obstacles))
    assert way is not None
    own = way_causes.causes_of(way, obstacles)
    if way.layer > Layer.OTHERS:
        own = (*own, *_of_codes(_QUOTAS, reasons, pod, world))
    return PodCauses(own, obstacles, way)


def _unready(
    world: World, pod: pods.Pod, reasons: tuple[Reason, ...], policy_: policy.Policy
) -> PodCauses:
    """The causes of a pod that is not tried at all; a mistake that would keep it from starting later comes first."""
    causes = tuple(reason_causes.of_reasons(reasons, pod, world))
    if any(reason.code is not ReasonCode.GATED for reason in reasons):
        return PodCauses(causes)
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=())
    later = _alone(world, msgspec.structs.replace(pod, spec=spec), (), policy_)
    if later.way is None or later.way.layer < Layer.CONFIG:
        return PodCauses(causes)
    return later._replace(causes=(*later.causes[:1], *causes, *later.causes[1:]))


def _hopeless_member(
    world: World, pod: pods.Pod, members: gang_members.Members, policy_: policy.Policy
) -> PodCauses | None:
    """The causes of another pod of the gang that would not start even if no other pod ran: all wait for it."""
    kinds: dict[object, pods.Pod] = {}
    for member in members.waiting:
        kinds.setdefault(codec.encode_struct(member.spec), member)
    for member in list(kinds.values())[:MOST_KINDS]:
        if member is pod:
            continue
        theirs = _alone(world, member, (), policy_)
        if theirs.causes and (theirs.way is None or theirs.way.layer > Layer.OTHERS):
            prefix = f"pod {member.metadata.name} of its gang: "
            causes = tuple(
                msgspec.structs.replace(item, sentence=prefix + item.sentence)
                for item in theirs.causes
            )
            return theirs._replace(causes=causes)
    return None


def _of_waiting(
    way: ways.Way,
    obstacles: NodeBlocks,
    own: tuple[Cause, ...],
    refusal: plan.Refusal | None,
    members: gang_members.Members | None,
) -> tuple[Cause, ...]:
    """The causes of a pod that some node would take if it were empty."""
    pod, world = obstacles.pod, obstacles.world
    reasons = () if refusal is None else tuple(item.reason for item in refusal.obstacles)
    quotas = _of_codes(_QUOTAS, reasons, pod, world)
    if quotas:
        return (*quotas, *own)
    policies = _of_codes(_POLICIES, reasons, pod, world)
    shares = _of_codes(_SHARES, reasons, pod, world)
    if members is not None:
        together = gang_causes.causes_of(obstacles, members, reasons, own)
        if together:
            return (*together, *shares, *policies)
    if way.blocks:
        return (*own, *shares, *policies)
    others = _of_codes(frozenset(reason_causes.CODES), reasons, pod, world)
    if others:
        return others
    summary = refusal.summary if refusal is not None else "the engine gave no reason"
    return (cause(CauseCode.BUSY, summary),)


def _of_codes(
    codes: frozenset[ReasonCode], reasons: tuple[Reason, ...], pod: pods.Pod, world: World
) -> tuple[Cause, ...]:
    chosen = dict.fromkeys(reason for reason in reasons if reason.code in codes)
    return tuple(reason_causes.of_reasons(chosen, pod, world))


def _weigher(obstacles: NodeBlocks) -> Callable[[Block], float]:
    """The weight of a block; less where the pod's author nearly wrote something that exists."""
    weights: dict[tuple[CauseCode, str], float] = {}

    def weight(block: Block) -> float:
        if block.code is not CauseCode.NODE_LABELS:
            return block.weight
        if block.key not in weights:
            part = _NEAR_PART if node_sentences.is_near(block, obstacles) else 1.0
            weights[block.key] = block.weight * part
        return weights[block.key]

    return weight
