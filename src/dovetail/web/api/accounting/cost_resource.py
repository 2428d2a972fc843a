"""`GET /cost`, `GET /budgets`: what GPUs cost: the answers of `dovetail cost -o json`.

Work of namespaces that the user may not see is left out; what GPUs cost while no work held them is shown to users who
may list nodes, budgets to users who may list queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from dovetail import errors
from dovetail.answer.cost import (
    budget_forecast,
    cost_filter,
    cost_keys,
    cost_ledger,
    cost_table,
    cost_window,
)
from dovetail.ask import cost_asked
from dovetail.kubetypes import registry
from dovetail.web import asked, endpoints, problems
from dovetail.web.api import read_kinds, rights

CLAIM: Final = "claim"
LEFT_OUT: Final = cost_ledger.Note(
    code="left-out", message="only work of namespaces that you may see is counted"
)


class CostParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words of the question, as `dovetail cost` takes them; `filter` as `/allocation` does."""

    window: str = "7d"
    aggregate: str = cost_asked.DEFAULT_AGGREGATE
    step: str = ""
    filter: str = ""


class Budgets(msgspec.Struct, frozen=True):
    """How all budgets stand."""

    items: tuple[budget_forecast.BudgetState, ...]


def answer(question: asked.Asked, params: CostParams) -> cost_table.CostTable:
    """The table. Raises 400 for words that cannot be read."""
    source = accounting(question)
    now = cost_window.millis_of(question.view.now)
    with unreadable():
        prices = source.prices()
    with refusing():
        words = cost_asked.CostAsked(
            window=params.window,
            aggregate=params.aggregate,
            step=params.step,
            cluster=question.view.name,
        )
        put = restricted(question, cost_asked.question(words, prices, now), params.filter)
    with unreadable():
        account = source.account(put, now)
    return _visible(question, cost_asked.table(account, put, now))


def budgets(question: asked.Asked, params: endpoints.Nothing) -> Budgets:
    """The budgets of the price file."""
    rights.must_list(question, registry.QUEUE)
    source = accounting(question)
    now = cost_window.millis_of(question.view.now)
    with unreadable():
        until = source.until(now)
        account = source.account(budget_forecast.question(source.prices(), until), until)
    prices = account.prices
    return Budgets(budget_forecast.budgets(account.ledger, prices, first=account.first, now=until))


def accounting(question: asked.Asked) -> asked.Accounting:
    """Where records and prices are. Raises 404 where the dashboard has none."""
    if question.accounting is None:
        raise problems.not_found(
            "this dashboard has no history of GPUs",
            next_step="start it with --history FILE and --prices FILE",
        )
    return question.accounting


def restricted(
    question: asked.Asked, put: cost_ledger.Question, filter_: str
) -> cost_ledger.Question:
    """The question about what the user may see, and what the filter keeps. Raises InputError for a bad filter."""
    test = cost_filter.parse(filter_)
    read_by_filter = cost_filter.fields(filter_)
    return put._replace(
        keep=_kept(question, put.keys, test), kept_by=frozenset({"namespace"}) | read_by_filter
    )


def _kept(
    question: asked.Asked, keys: cost_keys.Keys, test: cost_filter.Test | None
) -> Callable[[cost_keys.Subject], bool]:
    """Whether a row is shown."""
    names_claims = CLAIM in keys.names

    def keep(subject: cost_keys.Subject) -> bool:
        if subject.owner is None:
            is_visible = rights.lists(question, registry.NODE)
        else:
            namespace = subject.owner.namespace
            is_visible = rights.sees(question, namespace)
            if names_claims:
                is_visible = rights.sees_kind(question, registry.CLAIM, namespace)
        return is_visible and (test is None or test(subject))

    return keep


@contextmanager
def refusing() -> Iterator[None]:
    """Bad words of the request are refused with 400."""
    try:
        yield
    except errors.InputError as error:
        raise problems.bad_request(str(error)) from None


@contextmanager
def unreadable() -> Iterator[None]:
    """Records or prices that cannot be read are no fault of the request."""
    try:
        yield
    except errors.DovetailError as error:
        raise problems.unavailable(str(error), retry_after=30.0) from None


def _visible(question: asked.Asked, table: cost_table.CostTable) -> cost_table.CostTable:
    """The table without what only an administrator may know."""
    if not question.may.sees_all:
        table = msgspec.structs.replace(table, notes=(*table.notes, LEFT_OUT))
    if rights.lists(question, registry.NODE):
        return table
    steps = [msgspec.structs.replace(step, asset_cost="") for step in table.steps]
    shown = [note for note in table.notes if note.code in ("example-prices", LEFT_OUT.code)]
    return msgspec.structs.replace(table, steps=tuple(steps), asset_cost="", notes=tuple(shown))


ENDPOINTS = (
    endpoints.Endpoint(
        "/cost",
        CostParams,
        cost_table.CostTable,
        answer,
        summary="What GPUs cost: used, idle, unallocated, unusable; and what work waited for",
        reads=(read_kinds.PODS, read_kinds.CLAIMS, read_kinds.NODES),
    ),
    endpoints.Endpoint(
        "/budgets",
        endpoints.Nothing,
        Budgets,
        budgets,
        summary="What queues spent this month, and will have",
        reads=(read_kinds.QUEUES,),
    ),
)
