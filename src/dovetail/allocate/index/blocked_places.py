"""The devices that one request would get if a few other devices of the same counter sets were given back.

Given a node view and claims with a single request for one device, such as a MIG slice on a board that is cut as needed.
A free device is blocked if its counters are drawn on by devices in use; those in the way are found counter by counter,
from the ones with the fewest users, so a memory slice names its holder. Reads only; whether the work on those devices
may move is for the caller to decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dovetail.allocate.ask.device_requests import InvalidRequest, Option, flattened
from dovetail.allocate.index.candidates import candidates_of
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.index.pool_index import Charge, PoolIndex, bits
from dovetail.cel.effort import Effort
from dovetail.kubetypes.resource.claims import ResourceClaim
from dovetail.kubetypes.resource.device_classes import DeviceClass
from dovetail.world.views.node_view import DeviceId, NodeView, PoolView

Counter = tuple[str, str]  # counter set, counter


class BlockedPlace(NamedTuple):
    """A device that could be allocated if those in its way were free."""

    device: str
    in_the_way: tuple[DeviceId, ...]


def blocked_places(
    view: NodeView,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    most: int | None,
    effort: Effort,
) -> list[BlockedPlace]:
    """Every place with at most so many devices in the way; none for claims of another form.

    Raises Unfinished or TooExpensive where selectors take too much.
    """
    try:
        requests = flattened(claims, classes, effort)
        options = [option for request in requests for option in request.options]
        if len(requests) != 1 or not all(map(_is_for_one_device, options)):
            return []
        node = NodeDevices(view, effort=effort)
        mask = 0
        for option in options:
            mask |= candidates_of(node, option, fractional=True).mask
    except InvalidRequest:
        return []
    places: list[BlockedPlace] = []
    for start, pool, facts in zip(node.starts, node.pools, node.facts, strict=True):
        candidates = mask >> start & facts.charged & ((1 << len(pool.devices)) - 1)
        if candidates:
            places += _in_pool(pool, facts, candidates, most=most)
    return places


def _is_for_one_device(option: Option) -> bool:
    return option.count == 1 and not option.is_admin


def _in_pool(
    pool: PoolView, facts: PoolIndex, candidates: int, *, most: int | None
) -> Iterator[BlockedPlace]:
    holders = _holders(pool, facts)
    for index in bits(candidates):
        missing = _missing(pool, facts.charges_at(index))
        in_the_way = _in_the_way(missing, holders)
        if in_the_way and (most is None or len(in_the_way) <= most):
            names = pool.devices.names
            blocking = tuple((pool.driver, pool.name, names[held]) for held in in_the_way)
            yield BlockedPlace(names[index], blocking)


def _holders(pool: PoolView, facts: PoolIndex) -> dict[Counter, dict[int, int]]:
    """By counter, the devices in use that draw on it, and how much."""
    holders: dict[Counter, dict[int, int]] = {}
    in_use = pool.used
    for index in pool.shared:
        in_use |= 1 << index
    for index in bits(in_use & facts.charged):
        for set_name, counter, amount in facts.charges_at(index):
            holders.setdefault((set_name, counter), {})[index] = amount
    return holders


def _missing(pool: PoolView, charges: Sequence[Charge]) -> dict[Counter, int]:
    """What too little is left of, and by how much."""
    missing: dict[Counter, int] = {}
    for set_name, counter, amount in charges:
        left = pool.counters_left[set_name].get(counter, 0)
        if left < amount:
            missing[set_name, counter] = amount - left
    return missing


def _in_the_way(
    missing: Mapping[Counter, int], holders: Mapping[Counter, Mapping[int, int]]
) -> tuple[int, ...]:
    """Devices in use without which nothing is missing, small ones first; none if that is not enough."""
    chosen: set[int] = set()
    scarce_first = sorted(missing, key=lambda counter: (len(holders.get(counter, ())), counter))
    for counter in scarce_first:
        amounts = holders.get(counter, {})
        freed = sum(amounts[index] for index in chosen if index in amounts)
        for index in sorted(amounts, key=lambda held: (amounts[held], held)):
            if freed >= missing[counter]:
                break
            if index not in chosen:
                chosen.add(index)
                freed += amounts[index]
        if freed < missing[counter]:
            return ()
    return tuple(sorted(chosen))
