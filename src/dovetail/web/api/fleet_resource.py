"""`GET /fleet`: all GPUs, node by node, with their parts and holders; or what changed since a version.

Holders are sent once and referred to by number. Holders that the user may not see become one without a name: which pod
has which published device is written in its claim, so both must be listed. Without the right to list slices, nodes that
publish their GPUs in slices show none. Never draws: `tables/fleet` does.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

import msgspec

from dovetail.kubetypes import registry
from dovetail.tables.fleet import fleet_map, fleet_memory
from dovetail.web import asked, endpoints
from dovetail.web.api import hidden_names, read_kinds, rights, shared_results


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
    rights.must_list(question, registry.NODE)
    whole = shared_results.fleet(question)
    since = params.changed_since
    is_partial = since is not None and whole.knows(since)
    hidden = hidden_holders(question, whole)
    nodes = [node for node in shown_nodes(question, whole) if _is_wanted(node, params)]
    removed: list[str] = []
    renamed: set[int] = set()
    if is_partial and since is not None:
        nodes = [node for node in nodes if whole.node_versions[node.name] > since]
        removed = [name for name, version in whole.removed.items() if version > since]
        renamed = {each for each, version in whole.holder_versions.items() if version > since}
    nodes = [hidden.without(node) for node in nodes]
    referred = {number for node in nodes for gpu in node.gpus for number in gpu.holders}
    shown = (referred | renamed - hidden.everywhere) - {fleet_map.HIDDEN_HOLDER}
    names = hidden_names.of(question)
    holders = [names.without(whole.holders[number]) for number in sorted(shown)]
    if fleet_map.HIDDEN_HOLDER in referred:
        holders.insert(0, fleet_map.HIDDEN)
    return Fleet(
        as_of=question.view.now,
        version=whole.version,
        is_partial=is_partial,
        removed=tuple(sorted(removed)),
        holders=tuple(holders),
        nodes=tuple(nodes),
    )


class HiddenHolders(NamedTuple):
    """The numbers of holders whose names the user may not see: on every node, and where claims name the devices."""

    everywhere: frozenset[int]
    by_claims: frozenset[int]  # more than everywhere
    published: frozenset[str]  # nodes whose devices are claimed

    def without(self, node: fleet_map.FleetNode) -> fleet_map.FleetNode:
        """The node with hidden holders replaced by the one that stands for them."""
        hidden = self.by_claims if node.name in self.published else self.everywhere
        if not hidden:
            return node
        gpus = tuple(_gpu_without(gpu, hidden) for gpu in node.gpus)
        return msgspec.structs.replace(node, gpus=gpus)


def hidden_holders(question: asked.Asked, whole: fleet_memory.FleetMap) -> HiddenHolders:
    """The holders that the user may not see."""
    if question.may.sees_everything:
        return HiddenHolders(frozenset(), frozenset(), frozenset())
    holders = whole.holders.items()
    pods = [number for number, each in holders if not rights.sees(question, each.namespace)]
    claims = [
        number
        for number, each in holders
        if not rights.sees_kind(question, registry.CLAIM, each.namespace)
    ]
    return HiddenHolders(frozenset(pods), frozenset(claims), published_nodes(question, whole))


def shown_nodes(
    question: asked.Asked, whole: fleet_memory.FleetMap
) -> tuple[fleet_map.FleetNode, ...]:
    """All nodes, without GPUs that only slices show where the user may not list slices."""
    if rights.lists(question, registry.SLICE):
        return whole.nodes
    published = published_nodes(question, whole)
    return tuple(
        msgspec.structs.replace(node, gpus=()) if node.name in published else node
        for node in whole.nodes
    )


def published_nodes(question: asked.Asked, whole: fleet_memory.FleetMap) -> frozenset[str]:
    """The nodes whose GPUs are published in slices."""

    def make() -> frozenset[str]:
        return frozenset(
            name
            for name, objects in whole.made_of.items()
            if any(stored.struct.kind == registry.SLICE.name for stored in objects)
        )

    return question.memo("published nodes", make)


def _gpu_without(gpu: fleet_map.FleetGpu, hidden: frozenset[int]) -> fleet_map.FleetGpu:
    if hidden.isdisjoint(gpu.holders):  # those of parts are among them
        return gpu

    def shown(number: int) -> int:
        return fleet_map.HIDDEN_HOLDER if number in hidden else number

    parts = [
        part if part.holder is None else msgspec.structs.replace(part, holder=shown(part.holder))
        for part in gpu.parts
    ]
    holders = dict.fromkeys(map(shown, gpu.holders))
    return msgspec.structs.replace(gpu, holders=tuple(holders), parts=tuple(parts))


def _is_wanted(node: fleet_map.FleetNode, params: FleetParams) -> bool:
    if params.pool and node.pool != params.pool:
        return False
    if params.rack and node.rack != params.rack:
        return False
    is_of_type = params.type.lower() in node.type.lower()
    return is_of_type and params.node.lower() in node.name.lower()


ENDPOINTS = (
    endpoints.Endpoint(
        "/fleet",
        FleetParams,
        Fleet,
        answer,
        summary="All GPUs and who holds them",
        reads=(*read_kinds.WORK, *read_kinds.DEVICES, read_kinds.INTENTS),
        is_quick=True,
    ),
)
