"""Who is where: the pods on every node as other pods see them, by labels, ports, volumes and wishes about neighbours.

Kept current pod by pod, assumed ones included. Whoever counts pods asks with a Question; the counts per node are kept
from then on and follow every change, so that asking again costs nothing. Never judges a pod.
"""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail.model import disks, labels, pods

MAX_FOLLOWED: Final = 512  # questions whose counts are kept, those asked last longest
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - a host port without an address is taken on all of them
Counts = Mapping[str, int]  # by node, none for nodes without any
VolumeKey = tuple[str, str]  # namespace and name of a persistent volume claim
K = TypeVar("K")
V = TypeVar("V")


class Port(NamedTuple):
    """A port of a node."""

    address: str
    protocol: str
    number: int


class Question(NamedTuple):
    """Which pods to count: of these namespaces, None for all of them, with labels that pass the tests."""

    namespaces: frozenset[str] | None
    tests: labels.Tests
    with_leaving: bool = True  # also those that are being deleted


class Wish(NamedTuple):
    """What pods of a namespace ask of their neighbours; pods that ask the same share one."""

    namespace: str
    text: bytes

    @property
    def affinity(self) -> pods.Affinity:
        """The wish itself."""
        return _read(self.text)


class _Member(NamedTuple):
    node: str
    namespace: str
    labels: Mapping[str, str]
    is_leaving: bool
    wish: Wish | None
    ports: tuple[Port, ...]
    volumes: tuple[VolumeKey, ...]
    disks: tuple[disks.Disk, ...]


class Crowd:
    """The pods on nodes."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}
        self._wishes: dict[Wish, Counter[str]] = {}
        self._ports: dict[str, Counter[Port]] = {}
        self._volumes: dict[str, Counter[VolumeKey]] = {}
        self._disks: dict[str, Counter[disks.Disk]] = {}
        self._users: dict[VolumeKey, set[str]] = {}
        self._expected: dict[str, pods.Pod] = {}  # pods without a node that somebody keeps one free for
        self._followed: OrderedDict[Question, Counter[str]] = OrderedDict()

    # Questions

    def count(self, question: Question) -> Counts:
        """How many such pods are on each node. Linear in pods the first time."""
        known = self._followed.get(question)
        if known is not None:
            self._followed.move_to_end(question)
            return known
        counts = Counter(one.node for one in self._members.values() if _answers(one, question))
        self._followed[question] = counts
        if len(self._followed) > MAX_FOLLOWED:
            self._followed.popitem(last=False)
        return counts

    def wishes(self) -> Mapping[Wish, Counts]:
        """What pods ask of their neighbours, and how many on each node ask it."""
        return self._wishes

    def ports_on(self, node: str) -> Mapping[Port, int]:
        """The host ports in use on a node."""
        return self._ports.get(node, {})

    def volume_claims_on(self, node: str) -> Mapping[VolumeKey, int]:
        """The persistent volume claims that pods on a node use, and how many pods do."""
        return self._volumes.get(node, {})

    def nodes_of_volume_claim(self, key: VolumeKey) -> frozenset[str]:
        """The nodes of pods that use a persistent volume claim; they need not exist any more."""
        return frozenset(self._members[id_].node for id_ in self._users.get(key, ()))

    def disks_on(self, node: str) -> Mapping[disks.Disk, int]:
        """The disks that pods on a node name themselves."""
        return self._disks.get(node, {})

    def expected(self) -> Mapping[str, pods.Pod]:
        """Pods without a node that name the one kept free for them, by id."""
        return self._expected

    def dump(self) -> dict[str, list[str]]:
        """Everything known, in a fixed order."""
        return {
            "members": sorted(f"{id_} {one[:2]} {sorted(one.labels.items())}" for id_, one in self._members.items()),
            "wishes": sorted(f"{wish} {sorted(counts.items())}" for wish, counts in self._wishes.items()),
            "ports": sorted(f"{node} {sorted(ports.items())}" for node, ports in self._ports.items()),
            "volumes": sorted(f"{node} {sorted(used.items())}" for node, used in self._volumes.items()),
            "expected": sorted(self._expected),
        }

    # Changes

    def put(self, id_: str, pod: pods.Pod, node: str) -> None:
        """A pod is on a node, or looks different there."""
        member = _member(pod, node)
        if self._members.get(id_) == member:
            return
        self.drop(id_)
        self._members[id_] = member
        self._change(id_, member, 1)

    def expect(self, id_: str, pod: pods.Pod | None) -> None:
        """A pod waits, with or without a node kept free for it; None: it no longer waits."""
        if pod is not None and pod.status.nominated_node_name:
            self._expected[id_] = pod
        else:
            self._expected.pop(id_, None)

    @contextmanager
    def disregarding(self, ids: Iterable[str]) -> Iterator[None]:
        """Inside, no node is kept free for these: whoever decides about them all gives them theirs."""
        kept = {id_: self._expected.pop(id_) for id_ in ids if id_ in self._expected}
        try:
            yield
        finally:
            self._expected.update(kept)

    def drop(self, id_: str) -> None:
        """A pod left, if it was anywhere."""
        member = self._members.pop(id_, None)
        if member is not None:
            self._change(id_, member, -1)

    def _change(self, id_: str, member: _Member, sign: int) -> None:
        for question, counts in self._followed.items():
            if _answers(member, question):
                _add(counts, member.node, sign)
        if member.wish is not None:
            _add_under(self._wishes, member.wish, member.node, sign)
        for port in member.ports:
            _add_under(self._ports, member.node, port, sign)
        for disk in member.disks:
            _add_under(self._disks, member.node, disk, sign)
        for key in member.volumes:
            _add_under(self._volumes, member.node, key, sign)
            users = self._users.setdefault(key, set())
            (users.add if sign > 0 else users.discard)(id_)
            if not users:
                del self._users[key]


def host_ports(pod: pods.Pod) -> tuple[Port, ...]:
    """The ports of its node a running pod occupies. Init containers count if they run for as long as the pod."""
    return tuple(_host_ports(pod.spec))


def volume_claims(pod: pods.Pod) -> tuple[VolumeKey, ...]:
    """The persistent volume claims a pod uses; those of ephemeral volumes have the name their owner gives them."""
    if not pod.spec.volumes:
        return ()
    named: list[VolumeKey] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            named.append((pod.metadata.namespace, volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            named.append((pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}"))
    return tuple(dict.fromkeys(named))


def wish_of(pod: pods.Pod) -> Wish | None:
    """What a pod asks of its neighbours."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return None
    read = pods.Affinity(pod_affinity=affinity.pod_affinity, pod_anti_affinity=affinity.pod_anti_affinity)
    return Wish(pod.metadata.namespace, msgspec.json.encode(read))


