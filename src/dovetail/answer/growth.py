"""Answers whether more nodes would start a pod that waits: nodes like those there are, empty, with their devices.

Given a World, which it only reads. The pod is decided about on a small World of its own, with its gang and a few copies
of each kind of node that could take it. What an autoscaler judges for itself is left out: where other pods are, and
volumes. Quotas are no question of nodes and are left out, too. Bounded by the number of copies, never by time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from dovetail.model import claims, gangs, meta, nodes, plan, pods, policy, slices
from dovetail.model.reasons import ReasonCode
from dovetail.schedule import cycle, fit, likeness
from dovetail.schedule.claims import Books, Needs
from dovetail.world.devices import Devices
from dovetail.world.events import Changed, pod_id
from dovetail.world.world import World

MOST_KINDS: Final = 8  # of nodes that are tried for one pod
MOST_COPIES: Final = 64  # of nodes, and so many pods of a gang: larger ones are judged by the pod alone
MOST_REMEMBERED: Final = 4096
HOSTNAME: Final = "kubernetes.io/hostname"
PASSING_TAINTS: Final = "node.kubernetes.io/"  # of nodes that are not well
TERMINAL: Final = ("Succeeded", "Failed")
# What another kind of node than those there are could change.
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


class Kind(NamedTuple):
    """Nodes that are alike, and one of them."""

    node: nodes.Node
    pools: tuple[tuple[str, Devices], ...]  # devices of the node's own


class Growth:
    """Questions about one World, answered once for pods that are alike."""

    def __init__(self, world: World, policy_: policy.Policy) -> None:
        self._world = world
        batch = msgspec.structs.replace(policy_.batch, promises=0)
        self._policy = msgspec.structs.replace(policy_, steps=(policy.Step.ALLOCATE,), batch=batch)
        self._version: object = None
        self._kinds: tuple[Kind, ...] = ()
        self._answers: dict[Hashable, Help] = {}

    def would_help(self, pod: pods.Pod, now: plan.Instant) -> Help:
        """Whether more nodes would start the pod, together with its gang."""
        self._look_at_nodes()
        needs = Books(self._world).needs(pod)
        if not isinstance(needs, Needs):
            return Help.NEVER  # its claims are in the way
        members = self._members(pod)
        question = self._question(pod, needs, members)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= MOST_REMEMBERED:
                self._answers.clear()
            answer = self._answers[question] = self._asked(pod, members, now)
        return answer

    def is_answered(self, pod: pods.Pod) -> bool:
        """Whether the answer is known already, so that asking costs next to nothing."""
        self._look_at_nodes()
        needs = Books(self._world).needs(pod)
        return not isinstance(needs, Needs) or self._question(pod, needs, self._members(pod)) in self._answers

    def _look_at_nodes(self) -> None:
        """Forgets all answers once nodes or devices differ."""
        version = (self._world.nodes_version, self._world.slices_version, self._world.classes_version)
        if version == self._version:
            return
        self._version = version
        found: dict[Hashable, Kind] = {}
        for name, node in sorted(self._world.nodes.items()):
            local = tuple(self._own_pools(name))
            devices = tuple((one.driver, id(one.templates)) for _, one in local)
            found.setdefault((_looks(node), devices), Kind(node, local))
        self._kinds = tuple(found.values())
        self._answers.clear()

    def _own_pools(self, node: str) -> Iterator[tuple[str, Devices]]:
        for pool in self._world.view(node).pools:
            if all(origin.node_name == node for origin in pool.devices.origins):
                yield pool.name, pool.devices

    def _members(self, pod: pods.Pod) -> list[pods.Pod]:
        """The pod's gang as far as it runs or waits, the pod first; the pod alone where that is too many."""
        member = self._world.gangs.of(pod_id(pod))
        ids = self._world.gangs.members(member.gang) if member is not None else ()
        if len(ids) > MOST_COPIES:
            return [pod]
        others = (self._world.pods[id_] for id_ in ids if id_ != pod_id(pod))
        return [pod, *(one for one in others if one.status.phase not in TERMINAL)]

    def _question(self, pod: pods.Pod, needs: Needs, members: list[pods.Pod]) -> Hashable:
        """Equal for pods with the same answer: alone by what they ask for, in a gang by that and its members."""
        own = likeness.pod_key(pod, needs)
        words = gangs.words_of(pod.metadata)
        if len(members) == 1:
            return own, words, not _is_alone(self._world, pod)
        return own, words, tuple(sorted(map(pod_id, members)))

    # The small World

    def _asked(self, pod: pods.Pod, members: list[pods.Pod], now: plan.Instant) -> Help:
        small = World()
        world = self._world
        for table in (world.classes, world.rules, world.namespaces, world.topologies):
            for rule in table.values():
                small.apply(Changed(rule))
        kinds = self._kinds_for(members)
        for kind in kinds:
            for number in range(min(len(members), MOST_COPIES // len(kinds))):
                for fact in _copy(kind, number):
                    small.apply(Changed(fact))
        for told in self._told(members):
            small.apply(Changed(told))
        for one in members:
            self._bring(small, one, is_alone=len(members) == 1 and not _is_alone(world, pod))
        decided = cycle.decide(small, self._policy, now, policy.LIVE)
        return _read(decided, pod_id(pod))

    def _kinds_for(self, members: list[pods.Pod]) -> list[Kind]:
        """Kinds of nodes whose labels and taints suit a member; the others could only be refused."""
        found: dict[Hashable, Kind] = {}
        for kind in self._kinds:
            if any(fit.node_misfit(pod, _fresh(kind.node, 0)) is None for pod in members):
                offer = tuple(sorted((name, amount.nanos) for name, amount in kind.node.status.allocatable.items()))
                devices = tuple((one.driver, id(one.templates)) for _, one in kind.pools)
                found.setdefault((offer, devices, kind.node.spec.taints), kind)
            if len(found) >= MOST_KINDS:
                break
        return [*found.values()]

    def _told(self, members: list[pods.Pod]) -> Iterable[gangs.Gang]:
        """What owners and PodGroups say about the gang."""
        found: dict[gangs.GangKey, gangs.Gang] = {}
        for pod in members:
            seat = gangs.seat_of(pod).tied
            told = self._world.gangs.told(seat.gang) if seat is not None else None
            if told is None or seat is None:
                continue
            found[told.metadata.namespace, told.metadata.name] = told
            larger = self._world.gangs.told((seat.gang[0], told.part_of)) if told.part_of else None
            if larger is not None:
                found[larger.metadata.namespace, larger.metadata.name] = larger
        return found.values()

    def _bring(self, small: World, pod: pods.Pod, *, is_alone: bool) -> None:
        """A pod that waits there, with its claims; what runs of its gang waits as well, and has to find a place."""
        for key in self._world.claims_used(pod):
            claim = self._world.claims.get(key)
            if claim is not None:
                status = claims.ResourceClaimStatus() if pod.spec.node_name else claim.status
                small.apply(Changed(msgspec.structs.replace(claim, status=status)))
        small.apply(Changed(_waiting(pod, is_alone=is_alone)))


def _is_alone(world: World, pod: pods.Pod) -> bool:
    member = world.gangs.of(pod_id(pod))
    return member is None or len(world.gangs.members(member.gang)) == 1


def _read(decided: plan.Plan, id_: str) -> Help:
    if any(one.pod.uid == id_ for one in decided.placements):
        return Help.STARTS
    refusal = next((one for one in decided.refusals if one.pod.uid == id_), None)
    if refusal is None or refusal.is_undecided:
        return Help.STARTS  # as far as is known
    is_of_nodes = any(obstacle.reason.code in NODE_FACTS for obstacle in refusal.obstacles)
    return Help.UNSEEN if is_of_nodes else Help.NEVER


def _looks(node: nodes.Node) -> Hashable:
    """Everything a pod can read off a node, its name aside."""
    name = node.metadata.name
    labels = frozenset((key, value) for key, value in node.metadata.labels.items() if value != name)
    offer = tuple(sorted((key, amount.nanos) for key, amount in node.status.allocatable.items()))
    return labels, _lasting(node.spec.taints), offer


def _lasting(taints: tuple[nodes.Taint, ...]) -> tuple[nodes.Taint, ...]:
    return tuple(taint for taint in taints if not taint.key.startswith(PASSING_TAINTS))


def _fresh(node: nodes.Node, number: int) -> nodes.Node:
    """A new node that looks the same."""
    name = f"{node.metadata.name}-more-{number}"
    labels = node.metadata.labels | {HOSTNAME: name}
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=_lasting(node.spec.taints))
    return msgspec.structs.replace(node, metadata=meta.ObjectMeta(name=name, labels=labels), spec=spec)


def _copy(kind: Kind, number: int) -> Iterator[nodes.Node | slices.ResourceSlice]:
    """A new node, and the slices of its devices."""
    node = _fresh(kind.node, number)
    yield node
    for pool_name, devices in kind.pools:
        name = f"{pool_name}-more-{number}"
        listed = tuple(msgspec.structs.replace(devices.device(index), taints=()) for index in range(len(devices)))
        parts = [slices.ResourceSliceSpec(devices=listed)]
        if devices.counter_sets:
            parts.append(slices.ResourceSliceSpec(shared_counters=devices.counter_sets))
        for index, part in enumerate(parts):
            pool = slices.ResourcePool(name=name, generation=1, resource_slice_count=len(parts))
            spec = msgspec.structs.replace(part, driver=devices.driver, pool=pool, node_name=node.metadata.name)
            metadata = meta.ObjectMeta(name=f"{name}-{devices.driver}-{index}")
            yield slices.ResourceSlice(metadata=metadata, spec=spec)


def _waiting(pod: pods.Pod, *, is_alone: bool) -> pods.Pod:
    """The pod as it waits on its own account: where other pods are, and its volumes, are left to autoscalers."""
    affinity = pods.Affinity(node_affinity=pod.spec.affinity.node_affinity) if pod.spec.affinity is not None else None
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
