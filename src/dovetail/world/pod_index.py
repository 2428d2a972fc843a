"""Index of the pods on every node, as other pods see them: labels, host ports, volumes, affinities.

Updated pod by pod, assumed pods included. A filter that counts pods passes a Question; the counts per node are kept
from then on and updated with every change, so that repeating the question is a look-up. Never evaluates a pod.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail import cache
from dovetail.kubetypes import label_selectors
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.storage import inline_disks

MAX_FOLLOWED: Final = 512  # questions whose counts are kept, least recently used dropped first
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - a host port without an address is taken on all of them
Counts = Mapping[str, int]  # by node; nodes that count zero are absent
VolumeKey = tuple[str, str]  # namespace and name of a persistent volume claim
K = TypeVar("K")
V = TypeVar("V")


class Port(NamedTuple):
    """A port of a node."""

    address: str
    protocol: str
    number: int


class PodQuery(NamedTuple):
    """Which pods to count: those in the namespaces whose labels pass the tests."""

    namespaces: frozenset[str] | None  # None: all of them
    tests: label_selectors.Tests
    with_leaving: bool = True  # also pods that are being deleted


class PodAffinity(NamedTuple):
    """The pod affinity and anti-affinity of pods of a namespace; pods with the same terms share one."""

    namespace: str
    text: bytes

    @property
    def affinity(self) -> pods.Affinity:
        """The terms, decoded."""
        return _read(self.text)


class _Member(NamedTuple):
    node: str
    namespace: str
    labels: Mapping[str, str]
    is_leaving: bool
    wish: PodAffinity | None
    ports: tuple[Port, ...]
    volumes: tuple[VolumeKey, ...]
    disks: tuple[inline_disks.Disk, ...]


class PodIndex:
    """The pods on nodes, bound and assumed."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}  # by pod id
        self._wishes: dict[PodAffinity, Counter[str]] = {}  # terms -> node -> pods
        self._ports: dict[str, Counter[Port]] = {}  # by node
        self._volumes: dict[str, Counter[VolumeKey]] = {}  # by node
        self._disks: dict[str, Counter[inline_disks.Disk]] = {}  # by node
        self._users: dict[VolumeKey, set[str]] = {}  # pod ids
        self._expected: dict[str, pods.Pod] = {}  # pending pods with a nominated node, by pod id
        self._followed: OrderedDict[PodQuery, Counter[str]] = OrderedDict()

    # Questions

    def count(self, question: PodQuery) -> Counts:
        """How many such pods are on each node. Linear in pods the first time, a look-up afterwards."""
        counts = self._followed.get(question)
        if counts is not None:
            self._followed.move_to_end(question)
            return counts
        members = self._members.values()
        counts = Counter(member.node for member in members if _answers(member, question))
        self._followed[question] = counts
        if len(self._followed) > MAX_FOLLOWED:
            self._followed.popitem(last=False)
        return counts

    def affinities(self) -> Mapping[PodAffinity, Counts]:
        """The pod affinities of the pods on nodes, and how many pods of each node have them."""
        return self._wishes

    def ports_on(self, node: str) -> Mapping[Port, int]:
        """The host ports in use on a node."""
        return self._ports.get(node, {})

    def volume_claims_on(self, node: str) -> Mapping[VolumeKey, int]:
        """The persistent volume claims in use on a node, and by how many pods."""
        return self._volumes.get(node, {})

    def nodes_of_volume_claim(self, key: VolumeKey) -> frozenset[str]:
        """The nodes of pods that use a persistent volume claim; a node may be gone already."""
        return frozenset(self._members[pod_id].node for pod_id in self._users.get(key, ()))

    def disks_on(self, node: str) -> Mapping[inline_disks.Disk, int]:
        """The disks that pods on a node name inline, without a claim."""
        return self._disks.get(node, {})

    def nominated(self) -> Mapping[str, pods.Pod]:
        """Pending pods with a nominated node, by id."""
        return self._expected

    def dump(self) -> dict[str, list[str]]:
        """The index in a fixed order."""
        return {
            "members": sorted(
                f"{pod_id} {member[:2]} {sorted(member.labels.items())}"
                for pod_id, member in self._members.items()
            ),
            "wishes": sorted(
                f"{wish} {sorted(counts.items())}" for wish, counts in self._wishes.items()
            ),
            "ports": sorted(
                f"{node} {sorted(ports.items())}" for node, ports in self._ports.items()
            ),
            "volumes": sorted(
                f"{node} {sorted(used.items())}" for node, used in self._volumes.items()
            ),
            "expected": sorted(self._expected),
        }

    # Changes

    def put(self, pod_id: str, pod: pods.Pod, node: str) -> None:
        """Adds a pod on a node, or replaces it."""
        member = _member(pod, node)
        if self._members.get(pod_id) == member:
            return
        self.drop(pod_id)
        self._members[pod_id] = member
        self._change(pod_id, member, 1)

    def set_nominated(self, pod_id: str, pod: pods.Pod | None) -> None:
        """Records a pending pod if it has a nominated node; None: it is no longer pending."""
        if pod is not None and pod.status.nominated_node_name:
            self._expected[pod_id] = pod
        else:
            self._expected.pop(pod_id, None)

    @contextmanager
    def without_nominations(self, ids: Iterable[str]) -> Iterator[None]:
        """Inside, the nominations of these pods do not count: the caller places all of these pods itself."""
        nominated = [pod_id for pod_id in ids if pod_id in self._expected]
        set_aside = {pod_id: self._expected.pop(pod_id) for pod_id in nominated}
        try:
            yield
        finally:
            self._expected.update(set_aside)

    def drop(self, pod_id: str) -> None:
        """Removes a pod, if it is on a node."""
        member = self._members.pop(pod_id, None)
        if member is not None:
            self._change(pod_id, member, -1)

    def _change(self, pod_id: str, member: _Member, sign: int) -> None:
        """Adds a pod to every table (1), or subtracts it (-1)."""
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
            (users.add if sign > 0 else users.discard)(pod_id)
            if not users:
                del self._users[key]