def _member(pod: pods.Pod, node: str) -> _Member:
    is_leaving = pod.metadata.deletion_timestamp is not None
    seen = pod.metadata.namespace, pod.metadata.labels, is_leaving
    spec = pod.spec
    if not (spec.volumes or spec.affinity is not None or spec.init_containers or any(map(_has_ports, spec.containers))):
        return _Member(node, *seen, None, (), (), ())  # as most are
    return _Member(node, *seen, wish_of(pod), host_ports(pod), volume_claims(pod), disks.of(pod))


def _has_ports(container: pods.Container) -> bool:
    return bool(container.ports)


def _host_ports(spec: pods.PodSpec) -> Iterator[Port]:
    lasting = (one for one in spec.init_containers if one.restart_policy == "Always")
    for container in (*lasting, *spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                yield Port(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)


def _answers(member: _Member, question: Question) -> bool:
    if question.namespaces is not None and member.namespace not in question.namespaces:
        return False
    if member.is_leaving and not question.with_leaving:
        return False
    return labels.passes(question.tests, member.labels)


def _add(counts: Counter[str], name: str, sign: int) -> None:
    counts[name] += sign
    if not counts[name]:
        del counts[name]


def _add_under(table: dict[K, Counter[V]], key: K, value: V, sign: int) -> None:
    counts = table.setdefault(key, Counter())
    counts[value] += sign
    if not counts[value]:
        del counts[value]
    if not counts:
        del table[key]


@functools.lru_cache(maxsize=10_000)
def _read(text: bytes) -> pods.Affinity:
    return msgspec.json.decode(text, type=pods.Affinity)
