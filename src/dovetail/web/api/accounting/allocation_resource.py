"""`GET /allocation` and `/allocation/compute`: GPU costs as OpenCost's API answers, for its clients.

Parameters that are about CPU, memory, network or how OpenCost queries Prometheus are read and change nothing. Who may
see what is as in `/cost`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from dovetail.answer.cost import cost_ledger, cost_window, opencost_allocations
from dovetail.web import asked, endpoints, problems
from dovetail.web.api import read_kinds
from dovetail.web.api.accounting import cost_resource

ROOT: Final = ""  # beside /api, where OpenCost's clients look
Ignored = Annotated[str, msgspec.Meta(description="read, and changes nothing here")]


class AllocationParams(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """OpenCost's parameters."""

    window: str = ""  # needed; empty is refused with what is expected
    aggregate: str = ""
    step: str = ""
    filter: str = ""
    accumulate: str = ""  # true, false, or one of accumulateBy
    accumulate_by: str = ""
    include_idle: bool = False
    share_idle: str = ""  # true, weighted, false
    idle_by_node: bool = False
    resolution: Ignored = ""
    sharelb: Ignored = ""
    share_namespaces: Ignored = ""
    share_labels: Ignored = ""
    share_cost: Ignored = ""
    share_split: Ignored = ""
    include_shared_cost_breakdown: Ignored = ""
    include_proportional_asset_resource_costs: Ignored = ""
    include_aggregated_metadata: Ignored = ""


def answer(question: asked.Asked, params: AllocationParams) -> opencost_allocations.AllocationReply:
    """The reply. Raises 400 for parameters that cannot be read."""
    source = cost_resource.accounting(question)
    now = cost_window.millis_of(question.view.now)
    if not params.window.strip():
        raise problems.bad_request(f"window is missing: {cost_window.EXPECTED}", field="window")
    with cost_resource.unreadable():
        prices = source.prices()
    with cost_resource.refusing():
        window = cost_window.parse(params.window, now)
        step = cost_window.parse_step(params.step, window) if params.step else None
        keys = opencost_allocations.keys_of(params.aggregate)
        shape = _shape(params)
        put = cost_ledger.Question(
            prices=prices,
            steps=cost_window.steps(window, step),
            keys=keys,
            cluster=question.view.name,
        )
        put = cost_resource.restricted(question, put, params.filter)
    marked = opencost_allocations.marked(put, shape)
    with cost_resource.unreadable():
        account = source.account(marked, now)
    return opencost_allocations.allocations(account.ledger, shape, account.until)


def _shape(params: AllocationParams) -> opencost_allocations.Shape:
    return opencost_allocations.Shape(
        include_idle=params.include_idle,
        share_idle=_choice(params.share_idle, "shareIdle", ("true", "weighted")),
        idle_by_node=params.idle_by_node,
        accumulate_by=_accumulation(params),
    )


def _accumulation(params: AllocationParams) -> str:
    """The bucket in which steps are added up; empty for none."""
    if params.accumulate in cost_window.BUCKETS:
        return params.accumulate
    if params.accumulate_by not in ("", *cost_window.BUCKETS):
        known = ", ".join(cost_window.BUCKETS)
        raise problems.bad_request(
            f'"{params.accumulate_by[:80]}": expected one of {known}', field="accumulateBy"
        )
    is_whole = _choice(params.accumulate, "accumulate", ("true",))
    return params.accumulate_by or ("all" if is_whole else "")


def _choice(written: str, field: str, truths: tuple[str, ...]) -> bool:
    word = written.strip().lower()
    if word in truths or word == "1":
        return True
    if word in ("", "false", "0"):
        return False
    raise problems.bad_request(
        f'"{written[:80]}": expected {", ".join(truths)} or false', field=field
    )


ENDPOINTS = tuple(
    endpoints.Endpoint(
        path,
        AllocationParams,
        opencost_allocations.AllocationReply,
        answer,
        summary="GPU costs in the form of OpenCost's allocation API",
        root=ROOT,
        reads=(read_kinds.PODS, read_kinds.CLAIMS, read_kinds.NODES),
    )
    for path in ("/allocation", "/allocation/compute")
)
