"""What one node with GPUs lacks, and what to do about it: driver, agent, devices, two publishers, runtime.

Given what was seen of the node. One gap for one cause: a node without a driver is not blamed for lacking devices as
well. Never reads an object, never changes one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.stack_parts import agent_sets
from dovetail.answer.stack_parts.node_sight import NodeSight
from dovetail.answer.stack_parts.part_answer import Gap
from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.model import node_pools
from dovetail.quantity import dotted_versions

OLDEST_KUBELET: Final = "1.34"  # the first with resource.k8s.io/v1
OLDEST_CDI: Final = "1.7"  # of containerd; from 2.0 on CDI is on without configuration
DEFAULT_CDI: Final = "2.0"
CONTAINERD: Final = "containerd://"
DRIVER_ROOT: Final = "/run/nvidia/driver"  # where the GPU Operator's driver container has its files
DEPLOY_PLUGIN: Final = gpu_nodes.DEPLOY + "device-plugin"


def of_node(sight: NodeSight, *, has_policy: bool) -> Iterator[Gap]:
    """The gaps of a node, those first that others follow from."""
    yield from _two_publishers(sight)
    yield from _driver(sight, has_policy=has_policy)
    yield from _agent(sight)
    yield from _devices(sight)
    yield from _platform(sight)


def is_ours(sight: NodeSight) -> bool:
    """Whether a DaemonSet of ours asks for an agent here, or one runs here."""
    return bool(sight.wanted or sight.agents)


def mode_of(sight: NodeSight) -> str:
    """The mode of the node's agent."""
    return sight.wanted[0].mode if sight.wanted else agent_sets.DRA


def _two_publishers(sight: NodeSight) -> Iterator[Gap]:
    plugin = sight.other(Component.DEVICE_PLUGIN)
    driver = sight.other(Component.DRA_DRIVER)
    ours = is_ours(sight)
    if len(sight.wanted) > 1:
        sets = " and ".join(each.id for each in sight.wanted)
        yield Gap(
            code="two-agents",
            part="agent",
            what=f"the DaemonSets {sets} both ask for an agent here",
            next="make the nodeSelectors of nodeAgent.pools exclude each other",
        )
    if ours and driver is not None:
        yield Gap(
            code="two-drivers",
            part="devices",
            what=f"NVIDIA's DRA driver ({driver.id}) and our agent publish the same GPUs",
            next="keep one: uninstall NVIDIA's driver, or leave the node out by nodeAgent.nodeSelector",
        )
    counts_by_other = plugin is not None and ours
    is_published_twice = sight.published is not None and _counts_whole_gpus(sight)
    if counts_by_other or is_published_twice:
        who = f"NVIDIA's device plugin ({plugin.id})" if plugin is not None else "a device plugin"
        other = "our agent" if ours else "a DRA driver"
        yield Gap(
            code="claims-and-counts",
            part="devices",
            what=f"{who} counts GPUs that {other} serves as well: one GPU can get two owners",
            next=f"kubectl label node {sight.name} {DEPLOY_PLUGIN}=false --overwrite"
            if plugin is not None
            else "remove one of the two from the node, and drain it before",
        )


def _counts_whole_gpus(sight: NodeSight) -> bool:
    return any(name.startswith(gpu_nodes.NVIDIA) for name in sight.counted)


def _driver(sight: NodeSight, *, has_policy: bool) -> Iterator[Gap]:
    if sight.has_driver:
        return
    pod = sight.other(Component.DRIVER)
    if pod is not None:
        yield Gap(
            code="driver-not-ready",
            part="driver",
            what=f"the driver's pod {pod.id} is not done: {pod.problem or 'not ready'}",
            next=f"kubectl -n {pod.id.partition('/')[0]} logs {pod.id.partition('/')[2]} --all-containers",
        )
    elif has_policy and not gpu_nodes.is_labelled(sight.node):
        yield Gap(
            code="no-feature-labels",
            part="labels",
            what="no label of node-feature-discovery, without which the GPU Operator installs nothing here",
            next="kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery -o wide",
        )
    else:
        yield Gap(
            code="no-driver",
            part="driver",
            what="no slice, count or label shows a loaded driver",
            next=f"install NVIDIA's driver on the node; is it in a container, set nodeAgent.driverRoot={DRIVER_ROOT}",
        )


