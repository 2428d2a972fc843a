"""Why no node offers the GPUs a pod asks for: the first broken link from the hardware to the scheduler.

The links are node-feature-discovery, driver, container toolkit, MIG manager, device plugin or DRA driver; each needs
the one before. Given the pod and the replica. Where some nodes offer the GPUs, nodes that should and do not are
reported beside what the engine finds. Never asks whether offered GPUs are free.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import near_values
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence import observation, scheduler_verdicts
from dovetail.answer.why.evidence.gpu_platform import claimed_drivers, gpu_nodes, mig_offers
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component, ComponentPod
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import fields, quoting
from dovetail.answer.why.evidence.sources.pod_state import PodState
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import pod_requests

_RESOURCE: Final = re.compile(r"nvidia\.com/(?:gpu|gpu\.shared|mig-\d.*)")
_OTHER_NAMES: Final = {
    "nvidia.com/gpu": "nvidia.com/gpu.shared",
    "nvidia.com/gpu.shared": "nvidia.com/gpu",
}
_NVIDIA_DRIVER: Final = "gpu.nvidia.com"
_DEPLOY_NAMES: Final = {  # as the operator's node labels call them
    Component.DRIVER: "driver",
    Component.TOOLKIT: "container-toolkit",
    Component.DEVICE_PLUGIN: "device-plugin",
    Component.DRA_DRIVER: "dra-driver",
}
_UPGRADE_ENDS: Final = ("", "upgrade-done", "upgrade-required")
_HEALTH_WORDS: Final = re.compile(r"gpu|nvidia|xid|nvlink|accelerat", re.IGNORECASE)
# Conditions of a kubelet; other programs write the rest.
_KUBELET_CONDITIONS: Final = frozenset(
    {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}
)


class _Link(NamedTuple):
    """A broken link on one node."""

    order: int
    what: str  # the same words on every node that it is broken on
    node: str
    line: str


def not_advertised(replica: Replica, state: PodState) -> Observed | None:
    """GPUs of a name or driver that the pod asks for and too few nodes offer."""
    if state.node:
        return None
    answers = itertools.chain(
        (_resource(replica, resource) for resource in _gpu_resources(state.pod)),
        (
            _driver(replica, driver)
            for driver in claimed_drivers.drivers_of_claims(replica, state.pod)
        ),
    )
    seen = next(filter(None, answers), None)
    if seen is None or not seen.overrides:
        return seen
    return _with_autoscaler(replica, state, seen)


def labels_missing(replica: Replica, state: PodState) -> Observed | None:
    """A node label that gpu-feature-discovery would write, which no node has, while it does not run."""
    if state.node:
        return None
    wanted = [name for name in _label_keys(state.pod) if name.startswith(gpu_nodes.NVIDIA)]
    all_nodes = list(gpu_nodes.all_nodes(replica))
    missing = [
        name for name in wanted if not any(name in node.metadata.labels for node in all_nodes)
    ]
    machines = [node.metadata.name for node in all_nodes if gpu_nodes.has_gpu(node)]
    if not missing or not machines:
        return None
    running = gpu_nodes.component_pods(replica)
    broken = [running.get((Component.GPU_LABELS, name)) for name in machines]
    if any(pod is not None and pod.is_ready for pod in broken):
        return None
    sentence = (
        f"no node has label {quoting.words(missing[0], 63)}: gpu-feature-discovery, which writes it, "
        f"does not run on {quoting.nodes(machines)}"
    )
    lines = [pod.line for pod in broken if pod is not None][:3]
    return observation.observed_cause(
        CauseCode.NODE_LABELS, sentence, *lines, overrides=False, class_=CauseClass.PLATFORM
    )


def _with_autoscaler(replica: Replica, state: PodState, seen: Observed) -> Observed:
    """Where GPU nodes come and go, what the autoscaler does about the pod comes before what nodes lack."""
    announced = scheduler_verdicts.node_to_come(replica, state)
    if announced is not None:
        words = scheduler_verdicts.announced(announced)
        return observation.observed_cause(
            CauseCode.NOT_ADVERTISED,
            f"no node offers its GPUs yet; an autoscaler adds one: {words}",
            announced.line,
            class_=CauseClass.CAPACITY,
        )
    refused = scheduler_verdicts.no_scale_up(replica, state)
    if refused is None or any(map(gpu_nodes.has_gpu, gpu_nodes.all_nodes(replica))):
        return seen
    wanted = [*_gpu_resources(state.pod), *claimed_drivers.drivers_of_claims(replica, state.pod)]
    sentence = f"no node offers {quoting.named(wanted)}, and {refused.cause.sentence}"
    is_limited = scheduler_verdicts.is_limited(sentence)
    return observation.observed_cause(
        CauseCode.SCALE_UP,
        sentence,
        *refused.evidence,
        class_=CauseClass.POLICY if is_limited else None,
    )


def _gpu_resources(pod: pods.Pod) -> list[str]:
    """Names that NVIDIA's device plugin offers; a name that it never uses is the engine's to judge."""
    names = pod_requests.request_amounts(pod)
    return sorted(name for name in names if _RESOURCE.fullmatch(name))


def _resource(replica: Replica, resource: str) -> Observed | None:
    all_nodes = list(gpu_nodes.all_nodes(replica))
    offering = {node.metadata.name for node in all_nodes if _offers(node, resource)}
    if (driver := _driver_behind(replica, resource)) is not None:
        return _driver(replica, driver) if not offering else None
    machines = [node for node in all_nodes if gpu_nodes.has_gpu(node)]
    if not any(map(_offered_names, all_nodes)) and (seen := _by_claims_only(replica, resource)):
        return seen
    if seen := mig_offers.observed_mig(replica, resource, all_nodes):
        return seen
    if not offering and not machines:
        return _no_hardware(replica, resource, all_nodes)
    if not offering and (seen := _otherwise_named(resource, machines)):
        return seen

    published = {each.spec.node_name for each in claimed_drivers.slices(replica, "")}
    silent = [
        node
        for node in machines
        if not _offered_names(node) and (not offering or node.metadata.name not in published)
    ]
    links = list(_broken_links(replica, resource, silent, Component.DEVICE_PLUGIN))
    if not links:
        return None
    sentence, lines = _first_link(resource, links, is_everywhere=not offering)
    return observation.observed_cause(
        CauseCode.NOT_ADVERTISED, sentence, *lines, overrides=not offering
    )


def _offers(node: nodes.Node, resource: str) -> bool:
    amount = node.status.allocatable.get(resource)
    return amount is not None and amount.sign > 0


def _offered_names(node: nodes.Node) -> set[str]:
    """The GPU resources a node offers."""
    return {
        name
        for name in node.status.allocatable
        if _RESOURCE.fullmatch(name) and _offers(node, name)
    }


def _driver_behind(replica: Replica, resource: str) -> str | None:
    """The driver whose devices serve the resource through a DeviceClass; None where no class does."""
    for device_class in claimed_drivers.classes(replica):
        if device_class.spec.extended_resource_name == resource:
            return claimed_drivers.driver_of_class(device_class)
    return None


def _otherwise_named(resource: str, machines: list[nodes.Node]) -> Observed | None:
    """GPUs that are offered under another name: shares are renamed or not, by the device plugin's configuration."""
    other = _OTHER_NAMES.get(resource)
    names = [node.metadata.name for node in machines if other and _offers(node, other)]
    if not names:
        return None
    sentence = (
        f"no node offers {resource}: {quoting.nodes(names)} offer {other} (whether shares are renamed "
        f"is set in the device plugin's configuration); ask for {other}"
    )
    return observation.observed_cause(CauseCode.RESOURCE_UNKNOWN, sentence)


