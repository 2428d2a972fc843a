"""Decides whether a node's driver meets what the containers of a pod require by NVIDIA_REQUIRE_*.

With CDI no container runtime evaluates these variables, so a mismatch would be found only by the program, at run time.
Given a pod, a node and the devices that it publishes. Containers that get no GPU require nothing; a node that does not
say what it has is not ruled out. Never reads an image: only variables that the pod itself sets are known.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from dovetail.gpus import host_properties, image_requirements
from dovetail.gpus.host_properties import Properties
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import gpu_annotations, node_pools
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world.devices.device_columns import Devices
from dovetail.world.views.node_view import NodeView

Requirements = tuple[str, ...]  # of all containers, each once
SUBJECT: Final = f"{image_requirements.PREFIX}*"
MOST_CHARACTERS: Final = 16_384  # of one variable
MOST_REMEMBERED: Final = 10_000

Values = dict[str, tuple[str, ...]]  # by attribute, what the devices publish


def requirements_of(pod: pods.Pod) -> Requirements:
    """What the pod's containers require of a driver, sorted. Nothing for most pods, at the cost of a look."""
    texts: set[str] = set()
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.env and _may_use_gpu(container):
            environment = {
                variable.name: variable.value[:MOST_CHARACTERS] for variable in container.env
            }
            texts.update(image_requirements.requirements_of(environment))
    return tuple(sorted(texts))


class ImageFit:
    """Compares requirements with nodes; remembers what devices publish and what was evaluated."""

    def __init__(self) -> None:
        self._values: WeakKeyDictionary[Devices, Values] = WeakKeyDictionary()
        self._outcomes: dict[tuple[Requirements, Properties], Reason | None] = {}

    def misfit(self, requirements: Requirements, node: nodes.Node, view: NodeView) -> Reason | None:
        """Why the node's driver does not do; None where it does, or where that is not known."""
        if not requirements:
            return None
        properties = self._properties(node, view)
        key = (requirements, properties)
        if key not in self._outcomes:
            if len(self._outcomes) >= MOST_REMEMBERED:
                self._outcomes.clear()
            self._outcomes[key] = _evaluated(requirements, properties)
        return self._outcomes[key]

    def _properties(self, node: nodes.Node, view: NodeView) -> Properties:
        values: dict[str, dict[str, None]] = {}
        for pool in view.pools:
            if pool.driver != node_pools.GPU_DRIVER:
                continue
            for name, published in self._published(pool.devices).items():
                values.setdefault(name, {}).update(dict.fromkeys(published))
        listed = {name: tuple(published) for name, published in values.items()}
        return host_properties.of_node(node.metadata.labels, listed)

    def _published(self, devices: Devices) -> Values:
        published = self._values.get(devices)
        if published is None:
            published = {name: _column_values(devices, name) for name in host_properties.ATTRIBUTES}
            self._values[devices] = published
        return published


def _column_values(devices: Devices, attribute: str) -> tuple[str, ...]:
    column = devices.column(attribute) or ()
    texts = [value.version_value or value.string_value for value in column if value is not None]
    return tuple(dict.fromkeys(text for text in texts if text))


def _evaluated(requirements: Requirements, properties: Properties) -> Reason | None:
    outcome = image_requirements.evaluate(requirements, properties.by_name())
    match outcome.state:
        case image_requirements.State.MET | image_requirements.State.UNKNOWN:
            return None
        case image_requirements.State.UNMET | image_requirements.State.INVALID:
            return Reason(
                code=ReasonCode.IMAGE_REQUIREMENTS, subject=SUBJECT, detail=outcome.problem
            )


def _may_use_gpu(container: pods.Container) -> bool:
    resources = container.resources
    return bool(resources.claims) or any(
        gpu_annotations.is_gpu(name) for name in (*resources.limits, *resources.requests)
    )