def _agent(sight: NodeSight) -> Iterator[Gap]:
    if not sight.wanted:
        if not sight.agents and not _is_served_by_others(sight):
            yield Gap(
                code="not-served",
                part="agent",
                what="neither an agent of ours nor a driver or device plugin of NVIDIA runs here",
                next="dovetail install --stack, or add its labels to nodeAgent.nodeSelector",
            )
        return
    if not sight.agents:
        taint = sight.wanted[0].kept_off_by(sight.node)
        why = f"taint {taint} is not tolerated" if taint else "its DaemonSet made no pod for it"
        namespace, _, name = sight.wanted[0].id.partition("/")
        yield Gap(
            code="agent-absent",
            part="agent",
            what=f"no agent runs here: {why}",
            next="add it to nodeAgent.tolerations"
            if taint
            else f"kubectl -n {namespace} describe daemonset {name}",
        )
    for pod in sight.agents:
        if not pod.is_ready:
            namespace, _, name = pod.id.partition("/")
            yield Gap(
                code="agent-not-ready",
                part="agent",
                what=f"the agent is not ready: {pod.problem}",
                next=f"kubectl -n {namespace} logs {name}",
            )


def _is_served_by_others(sight: NodeSight) -> bool:
    parts = (Component.DEVICE_PLUGIN, Component.DRA_DRIVER)
    runs = any(sight.other(part) is not None for part in parts)
    return runs or bool(sight.counted) or sight.published is not None


def _devices(sight: NodeSight) -> Iterator[Gap]:
    """Devices that an agent with a driver should have published."""
    if sight.published is not None and sight.published.lacking:
        yield Gap(
            code="slice-incomplete",
            part="devices",
            what=f"{sight.published.lacking} of its slices are not there: no scheduler uses the rest",
            next=f"kubectl get resourceslices --field-selector spec.nodeName={sight.name}",
        )
    is_up = bool(sight.agents) and all(pod.is_ready for pod in sight.agents)
    if not is_up or not sight.has_driver:
        return
    namespace, _, name = sight.agents[0].id.partition("/")
    if mode_of(sight) == agent_sets.DRA and sight.published is None:
        yield Gap(
            code="no-slice",
            part="devices",
            what="the agent is ready and published no slice",
            next=f"kubectl -n {namespace} logs {name}",
        )
    if mode_of(sight) == agent_sets.DEVICE_PLUGIN and not sight.counted:
        yield Gap(
            code="no-count",
            part="devices",
            what="the agent is ready and the kubelet counts no GPU",
            next=f"kubectl -n {namespace} logs {name}",
        )
    yield from _too_few(sight)


def _too_few(sight: NodeSight) -> Iterator[Gap]:
    labelled = node_pools.pool_of(sight.node).gpu_count
    published = sight.published.gpus if sight.published is not None else 0
    if published and labelled > published:
        yield Gap(
            code="too-few-devices",
            part="devices",
            what=f"{labelled} GPUs by its labels, {published} in its slices",
            next=f"dovetail describe node {sight.name}",
        )


def _platform(sight: NodeSight) -> Iterator[Gap]:
    """What the node itself must bring for claims."""
    if not is_ours(sight):
        return
    kubelet = sight.stack.kubelet.value.removeprefix("v")
    if mode_of(sight) == agent_sets.DRA and _is_older(kubelet, OLDEST_KUBELET):
        yield Gap(
            code="kubelet-too-old",
            part="runtime",
            what=f"kubelet {kubelet} does not serve claims of resource.k8s.io/v1",
            next=f"upgrade it to {OLDEST_KUBELET}, or use nodeAgent.mode=device-plugin there",
        )
    runtime = sight.stack.runtime.value
    version = runtime.removeprefix(CONTAINERD)
    if runtime.startswith(CONTAINERD) and _is_older(version, OLDEST_CDI):
        yield Gap(
            code="runtime-without-cdi",
            part="runtime",
            what=f"containerd {version} does not read CDI files, so containers would get no GPU",
            next="upgrade containerd to 2.0 or later",
        )


def _is_older(version: str, oldest: str) -> bool:
    return dotted_versions.is_version(version) and dotted_versions.compare(version, oldest) < 0
