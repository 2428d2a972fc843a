"""`GET /workloads`: waiting and running work, what waits first and by turn: the items of `dovetail queue -o json`."""

from __future__ import annotations

import msgspec

from dovetail.tables.work import work_items
from dovetail.web import asked, endpoints
from dovetail.web.api import hidden_names, item_filters, read_kinds, rights, shared_results


class WorkParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which work. `text` is looked for in name, owner, namespace, queue and reason."""

    state: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    text: str = ""
    labels: str = ""


def answer(question: asked.Asked, params: WorkParams) -> endpoints.Page[work_items.WorkItem]:
    """The work that is asked for and that the user may see."""
    test = item_filters.labels(params.labels)
    items = [
        item
        for item in shared_results.work(question)
        if rights.sees(question, item.namespace)
        and item_filters.is_one_of(item.state, params.state)
        and item_filters.is_one_of(item.queue, params.queue)
        and item_filters.is_one_of(item.namespace, params.namespace)
        and item_filters.has_text(params.text, _texts(item))
        and test(item.labels)
    ]
    return endpoints.Page(items=hidden_names.of(question).without(items))


def _texts(item: work_items.WorkItem) -> tuple[str, ...]:
    return item.full_name, item.owner, item.queue, item.reason


ENDPOINTS = (
    endpoints.Endpoint(
        "/workloads",
        WorkParams,
        endpoints.Page[work_items.WorkItem],
        answer,
        summary="Waiting and running work, by turn",
        reads=read_kinds.ENGINE,
    ),
)
