"""Decides which devices a pod wants through extended resources: `nvidia.com/gpu: 2` where no device plugin offers it.

A DeviceClass stands behind a resource by its extendedResourceName, or behind deviceclass.resource.kubernetes.io/<name>
by its own name. Where a node's device plugin offers the resource it is counted there; elsewhere a claim serves it, one
for all such resources of a pod. Builds that claim as kube-scheduler does, so that kubelets understand it. Given pods
and classes. An annotation that chooses GPUs becomes selectors of the claim. Never allocates, never writes.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims, device_classes
from dovetail.model import gpu_annotations, pod_requests
from dovetail.schedule import pod_order
from dovetail.world.events import ObjectKey, key_of, pod_id
from dovetail.world.world import World

ANNOTATION: Final = (
    "resource.kubernetes.io/extended-resource-claim"  # "true" on claims made for a pod's resources
)
CLASS_PREFIX: Final = (
    "deviceclass.resource.kubernetes.io/"  # ResourceDeviceClassPrefix, resource.k8s.io/v1
)
STAND_IN: Final = "<extended>"  # the claim's name until it has one; no claim can be called so

_LONG_AGO: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)

Backing = tuple[tuple[str, str], ...]  # resource and class, by resource


class Built(NamedTuple):
    """What a claim asks for, and which request serves which container."""

    requests: tuple[claims.DeviceRequest, ...]
    mappings: tuple[pods.ContainerExtendedResourceRequest, ...]


def classes_by_resource(classes: Mapping[str, device_classes.DeviceClass]) -> dict[str, str]:
    """The class behind every resource a class stands behind. Of several the newest, then the first by name."""
    class_of = {CLASS_PREFIX + name: name for name in classes}
    for name, device_class in sorted(classes.items()):
        resource = device_class.spec.extended_resource_name
        if resource is None or not pod_requests.is_extended(resource):
            continue
        current = class_of.get(resource)
        if current is None or _created(device_class) > _created(classes[current]):
            class_of[resource] = name
    return class_of


def may_want(pod: pods.Pod, behind: Mapping[str, str]) -> bool:
    """Whether any container names a resource that devices could serve. A quick look."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for quantities in (container.resources.requests, container.resources.limits):
            if not behind.keys().isdisjoint(quantities):
                return True
    return False


def backing(need: pod_requests.Resources, behind: Mapping[str, str]) -> Backing:
    """Those of the resources a pod asks for that devices could serve."""
    return tuple((name, behind[name]) for name, _ in need.scalars if name in behind)


def served_by_devices(backed: Backing, offered: pod_requests.Resources) -> tuple[str, ...]:
    """The resources that devices have to serve on a node: its device plugins offer none of them."""
    return tuple(name for name, _ in backed if offered.scalar(name) <= 0)


