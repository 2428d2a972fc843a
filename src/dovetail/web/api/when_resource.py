"""`GET /when`: when waiting work starts: the items of `dovetail when -o json`."""

from __future__ import annotations

import msgspec

from dovetail.answer import when
from dovetail.ask import when_asked
from dovetail.web import asked, endpoints
from dovetail.web.api import hidden_names, read_kinds, rights, shared_results


class WhenParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which work: all of it, that of a namespace, or the gang, workload or pod of a name."""

    namespace: str | None = None
    name: str | None = None


def answer(question: asked.Asked, params: WhenParams) -> endpoints.Page[when.Expectation]:
    """By start, the earliest first; then what has no known start."""
    hidden = hidden_names.of(question)
    items = [
        hidden.without(each)
        for each in shared_results.expectations(question)
        if rights.sees(question, each.gang.namespace)
        and when_asked.is_selected(each, params.name, params.namespace)
    ]
    return endpoints.Page(items=items)


ENDPOINTS = (
    endpoints.Endpoint(
        "/when",
        WhenParams,
        endpoints.Page[when.Expectation],
        answer,
        summary="When waiting work starts",
        reads=read_kinds.ENGINE,
    ),
)
