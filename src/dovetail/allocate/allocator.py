"""Finds devices for the claims of one pod on one node, exactly: if there is an allocation, it is found.

Given a node view, claims and classes; reads only. Requests that have nothing to do with each other are solved apart;
of alternatives the earlier is preferred, then the cheaper choice. A search that outgrows its budget says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.allocate import costs, explain, results
from dovetail.allocate.budget import DEFAULT_STEPS, Budget, Exhausted
from dovetail.allocate.candidates import Candidates, candidates_of
from dovetail.allocate.constraints import constraints_of
from dovetail.allocate.ground import Ground
from dovetail.allocate.options import Preferred
from dovetail.allocate.outcome import Allocated, Failed, Outcome, Refused, Undecided
from dovetail.allocate.parts import independent
from dovetail.allocate.requests import InvalidRequest, Option, Request, claim_name, flattened
from dovetail.allocate.score import UNIT
from dovetail.allocate.settled import Solution, Terms, count_of
from dovetail.cel.effort import UNBOUNDED, Effort
from dovetail.model.claims import MAX_RESULTS, ResourceClaim
from dovetail.model.classes import DeviceClass
from dovetail.model.policy import DEFAULT_ALLOCATION, AllocationPolicy
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world.view import NodeView


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
    """Devices for all claims together, or why not. Claims that have an allocation already are not to be passed.

    Raises Unfinished where selectors take more than the effort for now, TooExpensive where they always will.
    """
    purse = Budget(budget) if isinstance(budget, int) else budget
    try:
        requests = flattened(claims, classes, effort)
        rules = constraints_of(claims)
        if (local := _forbidden(view, requests)) is not None:
            return local
        ground = Ground(view, lists=list_attributes, effort=effort)
        terms = Terms(ground, rules, _candidates(ground, requests, fractional=fractional), policy, purse, fractional)
        if (over := _over_limit(terms, claims, requests)) is not None:
            return over
        return _solved(terms, claims, requests)
    except InvalidRequest as error:
        return Failed(error.reason)
    except Exhausted:
        return Undecided(purse.steps)


def _solved(terms: Terms, claims: Sequence[ResourceClaim], requests: Sequence[Request]) -> Outcome:
    chosen: list[Option] = []
    picks: list[tuple[Option, int]] = []
    cost = 0
    for part in independent(terms, requests):
        search = Preferred(terms, part)
        found: Solution | None = search.solve()
        if found is None:
            return _refused(terms, part, search)
        chosen += search.chosen
        cost += found[0]
        picks += found[1]
    results.check_selectors(terms.ground, claims, picks)
    chosen.sort(key=lambda option: (option.claim, option.request))
    listed = {(request.claim, request.place) for request in requests if request.is_list}
    told = costs.terms(terms, picks) if any(option.count is None for option in chosen) else None
    return Allocated(
        results=lambda: results.results_of(terms.ground, claims, chosen, picks, fractional=terms.fractional),
        terms=lambda: costs.terms(terms, picks) if told is None else told,
        milli_gpu=cost / UNIT if told is None else sum(term.milli_gpu for term in told),
        preference=tuple(option.index for option in chosen if (option.claim, option.request) in listed),
        steps=terms.budget.steps,
    )


def _refused(terms: Terms, part: Sequence[Request], search: Preferred) -> Refused | Failed:
    if search.breaks_all:
        detail = "asks for all devices, but a constraint of the claim does not allow all of them"
        subject = next((r.subject for r in part if any(o.count is None for o in r.options)), "")
        return Failed(Reason(code=ReasonCode.CONSTRAINT, subject=subject, detail=detail), is_local=True)
    broken = tuple(f"{pool.driver}/{pool.name}: {pool.problem}" for pool in terms.ground.view.pools if pool.problem)
    told = terms._replace(budget=Budget(terms.budget.limit))  # what the search has spent must not silence it
    return Refused(
        reasons=lambda: explain.reasons(told, part, counted=broken),
        invalid_pools=broken,
        steps=terms.budget.steps,
    )


def _forbidden(view: NodeView, requests: Sequence[Request]) -> Failed | None:
    """All devices cannot be had while nobody knows which these are."""
    for request in requests:
        for option in request.options:
            if option.count is not None:
                continue
            for pool in view.pools:
                name = f"{pool.driver}/{pool.name}"
                if not pool.is_complete:
                    detail = f"asks for all devices, but pool {name} is being updated"
                    code = ReasonCode.INCOMPLETE_POOL
                elif pool.problem is not None:
                    detail = f"asks for all devices, but pool {name} is invalid: {pool.problem}"
                    code = ReasonCode.INVALID_POOL
                else:
                    continue
                return Failed(Reason(code=code, subject=option.subject, detail=detail), is_local=True)
    return None


def _candidates(ground: Ground, requests: Sequence[Request], *, fractional: bool) -> dict[Option, Candidates]:
    return {
        option: candidates_of(ground, option, fractional=fractional)
        for request in requests
        for option in request.options
    }


def _over_limit(terms: Terms, claims: Sequence[ResourceClaim], requests: Sequence[Request]) -> Failed | None:
    """A claim that needs too many devices whatever it gets can never be served."""
    least: dict[int, int] = {}
    for request in requests:
        least[request.claim] = least.get(request.claim, 0) + min(count_of(terms, one) for one in request.options)
    for number, devices in least.items():
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
