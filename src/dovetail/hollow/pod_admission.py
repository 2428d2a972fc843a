"""Checks what a kubelet and its device drivers check before a pod starts, and tracks what running pods hold.

Given a pod, its node and its claims as the API server has them; returns an objection or None. A device that is not
shared belongs to one claim at a time, whatever the claims state, and no node gives more than it has. Deliberately
independent of the scheduler's code, so that it can verify placements. Never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.model import pod_requests, reservations
from dovetail.world.events import ObjectKey

DeviceKey = tuple[str, str, str]  # driver, pool, device
Lookup = Callable[[ObjectKey], claims.ResourceClaim | None]


class Objection(NamedTuple):
    """Why a pod cannot start on its node."""

    code: str
    message: str
    claim: ObjectKey | None = None


class Use(NamedTuple):
    """A claim of a pod, and whether it was generated for this pod alone."""

    key: ObjectKey
    is_own: bool


def uses_of(pod: pods.Pod) -> Iterator[Use | Objection]:
    """Every claim the pod needs; an objection where one has not been generated yet."""
    namespace = pod.metadata.namespace
    generated = {
        status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses
    }
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name:
            yield Use((namespace, entry.resource_claim_name), is_own=False)
            continue
        if entry.name not in generated:
            yield Objection("ClaimNotMade", f'no claim has been created for "{entry.name}" yet')
            continue

        name = generated[entry.name]
        if name:  # an entry without a name means that no claim is needed
            yield Use((namespace, name), is_own=True)

    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        yield Use((namespace, extended.resource_claim_name), is_own=True)


def objection_to(pod: pods.Pod, node: nodes.Node, lookup: Lookup) -> Objection | None:
    """The first reason in its claims not to start the pod."""
    for use in uses_of(pod):
        if isinstance(use, Objection):
            return use
        if objection := _objection_to_claim(pod, node, use, lookup(use.key)):
            return objection
    return None


class Holdings:
    """What started pods hold: devices through their claims, and resources of their nodes."""

    def __init__(self) -> None:
        self._devices = _Devices()
        self._room = _Room()

    def has(self, pod: pods.Pod) -> bool:
        """Whether the pod was started."""
        return self._room.has(pod.metadata.uid)

    def objection(
        self, pod: pods.Pod, node: nodes.Node, pod_claims: list[claims.ResourceClaim]
    ) -> Objection | None:
        """A device of the pod's claims that is in use, or a resource its node lacks."""
        return self._devices.taken(pod_claims) or self._room.lacking(pod, node)

    def take(self, pod: pods.Pod, pod_claims: list[claims.ResourceClaim]) -> None:
        """The pod starts."""
        self._devices.take(pod.metadata.uid, pod_claims)
        self._room.take(pod)

    def release(self, pod: pods.Pod) -> None:
        """The pod has ended."""
        self._devices.release(pod.metadata.uid)
        self._room.release(pod.metadata.uid)


class _Room:
    """The resources of nodes that pods occupy."""

    def __init__(self) -> None:
        self._taken: dict[str, pod_requests.Resources] = {}
        self._pods: dict[str, tuple[str, pod_requests.Resources]] = {}

    def has(self, uid: str) -> bool:
        return uid in self._pods

    def lacking(self, pod: pods.Pod, node: nodes.Node) -> Objection | None:
        if not node.status.allocatable:
            return None  # without an allocatable there is nothing to check against
        free = pod_requests.allocatable(node.status.allocatable)
        free = free.minus(self._taken.get(node.metadata.name, pod_requests.NOTHING))
        short = pod_requests.shortages(pod_requests.occupied(pod), free)
        if not short:
            return None

        first = short[0]
        need = pod_requests.amount_text(first.resource, first.need)
        have = pod_requests.amount_text(first.resource, first.have)
        return Objection(
            "OutOfResources",
            f"needs {need} {first.resource}, node {node.metadata.name} has {have} left",
        )

    def take(self, pod: pods.Pod) -> None:
        self.release(pod.metadata.uid)
        node, amount = pod.spec.node_name, pod_requests.occupied(pod)
        self._pods[pod.metadata.uid] = (node, amount)
        self._taken[node] = self._taken.get(node, pod_requests.NOTHING).plus(amount)

    def release(self, uid: str) -> None:
        if occupied := self._pods.pop(uid, None):
            node, amount = occupied
            self._taken[node] = self._taken[node].minus(amount)


