"""Finds devices for the claims of one pod on one node, exactly: if there is an allocation, it is found.

Given a node view, claims and device classes; reads only. The steps:

1. `ask/` flattens the claims into requests, options and constraints.
2. `index/` finds the candidate devices of every option.
3. `solve/` splits the requests into independent parts and solves each: the earliest firstAvailable entries that fit,
   then the cheapest devices.
4. `results` writes the allocation; on a refusal `explain/` says why.

A search that exceeds its budget returns Undecided, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.allocate import results
from dovetail.allocate.ask.constraints import constraints_of
from dovetail.allocate.ask.device_requests import (
    InvalidRequest,
    Option,
    Request,
    claim_name,
    flattened,
)
from dovetail.allocate.explain import allocation_costs, refusal_reasons
from dovetail.allocate.index.candidates import candidates_of
from dovetail.allocate.index.consumed_capacity import UNIT
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.outcome import (
    DEFAULT_STEPS,
    Allocated,
    Budget,
    Exhausted,
    Failed,
    Outcome,
    Refused,
    Undecided,
)
from dovetail.allocate.solve.alternatives import AlternativeSearch
from dovetail.allocate.solve.decompose import independent_parts
from dovetail.allocate.solve.solver import SearchContext, count_of
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.kubetypes.resource.claims import MAX_RESULTS, ResourceClaim
from dovetail.kubetypes.resource.device_classes import DeviceClass
from dovetail.model.policy import DEFAULT_ALLOCATION, AllocationPolicy
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world.views.node_view import NodeView, PoolView


def allocate(
    view: NodeView,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    policy: AllocationPolicy = DEFAULT_ALLOCATION,
    budget: Budget | int = DEFAULT_STEPS,
    fractional: bool = True,
    list_attributes: bool = True,
    effort: Effort = UNBOUNDED,
) -> Outcome:
    """Devices for all claims together, or why not. The claims must not have an allocation yet.

    Raises Unfinished if selectors need more than the effort left for now, TooExpensive if they always will.
    """
    steps = Budget(budget) if isinstance(budget, int) else budget
    try:
        requests = flattened(claims, classes, effort)
        constraints = constraints_of(claims)
        if (failure := _unknown_all(view, requests)) is not None:
            return failure
        node = NodeDevices(view, lists=list_attributes, effort=effort)
        candidates = {
            option: candidates_of(node, option, fractional=fractional)
            for request in requests
            for option in request.options
        }
        context = SearchContext(node, constraints, candidates, policy, steps, fractional)
        if (failure := _over_limit(context, claims, requests)) is not None:
            return failure
        return _solved(context, claims, requests)
    except InvalidRequest as error:
        return Failed(error.reason)
    except Exhausted:
        return Undecided(steps.steps)


def _solved(
    context: SearchContext, claims: Sequence[ResourceClaim], requests: Sequence[Request]
) -> Outcome:
    chosen: list[Option] = []
    picks: list[tuple[Option, int]] = []
    cost = 0
    for part in independent_parts(context, requests):
        search = AlternativeSearch(context, part)
        solution = search.solve()
        if solution is None:
            return _refused(context, part, search)
        chosen += search.chosen
        cost += solution[0]
        picks += solution[1]
    results.check_selectors(context.node, claims, picks)
    chosen.sort(key=lambda option: (option.claim, option.request))

    # The search has no choice about requests for all devices and does not price them, so their cost is added up here.
    terms = None
    milli_gpu = cost / UNIT
    if any(option.count is None for option in chosen):
        terms = allocation_costs.cost_terms(context, picks)
        milli_gpu = sum(term.milli_gpu for term in terms)

    with_alternatives = {(request.claim, request.place) for request in requests if request.is_list}
    preference = [
        option.index for option in chosen if (option.claim, option.request) in with_alternatives
    ]
    return Allocated(
        results=lambda: results.results_of(
            context.node, claims, chosen, picks, fractional=context.fractional
        ),
        terms=lambda: allocation_costs.cost_terms(context, picks) if terms is None else terms,
        milli_gpu=milli_gpu,
        preference=tuple(preference),
        steps=context.budget.steps,
    )


def _refused(
    context: SearchContext, part: Sequence[Request], search: AlternativeSearch
) -> Refused | Failed:
    if search.breaks_all:
        detail = "asks for all devices, but a constraint of the claim does not allow all of them"
        subject = next((request.subject for request in part if _wants_all(request)), "")
        return Failed(
            Reason(code=ReasonCode.CONSTRAINT, subject=subject, detail=detail), is_local=True
        )
    invalid_pools = tuple(
        f"{pool.driver}/{pool.name}: {pool.problem}"
        for pool in context.node.view.pools
        if pool.problem
    )
    # A fresh budget: the refusal is proven, and explaining it must not fail for what the proof has spent.
    explaining = context._replace(budget=Budget(context.budget.limit))
    return Refused(
        reasons=lambda: refusal_reasons.reasons(explaining, part, counted=invalid_pools),
        invalid_pools=invalid_pools,
        steps=context.budget.steps,
    )


def _wants_all(request: Request) -> bool:
    return any(option.count is None for option in request.options)


def _unknown_all(view: NodeView, requests: Sequence[Request]) -> Failed | None:
    """Requests for all devices fail while a pool of the node is incomplete or invalid: "all" is unknown then."""
    for request in requests:
        for option in request.options:
            if option.count is not None:
                continue
            for pool in view.pools:
                if (failure := _unusable_pool(pool, option)) is not None:
                    return failure
    return None


def _unusable_pool(pool: PoolView, option: Option) -> Failed | None:
    name = f"{pool.driver}/{pool.name}"
    if not pool.is_complete:
        code = ReasonCode.INCOMPLETE_POOL
        detail = f"asks for all devices, but pool {name} is being updated"
    elif pool.problem is not None:
        code = ReasonCode.INVALID_POOL
        detail = f"asks for all devices, but pool {name} is invalid: {pool.problem}"
    else:
        return None
    return Failed(Reason(code=code, subject=option.subject, detail=detail), is_local=True)


def _over_limit(
    context: SearchContext, claims: Sequence[ResourceClaim], requests: Sequence[Request]
) -> Failed | None:
    """A claim that needs more devices than its status can hold, whichever options are chosen."""
    fewest: dict[int, int] = {}
    for request in requests:
        devices = min(count_of(context, option) for option in request.options)
        fewest[request.claim] = fewest.get(request.claim, 0) + devices
    for number, devices in fewest.items():
        if devices > MAX_RESULTS:
            reason = Reason(
                code=ReasonCode.LIMIT,
                subject=claim_name(claims[number]),
                need=devices,
                have=MAX_RESULTS,
                detail=f"needs at least {devices} devices; a claim can hold {MAX_RESULTS}",
            )
            return Failed(reason, is_local=True)
    return None


__all__ = ["Allocated", "Failed", "Outcome", "Refused", "Undecided", "allocate"]