def host_ports(pod: pods.Pod) -> tuple[Port, ...]:
    """The ports of its node a running pod occupies. Of init containers only sidecars count: they keep running."""
    return tuple(_host_ports(pod.spec))


def volume_claims(pod: pods.Pod) -> tuple[VolumeKey, ...]:
    """The persistent volume claims a pod uses; the claim of an ephemeral volume is named after pod and volume."""
    if not pod.spec.volumes:
        return ()
    namespace = pod.metadata.namespace
    keys: list[VolumeKey] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            keys.append((namespace, volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            keys.append((namespace, f"{pod.metadata.name}-{volume.name}"))
    return tuple(dict.fromkeys(keys))


def pod_affinity_of(pod: pods.Pod) -> PodAffinity | None:
    """A pod's affinity and anti-affinity to other pods; None if it has neither."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return None
    between_pods = pods.Affinity(
        pod_affinity=affinity.pod_affinity, pod_anti_affinity=affinity.pod_anti_affinity
    )
    return PodAffinity(pod.metadata.namespace, msgspec.json.encode(between_pods))


def _member(pod: pods.Pod, node: str) -> _Member:
    is_leaving = pod.metadata.deletion_timestamp is not None
    common = pod.metadata.namespace, pod.metadata.labels, is_leaving
    spec = pod.spec
    has_extras = (
        spec.volumes
        or spec.affinity is not None
        or spec.init_containers
        or any(map(_has_ports, spec.containers))
    )
    if not has_extras:
        return _Member(node, *common, None, (), (), ())  # most pods
    return _Member(
        node,
        *common,
        pod_affinity_of(pod),
        host_ports(pod),
        volume_claims(pod),
        inline_disks.disks_of(pod),
    )


def _has_ports(container: pods.Container) -> bool:
    return bool(container.ports)


def _host_ports(spec: pods.PodSpec) -> Iterator[Port]:
    sidecars = (
        container for container in spec.init_containers if container.restart_policy == "Always"
    )
    for container in (*sidecars, *spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                yield Port(port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)


def _answers(member: _Member, question: PodQuery) -> bool:
    if question.namespaces is not None and member.namespace not in question.namespaces:
        return False
    if member.is_leaving and not question.with_leaving:
        return False
    return label_selectors.passes(question.tests, member.labels)


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


@cache.remembered(10_000)
def _read(text: bytes) -> pods.Affinity:
    return msgspec.json.decode(text, type=pods.Affinity)