class _Devices:
    """Which claim holds which device, and for which pods."""

    def __init__(self) -> None:
        self._holder: dict[DeviceKey, str] = {}  # uid of the claim
        self._names: dict[str, ObjectKey] = {}
        self._devices: dict[str, tuple[DeviceKey, ...]] = {}
        self._users: dict[str, set[str]] = {}  # claim -> pods, by uid
        self._claims: dict[str, set[str]] = {}  # pod -> claims, by uid

    def taken(self, pod_claims: list[claims.ResourceClaim]) -> Objection | None:
        for claim in pod_claims:
            for device in _exclusive(claim):
                holder = self._holder.get(device, claim.metadata.uid)
                if holder == claim.metadata.uid:
                    continue
                holder_name = "/".join(self._names[holder])
                message = f"device {'/'.join(device)} is in use for claim {holder_name}"
                key = (claim.metadata.namespace, claim.metadata.name)
                return Objection("DeviceInUse", message, key)
        return None

    def take(self, pod_uid: str, pod_claims: list[claims.ResourceClaim]) -> None:
        claim_uids = self._claims.setdefault(pod_uid, set())
        for claim in pod_claims:
            uid = claim.metadata.uid
            claim_uids.add(uid)
            self._users.setdefault(uid, set()).add(pod_uid)
            self._names[uid] = (claim.metadata.namespace, claim.metadata.name)
            self._devices[uid] = _exclusive(claim)
            for device in self._devices[uid]:
                self._holder[device] = uid

    def release(self, pod_uid: str) -> None:
        """Claims without a remaining user release their devices."""
        for uid in self._claims.pop(pod_uid, ()):
            users = self._users[uid]
            users.discard(pod_uid)
            if users:
                continue

            del self._users[uid], self._names[uid]
            for device in self._devices.pop(uid):
                if self._holder.get(device) == uid:
                    del self._holder[device]


def _objection_to_claim(
    pod: pods.Pod, node: nodes.Node, use: Use, claim: claims.ResourceClaim | None
) -> Objection | None:
    name = "/".join(use.key)
    if claim is None:
        return Objection("ClaimMissing", f"claim {name} does not exist", use.key)
    if use.is_own and not reservations.is_made_for(claim, pod):
        return Objection("ClaimNotOwned", f"claim {name} was created for another pod", use.key)

    allocation = claim.status.allocation
    if allocation is None:
        return Objection("NotAllocated", f"claim {name} is not allocated", use.key)
    if not reservations.reserves(claim, pod):
        return Objection("NotReserved", f"claim {name} is not reserved for the pod", use.key)

    selector = allocation.node_selector
    labels, node_name = node.metadata.labels, node.metadata.name
    if selector is not None and not _picks(selector, labels, node_name):
        return Objection(
            "WrongNode", f"the devices of claim {name} cannot be used on node {node_name}", use.key
        )
    return None


def _picks(selector: node_selectors.NodeSelector, labels: dict[str, str], node_name: str) -> bool:
    try:
        return node_selectors.picks_node(selector, labels, node_name=node_name)
    except node_selectors.SelectorError:
        return False


def _exclusive(claim: claims.ResourceClaim) -> tuple[DeviceKey, ...]:
    """The devices the claim alone may use."""
    if claim.status.allocation is None:
        return ()

    results = claim.status.allocation.devices.results
    return tuple(
        (result.driver, result.pool, result.device)
        for result in results
        if not result.admin_access and result.share_id is None
    )
