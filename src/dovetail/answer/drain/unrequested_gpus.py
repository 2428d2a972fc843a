"""Finds pods that hold GPUs of a node without requesting any: a driver cannot be unloaded while they run.

Given the pods of a node with their details and claims. The signs are an environment for NVIDIA's runtime, a runtime
class, mounted device files, privileges, and claims with admin access. A privileged container sees every device; that
it uses one is not known, so it is listed as possible. What runs outside pods cannot be seen here. Never ends a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dovetail.answer.drain import pod_details
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import node_pools, reservations
from dovetail.world.devices import gpu_ledger

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"  # NVIDIA container toolkit
_NO_DEVICES: Final = frozenset({"", "void", "none"})
_RUNTIME_CLASS: Final = "nvidia"
_DEVICE_FILES: Final = ("/dev/nvidia", "/run/nvidia", "/dev/dri")
_ALL_FILES: Final = frozenset({"/", "/dev"})

Claims = Mapping[tuple[str, str], claims.ResourceClaim]


class Holding(NamedTuple):
    """How a pod holds GPUs that it does not request."""

    signs: tuple[str, ...]
    is_certain: bool


def holding(pod: pods.Pod, details: pod_details.PodDetails, known_claims: Claims) -> Holding | None:
    """The signs; None where there are none, or where the pod requests GPUs."""
    if requests_gpus(pod, known_claims):
        return None
    signs = [*_admin_claims(pod, known_claims), *_runtime(pod, details), *_files(details)]
    if signs:
        return Holding(tuple(signs), is_certain=True)
    if any(_is_privileged(container) for container in details.all_containers):
        return Holding(("privileged: sees every device of the node",), is_certain=False)
    return None


def requests_gpus(pod: pods.Pod, known_claims: Claims) -> bool:
    """Whether the pod requests GPUs: by a resource of a device plugin, or by a claim without admin access."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for container in containers:
        names = (*container.resources.requests, *container.resources.limits)
        if any(node_pools.is_gpu_resource(name) for name in names):
            return True
    return any(not result.admin_access for result in _devices(pod, known_claims))


def _admin_claims(pod: pods.Pod, known_claims: Claims) -> Iterable[str]:
    devices = [result.device for result in _devices(pod, known_claims) if result.admin_access]
    if devices:
        yield f"admin access to {len(devices)} devices"


def _runtime(pod: pods.Pod, details: pod_details.PodDetails) -> Iterable[str]:
    values = {
        variable.value
        for container in details.all_containers
        for variable in container.env
        if variable.name == VISIBLE_DEVICES and variable.value not in _NO_DEVICES
    }
    for value in sorted(values):
        yield f"{VISIBLE_DEVICES}={value}"
    runtime_class = pod.spec.runtime_class_name or ""
    if runtime_class.startswith(_RUNTIME_CLASS):
        yield f"runtime class {runtime_class}"


def _files(details: pod_details.PodDetails) -> Iterable[str]:
    for path in sorted(set(details.host_paths)):
        plain = path.rstrip("/") or "/"
        if plain in _ALL_FILES or plain.startswith(_DEVICE_FILES):
            yield f"host path {path}"


def _devices(pod: pods.Pod, known_claims: Claims) -> Iterable[claims.DeviceRequestAllocationResult]:
    for key in reservations.used_claims(pod):
        claim = known_claims.get(key)
        allocation = claim.status.allocation if claim is not None else None
        for result in allocation.devices.results if allocation is not None else ():
            if gpu_ledger.publishes_gpus(result.driver):
                yield result


def _is_privileged(container: pod_details.Container) -> bool:
    context = container.security_context
    return context is not None and context.privileged is True
