"""Decides what a pod takes of a node: cpu, memory, ephemeral storage, a pod's place, extended resources, huge pages.

Given a pod or a node's allocatable; amounts are integers in base units (thousandths of a cpu, bytes, counts), added up
as kube-scheduler does: containers together, init containers one at a time next to the sidecars already running,
pod-level amounts instead of the containers' where set, overhead on top. Never reads claims for devices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from dovetail import cache
from dovetail.kubetypes import names
from dovetail.kubetypes.core import pods
from dovetail.quantity import quantity, quantity_text

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGE_PAGES: Final = "hugepages-"  # followed by the page size
ATTACHABLE_VOLUMES: Final = "attachable-volumes-"
NATIVE_DOMAIN: Final = "kubernetes.io/"  # ResourceDefaultNamespacePrefix, core/v1
QUOTA_PREFIX: Final = "requests."  # DefaultResourceRequestsPrefix, core/v1
RESTART_ALWAYS: Final = "Always"  # on an init container: a sidecar

Amounts = dict[str, quantity.Quantity]


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Amounts of a node's resources, requested or available. Equal amounts hash alike; what is left can be negative."""

    milli_cpu: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    pods: int = 0
    scalars: tuple[
        tuple[str, int], ...
    ] = ()  # extended resources and huge pages by name, sorted, none of them zero

    def plus(self, other: Resources) -> Resources:
        """Both together."""
        return self._combined(other, sign=1)

    def minus(self, other: Resources) -> Resources:
        """What remains after the other is taken away."""
        return self._combined(other, sign=-1)

    def without(self, names: Collection[str]) -> Resources:
        """The same without these extended resources."""
        if not names:
            return self
        scalars = tuple((name, amount) for name, amount in self.scalars if name not in names)
        return msgspec.structs.replace(self, scalars=scalars)

    def scalar(self, name: str) -> int:
        """The amount of an extended resource or huge pages; 0 if it is not known."""
        return next((amount for resource, amount in self.scalars if resource == name), 0)

    def _combined(self, other: Resources, *, sign: int) -> Resources:
        return Resources(
            self.milli_cpu + sign * other.milli_cpu,
            self.memory_bytes + sign * other.memory_bytes,
            self.ephemeral_bytes + sign * other.ephemeral_bytes,
            self.pods + sign * other.pods,
            _merged(self.scalars, other.scalars, sign) if other.scalars else self.scalars,
        )


NOTHING: Final = Resources()


class Shortage(msgspec.Struct, frozen=True, gc=False, order=True):
    """A resource a node has too little of, in base units."""

    resource: str
    need: int
    have: int


def pod_request(pod: pods.Pod) -> Resources:
    """What scheduling the pod takes of a node, its own place among the node's pods included."""
    return _measured(request_amounts(pod), pods=1)


def request_amounts(pod: pods.Pod) -> Amounts:
    """What the pod requests in all, by resource, as exact quantities."""
    amounts = _of_containers(pod.spec, requested)
    if pod.spec.resources is not None:
        amounts |= _pod_level(pod.spec.resources, amounts)
    _add(amounts, pod.spec.overhead)
    return amounts


def limit_amounts(pod: pods.Pod) -> Amounts:
    """What the pod may use at most, by resource; overhead raises only limits that there are."""
    amounts = _of_containers(pod.spec, _limited)
    if pod.spec.resources is not None:
        own_limits = pod.spec.resources.limits
        amounts |= {name: limit for name, limit in own_limits.items() if _is_pod_level(name)}
    overhead = pod.spec.overhead
    _add(amounts, {name: overhead[name] for name in overhead.keys() & amounts.keys()})
    return amounts


def occupied(pod: pods.Pod) -> Resources:
    """What a bound pod takes of its node: devices of a claim serve the resources that its status maps to them."""
    served = pod.status.extended_resource_claim_status
    request = pod_request(pod)
    return (
        request.without({mapping.resource_name for mapping in served.request_mappings})
        if served is not None
        else request
    )


def allocatable(amounts: Mapping[str, quantity.Quantity]) -> Resources:
    """What a node offers, from its status."""
    offered = amounts.get(PODS)
    return _measured(amounts, pods=0 if offered is None else offered.value())


def shortages(need: Resources, have: Resources) -> tuple[Shortage, ...]:
    """Every resource of which more is needed than available. A pod that needs none of a resource never lacks it."""
    lacking = [
        Shortage(name, needed, available)
        for name, needed, available in (
            (PODS, need.pods, have.pods),
            (CPU, need.milli_cpu, have.milli_cpu),
            (MEMORY, need.memory_bytes, have.memory_bytes),
            (EPHEMERAL_STORAGE, need.ephemeral_bytes, have.ephemeral_bytes),
        )
        if needed > max(available, 0)  # also false where nothing is needed of an overcommitted one
    ]
    if need.scalars:
        left_of = dict(have.scalars)
        lacking += [
            Shortage(name, needed, left_of.get(name, 0))
            for name, needed in need.scalars
            if needed > max(left_of.get(name, 0), 0)
        ]
    return tuple(lacking)


