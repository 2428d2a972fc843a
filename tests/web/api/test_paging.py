"""Pages of every list: all items, each exactly once, whatever the size of a page."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.web import api, asked, endpoints
from dovetail.web.wire import pages, parameters
from tests.web.api import clusters

LISTS = [endpoint for endpoint in api.ENDPOINTS if endpoint.is_list]


@pytest.mark.parametrize("endpoint", LISTS, ids=lambda each: each.path)
@pytest.mark.parametrize("limit", [1, 3, 5000])
@pytest.mark.parametrize("may", [asked.EVERYTHING, clusters.TENANT], ids=["all", "tenant"])
def test_pages_hold_every_item_once(
    endpoint: endpoints.Endpoint, limit: int, may: asked.Visibility
) -> None:
    question = clusters.asked_of(clusters.typical(), name="paging", may=may)
    every = list(endpoint.answer(question, endpoint.params()).items)
    collected = []
    cursor: str | None = ""
    while cursor is not None:
        paging = parameters.PageParams(limit=limit, cursor=cursor)
        cut = pages.cut(every, paging, item=endpoint.item, query=endpoint.path)
        assert cut.total == len(every)
        collected += cut.items
        cursor = cut.next
    assert [msgspec.json.encode(item) for item in collected] == [
        msgspec.json.encode(item) for item in every
    ]


@pytest.mark.parametrize("endpoint", LISTS, ids=lambda each: each.path)
def test_items_have_an_identity_of_their_own(endpoint: endpoints.Endpoint) -> None:
    """Else a cursor would go on after another item than the last of its page."""
    question = clusters.asked_of(clusters.typical(), name="identity")
    items = endpoint.answer(question, endpoint.params()).items
    assert len({pages.identity_of(item) for item in items}) == len(items)
