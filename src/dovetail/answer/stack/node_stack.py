"""The GPU stack of one node, fact by fact, each with its source: GPU, driver, CUDA, toolkit, runtime, kubelet, kernel.

Given a node and what the cluster's objects say about the platform. Three drivers are kept apart: the loaded one, the
one the operator's object wants, and the one the DaemonSet's template would install after a restart. Never guesses: what
no object states is unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.stack.platform_objects import Platform, SliceFacts
from dovetail.answer.stack.stack_facts import NONE, Fact, absent, fact, unknown
from dovetail.answer.why.evidence.gpu_platform import cuda_versions, gpu_nodes
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.gpus import catalogue, host_properties
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import gpu_operator
from dovetail.model import node_pools
from dovetail.quantity import dotted_versions

OWNER_LABEL: Final = "nvidia.com/gpu-operator.driver.owner"
DEPLOY_DRIVER: Final = "nvidia.com/gpu.deploy.driver"
PRE_INSTALLED: Final = "pre-installed"  # value of DEPLOY_DRIVER: the node's own image brings it
UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
FAMILY: Final = "nvidia.com/gpu.family"
MIG_CAPABLE: Final = "nvidia.com/mig.capable"
MIG_CONFIG: Final = "nvidia.com/mig.config"
HOLLOW: Final = "hollow"  # what a node without a kubelet reports in place of versions
MIG_OFF: Final = ("off", "not capable", NONE)

_NO_GPU: Final = "no label, resource or slice speaks of a GPU"
# GFD's families and the architectures of slices, by compute capability.
_ARCHITECTURES: Final = (
    ("3.", "kepler"),
    ("5.", "maxwell"),
    ("6.", "pascal"),
    ("7.5", "turing"),
    ("7.", "volta"),
    ("8.9", "ada"),
    ("8.", "ampere"),
    ("9.", "hopper"),
    ("10.", "blackwell"),
    ("12.", "blackwell"),
)
_ADA: Final = "ada-lovelace"  # as feature discovery spells it


class NodeInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What a kubelet reports about its machine."""

    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    architecture: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    node_info: NodeInfo = NodeInfo()


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    status: _Status = _Status()


