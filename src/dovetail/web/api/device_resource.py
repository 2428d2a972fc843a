"""`GET /devices`: every published device and what holds it; one row for what a device plugin counts."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dovetail.kubetypes import registry
from dovetail.tables.fleet import fleet_map
from dovetail.tables.items import device_items
from dovetail.web import asked, endpoints
from dovetail.web.api import item_filters, read_kinds, rights, shared_results


class DeviceParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which devices. `state` is one word of it: free, allocated, tainted."""

    node: str = ""
    state: str = ""
    type: tuple[str, ...] = ()
    text: str = ""


def answer(question: asked.Asked, params: DeviceParams) -> endpoints.Page[device_items.DeviceItem]:
    """The devices that are asked for."""
    rights.must_list(question, registry.SLICE)
    candidates = [
        item
        for item in shared_results.devices(question)
        if params.node in ("", item.node)
        and (not params.state or params.state.lower() in item.state.split(","))
        and item_filters.is_one_of(item.type, params.type)
    ]
    items = [
        item
        for item in visible(question, candidates)
        if item_filters.has_text(params.text, _texts(item))
    ]
    return endpoints.Page(items=items)


def visible(
    question: asked.Asked, items: Iterable[device_items.DeviceItem]
) -> tuple[device_items.DeviceItem, ...]:
    """The devices; a holder has no name where the user may not list pods and claims, which name their devices."""
    return tuple(_visible(question, item) for item in items)


def _visible(question: asked.Asked, item: device_items.DeviceItem) -> device_items.DeviceItem:
    places = item.holder_namespaces
    if all(rights.sees_kind(question, registry.CLAIM, namespace) for namespace in places):
        return item
    return msgspec.structs.replace(item, holder=fleet_map.HIDDEN_NAME, holder_namespaces=())


def _texts(item: device_items.DeviceItem) -> tuple[str, ...]:
    return item.node, item.device, item.model, item.gpu, item.holder


ENDPOINTS = (
    endpoints.Endpoint(
        "/devices",
        DeviceParams,
        endpoints.Page[device_items.DeviceItem],
        answer,
        summary="Devices and their holders",
        reads=(*read_kinds.DEVICES, read_kinds.PODS, read_kinds.INTENTS),
        is_quick=True,
    ),
)
