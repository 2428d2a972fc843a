"""`GET /upgrades`: upgrades of the GPU stack with their waves and nodes, what happened to each and what it waits for.

Refused to users who may not list upgrades. Of nodes, gangs and pods, a user reads the names that they may list.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.custom.stack_upgrades import StackUpgrade
from dovetail.tables.stack import upgrade_items
from dovetail.web import asked, endpoints
from dovetail.web.api import (
    fleet_resource,
    hidden_names,
    item_filters,
    read_kinds,
    rights,
    shared_results,
)


class UpgradeParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which upgrades."""

    name: str = ""
    phase: tuple[str, ...] = ()


def answer(
    question: asked.Asked, params: UpgradeParams
) -> endpoints.Page[upgrade_items.UpgradeItem]:
    """The upgrades that are asked for, those under way first."""
    rights.must_list(question, registry.STACK_UPGRADE)
    stored = question.view.objects.listed(registry.STACK_UPGRADE.unique_name)
    typed = [codec.typed(each, StackUpgrade) for each in stored]
    upgrades = [upgrade for upgrade in typed if upgrade is not None]
    gpus = _gpus(question) if upgrades else {}
    hidden = hidden_names.of(question)
    items = [
        _without(hidden, item)
        for item in upgrade_items.items_of(upgrades, gpus, question.view.now)
        if params.name in ("", item.name) and item_filters.is_one_of(item.phase, params.phase)
    ]
    return endpoints.Page(items=items)


def _gpus(question: asked.Asked) -> Mapping[str, int]:
    """The GPUs of each node, as far as the user may see them."""
    if not rights.lists(question, registry.NODE):
        return {}
    whole = shared_results.fleet(question)
    return {node.name: len(node.gpus) for node in fleet_resource.shown_nodes(question, whole)}


def _without(
    hidden: hidden_names.HiddenNames, item: upgrade_items.UpgradeItem
) -> upgrade_items.UpgradeItem:
    """The item without names that the user may not read; words of our own stay, whatever pods are called."""
    shown = hidden.without(item)
    words = {field: getattr(item, field) for field in ("name", "to", "phases", "adapter")}
    return msgspec.structs.replace(shown, **words)


ENDPOINTS = (
    endpoints.Endpoint(
        "/upgrades",
        UpgradeParams,
        endpoints.Page[upgrade_items.UpgradeItem],
        answer,
        summary="Upgrades of the GPU stack",
        reads=(
            read_kinds.UPGRADES,
            *read_kinds.WORK,
            read_kinds.NODES,
            read_kinds.SLICES,
            read_kinds.CLAIMS,
            read_kinds.INTENTS,
        ),
        is_quick=True,
    ),
)
