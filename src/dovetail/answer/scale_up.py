"""Answers whether more nodes would start a pending pod: nodes like those there are, empty, with their devices.

Given a World, which it only reads. The pod is decided about in a small World, with its gang and a few copies of
each kind of node that could take it. What an autoscaler judges for itself is left out: volumes and the placement of
other pods. Quotas do not depend on nodes and are left out, too. Bounded by the number of copies, never by time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims, slices
from dovetail.model import gangs, plan, policy
from dovetail.model.reasons import ReasonCode
from dovetail.schedule import decide
from dovetail.schedule.node import equivalence, node_fit
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims
from dovetail.world import events
from dovetail.world.devices.device_columns import Devices
from dovetail.world.events import Changed
from dovetail.world.world import World

MOST_KINDS: Final = 8  # of nodes that are tried for one pod
MOST_COPIES: Final = 64  # of nodes, and pods of a gang: in a larger gang the pod is tried alone
MOST_REMEMBERED: Final = 4096
HOSTNAME: Final = "kubernetes.io/hostname"
PASSING_TAINTS: Final = "node.kubernetes.io/"  # of unhealthy nodes
# What a kind of node that does not exist yet could change.
NODE_FACTS: Final = frozenset(
    {
        ReasonCode.NO_DEVICES,
        ReasonCode.CLASS,
        ReasonCode.SELECTOR,
        ReasonCode.CAPACITY_POLICY,
        ReasonCode.TAINT,
        ReasonCode.IN_USE,
        ReasonCode.COUNTERS,
        ReasonCode.CAPACITY,
        ReasonCode.CONSTRAINT,
        ReasonCode.COMBINATION,
        ReasonCode.ALL_DEVICES,
        ReasonCode.CORDONED,
        ReasonCode.NODE_TAINT,
        ReasonCode.NODE_LABELS,
        ReasonCode.NODE_FEATURES,
        ReasonCode.IMAGE_REQUIREMENTS,
        ReasonCode.ROOM,
        ReasonCode.NO_NODES,
        ReasonCode.TOPOLOGY,
        ReasonCode.GANG_WAITS,
    }
)


class Help(Enum):
    """What more nodes would do for a pod."""

    STARTS = "a node like one that is there would start it"
    UNSEEN = "only a kind of node that is not there could start it"
    NEVER = "no node would start it, whatever it is like"


class NodeKind(NamedTuple):
    """Nodes that are alike, and one of them."""

    node: nodes.Node
    pools: tuple[tuple[str, Devices], ...]  # local to the node


class ScaleUp:
    """Answers about one World, each computed once for equal pods."""

    def __init__(self, world: World, policy_: policy.Policy) -> None:
        self._world = world
        batch = msgspec.structs.replace(policy_.batch, promises=0)
        self._policy = msgspec.structs.replace(policy_, steps=(policy.Step.ALLOCATE,), batch=batch)
        self._version: object = None
        self._kinds: tuple[NodeKind, ...] = ()
        self._answers: dict[Hashable, Help] = {}

    def would_help(self, pod: pods.Pod, now: plan.Instant) -> Help:
        """Whether more nodes would start the pod, together with its gang."""
        self._look_at_nodes()
        needs = ClaimLookup(self._world).needs(pod)
        if not isinstance(needs, PodClaims):
            return Help.NEVER  # its claims keep it from starting
        members = self._members(pod)
        question = self._question(pod, needs, members)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= MOST_REMEMBERED:
                self._answers.clear()
            answer = self._answers[question] = self._simulate(pod, members, now)
        return answer

    def is_answered(self, pod: pods.Pod) -> bool:
        """Whether the answer is cached, so that it costs next to nothing."""
        self._look_at_nodes()
        needs = ClaimLookup(self._world).needs(pod)
        return (
            not isinstance(needs, PodClaims)
            or self._question(pod, needs, self._members(pod)) in self._answers
        )

    def _look_at_nodes(self) -> None:
        """Forgets all answers once nodes or devices changed."""
        version = (
            self._world.nodes_version,
            self._world.slices_version,
            self._world.classes_version,
        )
        if version == self._version:
            return
        self._version = version
        kinds: dict[Hashable, NodeKind] = {}
        for name, node in sorted(self._world.nodes.items()):
            kind = NodeKind(node, tuple(self._local_pools(name)))
            kinds.setdefault((_appearance(node), _devices_key(kind)), kind)
        self._kinds = tuple(kinds.values())
        self._answers.clear()

    def _local_pools(self, node: str) -> Iterator[tuple[str, Devices]]:
        for pool in self._world.view(node).pools:
            if all(origin.node_name == node for origin in pool.devices.origins):
                yield pool.name, pool.devices

    def _members(self, pod: pods.Pod) -> list[pods.Pod]:
        """The pods of its gang that run or wait, the pod first; the pod alone where they are too many."""
        member = self._world.gangs.of(events.pod_id(pod))
        ids = self._world.gangs.members(member.gang) if member is not None else ()
        if len(ids) > MOST_COPIES:
            return [pod]
        mates = [self._world.pods[pod_id] for pod_id in ids if pod_id != events.pod_id(pod)]
        return [pod, *(mate for mate in mates if mate.status.phase not in pods.TERMINAL_PHASES)]

    def _question(self, pod: pods.Pod, needs: PodClaims, members: list[pods.Pod]) -> Hashable:
        """Equal for pods with the same answer: by their requests, and in a gang by its members as well."""
        own = equivalence.pod_key(pod, needs)
        annotations = gangs.scheduling_annotations(pod.metadata)
        if len(members) == 1:
            return own, annotations, not _is_alone(self._world, pod)
        return own, annotations, tuple(sorted(map(events.pod_id, members)))

    # The small World

    def _simulate(self, pod: pods.Pod, members: list[pods.Pod], now: plan.Instant) -> Help:
        small = World()
        world = self._world
        for table in (world.classes, world.rules, world.namespaces, world.topologies):
            for rule in table.values():
                small.apply(Changed(rule))

        kinds = self._kinds_for(members)
        for kind in kinds:
            for number in range(min(len(members), MOST_COPIES // len(kinds))):
                for node_or_slice in _copy(kind, number):
                    small.apply(Changed(node_or_slice))

        for gang in self._stated_gangs(members):
            small.apply(Changed(gang))
        leaves_gang = len(members) == 1 and not _is_alone(world, pod)
        for member in members:
            self._bring(small, member, is_alone=leaves_gang)
        decided = decide.decide(small, self._policy, now, policy.LIVE)
        return _answer(decided, events.pod_id(pod))

    def _kinds_for(self, members: list[pods.Pod]) -> list[NodeKind]:
        """Kinds of nodes whose labels and taints suit a member; the others could only be refused."""
        kinds: dict[Hashable, NodeKind] = {}
        for kind in self._kinds:
            node = _fresh(kind.node, 0)
            if any(node_fit.node_misfit(pod, node) is None for pod in members):
                key = (_offer_key(kind.node), _devices_key(kind), kind.node.spec.taints)
                kinds.setdefault(key, kind)
            if len(kinds) >= MOST_KINDS:
                break
        return [*kinds.values()]

    def _stated_gangs(self, members: list[pods.Pod]) -> Iterable[gangs.Gang]:
        """The gang as owners and PodGroups state it, and the larger gang it is part of."""
        stated: dict[gangs.GangKey, gangs.Gang] = {}
        for pod in members:
            seat = gangs.candidate_of(pod).membership
            gang = self._world.gangs.declared(seat.gang) if seat is not None else None
            if gang is None or seat is None:
                continue
            stated[gang.metadata.namespace, gang.metadata.name] = gang
            if not gang.part_of:
                continue
            larger = self._world.gangs.declared((seat.gang[0], gang.part_of))
            if larger is not None:
                stated[larger.metadata.namespace, larger.metadata.name] = larger
        return stated.values()

    def _bring(self, small: World, pod: pods.Pod, *, is_alone: bool) -> None:
        """Adds a pod as pending, with its claims. Running members of its gang are pending there, too."""
        for key in self._world.claims_used(pod):
            claim = self._world.claims.get(key)
            if claim is not None:
                status = claims.ResourceClaimStatus() if pod.spec.node_name else claim.status
                small.apply(Changed(msgspec.structs.replace(claim, status=status)))
        small.apply(Changed(_waiting(pod, is_alone=is_alone)))


def _is_alone(world: World, pod: pods.Pod) -> bool:
    member = world.gangs.of(events.pod_id(pod))
    return member is None or len(world.gangs.members(member.gang)) == 1


def _answer(decided: plan.Plan, pod_id: str) -> Help:
    if any(placement.pod.uid == pod_id for placement in decided.placements):
        return Help.STARTS
    of_pod = (refusal for refusal in decided.refusals if refusal.pod.uid == pod_id)
    refusal = next(of_pod, None)
    if refusal is None or refusal.is_undecided:
        return Help.STARTS  # nothing speaks against it
    depends_on_nodes = any(obstacle.reason.code in NODE_FACTS for obstacle in refusal.obstacles)
    return Help.UNSEEN if depends_on_nodes else Help.NEVER


def _appearance(node: nodes.Node) -> Hashable:
    """Everything about a node that a pod can depend on, except its name."""
    name = node.metadata.name
    labels = frozenset((key, value) for key, value in node.metadata.labels.items() if value != name)
    return labels, _lasting(node.spec.taints), _offer_key(node)


def _offer_key(node: nodes.Node) -> Hashable:
    return tuple(sorted((name, amount.nanos) for name, amount in node.status.allocatable.items()))


def _devices_key(kind: NodeKind) -> Hashable:
    return tuple((devices.driver, id(devices.templates)) for _, devices in kind.pools)


def _lasting(taints: tuple[nodes.Taint, ...]) -> tuple[nodes.Taint, ...]:
    return tuple(taint for taint in taints if not taint.key.startswith(PASSING_TAINTS))


def _fresh(node: nodes.Node, number: int) -> nodes.Node:
    """A new node of the same kind."""
    name = f"{node.metadata.name}-more-{number}"
    labels = node.metadata.labels | {HOSTNAME: name}
    spec = msgspec.structs.replace(
        node.spec, unschedulable=False, taints=_lasting(node.spec.taints)
    )
    return msgspec.structs.replace(
        node, metadata=meta.ObjectMeta(name=name, labels=labels), spec=spec
    )


def _copy(kind: NodeKind, number: int) -> Iterator[nodes.Node | slices.ResourceSlice]:
    """A new node, and the slices of its devices."""
    node = _fresh(kind.node, number)
    yield node
    for pool_name, devices in kind.pools:
        name = f"{pool_name}-more-{number}"
        listed = tuple(
            msgspec.structs.replace(devices.device(index), taints=())
            for index in range(len(devices))
        )
        parts = [slices.ResourceSliceSpec(devices=listed)]
        if devices.counter_sets:
            parts.append(slices.ResourceSliceSpec(shared_counters=devices.counter_sets))
        for index, part in enumerate(parts):
            pool = slices.ResourcePool(name=name, generation=1, resource_slice_count=len(parts))
            spec = msgspec.structs.replace(
                part, driver=devices.driver, pool=pool, node_name=node.metadata.name
            )
            metadata = meta.ObjectMeta(name=f"{name}-{devices.driver}-{index}")
            yield slices.ResourceSlice(metadata=metadata, spec=spec)


def _waiting(pod: pods.Pod, *, is_alone: bool) -> pods.Pod:
    """The pod as pending, without constraints on other pods and without volumes: autoscalers judge those."""
    affinity = (
        pods.Affinity(node_affinity=pod.spec.affinity.node_affinity)
        if pod.spec.affinity is not None
        else None
    )
    spec = msgspec.structs.replace(
        pod.spec,
        node_name="",
        affinity=affinity,
        topology_spread_constraints=(),
        volumes=(),
        scheduling_group=None if is_alone else pod.spec.scheduling_group,
    )
    status = msgspec.structs.replace(pod.status, nominated_node_name="", phase="Pending")
    metadata = pod.metadata
    if is_alone:
        metadata = msgspec.structs.replace(metadata, labels={}, owner_references=())
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)
