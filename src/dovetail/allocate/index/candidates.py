"""The candidate devices of an option: what it could take if it were alone, one filter after the other.

Filters by node, usage, selectors, capacity and taints. Counters and constraints are left to the search. Raises
InvalidRequest where kube-scheduler would fail the whole attempt.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.allocate.ask.device_requests import InvalidRequest, Option
from dovetail.allocate.index import consumed_capacity, selector_matches
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.index.pool_index import PoolIndex, blocking_taints
from dovetail.cel.effort import Effort
from dovetail.kubetypes.node_selectors import DeviceTaint, DeviceToleration, tolerates
from dovetail.kubetypes.resource.capacity import CapacityError
from dovetail.world.views.node_view import PoolView


class Candidates(NamedTuple):
    """`mask` may be taken; a request for all devices must take `wanted`."""

    mask: int
    wanted: int = 0  # every device that passes selectors and offers the capacity, free or not


def candidates_of(node: NodeDevices, option: Option, *, fractional: bool) -> Candidates:
    """The devices of the node for one option."""
    mask = required = 0
    for start, pool, facts in zip(node.starts, node.pools, node.facts, strict=True):
        in_pool = _in_pool(pool, facts, option, fractional=fractional, effort=node.effort)
        mask |= in_pool.mask << start
        required |= in_pool.wanted << start
    return Candidates(mask, required)


def _in_pool(
    pool: PoolView, facts: PoolIndex, option: Option, *, fractional: bool, effort: Effort
) -> Candidates:
    usable = pool.usable
    free = usable if option.is_admin else usable & ~pool.used
    # A request for all devices means those in use as well: it fails if one of them is not free.
    considered = usable if option.count is None else free
    if not considered:
        return Candidates(0)
    if option.broken is not None:
        _refuse_broken(pool, option, considered, effort)
        return Candidates(0)
    matching = selector_matches.selected(pool.devices, option.expressions, effort) & considered
    if not matching:
        return Candidates(0)
    offered = offering(facts, option, matching, fractional=fractional)
    with_capacity = with_room(pool, option, offered, fractional=fractional)
    allowed = free & ~pool.barred & ~tainted(pool, facts, option.tolerations)
    return Candidates(with_capacity & allowed, offered)


def _refuse_broken(pool: PoolView, option: Option, considered: int, effort: Effort) -> None:
    """Raises for a selector that does not compile, but only if a device passes all selectors before it."""
    position, message = option.broken or (0, "")
    before = option.expressions[:position]
    if not selector_matches.selected(pool.devices, before, effort) & considered:
        return
    if position < option.class_selectors:
        where = f"class {option.device_class.metadata.name}: selector {position}"
    else:
        where = f"selector {position - option.class_selectors}"
    raise InvalidRequest(option.subject, f"{where} does not compile: {message}")


def offering(facts: PoolIndex, option: Option, chosen: int, *, fractional: bool) -> int:
    """The devices among `chosen` whose capacities could serve the request if they were unused."""
    key = (chosen, option.capacity_key, fractional)
    mask = facts.offering.get(key)
    if mask is None:
        mask = facts.keep_offering(key, _offering(facts, option, chosen, fractional=fractional))
    return mask


def _offering(facts: PoolIndex, option: Option, chosen: int, *, fractional: bool) -> int:
    for template, mask in facts.kinds:
        if not mask & chosen or not (template.capacity or option.capacity):
            continue
        try:
            if consumed_capacity.share_of(template, option, fractional=fractional) is None:
                chosen &= ~mask
        except CapacityError as error:
            raise InvalidRequest(option.subject, str(error)) from error
    return chosen


def with_room(pool: PoolView, option: Option, offered: int, *, fractional: bool) -> int:
    """The devices among `offered` with enough capacity next to the shares that are allocated already."""
    for index, in_use in pool.shared.items():
        if not offered >> index & 1:
            continue
        template = pool.devices.templates[index]
        share = consumed_capacity.share_of(template, option, fractional=fractional)
        if share is not None and not consumed_capacity.is_room(template, share, in_use):
            offered &= ~(1 << index)
    return offered


def tainted(pool: PoolView, facts: PoolIndex, tolerations: tuple[DeviceToleration, ...]) -> int:
    """The devices with a taint that keeps this request away."""
    mask = 0
    for taints, devices in facts.taints:
        if not is_tolerated(taints, tolerations):
            mask |= devices
    for index, taints in pool.extra_taints.items():
        if not is_tolerated(blocking_taints(taints), tolerations):
            mask |= 1 << index
    return mask


def is_tolerated(
    taints: tuple[DeviceTaint, ...], tolerations: tuple[DeviceToleration, ...]
) -> bool:
    """Whether some toleration covers each of the taints."""
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)
