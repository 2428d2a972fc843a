"""What a node shows for its validation: GPUs, driver, toolkit, slices, allocatable, the agent's dry run, Jobs.

Given the objects of a cluster. The same facts, recorded before an upgrade, are what the node has to be again after it.
Unknown values stay unknown, with the reason. Never judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.answer.stack import node_stack, platform_objects
from dovetail.answer.stack.stack_facts import Fact
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.resource import slices
from dovetail.model import node_annotations, node_pools
from dovetail.upgrade.validation.validation_job import JobResult


class PoolState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The slices of a node's GPUs, of the newest generation of their pool."""

    slices: int = 0
    expected: int = 0
    devices: int = 0
    generation: int = 0
    partitions: dict[str, int] = {}  # of its devices, by profile; `whole` for GPUs

    @property
    def is_whole(self) -> bool:
        """Whether every slice of the newest generation is there."""
        return self.slices > 0 and self.slices == self.expected


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node now."""

    node: str
    gpus: int
    driver: Fact
    toolkit: Fact
    pool: PoolState
    allocatable: dict[str, int]  # resources of a device plugin
    rehearsal: node_annotations.Rehearsal | None = None
    jobs: dict[str, JobResult] = {}


class Baseline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The node before the upgrade, as it is kept in an annotation of the Node."""

    gpus: int
    driver: str = ""
    toolkit: str = ""
    devices: int = 0
    allocatable: dict[str, int] = {}


EMPTY_POOL: Final = PoolState()


def of_node(
    objects: object_set.ObjectSet, name: str, *, jobs: Mapping[str, JobResult] | None = None
) -> NodeFacts | None:
    """The facts of one node; None where the cluster has no such node. Linear in pods and slices."""
    stored = objects.get(object_set.Key(registry.NODE.name, "", name))
    if stored is None or not isinstance(stored.struct, nodes.Node):
        return None
    stack = node_stack.of_node(stored, platform_objects.read(objects))
    node = stored.struct
    return NodeFacts(
        node=name,
        gpus=stack.gpus,
        driver=stack.driver_loaded,
        toolkit=stack.toolkit,
        pool=pool_state(objects, name),
        allocatable=node_pools.plugin_gpus(node),
        rehearsal=node_annotations.rehearsal_of(node.metadata.annotations),
        jobs=dict(jobs or {}),
    )


def pool_state(objects: object_set.ObjectSet, node: str) -> PoolState:
    """How complete the pool of a node's GPUs is."""
    published = [
        stored.struct.spec
        for stored in objects.listed(registry.SLICE.name)
        if isinstance(stored.struct, slices.ResourceSlice)
    ]
    of_the_node = [
        spec
        for spec in published
        if spec.driver == node_pools.GPU_DRIVER and node in (spec.node_name, spec.pool.name)
    ]
    if not of_the_node:
        return EMPTY_POOL
    newest = max(spec.pool.generation for spec in of_the_node)
    current = [spec for spec in of_the_node if spec.pool.generation == newest]
    return PoolState(
        slices=len(current),
        expected=max(spec.pool.resource_slice_count for spec in current),
        devices=sum(len(spec.devices) for spec in current),
        generation=newest,
        partitions=dict(Counter(_profile(device) for spec in current for device in spec.devices)),
    )


def _profile(device: slices.Device) -> str:
    profile = device.attributes.get("profile")
    return (profile.string_value if profile is not None else "") or stack_upgrades.WHOLE


def recorded(facts: NodeFacts) -> Baseline:
    """What to keep of a node before its upgrade begins."""
    return Baseline(
        gpus=facts.gpus,
        driver=facts.driver.value,
        toolkit=facts.toolkit.value,
        devices=facts.pool.devices,
        allocatable=facts.allocatable,
    )


def encoded(baseline: Baseline) -> str:
    """For the annotation."""
    return msgspec.json.encode(baseline, order="sorted").decode()


def baseline_of(annotations: Mapping[str, str]) -> Baseline | None:
    """The record of a Node; None where it has none, or one that cannot be read."""
    text = annotations.get(node_annotations.BASELINE, "")
    try:
        return msgspec.json.decode(text, type=Baseline) if text else None
    except msgspec.MsgspecError:
        return None
