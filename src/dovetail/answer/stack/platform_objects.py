"""What the objects of a cluster say about how its GPU nodes were set up: the operator's, DaemonSets, slices, pods.

Given the objects of a cluster. Indexes them once by node and component. An object that cannot be read is a problem with
its name, never an error. Never decides what a version means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from dovetail import errors
from dovetail.answer.stack.stack_facts import Fact, fact, unknown
from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.gpus import image_tags
from dovetail.kubetypes import codec, gpu_stack_kinds, object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import gpu_operator
from dovetail.kubetypes.resource import slices
from dovetail.kubetypes.workloads import daemon_sets
from dovetail.model import node_pools

T = TypeVar("T")

AGENT: Final = "dovetail-node-agent"
_OPERATOR_LABELS: Final = (
    ("app", "gpu-operator"),
    ("app.kubernetes.io/component", "gpu-operator"),
)
_VERSION_LABELS: Final = ("app.kubernetes.io/version", "helm.sh/chart")
_OUR_LABELS: Final = {
    "app.kubernetes.io/name": "dovetail",
    "app.kubernetes.io/component": "node-agent",
}
_TAG_VERSION: Final = re.compile(r"v?(?P<version>\d+(?:\.\d+)*)(?:$|[-_+])")
_CHART_VERSION: Final = re.compile(r"v?(?P<version>\d+\.\d+(?:\.\d+)*)")


class Running(NamedTuple):
    """A part of the stack as a pod or a template names it."""

    version: Fact
    selector: Mapping[str, str]  # of a template: the labels of its nodes


class SliceFacts(NamedTuple):
    """What the slices of a node say about its GPUs: each attribute with all its values."""

    gpus: int
    values: Mapping[str, tuple[str, ...]]


class Platform(NamedTuple):
    """The objects that set up GPU nodes."""

    policies: tuple[gpu_operator.ClusterPolicy, ...]
    drivers: tuple[gpu_operator.NVIDIADriver, ...]
    clusters: tuple[gpu_operator.GPUCluster, ...]
    operator: Fact
    templates: Mapping[Component, tuple[Running, ...]]
    on_nodes: Mapping[tuple[Component, str], Running]
    slices: Mapping[str, SliceFacts]
    problems: tuple[str, ...]

    @property
    def policy(self) -> gpu_operator.ClusterPolicy | None:
        """The policy that counts: the oldest that is not ignored."""
        counting = [each for each in self.policies if each.status.state != "ignored"]
        by_age = sorted(
            counting,
            key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name),
        )
        return by_age[0] if by_age else None


def read(objects: object_set.ObjectSet) -> Platform:
    """The platform of a cluster. Linear in its pods and devices."""
    problems: list[str] = []
    policies = tuple(
        _decoded(objects, gpu_stack_kinds.CLUSTER_POLICY, gpu_operator.ClusterPolicy, problems)
    )
    return Platform(
        policies=policies,
        drivers=tuple(
            _decoded(objects, gpu_stack_kinds.NVIDIA_DRIVER, gpu_operator.NVIDIADriver, problems)
        ),
        clusters=tuple(
            _decoded(objects, gpu_stack_kinds.GPU_CLUSTER, gpu_operator.GPUCluster, problems)
        ),
        operator=_operator(objects, policies),
        templates=_templates(objects, problems),
        on_nodes=_on_nodes(objects),
        slices=_slices(objects),
        problems=tuple(problems),
    )


def version_of_image(image: str, source: str) -> Fact:
    """The version that the tag of an image begins with."""
    tag = image_tags.reference(image).tag
    match = _TAG_VERSION.match(tag)
    if match:
        return fact(match["version"], source)
    why = f"its tag is {tag}" if tag else "its image has no tag"
    return unknown(f"{source}: {why}")


def _decoded(
    objects: object_set.ObjectSet, kind: registry.Kind, struct: type[T], problems: list[str]
) -> Iterator[T]:
    """The objects of a kind; files of any objects keep those outside the registry undecoded."""
    for stored in objects.listed(kind.unique_name):
        if isinstance(stored.struct, struct):
            yield stored.struct
            continue
        try:
            yield codec.decode_struct(struct, stored.document)  # type: ignore[type-var]
        except errors.InputError as error:
            problems.append(f"{kind.name} {stored.struct.metadata.name}: {error}")


def _operator(
    objects: object_set.ObjectSet, policies: tuple[gpu_operator.ClusterPolicy, ...]
) -> Fact:
    for stored in objects.listed(registry.POD.name):
        pod = stored.struct
        if not isinstance(pod, pods.Pod) or pod.status.phase in pods.TERMINAL_PHASES:
            continue
        labels = pod.metadata.labels
        if any(labels.get(key) == value for key, value in _OPERATOR_LABELS):
            source = f"image of pod {pod.metadata.namespace}/{pod.metadata.name}"
            for container in pod.spec.containers:
                version = version_of_image(container.image, source)
                if version.is_known:
                    return version
    for policy in policies:
        for label in _VERSION_LABELS:
            match = _CHART_VERSION.search(policy.metadata.labels.get(label, ""))
            if match:
                return fact(
                    match["version"], f"label {label} of ClusterPolicy {policy.metadata.name}"
                )
    if policies:
        return unknown("ClusterPolicy has no version label, and no pod of the operator was read")
    return Fact(value="none", source="no ClusterPolicy and no pod of the operator")


def _templates(
    objects: object_set.ObjectSet, problems: list[str]
) -> dict[Component, tuple[Running, ...]]:
    by_component: dict[Component, tuple[Running, ...]] = {}
    for daemon_set in _decoded(
        objects, gpu_stack_kinds.DAEMON_SET, daemon_sets.DaemonSet, problems
    ):
        template = daemon_set.spec.template
        labels = daemon_set.metadata.labels | template.metadata.labels
        component = gpu_nodes.component_of(labels)
        if component is None:
            continue
        name = f"{daemon_set.metadata.namespace}/{daemon_set.metadata.name}"
        source = f"template of DaemonSet {name}"
        images = [each.image for each in template.spec.containers]
        version = _component_version(labels, images, source)
        running = Running(version, template.spec.node_selector)
        by_component[component] = (*by_component.get(component, ()), running)
    return by_component


def _on_nodes(objects: object_set.ObjectSet) -> dict[tuple[Component, str], Running]:
    by_place: dict[tuple[Component, str], Running] = {}
    for stored in objects.listed(registry.POD.name):
        pod = stored.struct
        if not isinstance(pod, pods.Pod) or not pod.spec.node_name:
            continue
        if pod.status.phase in pods.TERMINAL_PHASES:
            continue
        component = gpu_nodes.component_of(pod.metadata.labels)
        if component is None:
            continue
        source = f"image of pod {pod.metadata.namespace}/{pod.metadata.name}"
        images = [each.image for each in pod.spec.containers]
        version = _component_version(pod.metadata.labels, images, source)
        by_place.setdefault((component, pod.spec.node_name), Running(version, {}))
    return by_place


def _component_version(labels: Mapping[str, str], images: list[str], source: str) -> Fact:
    if all(labels.get(key) == value for key, value in _OUR_LABELS.items()):
        return fact(AGENT, source)
    versions = [version_of_image(image, source) for image in images]
    stated = [version for version in versions if version.is_known]
    if stated:
        return stated[0]
    return versions[0] if versions else unknown(f"{source}: no container")


def _slices(objects: object_set.ObjectSet) -> dict[str, SliceFacts]:
    gpus: dict[str, int] = {}
    values: dict[str, dict[str, dict[str, None]]] = {}
    for stored in objects.listed(registry.SLICE.name):
        published = stored.struct
        if not isinstance(published, slices.ResourceSlice):
            continue
        spec = published.spec
        if spec.driver != node_pools.GPU_DRIVER or not spec.node_name:
            continue
        of_node = values.setdefault(spec.node_name, {})
        gpus.setdefault(spec.node_name, 0)
        for device in spec.devices:
            for name, attribute in device.attributes.items():
                text = attribute.version_value or attribute.string_value
                if text:
                    of_node.setdefault(name.rpartition("/")[2], {})[text] = None
            kind = device.attributes.get("type")
            gpus[spec.node_name] += kind is not None and kind.string_value == "gpu"
    return {
        node: SliceFacts(gpus[node], {name: tuple(each) for name, each in of_node.items()})
        for node, of_node in values.items()
    }