def amount_text(resource: str, amount: int) -> str:
    """An amount as an operator writes it: 2500m cpu, 512Gi memory, 8 of an extended resource."""
    if resource == CPU:
        return str(quantity.Quantity.from_milli(amount))
    if resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith(HUGE_PAGES):
        return str(quantity.Quantity.from_int(amount, quantity.Format.BINARY_SI))
    return str(amount)


def is_scalar(name: str) -> bool:
    """Whether kube-scheduler counts a resource of this name: extended, huge pages, volumes, or of kubernetes.io."""
    return (
        name.startswith((HUGE_PAGES, ATTACHABLE_VOLUMES))
        or NATIVE_DOMAIN in name
        or is_extended(name)
    )


@cache.remembered(4096)
def is_extended(name: str) -> bool:
    """Whether the name is that of an extended resource: outside kubernetes.io, and sound with quota's prefix."""
    if "/" not in name or NATIVE_DOMAIN in name or name.startswith(QUOTA_PREFIX):
        return False
    return names.is_label_key(QUOTA_PREFIX + name)


def _of_containers(
    spec: pods.PodSpec, amounts_of: Callable[[pods.ResourceRequirements], Amounts]
) -> Amounts:
    """Containers and sidecars together, or the peak during initialisation if that is more."""
    if len(spec.containers) == 1 and not spec.init_containers:
        return amounts_of(spec.containers[0].resources)  # as in most pods
    total: Amounts = {}
    for container in spec.containers:
        _add(total, amounts_of(container.resources))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        request = amounts_of(container.resources)
        if container.restart_policy == RESTART_ALWAYS:
            _add(total, request)
            _add(sidecars, request)
            _raise(peak, sidecars)
        else:
            moment = dict(request)
            _add(moment, sidecars)
            _raise(peak, moment)
    _raise(total, peak)
    return total


def requested(resources: pods.ResourceRequirements) -> Amounts:
    """Requests; a limit stands for a request that was not written, as an API server would have filled in."""
    return resources.limits | resources.requests


def _limited(resources: pods.ResourceRequirements) -> Amounts:
    """Limits, as a dictionary of the caller's own."""
    return dict(resources.limits)


def _pod_level(resources: pods.ResourceRequirements, containers: Amounts) -> Amounts:
    """What the pod as a whole requests: its requests, else its limits where the containers request nothing.

    Huge pages cannot be overcommitted, so their limit counts whatever the containers request.
    """
    from_limits = {
        name: amount
        for name, amount in resources.limits.items()
        if name not in containers or name.startswith(HUGE_PAGES)
    }
    return {
        name: amount
        for name, amount in (from_limits | resources.requests).items()
        if _is_pod_level(name)
    }


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)


def _measured(amounts: Mapping[str, quantity.Quantity], *, pods: int) -> Resources:
    return _in_units(tuple([(name, amount.nanos) for name, amount in amounts.items()]), pods)


@cache.remembered(4096)
def _in_units(amounts: tuple[tuple[str, int], ...], pods: int) -> Resources:
    """Cached: computed once for all pods with the same requests."""
    exact = {name: quantity.Quantity(nanos) for name, nanos in amounts}
    none = quantity.ZERO
    return Resources(
        bounded(exact.get(CPU, none).milli_value()),
        bounded(exact.get(MEMORY, none).value()),
        bounded(exact.get(EPHEMERAL_STORAGE, none).value()),
        bounded(pods),
        _nonzero(
            (name, bounded(amount.value())) for name, amount in exact.items() if _is_counted(name)
        ),
    )


def bounded(amount: int) -> int:
    """At most an int64, which is all that Kubernetes counts with: no sum of such amounts is beyond a float's range.

    No node offers more, so a pod that requests more fits nowhere just the same.
    """
    return max(quantity_text.INT64_MIN, min(amount, quantity_text.INT64_MAX))


def _is_counted(name: str) -> bool:
    return name not in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS) and is_scalar(name)


def _merged(
    ours: tuple[tuple[str, int], ...], theirs: tuple[tuple[str, int], ...], sign: int
) -> tuple[tuple[str, int], ...]:
    total = dict(ours)
    for name, amount in theirs:
        total[name] = total.get(name, 0) + sign * amount
    return _nonzero(total.items())


def _nonzero(amounts: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts if amount))


def _add(total: Amounts, amounts: Mapping[str, quantity.Quantity]) -> None:
    for name, amount in amounts.items():
        total[name] = total[name].add(amount) if name in total else amount


def _raise(total: Amounts, amounts: Mapping[str, quantity.Quantity]) -> None:
    for name, amount in amounts.items():
        if name not in total or total[name] < amount:
            total[name] = amount
