"""Which devices an option could take if it were alone, one filter after the other.

Given the ground and an option; applies selectors, the node, use, taints and the offer of capacity. Counters and
constraints are the search's business. Raises InvalidRequest where upstream would give up on the whole attempt.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.allocate import capacity, matching
from dovetail.allocate.facts import Facts, blocking_taints
from dovetail.allocate.ground import Ground
from dovetail.allocate.requests import InvalidRequest, Option
from dovetail.cel.effort import Effort
from dovetail.model.capacity import CapacityError
from dovetail.model.selectors import DeviceTaint, DeviceToleration, tolerates
from dovetail.world.view import PoolView


class Candidates(NamedTuple):
    """`mask` may be taken; for requests of all devices, `wanted` must be."""

    mask: int
    wanted: int = 0  # every device that passes selectors and the offer of capacity, free or not


def candidates_of(ground: Ground, option: Option, *, fractional: bool) -> Candidates:
    """The devices of the node for one option."""
    mask = wanted = 0
    for start, pool, facts in zip(ground.starts, ground.pools, ground.facts, strict=True):
        found = _in_pool(pool, facts, option, fractional=fractional, effort=ground.effort)
        mask |= found.mask << start
        wanted |= found.wanted << start
    return Candidates(mask, wanted)


def _in_pool(pool: PoolView, facts: Facts, option: Option, *, fractional: bool, effort: Effort) -> Candidates:
    usable = pool.usable
    free = usable if option.is_admin else usable & ~pool.used
    looked_at = usable if option.count is None else free
    if not looked_at:
        return Candidates(0)
    if option.broken is not None:
        _refuse_broken(pool, option, looked_at, effort)
        return Candidates(0)
    chosen = matching.selected(pool.devices, option.expressions, effort) & looked_at
    if not chosen:
        return Candidates(0)
    offered = offering(facts, option, chosen, fractional=fractional)
    fitting = with_room(pool, option, offered, fractional=fractional)
    return Candidates(fitting & free & ~pool.barred & ~tainted(pool, facts, option.tolerations), offered)


def _refuse_broken(pool: PoolView, option: Option, looked_at: int, effort: Effort) -> None:
    """A selector that does not compile matters only if some device gets as far as to it."""
    position, message = option.broken or (0, "")
    if matching.selected(pool.devices, option.expressions[:position], effort) & looked_at:
        if position < option.class_selectors:
            where = f"class {option.device_class.metadata.name}: selector {position}"
        else:
            where = f"selector {position - option.class_selectors}"
        raise InvalidRequest(option.subject, f"{where} does not compile: {message}")


def offering(facts: Facts, option: Option, chosen: int, *, fractional: bool) -> int:
    """Those whose capacities could ever serve the request."""
    key = (chosen, option.capacity_key, fractional)
    known = facts.offering.get(key)
    if known is None:
        known = facts.keep_offering(key, _offering(facts, option, chosen, fractional=fractional))
    return known


def _offering(facts: Facts, option: Option, chosen: int, *, fractional: bool) -> int:
    for template, mask in facts.kinds:
        if not mask & chosen or not (template.capacity or option.capacity):
            continue
        try:
            if capacity.share_of(template, option, fractional=fractional) is None:
                chosen &= ~mask
        except CapacityError as error:
            raise InvalidRequest(option.subject, str(error)) from error
    return chosen


def with_room(pool: PoolView, option: Option, offered: int, *, fractional: bool) -> int:
    """Those with enough left beside the shares others hold."""
    for index, held in pool.shared.items():
        if not offered >> index & 1:
            continue
        template = pool.devices.templates[index]
        share = capacity.share_of(template, option, fractional=fractional)
        if share is not None and not capacity.is_room(template, share, held):
            offered &= ~(1 << index)
    return offered


def tainted(pool: PoolView, facts: Facts, tolerations: tuple[DeviceToleration, ...]) -> int:
    """The devices with a taint that keeps this request away."""
    mask = 0
    for taints, devices in facts.taints:
        if not _tolerated(taints, tolerations):
            mask |= devices
    for index, taints in pool.extra_taints.items():
        if not _tolerated(blocking_taints(taints), tolerations):
            mask |= 1 << index
    return mask


def _tolerated(taints: tuple[DeviceTaint, ...], tolerations: tuple[DeviceToleration, ...]) -> bool:
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)
