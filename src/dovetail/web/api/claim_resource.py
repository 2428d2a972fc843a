"""`GET /claims`: what claims request, what they got, and for which pods."""

from __future__ import annotations

import msgspec

from dovetail.kubetypes import registry
from dovetail.tables.items import claim_items
from dovetail.web import asked, endpoints
from dovetail.web.api import item_filters, read_kinds, rights, shared_results


class ClaimParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which claims. `state` is one word of it: allocated, pending, reserved, deleting."""

    state: str = ""
    namespace: tuple[str, ...] = ()
    text: str = ""


def answer(question: asked.Asked, params: ClaimParams) -> endpoints.Page[claim_items.ClaimItem]:
    """The claims that are asked for and that the user may see."""
    items = [
        item
        for item in shared_results.claims(question)
        if rights.sees_kind(question, registry.CLAIM, item.namespace)
        and (not params.state or params.state.lower() in item.state.split(","))
        and item_filters.is_one_of(item.namespace, params.namespace)
        and item_filters.has_text(params.text, _texts(item))
    ]
    return endpoints.Page(items=items)


def _texts(item: claim_items.ClaimItem) -> tuple[str, ...]:
    return (f"{item.namespace}/{item.name}", item.requests, *item.devices, *item.pods)


ENDPOINTS = (
    endpoints.Endpoint(
        "/claims",
        ClaimParams,
        endpoints.Page[claim_items.ClaimItem],
        answer,
        summary="Claims and their devices",
        reads=(read_kinds.PODS, read_kinds.CLAIMS, read_kinds.NODES),
        is_quick=True,
    ),
)