def requests_for(pod: pods.Pod, backed: Backing, served: Collection[str]) -> Built:
    """The requests of the claim that serves these resources to a pod."""
    spec = pod.spec
    choice = gpu_annotations.choice_of(pod)
    requests: list[claims.DeviceRequest] = []
    mappings: list[pods.ContainerExtendedResourceRequest] = []
    for resource, class_name in backed:
        if resource in served:
            of_resource = _of_resource(
                (*spec.init_containers, *spec.containers), len(spec.init_containers), resource
            )
            chosen = _selectors(choice) if gpu_annotations.is_gpu(resource) else ()
            requests += [_device_request(part, class_name, chosen) for part in of_resource.parts]
            mappings += of_resource.mappings
    return Built(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


def claim_for(pod: pods.Pod, requests: tuple[claims.DeviceRequest, ...]) -> claims.ResourceClaim:
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
    spec = claims.ResourceClaimSpec(devices=claims.DeviceClaim(requests=requests))
    return claims.ResourceClaim(
        api_version=registry.RESOURCE_V1, kind="ResourceClaim", metadata=metadata, spec=spec
    )


def existing_claims(world: World, pod: pods.Pod) -> tuple[claims.ResourceClaim, ...]:
    """Claims that were made for the pod's extended resources and are still there, those with devices first."""
    earlier_claims = [
        claim
        for claim in world.owned_claims(pod.metadata.uid)
        if claim.metadata.namespace
        == pod.metadata.namespace  # an owner in another namespace proves nothing
        and claim.metadata.annotations.get(ANNOTATION) == "true"
        and claim.metadata.deletion_timestamp is None
        and (
            claim.status.allocation is None or world.allocation(key_of(claim)) is not None
        )  # else it was vacated
    ]
    return tuple(
        sorted(
            earlier_claims, key=lambda claim: (claim.status.allocation is None, claim.metadata.name)
        )
    )


def assumed_key(pod: pods.Pod) -> ObjectKey:
    """The key of the claim in a World until the claim has a name."""
    return pod.metadata.namespace, f"{pod_id(pod)}/extended"


class _Part(NamedTuple):
    """So many devices under one request's name."""

    name: str
    amount: int


class _OfResource(NamedTuple):
    parts: list[_Part]
    mappings: list[pods.ContainerExtendedResourceRequest]


def _of_resource(containers: Sequence[pods.Container], initial: int, resource: str) -> _OfResource:
    """Requests for one resource.

    Init containers end before later ones start, so they reuse the requests of later containers; one more request covers
    what the largest of them needs beyond that.
    """
    lasting: dict[int, _Part] = {}  # by position: containers that run until the pod ends
    passing: dict[int, _Part] = {}  # init containers
    for place, container in enumerate(containers):
        part = _own_part(container, place, resource)
        if part is not None:
            parts = passing if _is_passing(container, place, initial) else lasting
            parts[place] = part
    mappings = [_mapping(containers[place], resource, part.name) for place, part in lasting.items()]

    extra: _Part | None = None
    reused_by: list[tuple[pods.Container, tuple[str, ...], bool]] = []
    for place, own in passing.items():
        later = [part for position, part in lasting.items() if position >= place]
        reused, covered = _reused(own.amount, later)
        lack = own.amount - covered
        reused_by.append((containers[place], reused, lack > 0))
        if lack > 0 and (extra is None or extra.amount < lack):
            extra = _Part(own.name, lack)

    for container, reused, needs_extra in reused_by:
        names = (*reused, extra.name) if needs_extra and extra is not None else reused
        mappings += [_mapping(container, resource, name) for name in names]
    extra_parts = [extra] if extra is not None else []
    return _OfResource([*extra_parts, *lasting.values()], mappings)


def _is_passing(container: pods.Container, place: int, initial: int) -> bool:
    return place < initial and container.restart_policy != pod_requests.RESTART_ALWAYS


def _own_part(container: pods.Container, place: int, resource: str) -> _Part | None:
    """What the container requests, under the name that a separate request for it would have."""
    requested = pod_requests.requested(container.resources)
    amount = pod_requests.bounded(requested[resource].value()) if resource in requested else 0
    if amount <= 0:
        return None
    return _Part(f"container-{place}-request-{sorted(requested).index(resource)}", amount)


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


def _selectors(choice: gpu_annotations.GpuChoice) -> tuple[device_classes.DeviceSelector, ...]:
    return tuple(
        device_classes.DeviceSelector(cel=device_classes.CELDeviceSelector(expression=expression))
        for expression in gpu_annotations.selectors(choice).values()
    )


def _device_request(
    part: _Part, class_name: str, selectors: tuple[device_classes.DeviceSelector, ...]
) -> claims.DeviceRequest:
    exactly = claims.ExactDeviceRequest(
        device_class_name=class_name,
        selectors=selectors,
        allocation_mode=claims.MODE_EXACT_COUNT,
        count=part.amount,
    )
    return claims.DeviceRequest(name=part.name, exactly=exactly)


def _mapping(
    container: pods.Container, resource: str, request: str
) -> pods.ContainerExtendedResourceRequest:
    return pods.ContainerExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )


def _created(device_class: device_classes.DeviceClass) -> datetime.datetime:
    created = device_class.metadata.creation_timestamp
    return pod_order.instant(created) if created is not None else _LONG_AGO
