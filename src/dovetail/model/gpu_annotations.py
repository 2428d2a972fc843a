"""Reads what other schedulers let pods request of GPUs in annotations: KAI's shares, HAMi's types, uuids and policies.

A choice of GPUs by type or uuid is honoured for GPUs that a pod requests as extended resources of NVIDIA. A share of a
GPU is honoured by the claim that an admission policy adds to the pod, and refused where the pod has none: a kubelet
gives devices to a container only for its claims and for resources that it requests, so a pod that an annotation alone
entitles to a GPU would start without one. What has no effect is named in a note. Given a pod. Never raises, never looks
at nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail import cache
from dovetail.kubetypes.core import pods
from dovetail.model import gpu_shares

# HAMi, pkg/device/nvidia and pkg/util.
USE_TYPE: Final = "nvidia.com/use-gputype"
NO_USE_TYPE: Final = "nvidia.com/nouse-gputype"
USE_UUID: Final = "nvidia.com/use-gpuuuid"
NO_USE_UUID: Final = "nvidia.com/nouse-gpuuuid"
GPU_POLICY: Final = "hami.io/gpu-scheduler-policy"
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
NUMA_BIND: Final = "nvidia.com/numa-bind"
VGPU_MODE: Final = "nvidia.com/vgpu-mode"
CHOICES: Final = (USE_TYPE, NO_USE_TYPE, USE_UUID, NO_USE_UUID)
KEYS: Final = (*gpu_shares.KEYS, *CHOICES, GPU_POLICY, NODE_POLICY, NUMA_BIND, VGPU_MODE)

# Extended resources that only HAMi's scheduler counts: no device plugin offers them.
HAMI_RESOURCES: Final[Mapping[str, str]] = {
    "nvidia.com/gpumem": "MiB of a GPU's memory",
    "nvidia.com/gpumem-percentage": "a part of a GPU's memory",
    "nvidia.com/gpucores": "a part of a GPU's cores",
}

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"  # GPU feature discovery
NVIDIA: Final = "nvidia.com"
BINPACK: Final = "binpack"  # what the score of nodes and devices prefers anyway
LONGEST_CHOICE: Final = 4096  # characters: it becomes a selector, and those end at 10 KiB
SHOWN: Final = 40  # characters of a value quoted in a message
HOW_TO_SHARE: Final = (
    "write a claim for memory of a GPU (exactly.capacity.requests.memory) and name it in "
    "resourceClaims: docs/how-to/migrate-from-kueue-and-kai.md#shares-of-a-gpu"
)
NO_CLAIM: Final = (
    "a container gets a share of a GPU through a claim only, and none was added when the pod was created; "
    "turn on kaiShares of the chart and create the pod again, or "
)
_OF_DRIVER: Final = "device.attributes[device.driver]"


class Refusal(NamedTuple):
    """An annotation that must not be ignored and cannot be honoured."""

    subject: str
    detail: str


class GpuChoice(NamedTuple):
    """Which GPUs a pod may get. Types are parts of product names, in upper case with dashes for spaces."""

    types: tuple[str, ...] = ()
    avoided_types: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    avoided_uuids: tuple[str, ...] = ()


ANY_GPU: Final = GpuChoice()


class Mismatch(NamedTuple):
    """The annotation that rules the GPUs of a node out, and why."""

    key: str
    why: str


def refusals(pod: pods.Pod) -> Iterator[Refusal]:
    """Why the pod must not start as it is. A pod with claims has its GPUs from those."""
    annotations = pod.metadata.annotations
    if not annotations:
        return
    yield from malformed(pod)
    share = next((key for key in gpu_shares.KEYS if key in annotations), None)
    if share is not None and not pod.spec.resource_claims and share_problem(pod) is None:
        yield Refusal(quoted(share, annotations[share]), NO_CLAIM + HOW_TO_SHARE)


def malformed(pod: pods.Pod) -> Iterator[Refusal]:
    """The annotations that keep the pod pending wherever it is created."""
    annotations = pod.metadata.annotations
    problem = None if pod.spec.resource_claims else share_problem(pod)
    if problem is not None:
        yield Refusal(quoted(problem.key, annotations[problem.key]), problem.why)
    for key in CHOICES:
        if len(annotations.get(key, "")) > LONGEST_CHOICE:
            detail = f"has more than {LONGEST_CHOICE} characters; name fewer GPUs"
            yield Refusal(f"annotation {key}", detail)


def share_problem(pod: pods.Pod) -> gpu_shares.Problem | None:
    """Why the share that the pod requests cannot be given, whatever the cluster offers."""
    annotations = pod.metadata.annotations
    share = gpu_shares.requested(annotations)
    if share is None or isinstance(share, gpu_shares.Problem):
        return share
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    container = gpu_shares.container_of(annotations, [each.name for each in containers])
    if isinstance(container, gpu_shares.Problem):
        return container
    if gpu_shares.is_of_nvidia(_requested_resources(pod)):
        key = next(key for key in gpu_shares.KEYS if key in annotations)
        return gpu_shares.Problem(
            key, "the pod requests GPUs as a resource too; remove one of them"
        )
    return None


def notes(pod: pods.Pod) -> tuple[str, ...]:
    """The annotations that have no effect on this pod, and why."""
    annotations = pod.metadata.annotations
    if annotations.keys().isdisjoint(KEYS):
        return ()
    return tuple(
        f"{key} is ignored: {why}"
        for key in KEYS
        if key in annotations and (why := _why_ignored(key, pod)) is not None
    )


def choice_of(pod: pods.Pod) -> GpuChoice:
    """Which GPUs the pod may get for the extended resources that it requests."""
    annotations = pod.metadata.annotations
    if annotations.keys().isdisjoint(CHOICES):
        return ANY_GPU
    return _choice(*[annotations.get(key, "") for key in CHOICES])


def is_gpu(resource: str) -> bool:
    """Whether a choice of GPUs applies to an extended resource."""
    return NVIDIA in resource and resource not in HAMI_RESOURCES


def selectors(choice: GpuChoice) -> dict[str, str]:
    """The choice as CEL over a device, by annotation. A device that does not state its product or uuid is out."""
    product = f'{_OF_DRIVER}["productName"].upperAscii().replace(" ", "-")'
    matches_type = f"exists(type, {product}.contains(type))"
    expressions: dict[str, str] = {}
    for key, types, mark in (
        (USE_TYPE, choice.types, ""),
        (NO_USE_TYPE, choice.avoided_types, "!"),
    ):
        if types:
            test = f"{mark}{_list(types)}.{matches_type}"
            expressions[key] = f'"productName" in {_OF_DRIVER} && {test}'

    for key, uuids, mark in (
        (USE_UUID, choice.uuids, ""),
        (NO_USE_UUID, choice.avoided_uuids, "!"),
    ):
        if uuids:
            test = f'{mark}({_OF_DRIVER}["uuid"] in {_list(uuids)})'
            expressions[key] = f'"uuid" in {_OF_DRIVER} && {test}'
    return expressions


def plugin_mismatch(choice: GpuChoice, labels: Mapping[str, str]) -> Mismatch | None:
    """Why a node whose GPUs a device plugin counts does not do: by its product label, as no plugin chooses GPUs."""
    for uuids, key in ((choice.uuids, USE_UUID), (choice.avoided_uuids, NO_USE_UUID)):
        if uuids:
            return Mismatch(key, "a device plugin counts the GPUs and cannot choose one by uuid")

    product = labels.get(PRODUCT_LABEL)
    if product is None and (choice.types or choice.avoided_types):
        key = USE_TYPE if choice.types else NO_USE_TYPE
        return Mismatch(key, f"no label {PRODUCT_LABEL} states the type of the GPUs")
    name = _comparable(product or "")
    if choice.types and not any(part in name for part in choice.types):
        return Mismatch(USE_TYPE, f"the GPUs are none of {', '.join(choice.types)}")
    if any(part in name for part in choice.avoided_types):
        return Mismatch(NO_USE_TYPE, f"the GPUs are of {', '.join(choice.avoided_types)}")
    return None


def resource_hint(resource: str) -> str:
    """What to request instead of a resource that only HAMi's scheduler counts; empty for all others."""
    meaning = HAMI_RESOURCES.get(resource)
    if meaning is None:
        return ""
    return f"only HAMi's scheduler counts this: {meaning}; {HOW_TO_SHARE}"


