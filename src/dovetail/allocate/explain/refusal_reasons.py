"""Says why requests are refused: how many devices passed each rule, and what the nearest ones lacked.

Given the context of a failed attempt; counts again, rule by rule, in the order people think about them. Never decides
anything: the search has proven the refusal already.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, NamedTuple

from dovetail.allocate.ask.device_requests import InvalidRequest, Option, Request
from dovetail.allocate.explain import nearest_devices, stage_notes
from dovetail.allocate.index import selector_matches
from dovetail.allocate.index.candidates import offering, tainted, with_room
from dovetail.allocate.index.pool_index import bits
from dovetail.allocate.outcome import Exhausted
from dovetail.allocate.solve.solver import FixedOptions, SearchContext, count_of
from dovetail.cel.effort import Effort
from dovetail.model.reasons import Reason, ReasonCode

# For the values that came nearest, on one node. A constant: the answer must not depend on the budget left.
NEAREST_UNITS: Final = 20_000


class Stage(NamedTuple):
    """The devices that passed a rule and all rules before it, and the reason if they are too few."""

    code: ReasonCode
    name: str
    mask: int
    expression: str = ""  # the selector that was applied


def reasons(
    context: SearchContext, part: Sequence[Request], *, counted: Sequence[str]
) -> tuple[Reason, ...]:
    """Why these requests cannot be served together; `counted` describes invalid pools."""
    listed: list[Reason] = []
    is_cut_short = False
    nearest_effort = Effort(NEAREST_UNITS)
    for request in part:
        for option in request.options:
            try:
                listed += _option_reasons(context, option, nearest_effort)
            except Exhausted:
                is_cut_short = True
            except (
                InvalidRequest
            ) as error:  # the search was refused before it looked at this option
                listed.append(error.reason)
    context.node.effort.charge(nearest_effort.spent)
    # Selectors that fail on some devices do not explain a refusal by themselves.
    if all(reason.code == ReasonCode.CEL_ERROR for reason in listed):
        listed.append(_cut_short(context, part) if is_cut_short else _together(context, part))
    return (*listed, *_pool_reasons(context, counted))


def _pool_reasons(context: SearchContext, invalid_pools: Sequence[str]) -> list[Reason]:
    """Pools whose devices could not be used at all."""
    listed = []
    for text in invalid_pools:
        pool, _, problem = text.partition(": ")
        detail = f"invalid: {problem}"
        listed.append(Reason(code=ReasonCode.INVALID_POOL, subject=f"pool {pool}", detail=detail))
    for view in context.node.view.pools:
        if not view.is_complete:
            listed.append(
                Reason(
                    code=ReasonCode.INCOMPLETE_POOL,
                    subject=f"pool {view.driver}/{view.name}",
                    detail="is being updated: its devices cannot be used yet",
                )
            )
    return listed


def _option_reasons(context: SearchContext, option: Option, nearest_effort: Effort) -> list[Reason]:
    need = max(count_of(context, option), 1) if option.count is None else option.count
    stages = _stages(context, option)
    listed: list[Reason] = []
    failing = _failing(context, option)
    if failing:
        detail = f"a selector cannot be evaluated on {failing} devices: they do not match"
        listed.append(
            Reason(code=ReasonCode.CEL_ERROR, subject=option.subject, have=failing, detail=detail)
        )
    for number, stage in enumerate(stages):
        if stage.mask.bit_count() < need:
            listed.append(
                _stage_reason(context, option, stages, need, number=number, effort=nearest_effort)
            )
            return listed
    if (reason := _alone(context, option, need, stages)) is not None:
        listed.append(reason)
    return listed


def _stage_reason(
    context: SearchContext,
    option: Option,
    stages: list[Stage],
    need: int,
    *,
    number: int,
    effort: Effort,
) -> Reason:
    """The stage of this number leaves too few devices: how many passed each, and what the refused ones lack."""
    stage = stages[number]
    # Devices of other types are no part of what the node has for the request, however few devices there are in all.
    last = max(number, option.class_selectors)
    detail = " -> ".join(
        f"{passed.mask.bit_count()} {passed.name}" for passed in stages[: last + 1]
    )
    if stage.expression:
        refused = stages[number - 1].mask & ~stage.mask
        detail += nearest_devices.nearest_text(context.node, refused, stage.expression, effort)
    detail += _taint_note(context, option, stages[: number + 1])

    # A request for all devices fails on what is in the way of some of them, not on the rule that counts them.
    is_after_class = number > option.class_selectors
    code = ReasonCode.ALL_DEVICES if option.count is None and is_after_class else stage.code
    return Reason(
        code=code,
        subject=option.subject,
        need=need,
        have=stages[last].mask.bit_count(),
        detail=detail,
        offered=stages[option.class_selectors].mask.bit_count(),
    )


def _taint_note(context: SearchContext, option: Option, stages: list[Stage]) -> str:
    """The taints that are in the way: if too few devices are tolerated, or tainted ones would do otherwise."""
    place = next((at for at, stage in enumerate(stages) if stage.code is ReasonCode.TAINT), None)
    if place is None:
        return ""
    kept_out = stages[place - 1].mask & ~stages[place].mask
    free = _available(context, option, kept_out)
    is_cause = stages[-1].code is ReasonCode.TAINT or free
    if not kept_out or not is_cause:
        return ""
    return stage_notes.taint_text(context.node, option, kept_out, free=free)


def _available(context: SearchContext, option: Option, mask: int) -> int:
    """The devices among these that are free, with room and counters left."""
    unused = mask if option.is_admin else mask & ~context.node.used
    roomy = _filtered(context, option, unused, "", ReasonCode.CAPACITY).mask
    if option.is_admin:
        return roomy
    return sum(1 << device for device in bits(roomy) if _counters_fit(context, device))


def _stages(context: SearchContext, option: Option) -> list[Stage]:
    """The rules one after the other, each with the devices that passed it and all before."""
    node = context.node
    usable = barred = 0
    for start, pool in zip(node.starts, node.pools, strict=True):
        usable |= pool.usable << start
        barred |= pool.barred << start
    stages = [Stage(ReasonCode.NO_DEVICES, "devices", usable)]
    _add_selectors(stages, context, option)

    capacity_text = stage_notes.capacity_text(node, option, stages[-1].mask)
    offered = _filtered(context, option, stages[-1].mask, capacity_text, ReasonCode.CAPACITY_POLICY)
    if option.capacity or offered.mask != stages[-1].mask:
        stages.append(offered)
    if barred:
        stages.append(Stage(ReasonCode.NOT_OWNED, "of this scheduler", stages[-1].mask & ~barred))
    stages.append(_filtered(context, option, stages[-1].mask, "tolerated", ReasonCode.TAINT))
    if not option.is_admin:
        free = stages[-1].mask & ~node.used
        stages.append(Stage(ReasonCode.IN_USE, "free", free))
    stages.append(
        _filtered(context, option, stages[-1].mask, "with capacity left", ReasonCode.CAPACITY)
    )
    if not option.is_admin:
        fitting = sum(
            1 << device for device in bits(stages[-1].mask) if _counters_fit(context, device)
        )
        stages.append(Stage(ReasonCode.COUNTERS, "with counters left", fitting))
    return stages


def _add_selectors(stages: list[Stage], context: SearchContext, option: Option) -> None:
    """A stage per selector. Devices refused by one selector are not evaluated by the next."""
    node = context.node
    masks = [(1 << len(pool.devices)) - 1 for pool in node.pools]  # what passed so far, by pool
    for number, expression in enumerate(option.expressions):
        matched = 0
        for place, (start, pool) in enumerate(zip(node.starts, node.pools, strict=True)):
            if masks[place]:
                verdict = selector_matches.verdict(pool.devices, expression, node.effort)
                masks[place] &= verdict.matching
            matched |= masks[place] << start
        if number < option.class_selectors:
            code, name = ReasonCode.CLASS, f"of class {option.device_class.metadata.name}"
        else:
            code, name = ReasonCode.SELECTOR, f"with {expression}"
        stages.append(Stage(code, name, stages[-1].mask & matched, expression))


def _filtered(
    context: SearchContext, option: Option, mask: int, name: str, code: ReasonCode
) -> Stage:
    node = context.node
    passed = 0
    for start, pool, facts in zip(node.starts, node.pools, node.facts, strict=True):
        in_pool = mask >> start & ((1 << len(pool.devices)) - 1)
        if not in_pool:
            continue
        if code is ReasonCode.CAPACITY_POLICY:
            in_pool = offering(facts, option, in_pool, fractional=context.fractional)
        elif code is ReasonCode.TAINT:
            in_pool &= ~tainted(pool, facts, option.tolerations)
        else:
            in_pool = with_room(pool, option, in_pool, fractional=context.fractional)
        passed |= in_pool << start
    return Stage(code, name, passed)


def _counters_fit(context: SearchContext, device: int) -> bool:
    node = context.node
    if not node.charged >> device & 1:
        return True
    if node.shareable >> device & 1 and node.is_shared_already(device):
        return True  # its counters are drawn already
    return all(node.left(key) >= amount for key, amount in node.charges(device))


def _failing(context: SearchContext, option: Option) -> int:
    """The number of devices on which a selector that they reached cannot be evaluated."""
    if option.broken is not None:
        return 0
    failing = 0
    node = context.node
    for start, pool in zip(node.starts, node.pools, strict=True):
        passed = pool.usable
        for expression in option.expressions:
            if not passed:
                break
            verdict = selector_matches.verdict(pool.devices, expression, node.effort)
            failing |= (passed & verdict.failing) << start
            passed &= verdict.matching
    return failing.bit_count()


def _alone(context: SearchContext, option: Option, need: int, stages: list[Stage]) -> Reason | None:
    """Why there are enough devices and yet none of this option's choices fits, even if it is alone."""
    have = stages[-1].mask.bit_count()
    constraints = [rule for rule in context.constraints if rule.covers(option)]
    if FixedOptions(context, [option]).solve() is not None:
        return None
    without_constraints = context._replace(constraints=())
    if constraints and FixedOptions(without_constraints, [option]).solve() is not None:
        few = f"no {need}" if need > 1 else "none"
        rules = ", ".join(map(str, constraints))
        detail = f"{have} devices fit one by one, but {few} of them satisfy {rules}"
        return Reason(
            code=ReasonCode.CONSTRAINT, subject=option.subject, need=need, have=have, detail=detail
        )
    if option.count is None:
        detail = (
            f"all {have} devices fit one by one, but not together: they draw on the same counters"
        )
        return Reason(
            code=ReasonCode.ALL_DEVICES, subject=option.subject, need=need, have=have, detail=detail
        )
    most = _most(context, option, need)
    detail = f"{have} devices fit one by one, at most {most} of them together: they draw on the same counters"
    return Reason(
        code=ReasonCode.COUNTERS, subject=option.subject, need=need, have=most, detail=detail
    )