def _no_hardware(replica: Replica, resource: str, all_nodes: list[nodes.Node]) -> Observed | None:
    """No node has a GPU by any label: either there is none, or nothing looks for one."""
    if not all_nodes:
        return None
    if not any(gpu_nodes.is_labelled(node) for node in all_nodes):
        discovery = [
            pod
            for (component, _), pod in sorted(gpu_nodes.component_pods(replica).items())
            if component is Component.FEATURE_DISCOVERY
        ]
        ill = [pod for pod in discovery if not pod.is_ready]
        because = (
            f"node-feature-discovery does not work ({ill[0].problem})"
            if ill
            else "no node is labelled by node-feature-discovery, and no device plugin registered"
        )
        lines = [pod.line for pod in ill][:3]
    else:
        because = "node-feature-discovery sees no NVIDIA GPU on any node"
        lines = []
    count = quoting.counted(len(all_nodes), "node")
    sentence = f"none of {count} offers {quoting.words(resource, 63)}: {because}"
    return observation.observed_cause(CauseCode.NOT_ADVERTISED, sentence, *lines)


def _by_claims_only(replica: Replica, resource: str) -> Observed | None:
    """GPUs that nodes publish for claims, without a device plugin and without a class behind the resource."""
    published = {
        each.spec.node_name or "" for each in claimed_drivers.slices(replica, _NVIDIA_DRIVER)
    }
    if not published:
        return None
    components = {component for component, _ in gpu_nodes.component_pods(replica)}
    if Component.DEVICE_PLUGIN in components:
        return None
    sentence = (
        f"nodes offer their GPUs through claims only (driver {_NVIDIA_DRIVER}, "
        f"{quoting.counted(len(published), 'node')}), not as {quoting.words(resource, 63)}: ask by a "
        f"ResourceClaim, or set extendedResourceName on the DeviceClass"
    )
    return observation.observed_cause(CauseCode.NOT_ADVERTISED, sentence)


