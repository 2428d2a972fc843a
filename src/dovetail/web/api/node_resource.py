"""`GET /nodes/{name}`: one node with its GPUs, devices, pods, labels, taints and conditions.

Given the picture of the fleet and the objects behind the node. Pods and holders of namespaces that the user may not see
are counted, not named.
"""

from __future__ import annotations

import datetime

import msgspec

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.tables.fleet import fleet_map, fleet_memory, node_states
from dovetail.tables.items import device_items, pod_items
from dovetail.web import asked, endpoints, problems
from dovetail.web.api import (
    device_resource,
    fleet_resource,
    hidden_names,
    read_kinds,
    rights,
    shared_results,
)


class NodeParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which node."""

    name: str


class NodeTaint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A taint, and since when."""

    key: str
    value: str
    effect: str
    since: str | None


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition, and since when it has its status."""

    type: str
    status: str
    reason: str
    message: str
    since: str | None


class NodeDetail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All about one node. The fields of the fleet map come first."""

    name: str
    rack: str
    pool: str
    type: str
    memory_bytes: int
    domain: str
    clique: str
    state: str
    reason: str
    gpus: tuple[fleet_map.FleetGpu, ...]
    as_of: datetime.datetime
    version: int
    created: str | None
    labels: dict[str, str]
    taints: tuple[NodeTaint, ...]
    conditions: tuple[NodeCondition, ...]
    allocatable: dict[str, str]
    holders: tuple[fleet_map.FleetHolder, ...]
    devices: tuple[device_items.DeviceItem, ...]
    pods: tuple[pod_items.PodItem, ...]
    hidden_pods: int  # of namespaces that the user may not see
    neighbours: tuple[str, ...]  # other nodes of its NVLink domain


def answer(question: asked.Asked, params: NodeParams) -> NodeDetail:
    """The node. Raises 404 where there is none."""
    rights.must_list(question, registry.NODE)
    objects = question.view.objects
    stored = objects.get(object_set.Key(registry.NODE.name, "", params.name))
    if stored is None or not isinstance(stored.struct, nodes.Node):
        raise problems.not_found(f'there is no node "{params.name}"')
    node, whole = stored.struct, shared_results.fleet(question)
    pictures = {each.name: each for each in fleet_resource.shown_nodes(question, whole)}
    picture = pictures.get(params.name) or _without_gpus(node)
    shown = fleet_resource.hidden_holders(question, whole).without(picture)
    names = hidden_names.of(question)
    pods = [each for each in shared_results.pods(question) if each.node == params.name]
    visible = [each for each in pods if rights.sees(question, each.namespace)]
    of_node = object_set.of(objects.cluster, whole.made_of.get(params.name, (stored,)))
    devices = device_items.items_of(of_node, node=params.name)
    if not rights.lists(question, registry.SLICE):
        devices = tuple(each for each in devices if not each.pool)  # those that the node counts
    return NodeDetail(
        **{name: getattr(shown, name) for name in shown.__struct_fields__},
        as_of=question.view.now,
        version=question.version,
        created=node.metadata.creation_timestamp,
        labels=node.metadata.labels,
        taints=tuple(_taint(taint) for taint in node.spec.taints),
        conditions=tuple(_condition(each) for each in node.status.conditions),
        allocatable={name: str(amount) for name, amount in node.status.allocatable.items()},
        holders=names.without(_holders(shown, whole)),
        devices=device_resource.visible(question, devices),
        pods=names.without(tuple(visible)),
        hidden_pods=len(pods) - len(visible),
        neighbours=_neighbours(picture, whole),
    )


def _holders(
    shown: fleet_map.FleetNode, whole: fleet_memory.FleetMap
) -> tuple[fleet_map.FleetHolder, ...]:
    numbers = sorted({number for gpu in shown.gpus for number in gpu.holders})
    return tuple(
        fleet_map.HIDDEN if number == fleet_map.HIDDEN_HOLDER else whole.holders[number]
        for number in numbers
    )


def _neighbours(picture: fleet_map.FleetNode, whole: fleet_memory.FleetMap) -> tuple[str, ...]:
    if not picture.domain:
        return ()
    names = [node.name for node in whole.nodes if node.domain == picture.domain]
    return tuple(name for name in names if name != picture.name)


def _without_gpus(node: nodes.Node) -> fleet_map.FleetNode:
    state = node_states.state_of(node)
    return fleet_map.FleetNode(
        name=node.metadata.name,
        rack=node.metadata.labels.get(node_pools.RACK, ""),
        pool=node_pools.name_of(node),
        type="",
        memory_bytes=0,
        domain="",
        clique="",
        state=state.state,
        reason=state.reason,
        gpus=(),
    )


def _taint(taint: nodes.Taint) -> NodeTaint:
    return NodeTaint(key=taint.key, value=taint.value, effect=taint.effect, since=taint.time_added)


def _condition(condition: nodes.NodeCondition) -> NodeCondition:
    return NodeCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        since=condition.last_transition_time,
    )


ENDPOINTS = (
    endpoints.Endpoint(
        "/nodes/{name}",
        NodeParams,
        NodeDetail,
        answer,
        summary="One node",
        reads=(*read_kinds.WORK, *read_kinds.DEVICES, read_kinds.INTENTS),
        is_quick=True,
    ),
)