def quoted(key: str, value: str) -> str:
    """An annotation as messages name it."""
    shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
    return f'annotation {key}: "{shown}"'


def _why_ignored(key: str, pod: pods.Pod) -> str | None:
    """Why an annotation of the pod has no effect; None where it has."""
    has_claims = bool(pod.spec.resource_claims)
    if key in gpu_shares.KEYS:
        is_honoured = not has_claims or _has_share(pod)
        return None if is_honoured else "the pod's claims say which GPUs it gets"
    if key in CHOICES:
        if _requests_gpu(pod):
            return None
        if has_claims:
            return "claims choose GPUs by the selectors of their requests"
        return f"the pod requests no GPU as an extended resource of {NVIDIA}"
    if key in (GPU_POLICY, NODE_POLICY):
        value = pod.metadata.annotations[key]
        return None if value == BINPACK else f"GPUs and nodes are filled up one by one ({BINPACK})"
    if key == NUMA_BIND:
        is_off = pod.metadata.annotations[key].lower() in ("false", "f", "0", "")
        return None if is_off else "write a claim with a constraint on an attribute for it"
    return "how a GPU is divided is up to its driver"


def _has_share(pod: pods.Pod) -> bool:
    """Whether a claim of the pod is for the share that its annotations request."""
    share = gpu_shares.requested(pod.metadata.annotations)
    if not isinstance(share, gpu_shares.Share):
        return False
    template = gpu_shares.template_name(share)
    entries = pod.spec.resource_claims
    return any(entry.resource_claim_template_name == template for entry in entries)


def _requests_gpu(pod: pods.Pod) -> bool:
    return any(map(is_gpu, _requested_resources(pod)))


def _requested_resources(pod: pods.Pod) -> list[str]:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    names = [name for container in containers for name in container.resources.limits]
    names += [name for container in containers for name in container.resources.requests]
    return names


@cache.remembered(1024)
def _choice(types: str, avoided_types: str, uuids: str, avoided_uuids: str) -> GpuChoice:
    return GpuChoice(
        tuple(map(_comparable, _parts(types))),
        tuple(map(_comparable, _parts(avoided_types))),
        _parts(uuids),
        _parts(avoided_uuids),
    )


def _parts(text: str) -> tuple[str, ...]:
    """The entries of a list with commas, each once."""
    entries = (entry.strip() for entry in text[:LONGEST_CHOICE].split(","))
    return tuple(dict.fromkeys(entry for entry in entries if entry))


def _comparable(product: str) -> str:
    """A product name as labels and drivers both can be compared with it."""
    return product.upper().replace(" ", "-")


def _list(texts: tuple[str, ...]) -> str:
    """A CEL list of strings: their literals are those of JSON."""
    return msgspec.json.encode(texts).decode()