def _first_link(resource: str, links: list[_Link], *, is_everywhere: bool) -> tuple[str, list[str]]:
    """The earliest broken link with every node it is broken on: a sentence, and its evidence."""
    first = min(links, key=lambda link: (link.order, link.what))
    same = [link for link in links if (link.order, link.what) == (first.order, first.what)]
    where = quoting.nodes([link.node for link in same])
    who = (
        "no node offers" if is_everywhere else f"{quoting.counted(len(links), 'GPU node')} without"
    )
    sentence = f"{who} {quoting.words(resource, 63)}: {first.what} on {where}"
    return sentence, [link.line for link in same[:3] if link.line]


def _broken_links(
    replica: Replica, resource: str, silent: Iterable[nodes.Node], offerer: Component
) -> Iterator[_Link]:
    """For each node that offers nothing, the first link that is broken there."""
    running = gpu_nodes.component_pods(replica)
    for node in silent:
        yield _broken_link(node, resource, offerer, running)


def _broken_link(
    node: nodes.Node,
    resource: str,
    offerer: Component,
    running: dict[tuple[Component, str], ComponentPod],
) -> _Link:
    name, labels = node.metadata.name, node.metadata.labels
    state = labels.get(gpu_nodes.UPGRADE_STATE, "")
    if state not in _UPGRADE_ENDS:
        what = f"the driver upgrade is at {quoting.words(state, 40)}"
        return _Link(1, what, name, _label_line(name, gpu_nodes.UPGRADE_STATE, state))
    if link := mig_offers.broken_label(node):
        return _Link(4, link, name, _label_line(name, mig_offers.STATE, labels[mig_offers.STATE]))
    for order, component in enumerate((Component.DRIVER, Component.TOOLKIT, offerer), start=2):
        pod = running.get((component, name))
        if pod is not None and not pod.is_ready:
            what = f"the {component} does not run ({pod.problem})"
            return _Link(order, what, name, pod.line)
        key = gpu_nodes.DEPLOY + _DEPLOY_NAMES[component]
        wish = labels.get(key, "")
        if pod is None and wish.startswith("paused"):
            return _Link(order, f"the {component} is {wish}", name, _label_line(name, key, wish))
        if pod is None and (wish == "true" or component is offerer):
            # Without a single pod of the stack, the others may only not have been read.
            state = "runs" if running else "is seen"
            what = f"no pod of the {component} {state}"
            return _Link(order, what, name, _label_line(name, key, wish))
    return _unhealthy(node, resource, offerer)