def _most(context: SearchContext, option: Option, need: int) -> int:
    """The most devices the option could get: bisection, because fewer devices always fit if more do."""
    trial = copy.copy(option)
    context = context._replace(candidates={trial: context.candidates[option]})
    low, high = 0, need - 1
    while low < high:
        trial.count = middle = (low + high + 1) // 2
        if FixedOptions(context, [trial]).solve() is not None:
            low = middle
        else:
            high = middle - 1
    return low


def _cut_short(context: SearchContext, part: Sequence[Request]) -> Reason:
    """The refusal is proven, but explaining it takes more steps than there are."""
    detail = f"cannot be served; why was not found out within {context.budget.limit} steps"
    return Reason(code=ReasonCode.COMBINATION, subject=part[0].subject, detail=detail)


def _together(context: SearchContext, part: Sequence[Request]) -> Reason:
    """Each request could be served alone; all of them cannot."""
    options = [option for request in part for option in request.options]
    is_one_claim = len({request.claim for request in part}) == 1
    names = ", ".join(
        request.subject.rpartition(" ")[2] if is_one_claim else request.subject for request in part
    )
    need = sum(min(count_of(context, option) for option in request.options) for request in part)
    mask = 0
    for option in options:
        mask |= context.candidates[option].mask
    have = mask.bit_count()
    constraints = [rule for rule in context.constraints if any(map(rule.covers, options))]
    if constraints and need <= have:
        rules = ", ".join(map(str, constraints))
        code = ReasonCode.CONSTRAINT
        detail = f"requests {names} together want {need} of {have} devices, and {rules}"
    else:
        code = ReasonCode.COMBINATION
        detail = (
            f"requests {names} compete for {have} devices: "
            f"each could be served alone, together they want {need}"
        )
    return Reason(code=code, subject=part[0].subject, need=need, have=have, detail=detail)
