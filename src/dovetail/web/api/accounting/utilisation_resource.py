"""`GET /utilisation`: how GPUs were used over time: allocated, busy, idle, free, and what work waited for.

Work of namespaces that the user may not see is left out; free GPUs are shown to users who may list nodes.
"""

from __future__ import annotations

import msgspec

from dovetail.answer.cost import cost_keys, cost_window, gpu_utilisation
from dovetail.kubetypes import registry
from dovetail.web import asked, endpoints
from dovetail.web.api import read_kinds, rights
from dovetail.web.api.accounting import cost_resource


class UtilisationParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Window, keys and step, in the words of `GET /cost`."""

    window: str = "24h"
    aggregate: str = "product"
    step: str = ""


def answer(question: asked.Asked, params: UtilisationParams) -> gpu_utilisation.Utilisation:
    """The figures. Raises 400 for words that cannot be read."""
    source = cost_resource.accounting(question)
    now = cost_window.millis_of(question.view.now)
    with cost_resource.refusing():
        window = cost_window.parse(params.window, now)
        step = cost_window.parse_step(params.step, window) if params.step else None
        steps = cost_window.steps(window, step)
        keys = cost_keys.parse(params.aggregate)
        put = cost_resource.restricted(question, gpu_utilisation.question(steps, keys), "")
    with cost_resource.unreadable():
        account = source.account(put, now)
    result = gpu_utilisation.utilisation(
        account.ledger, keys, first=account.first, now=account.until
    )
    return _visible(question, result)


def _visible(
    question: asked.Asked, result: gpu_utilisation.Utilisation
) -> gpu_utilisation.Utilisation:
    """The figures without notes that only an administrator may read."""
    notes = result.notes if rights.lists(question, registry.NODE) else ()
    if not question.may.sees_all:
        notes = (*notes, cost_resource.LEFT_OUT)
    return msgspec.structs.replace(result, notes=notes)


ENDPOINTS = (
    endpoints.Endpoint(
        "/utilisation",
        UtilisationParams,
        gpu_utilisation.Utilisation,
        answer,
        summary="How GPUs were used over time: allocated, busy, idle, free; and what work waited for",
        is_quick=True,
        reads=(read_kinds.PODS, read_kinds.CLAIMS, read_kinds.NODES),
    ),
)
