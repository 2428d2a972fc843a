"""`GET /fleet`: all GPUs, node by node, with their parts and holders; or what changed since a version.

Holders are sent once and referred to by number. Holders in namespaces that the user may not see become one without a
name. Never draws: `tables/fleet` does.
"""

from __future__ import annotations

import datetime

import msgspec

from dovetail.tables.fleet import fleet_map, fleet_memory
from dovetail.web import asked, endpoints
from dovetail.web.api import rights, shared_results


class FleetParams(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Which nodes; `type` and `node` are parts of a name."""

    pool: str = ""
    type: str = ""
    rack: str = ""
    node: str = ""
    changed_since: int | None = None


class Fleet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The GPUs. `is_partial`: only what changed; `removed` are nodes that are gone since."""

    as_of: datetime.datetime
    version: int
    is_partial: bool
    removed: tuple[str, ...]
    holders: tuple[fleet_map.FleetHolder, ...]
    nodes: tuple[fleet_map.FleetNode, ...]


def answer(question: asked.Asked, params: FleetParams) -> Fleet:
    """All nodes that are asked for, or those that changed."""
    rights.must_list(question, "nodes")
    whole = shared_results.fleet(question)
    since = params.changed_since
    is_partial = since is not None and whole.knows(since)
    nodes = [node for node in whole.nodes if _is_wanted(node, params)]
    removed: list[str] = []
    renamed: set[int] = set()
    if is_partial and since is not None:
        nodes = [node for node in nodes if whole.node_versions[node.name] > since]
        removed = [name for name, version in whole.removed.items() if version > since]
        renamed = {each for each, version in whole.holder_versions.items() if version > since}
    referred = {number for node in nodes for gpu in node.gpus for number in _holders_of(gpu)}
    hidden = hidden_holders(question, whole)
    shown = (referred | renamed) - hidden
    holders = [whole.holders[number] for number in sorted(shown)]
    if referred & hidden:
        holders.insert(0, fleet_map.HIDDEN)
    return Fleet(
        as_of=question.view.now,
        version=whole.version,
        is_partial=is_partial,
        removed=tuple(sorted(removed)),
        holders=tuple(holders),
        nodes=tuple(without_hidden(node, hidden) for node in nodes),
    )


def hidden_holders(question: asked.Asked, whole: fleet_memory.FleetMap) -> frozenset[int]:
    """The numbers of holders whose names the user may not see."""
    if question.may.sees_all:
        return frozenset()
    return frozenset(
        number
        for number, holder in whole.holders.items()
        if not rights.sees(question, holder.namespace)
    )


def without_hidden(node: fleet_map.FleetNode, hidden: frozenset[int]) -> fleet_map.FleetNode:
    """The node with hidden holders replaced by the one that stands for them."""
    if not hidden:
        return node
    gpus = tuple(_gpu_without(gpu, hidden) for gpu in node.gpus)
    return msgspec.structs.replace(node, gpus=gpus)


def _gpu_without(gpu: fleet_map.FleetGpu, hidden: frozenset[int]) -> fleet_map.FleetGpu:
    if hidden.isdisjoint(_holders_of(gpu)):
        return gpu

    def shown(number: int) -> int:
        return fleet_map.HIDDEN_HOLDER if number in hidden else number

    parts = [
        part if part.holder is None else msgspec.structs.replace(part, holder=shown(part.holder))
        for part in gpu.parts
    ]
    holders = dict.fromkeys(map(shown, gpu.holders))
    return msgspec.structs.replace(gpu, holders=tuple(holders), parts=tuple(parts))


def _holders_of(gpu: fleet_map.FleetGpu) -> tuple[int, ...]:
    """All holders; those of parts are among them."""
    return gpu.holders


def _is_wanted(node: fleet_map.FleetNode, params: FleetParams) -> bool:
    if params.pool and node.pool != params.pool:
        return False
    if params.rack and node.rack != params.rack:
        return False
    is_of_type = params.type.lower() in node.type.lower()
    return is_of_type and params.node.lower() in node.name.lower()


ENDPOINTS = (
    endpoints.Endpoint(
        "/fleet", FleetParams, Fleet, answer, summary="All GPUs and who holds them", is_quick=True
    ),
)