class NodeStack(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that is known about one node."""

    node: str
    pool: str
    gpus: int
    gpu: Fact
    architecture: Fact
    compute: Fact
    brand: Fact
    driver_loaded: Fact
    driver_desired: Fact
    driver_template: Fact
    cuda: Fact
    toolkit: Fact
    runtime: Fact
    kubelet: Fact
    kernel: Fact
    os: Fact
    mig: Fact
    mig_manager: Fact
    dra_driver: Fact
    upgrade: Fact  # the state that the operator's upgrade controller has the node in

    @property
    def has_gpu(self) -> bool:
        """Whether anything says that the node has a GPU."""
        return self.gpu.value != NONE

    def facts(self) -> dict[str, Fact]:
        """All facts by name."""
        return {
            name: value for name, value in msgspec.structs.asdict(self).items() if _is_fact(value)
        }

    def signature(self) -> tuple[object, ...]:
        """Nodes with the same values are shown and judged together."""
        values = tuple(str(each) for each in self.facts().values())
        return (self.pool, self.gpus, *values)


def _is_fact(value: object) -> bool:
    return isinstance(value, Fact)


def of_node(stored: codec.Stored, platform: Platform) -> NodeStack:
    """The stack of one node."""
    node = stored.struct
    assert isinstance(node, nodes.Node)
    info = _info(stored)
    facts = {
        "runtime": _stated(info.container_runtime_version, "nodeInfo.containerRuntimeVersion"),
        "kubelet": _stated(info.kubelet_version, "nodeInfo.kubeletVersion"),
        "kernel": _stated(info.kernel_version, "nodeInfo.kernelVersion"),
        "os": _stated(info.os_image, "nodeInfo.osImage"),
    }
    published = platform.slices.get(node.metadata.name)
    has_gpu = published is not None or gpu_nodes.has_gpu(node)
    gpu_facts = (
        _gpu_facts(node, published, platform)
        if has_gpu
        else dict.fromkeys(_GPU_FACTS, absent(_NO_GPU))
    )
    return NodeStack(
        node=node.metadata.name,
        pool=node_pools.name_of(node) or NONE,
        gpus=_count(node, published),
        **facts,
        **gpu_facts,
    )


_GPU_FACTS: Final = (
    "gpu",
    "architecture",
    "compute",
    "brand",
    "driver_loaded",
    "driver_desired",
    "driver_template",
    "cuda",
    "toolkit",
    "mig",
    "mig_manager",
    "dra_driver",
    "upgrade",
)


def _gpu_facts(
    node: nodes.Node, published: SliceFacts | None, platform: Platform
) -> dict[str, Fact]:
    labels = node.metadata.labels
    values = published.values if published is not None else {}
    gpu = _gpu(node, values)
    compute = _compute(labels, values)
    return {
        "gpu": gpu,
        "architecture": _architecture(labels, values, compute, gpu),
        "compute": compute,
        "brand": _brand(values, gpu),
        "driver_loaded": _driver_loaded(labels, values),
        "driver_desired": _driver_desired(labels, platform),
        "driver_template": _driver_template(labels, platform),
        "cuda": _cuda(labels, values),
        "toolkit": _component(node, platform, Component.TOOLKIT, "toolkit"),
        "mig": _mig(labels, values),
        "mig_manager": _component(node, platform, Component.MIG_MANAGER, "MIG manager"),
        "dra_driver": _dra_driver(node, published, platform),
        "upgrade": _upgrade(labels),
    }


def _info(stored: codec.Stored) -> NodeInfo:
    try:
        return codec.decode_struct(_Head, stored.document).status.node_info
    except errors.InputError:
        return NodeInfo()


def _stated(value: str, place: str) -> Fact:
    if HOLLOW in value:
        return absent(f"{place}: a hollow node has none")
    return fact(value, place) if value else unknown(f"status.{place} is empty")


def _count(node: nodes.Node, published: SliceFacts | None) -> int:
    if published is not None and published.gpus:
        return published.gpus
    return node_pools.pool_of(node).gpu_count


def _gpu(node: nodes.Node, values: Mapping[str, tuple[str, ...]]) -> Fact:
    products = values.get("productName", ())
    if products:
        return fact(" + ".join(sorted(products)), "attribute productName of its slices")
    accelerator = node_pools.pool_of(node).accelerator
    if accelerator:
        return fact(accelerator, "labels of the node")
    return unknown("no slice and no label names the product")


def _compute(labels: Mapping[str, str], values: Mapping[str, tuple[str, ...]]) -> Fact:
    capabilities = values.get("cudaComputeCapability", ())
    if capabilities:
        shortened = {".".join(each.split(".")[:2]) for each in capabilities}
        return fact(" + ".join(sorted(shortened)), "attribute cudaComputeCapability of its slices")
    major, minor = (
        labels.get(f"{host_properties.COMPUTE}.major"),
        labels.get(f"{host_properties.COMPUTE}.minor"),
    )
    if major and minor:
        return fact(f"{major}.{minor}", f"labels {host_properties.COMPUTE}.major and .minor")
    return unknown(f"no slice, and no label {host_properties.COMPUTE}.major")


def _architecture(
    labels: Mapping[str, str],
    values: Mapping[str, tuple[str, ...]],
    compute: Fact,
    gpu: Fact,
) -> Fact:
    stated = values.get("architecture", ())
    if stated:
        words = {_family(each) for each in stated}
        return fact(" + ".join(sorted(words)), "attribute architecture of its slices")
    family = labels.get(FAMILY, "")
    if family and family != "undefined":
        return fact(_family(family), f"label {FAMILY}")
    for prefix, architecture in _ARCHITECTURES:
        if compute.is_known and f"{compute.value}.".startswith(prefix):
            return fact(architecture, f"compute capability {compute.value}")
    board = catalogue.by_product(gpu.value) or catalogue.by_product(f"NVIDIA {gpu.value}")
    if board is not None:
        return fact(_family(board.architecture.value), f"catalogue of boards: {gpu.value}")
    return unknown("no slice, no label of feature discovery, and no known board")


def _family(text: str) -> str:
    word = text.strip().lower().replace(" ", "-")
    return "ada" if word == _ADA else word


def _brand(values: Mapping[str, tuple[str, ...]], gpu: Fact) -> Fact:
    stated = values.get("brand", ())
    if len(stated) == 1:
        return fact(stated[0].lower(), "attribute brand of its slices")
    brand = host_properties.brand_of(gpu.value)
    if not brand:
        return unknown("no slice, and no product to tell it from")
    return fact(brand, f"product {gpu.value}")


def _driver_loaded(labels: Mapping[str, str], values: Mapping[str, tuple[str, ...]]) -> Fact:
    label = cuda_versions.offered(labels).driver
    published = values.get("driverVersion", ())
    by_label, by_slice = f"label {host_properties.DRIVER}.full", "attribute driverVersion"
    if len(published) > 1:
        return unknown(f"its slices say {' and '.join(sorted(published))}")
    if not published:
        return fact(label, by_label) if label else unknown(f"no slice, and no {by_label}")
    are_versions = all(map(dotted_versions.is_version, (label, published[0])))
    if not label or not are_versions:
        return fact(published[0], f"{by_slice} of its slices")
    if dotted_versions.compare(label, published[0]) == 0:
        return fact(label, f"{by_label}, {by_slice}")  # a slice cannot spell leading zeros
    return fact(
        published[0], f"{by_slice} of its slices", differs=f"{by_label} says {label}: it is stale"
    )


def _cuda(labels: Mapping[str, str], values: Mapping[str, tuple[str, ...]]) -> Fact:
    published = values.get("cudaDriverVersion", ())
    if len(published) == 1 and dotted_versions.is_version(published[0]):
        version = dotted_versions.shortened(published[0], 2)
        return fact(version, "attribute cudaDriverVersion of its slices")
    cuda = cuda_versions.offered(labels).cuda
    if cuda is not None:
        return fact(f"{cuda[0]}.{cuda[1]}", f"label {host_properties.RUNTIME}")
    return unknown(f"no slice, and no label {host_properties.RUNTIME}")


def owner_of(labels: Mapping[str, str], platform: Platform) -> gpu_operator.NVIDIADriver | None:
    """The NVIDIADriver of a node: named by the operator's label, else by selectors, a default last."""
    name = labels.get(OWNER_LABEL, "")
    for driver in platform.drivers:
        if name and driver.metadata.name == name:
            return driver
    matching = [
        driver
        for driver in platform.drivers
        if driver.spec.node_selector.items() <= labels.items()
        and driver.status.state not in ("ignored", "disabled")
    ]
    chosen = [driver for driver in matching if not driver.spec.is_default] or matching
    return chosen[0] if len(chosen) == 1 else None


def _driver_desired(labels: Mapping[str, str], platform: Platform) -> Fact:
    if labels.get(DEPLOY_DRIVER) == PRE_INSTALLED:
        return absent(f"label {DEPLOY_DRIVER}: the node's own image brings the driver")
    policy = platform.policy
    if policy is not None and policy.spec.driver.enabled is False:
        return absent(f"ClusterPolicy {policy.metadata.name}: driver.enabled is false")
    uses_objects = policy is None or bool(policy.spec.driver.use_nvidia_driver_crd)
    if uses_objects and platform.drivers:
        driver = owner_of(labels, platform)
        if driver is None:
            return unknown("no NVIDIADriver, or more than one, selects the node")
        return _desired(driver.spec.version, f"NVIDIADriver {driver.metadata.name}")
    if policy is not None:
        return _desired(policy.spec.driver.version, f"ClusterPolicy {policy.metadata.name}")
    return unknown("no ClusterPolicy and no NVIDIADriver was read")


def _desired(version: str, source: str) -> Fact:
    return fact(version, source) if version else unknown(f"{source} names no driver version")


def _driver_template(labels: Mapping[str, str], platform: Platform) -> Fact:
    matching = [
        running
        for running in platform.templates.get(Component.DRIVER, ())
        if running.selector.items() <= labels.items()
    ]
    if len(matching) == 1:
        return matching[0].version
    if matching:
        return unknown(f"{len(matching)} DaemonSets of drivers select the node")
    if labels.get(DEPLOY_DRIVER) == PRE_INSTALLED:
        return absent(f"label {DEPLOY_DRIVER}: the node's own image brings the driver")
    return unknown("no DaemonSet of a driver selects the node")


def _component(node: nodes.Node, platform: Platform, component: Component, what: str) -> Fact:
    """A part by the pod that runs it on the node, else by the template that would."""
    running = platform.on_nodes.get((component, node.metadata.name))
    if running is not None:
        return running.version
    labels = node.metadata.labels
    for template in platform.templates.get(component, ()):
        if template.selector.items() <= labels.items():
            return template.version
    if component is Component.MIG_MANAGER:
        return absent("no pod or DaemonSet of it for the node")
    return unknown(f"no pod or DaemonSet of the {what} for the node; the host may have it")


def _dra_driver(node: nodes.Node, published: SliceFacts | None, platform: Platform) -> Fact:
    running = platform.on_nodes.get((Component.DRA_DRIVER, node.metadata.name))
    if running is not None:
        return running.version
    for template in platform.templates.get(Component.DRA_DRIVER, ()):
        if template.selector.items() <= node.metadata.labels.items():
            return template.version
    for cluster in platform.clusters:
        if cluster.spec.dra_driver.version:
            version = cluster.spec.dra_driver.version.removeprefix("v")
            return fact(version, f"GPUCluster {cluster.metadata.name}")
    if published is None:
        return absent(f"no slice of {node_pools.GPU_DRIVER}, no pod or DaemonSet of it")
    return unknown(f"slices of {node_pools.GPU_DRIVER} exist, but no pod or DaemonSet of a driver")


def _mig(labels: Mapping[str, str], values: Mapping[str, tuple[str, ...]]) -> Fact:
    """Strategy, configuration and its state, in a few words."""
    state = labels.get(node_pools.MIG_STATE, "")
    config = labels.get(MIG_CONFIG, "")
    configured = f", {config}: {state or 'no state'}" if config else ""
    strategy = labels.get(node_pools.MIG_STRATEGY, "")
    has_partitions = "mig" in values.get("type", ()) or any(
        name.startswith("nvidia.com/mig-") and name.endswith(".count") for name in labels
    )
    is_single = "-MIG-" in labels.get(node_pools.PRODUCT, "")
    if has_partitions or is_single:
        source = "slices" if "type" in values else "labels of feature discovery"
        return fact(f"{strategy or 'on'}{configured}", source)
    if labels.get(MIG_CAPABLE) == "false":
        return fact("not capable", f"label {MIG_CAPABLE}")
    if "type" in values:
        return fact(f"off{configured}", "slices without partitions")
    if labels.get(MIG_CAPABLE) == "true":
        return fact(f"off{configured}", f"label {MIG_CAPABLE}, no partitions in labels")
    return unknown(f"no slice, and no label {MIG_CAPABLE}")


def _upgrade(labels: Mapping[str, str]) -> Fact:
    state = labels.get(UPGRADE_STATE, "")
    if state:
        return fact(state, f"label {UPGRADE_STATE}")
    return absent(f"no label {UPGRADE_STATE}")
