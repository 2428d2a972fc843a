"""Decides which devices a pod wants through extended resources: `nvidia.com/gpu: 2` where no device plugin offers it.

A DeviceClass stands behind a resource by its extendedResourceName, or behind deviceclass.resource.kubernetes.io/<name>
by its own name. Where a node's device plugin offers the resource it is counted there; elsewhere a claim serves it, one
for all such resources of a pod. Builds that claim as kube-scheduler does, so that kubelets understand it. Given pods
and classes. Never allocates, never writes.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.model import claims, classes, meta, objects, pods, requests
from dovetail.schedule import order
from dovetail.world.events import ObjectKey, key_of, pod_id
from dovetail.world.world import World

ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"  # "true" on claims made for a pod's resources
CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"  # ResourceDeviceClassPrefix, resource.k8s.io/v1
STAND_IN: Final = "<extended>"  # the claim's name until it has one; no claim can be called so

_LONG_AGO: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)

Backing = tuple[tuple[str, str], ...]  # resource and class, by resource


class Built(NamedTuple):
    """What a claim asks for, and which request serves which container."""

    requests: tuple[claims.DeviceRequest, ...]
    mappings: tuple[pods.ContainerExtendedResourceRequest, ...]


def classes_by_resource(known: Mapping[str, classes.DeviceClass]) -> dict[str, str]:
    """The class behind every resource a class stands behind. Of several the newest, then the first by name."""
    found = {CLASS_PREFIX + name: name for name in known}
    for name, one in sorted(known.items()):
        resource = one.spec.extended_resource_name
        if resource is None or not requests.is_extended(resource):
            continue
        other = found.get(resource)
        if other is None or _created(one) > _created(known[other]):
            found[resource] = name
    return found


def may_want(pod: pods.Pod, behind: Mapping[str, str]) -> bool:
    """Whether any container names a resource that devices could serve. A quick look."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for named in (container.resources.requests, container.resources.limits):
            if not behind.keys().isdisjoint(named):
                return True
    return False


def backing(need: requests.Resources, behind: Mapping[str, str]) -> Backing:
    """Those of the resources a pod asks for that devices could serve."""
    return tuple((name, behind[name]) for name, _ in need.scalars if name in behind)


def served_by_devices(backed: Backing, offered: requests.Resources) -> tuple[str, ...]:
    """The resources that devices have to serve on a node: its device plugins offer none of them."""
    return tuple(name for name, _ in backed if offered.scalar(name) <= 0)


def built(spec: pods.PodSpec, backed: Backing, served: Collection[str]) -> Built:
    """The requests of the claim that serves these resources to a pod."""
    wanted: list[claims.DeviceRequest] = []
    mappings: list[pods.ContainerExtendedResourceRequest] = []
    for resource, class_name in backed:
        if resource in served:
            found = _of_resource((*spec.init_containers, *spec.containers), len(spec.init_containers), resource)
            wanted += [_device_request(one, class_name) for one in found.parts]
            mappings += found.mappings
    return Built(tuple(sorted(wanted, key=lambda one: one.name)), tuple(mappings))


def claim_for(pod: pods.Pod, wanted: tuple[claims.DeviceRequest, ...]) -> claims.ResourceClaim:
    """The claim to create, without a name."""
    owner = meta.OwnerReference(
        api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
    )
    metadata = meta.ObjectMeta(
        generate_name=f"{pod.metadata.name}-extended-resources-",
        namespace=pod.metadata.namespace,
        annotations={ANNOTATION: "true"},
        owner_references=(owner,),
    )
    spec = claims.ResourceClaimSpec(devices=claims.DeviceClaim(requests=wanted))
    return claims.ResourceClaim(api_version=objects.RESOURCE_V1, kind="ResourceClaim", metadata=metadata, spec=spec)


