"""`GET /pods`: where pods run, or why they do not."""

from __future__ import annotations

import msgspec

from dovetail.tables.items import pod_items
from dovetail.web import asked, endpoints
from dovetail.web.api import hidden_names, item_filters, read_kinds, rights, shared_results


class PodParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pods. `text` is looked for in name, namespace, node, work and queue."""

    phase: tuple[str, ...] = ()
    node: str = ""
    namespace: tuple[str, ...] = ()
    text: str = ""
    labels: str = ""


def answer(question: asked.Asked, params: PodParams) -> endpoints.Page[pod_items.PodItem]:
    """The pods that are asked for and that the user may see."""
    test = item_filters.labels(params.labels)
    items = [
        item
        for item in shared_results.pods(question)
        if rights.sees(question, item.namespace)
        and params.node in ("", item.node)
        and item_filters.is_one_of(item.status, params.phase)
        and item_filters.is_one_of(item.namespace, params.namespace)
        and item_filters.has_text(params.text, _texts(item))
        and test(item.labels)
    ]
    return endpoints.Page(items=hidden_names.of(question).without(items))


def _texts(item: pod_items.PodItem) -> tuple[str, ...]:
    return f"{item.namespace}/{item.name}", item.node, item.work, item.queue


ENDPOINTS = (
    endpoints.Endpoint(
        "/pods",
        PodParams,
        endpoints.Page[pod_items.PodItem],
        answer,
        summary="Pods, and why they wait",
        reads=(*read_kinds.WORK, read_kinds.NODES),
        is_quick=True,
    ),
)
