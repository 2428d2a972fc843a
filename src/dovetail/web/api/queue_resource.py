"""`GET /queues`: the tree of queues with the numbers of the last decision, parents before children."""

from __future__ import annotations

from dovetail.kubetypes import registry
from dovetail.tables.items import queue_items
from dovetail.web import asked, endpoints
from dovetail.web.api import hidden_names, read_kinds, rights, shared_results


def answer(
    question: asked.Asked, params: endpoints.Nothing
) -> endpoints.Page[queue_items.QueueItem]:
    """All queues."""
    rights.must_list(question, registry.QUEUE)
    items = shared_results.queues(question)
    return endpoints.Page(items=hidden_names.of(question).without(items))


ENDPOINTS = (
    endpoints.Endpoint(
        "/queues",
        endpoints.Nothing,
        endpoints.Page[queue_items.QueueItem],
        answer,
        summary="The tree of queues",
        reads=(read_kinds.QUEUES,),
        is_quick=True,
    ),
)