def made_before(world: World, pod: pods.Pod) -> tuple[claims.ResourceClaim, ...]:
    """Claims that were made for the pod's extended resources and are still there, those with devices first."""
    found = [
        claim
        for claim in world.owned_claims(pod.metadata.uid)
        if claim.metadata.namespace == pod.metadata.namespace  # an owner elsewhere is only somebody's word
        and claim.metadata.annotations.get(ANNOTATION) == "true"
        and claim.metadata.deletion_timestamp is None
        and (claim.status.allocation is None or world.allocation(key_of(claim)) is not None)  # else it was vacated
    ]
    return tuple(sorted(found, key=lambda claim: (claim.status.allocation is None, claim.metadata.name)))


def assumed_key(pod: pods.Pod) -> ObjectKey:
    """The name the claim goes by in a world until it has one of its own."""
    return pod.metadata.namespace, f"{pod_id(pod)}/extended"


class _Part(NamedTuple):
    """So many devices under one request's name."""

    name: str
    amount: int


class _OfResource(NamedTuple):
    parts: list[_Part]
    mappings: list[pods.ContainerExtendedResourceRequest]


def _of_resource(containers: Sequence[pods.Container], initial: int, resource: str) -> _OfResource:
    """Requests for one resource. Init containers come and go, so they use what later containers will, and one more
    request where the hungriest of them wants more than that."""
    lasting: dict[int, _Part] = {}
    mappings: list[pods.ContainerExtendedResourceRequest] = []
    for place, container in enumerate(containers):
        if not _is_passing(container, place, initial) and (part := _own_part(container, place, resource)):
            lasting[place] = part
            mappings.append(_mapping(container, resource, part.name))
    largest: _Part | None = None
    passing: list[tuple[pods.Container, tuple[str, ...], bool]] = []
    for place, container in enumerate(containers):
        own = _own_part(container, place, resource) if _is_passing(container, place, initial) else None
        if own is None:
            continue
        reused, covered = _reused(own.amount, [part for at, part in lasting.items() if at >= place])
        passing.append((container, reused, own.amount > covered))
        if own.amount > covered and (largest is None or largest.amount < own.amount - covered):
            largest = _Part(own.name, own.amount - covered)
    for container, reused, needs_more in passing:
        names = (*reused, largest.name) if needs_more and largest is not None else reused
        mappings += [_mapping(container, resource, name) for name in names]
    return _OfResource([*([largest] if largest is not None else []), *lasting.values()], mappings)


def _is_passing(container: pods.Container, place: int, initial: int) -> bool:
    return place < initial and container.restart_policy != requests.RESTART_ALWAYS


def _own_part(container: pods.Container, place: int, resource: str) -> _Part | None:
    """What the container asks for, under the name a request of its own would have."""
    asked = requests.requested(container.resources)
    amount = requests.bounded(asked[resource].value()) if resource in asked else 0
    if amount <= 0:
        return None
    return _Part(f"container-{place}-request-{sorted(asked).index(resource)}", amount)


def _reused(count: int, later: Sequence[_Part]) -> tuple[tuple[str, ...], int]:
    """Names of later requests, in order until they suffice, and how many devices these have."""
    names: list[str] = []
    covered = 0
    for part in later:
        if covered >= count:
            break
        names.append(part.name)
        covered += part.amount
    return tuple(names), covered


def _device_request(part: _Part, class_name: str) -> claims.DeviceRequest:
    exactly = claims.ExactDeviceRequest(
        device_class_name=class_name, allocation_mode=claims.MODE_EXACT_COUNT, count=part.amount
    )
    return claims.DeviceRequest(name=part.name, exactly=exactly)


def _mapping(container: pods.Container, resource: str, request: str) -> pods.ContainerExtendedResourceRequest:
    return pods.ContainerExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )


def _created(one: classes.DeviceClass) -> datetime.datetime:
    created = one.metadata.creation_timestamp
    return order.instant(created) if created is not None else _LONG_AGO
