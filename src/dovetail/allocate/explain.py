"""Says why requests are refused: how many devices were left after each rule, and what the nearest lacked.

Given the terms of a failed attempt; counts again, rule by rule, in the order people think. Never decides anything:
the search has done that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, NamedTuple

from dovetail.allocate import matching, nearest
from dovetail.allocate.budget import Exhausted
from dovetail.allocate.candidates import offering, tainted, with_room
from dovetail.allocate.facts import bits
from dovetail.allocate.requests import InvalidRequest, Option, Request
from dovetail.allocate.settled import Settled, Terms, count_of
from dovetail.cel.effort import Effort
from dovetail.model.reasons import Reason, ReasonCode

NEAREST_UNITS: Final = 20_000  # for the values that came nearest, on one node: the same whatever the budget


class Stage(NamedTuple):
    """How many devices passed a rule, and what to blame it on if they are too few."""

    code: ReasonCode
    name: str
    mask: int
    expression: str = ""  # the selector that was applied


def reasons(terms: Terms, part: Sequence[Request], *, counted: Sequence[str]) -> tuple[Reason, ...]:
    """Why these requests cannot be served together; `counted` describes invalid pools."""
    found: list[Reason] = []
    is_cut_short = False
    nearest_effort = Effort(NEAREST_UNITS)
    for option in (option for request in part for option in request.options):
        try:
            found += _option_reasons(terms, option, nearest_effort)
        except Exhausted:
            is_cut_short = True
        except InvalidRequest as error:  # the search refused before it came to look at this
            found.append(error.reason)
    terms.ground.effort.charge(nearest_effort.spent)
    if not any(reason.code not in (ReasonCode.CEL_ERROR,) for reason in found):
        found.append(_cut_short(terms, part) if is_cut_short else _together(terms, part))
    for text in counted:
        pool, _, problem = text.partition(": ")
        found.append(Reason(code=ReasonCode.INVALID_POOL, subject=f"pool {pool}", detail=f"invalid: {problem}"))
    found += [
        Reason(
            code=ReasonCode.INCOMPLETE_POOL,
            subject=f"pool {pool.driver}/{pool.name}",
            detail="is being updated: its devices cannot be used yet",
        )
        for pool in terms.ground.view.pools
        if not pool.is_complete
    ]
    return tuple(found)


def _option_reasons(terms: Terms, option: Option, nearest_effort: Effort) -> list[Reason]:
    need = max(count_of(terms, option), 1) if option.count is None else option.count
    stages = _stages(terms, option)
    found: list[Reason] = []
    failing = _failing(terms, option)
    if failing:
        detail = f"a selector cannot be evaluated on {failing} devices: they do not match"
        found.append(Reason(code=ReasonCode.CEL_ERROR, subject=option.subject, have=failing, detail=detail))
    for number, stage in enumerate(stages):
        have = stage.mask.bit_count()
        if have < need:
            way = " -> ".join(f"{one.mask.bit_count()} {one.name}" for one in stages[: number + 1])
            blame = ""
            if stage.expression:
                refused = stages[number - 1].mask & ~stage.mask
                blame = nearest.described(terms.ground, refused, stage.expression, nearest_effort)
            detail = f"{way}; {blame}" if blame else way
            code = ReasonCode.ALL_DEVICES if option.count is None and number > option.class_selectors else stage.code
            found.append(Reason(code=code, subject=option.subject, need=need, have=have, detail=detail))
            break
    else:
        if (alone := _alone(terms, option, need, stages)) is not None:
            found.append(alone)
    return found


def _stages(terms: Terms, option: Option) -> list[Stage]:
    """The rules one after the other, each with the devices that passed it and all before."""
    ground = terms.ground
    usable = sum(pool.usable << start for start, pool in zip(ground.starts, ground.pools, strict=True))
    stages = [Stage(ReasonCode.NO_DEVICES, "devices", usable)]
    masks = [(1 << len(pool.devices)) - 1 for pool in ground.pools]  # what all selectors so far leave, pool by pool
    for number, expression in enumerate(option.expressions):
        for place, pool in enumerate(ground.pools):
            if masks[place]:
                masks[place] &= matching.verdict(pool.devices, expression, ground.effort).matching
        matched = 0
        for start, mask in zip(ground.starts, masks, strict=True):
            matched |= mask << start
        is_class = number < option.class_selectors
        name = f"of class {option.device_class.metadata.name}" if is_class else f"with {expression}"
        passed = stages[-1].mask & matched
        code = ReasonCode.CLASS if is_class else ReasonCode.SELECTOR
        stages.append(Stage(code, name, passed, expression))
    offered = _filtered(terms, option, stages[-1].mask, "offer the capacity", ReasonCode.CAPACITY_POLICY)
    if option.capacity or offered.mask != stages[-1].mask:
        stages.append(offered)
    if barred := sum(pool.barred << start for start, pool in zip(ground.starts, ground.pools, strict=True)):
        stages.append(Stage(ReasonCode.NOT_OWNED, "of this scheduler", stages[-1].mask & ~barred))
    stages.append(_filtered(terms, option, stages[-1].mask, "tolerated", ReasonCode.TAINT))
    if not option.is_admin:
        free = stages[-1].mask & ~ground.used
        stages.append(Stage(ReasonCode.IN_USE, "free", free))
    stages.append(_filtered(terms, option, stages[-1].mask, "with capacity left", ReasonCode.CAPACITY))
    if not option.is_admin:
        fitting = sum(1 << device for device in bits(stages[-1].mask) if _counters_fit(terms, device))
        stages.append(Stage(ReasonCode.COUNTERS, "with counters left", fitting))
    return stages


def _filtered(terms: Terms, option: Option, mask: int, name: str, code: ReasonCode) -> Stage:
    ground = terms.ground
    passed = 0
    for start, pool, facts in zip(ground.starts, ground.pools, ground.facts, strict=True):
        mine = mask >> start & ((1 << len(pool.devices)) - 1)
        if not mine:
            continue
        if code is ReasonCode.CAPACITY_POLICY:
            mine = offering(facts, option, mine, fractional=terms.fractional)
        elif code is ReasonCode.TAINT:
            mine &= ~tainted(pool, facts, option.tolerations)
        else:
            mine = with_room(pool, option, mine, fractional=terms.fractional)
        passed |= mine << start
    return Stage(code, name, passed)


def _counters_fit(terms: Terms, device: int) -> bool:
    ground = terms.ground
    if not ground.charged >> device & 1 or (ground.shareable >> device & 1 and ground.is_shared_already(device)):
        return True
    return all(ground.left(key) >= amount for key, amount in ground.charges(device))


def _failing(terms: Terms, option: Option) -> int:
    """How many devices that got as far as a selector made it fail."""
    failing = 0
    ground = terms.ground
    for start, pool in zip(ground.starts, ground.pools, strict=True):
        live = pool.usable
        for expression in option.expressions if option.broken is None else ():
            if not live:
                break
            verdict = matching.verdict(pool.devices, expression, ground.effort)
            failing |= (live & verdict.failing) << start
            live &= verdict.matching
    return failing.bit_count()


def _alone(terms: Terms, option: Option, need: int, stages: list[Stage]) -> Reason | None:
    """Why there are devices enough and yet not for this option, even if it were alone."""
    have = stages[-1].mask.bit_count()
    rules = [one for one in terms.constraints if one.covers(option)]
    if Settled(terms, [option]).solve() is not None:
        return None
    if rules and Settled(terms._replace(constraints=()), [option]).solve() is not None:
        few = f"no {need}" if need > 1 else "none"
        detail = f"{have} devices fit one by one, but {few} of them satisfy {', '.join(map(str, rules))}"
        return Reason(code=ReasonCode.CONSTRAINT, subject=option.subject, need=need, have=have, detail=detail)
    if option.count is None:
        detail = f"all {have} devices fit one by one, but not together: they draw on the same counters"
        return Reason(code=ReasonCode.ALL_DEVICES, subject=option.subject, need=need, have=have, detail=detail)
    most = _most(terms, option, need)
    detail = f"{have} devices fit one by one, at most {most} of them together: they draw on the same counters"
    return Reason(code=ReasonCode.COUNTERS, subject=option.subject, need=need, have=most, detail=detail)


def _most(terms: Terms, option: Option, need: int) -> int:
    """How many devices the option could get at most."""
    trial = copy.copy(option)
    terms = terms._replace(candidates={trial: terms.candidates[option]})
    low, high = 0, need - 1
    while low < high:
        trial.count = middle = (low + high + 1) // 2
        if Settled(terms, [trial]).solve() is not None:
            low = middle
        else:
            high = middle - 1
    return low


def _cut_short(terms: Terms, part: Sequence[Request]) -> Reason:
    """It is proved that these requests cannot be served; telling why takes more steps than there are."""
    detail = f"cannot be served; why was not found out within {terms.budget.limit} steps"
    return Reason(code=ReasonCode.COMBINATION, subject=part[0].subject, detail=detail)


def _together(terms: Terms, part: Sequence[Request]) -> Reason:
    """Each request could be served alone; all of them cannot."""
    is_one_claim = len({request.claim for request in part}) == 1
    names = ", ".join(request.subject.rpartition(" ")[2] if is_one_claim else request.subject for request in part)
    need = sum(min(count_of(terms, option) for option in request.options) for request in part)
    mask = 0
    for request in part:
        for option in request.options:
            mask |= terms.candidates[option].mask
    have = mask.bit_count()
    rules = [one for one in terms.constraints if any(one.covers(o) for r in part for o in r.options)]
    if rules and need <= have:
        detail = f"requests {names} together want {need} of {have} devices, and {', '.join(map(str, rules))}"
        return Reason(code=ReasonCode.CONSTRAINT, subject=part[0].subject, need=need, have=have, detail=detail)
    detail = f"requests {names} compete for {have} devices: each could be served alone, together they want {need}"
    return Reason(code=ReasonCode.COMBINATION, subject=part[0].subject, need=need, have=have, detail=detail)