def _unhealthy(node: nodes.Node, resource: str, offerer: Component) -> _Link:
    """Every link runs: the devices themselves are bad, or the plugin sees none."""
    name = node.metadata.name
    capacity = node.status.capacity.get(resource)
    for condition in node.status.conditions:
        is_bad = (condition.status == "True") != _is_about_health(condition)
        if condition.type not in _KUBELET_CONDITIONS and is_bad and _is_about_gpus(condition):
            line = quoting.line(
                f"Node {name}, condition {condition.type}={condition.status}",
                fields.time_at({"at": condition.last_transition_time}, "at"),
                condition.message or condition.reason,
            )
            return _Link(5, f"GPUs are unhealthy ({quoting.words(condition.type, 40)})", name, line)
    if capacity is not None and capacity.sign > 0:
        line = quoting.line(f"Node {name}", None, f"capacity {resource} {capacity}, allocatable 0")
        return _Link(5, f"all {capacity} GPUs are unhealthy by the {offerer}", name, line)
    return _Link(6, f"the {offerer} runs and registers no GPU", name, "")


def _is_about_gpus(condition: nodes.NodeCondition) -> bool:
    return bool(_HEALTH_WORDS.search(f"{condition.type} {condition.reason}"))


def _is_about_health(condition: nodes.NodeCondition) -> bool:
    """Whether True is good: conditions are named after health, or after a problem."""
    lowered = condition.type.lower()
    return ("healthy" in lowered and "unhealthy" not in lowered) or lowered.endswith("ready")


def _label_line(node: str, key: str, value: str) -> str:
    return quoting.line(f"Node {node}, label {key}", None, value or "absent")


def _driver(replica: Replica, driver: str) -> Observed | None:
    published = {each.spec.driver for each in claimed_drivers.slices(replica, "")}
    if driver in published or near_values.nearest(driver, published) is not None:
        return (
            None  # it publishes devices, or its class misspells one that does: the engine says so
        )
    if not driver.endswith("nvidia.com"):
        sentence = (
            f"no node publishes devices of driver {quoting.words(driver, 63)}: is it installed?"
        )
        return observation.observed_cause(CauseCode.NO_DEVICES, sentence)
    machines = [node for node in gpu_nodes.all_nodes(replica) if gpu_nodes.has_gpu(node)]
    what = f"devices of driver {driver}"
    links = list(_broken_links(replica, what, machines, Component.DRA_DRIVER))
    if not links:
        sentence = f"no node publishes {what}, and no node has an NVIDIA GPU by its labels"
        return observation.observed_cause(CauseCode.NO_DEVICES, sentence)
    sentence, lines = _first_link(what, links, is_everywhere=True)
    plugin = [node.metadata.name for node in machines if _offers(node, "nvidia.com/gpu")]
    if plugin:
        sentence += f"; {quoting.nodes(plugin)} offer nvidia.com/gpu by a device plugin instead"
    return observation.observed_cause(CauseCode.NO_DEVICES, sentence, *lines)


def _label_keys(pod: pods.Pod) -> list[str]:
    keys = list(pod.spec.node_selector)
    affinity = pod.spec.affinity
    node_affinity = affinity.node_affinity if affinity is not None else None
    if node_affinity is not None:
        required = node_affinity.required_during_scheduling_ignored_during_execution
        for term in required.node_selector_terms if required is not None else ():
            keys += [each.key for each in term.match_expressions if each.operator != "NotIn"]
    return keys
