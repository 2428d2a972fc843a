"""The common question, answered quickly: devices for one request that nothing else in the claims touches.

Given an option whose devices are exclusive and under no constraint; gives exactly what the general search would,
by looking at each counter set once. Says so when the question is not of this kind.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from dovetail.allocate import capacity
from dovetail.allocate.counters import Partitions, partitions_of
from dovetail.allocate.facts import Facts, Sizes, bits
from dovetail.allocate.requests import Option
from dovetail.allocate.score import UNIT
from dovetail.allocate.settled import Solution, Terms
from dovetail.model.claims import MAX_RESULTS
from dovetail.model.policy import AllocationPolicy
from dovetail.world.devices import Devices, Template
from dovetail.world.view import Amounts

_MEMO_SIZE = 4096


class Unfit(Enum):
    """Not a question for this module."""

    UNFIT = "unfit"


class Board(NamedTuple):
    """The devices that draw on one counter set and on no other."""

    name: str
    partitions: Partitions
    mask: int
    low: int  # position of the first of them
    best: dict[tuple[object, ...], tuple[int, int] | None]  # what was found before


def single(terms: Terms, option: Option) -> Solution | Unfit | None:
    """The cheapest devices, None if there are not enough, UNFIT if the general search must answer."""
    ground = terms.ground
    mask = terms.candidates[option].mask
    wanted = option.count
    if wanted is None or not 0 < wanted <= MAX_RESULTS or option.is_admin or mask & ground.shareable:
        return Unfit.UNFIT
    if any(rule.covers(option) for rule in terms.constraints):
        return Unfit.UNFIT
    if mask & ground.charged:
        return _one_partition(terms, option, mask) if wanted == 1 else Unfit.UNFIT
    if mask.bit_count() < wanted:
        return None
    found = sorted(_plain(terms, mask, wanted))[:wanted]
    return sum(cost for cost, _ in found), [(option, device) for _, device in found]


def _plain(terms: Terms, mask: int, wanted: int) -> list[tuple[int, int]]:
    """Of each kind of device the first few, with their cost."""
    ground = terms.ground
    sizes = ground.sizes(mask)
    found: list[tuple[int, int]] = []
    for start, pool, facts in zip(ground.starts, ground.pools, ground.facts, strict=True):
        mine = mask >> start & ((1 << len(pool.devices)) - 1)
        for template, devices in facts.kinds if mine else ():
            rest = devices & mine
            cost = _linear(template, sizes, terms.policy) if rest else 0
            for _ in range(wanted):
                if not rest:
                    break
                low = rest & -rest
                found.append((cost, start + low.bit_length() - 1))
                rest ^= low
    return found


def _one_partition(terms: Terms, option: Option, mask: int) -> Solution | Unfit | None:
    ground = terms.ground
    sizes = ground.sizes(mask)
    best: tuple[int, int] | None = None
    for start, pool, facts in zip(ground.starts, ground.pools, ground.facts, strict=True):
        mine = mask >> start & ((1 << len(pool.devices)) - 1)
        if not mine:
            continue
        boards, covered = boards_of(pool.devices, facts, terms.policy)
        if mine & ~covered:
            return Unfit.UNFIT
        for board in boards:
            local = mine & board.mask
            if local:
                left = _left(pool.counters_left[board.name], board.partitions)
                found = _cheapest(board, local >> board.low, left, sizes, facts)
                if found is not None and (best is None or found[0] < best[0]):
                    best = (found[0], start + board.low + found[1])
    return None if best is None else (best[0], [(option, best[1])])


def _left(amounts: Amounts, partitions: Partitions) -> tuple[int, ...]:
    names = partitions.counters
    return tuple(amounts.values()) if tuple(amounts) == names else tuple(amounts.get(name, 0) for name in names)


def _cheapest(board: Board, local: int, left: tuple[int, ...], sizes: Sizes, facts: Facts) -> tuple[int, int] | None:
    """The candidate that costs least of what is left, by its position on the board; remembered."""
    partitions = board.partitions
    key = (local, left, tuple(sizes.items()))
    if key in board.best:
        return board.best[key]
    best: tuple[int, int] | None = None
    before = partitions.value(left)
    for position in bits(local):
        template = facts.templates[board.low + position]
        draws = {name: amount for _, name, amount in facts.charges_at(board.low + position)}
        after = tuple(have - draws.get(name, 0) for name, have in zip(partitions.counters, left, strict=True))
        if any(have < 0 and name in draws for name, have in zip(partitions.counters, after, strict=True)):
            continue
        cost = before - partitions.value(after) + _linear(template, sizes, partitions.policy)
        if best is None or cost < best[0]:
            best = (cost, position)
    if len(board.best) >= _MEMO_SIZE:
        board.best.clear()
    board.best[key] = best
    return best


def _linear(template: Template, sizes: Sizes, policy: AllocationPolicy) -> int:
    binding = policy.binding * UNIT if template.binding_conditions else 0
    return binding + (capacity.oversize(template, sizes, policy))


_boards: dict[tuple[int, int, AllocationPolicy], tuple[Devices, tuple[Board, ...], int]] = {}


def boards_of(devices: Devices, facts: Facts, policy: AllocationPolicy) -> tuple[tuple[Board, ...], int]:
    """The counter sets of a pool with their devices, and all devices that draw on just one of them."""
    key = (id(devices.templates), id(devices.counter_sets), policy)
    known = _boards.get(key)
    if known is None:
        masks = _masks(facts)
        by_name = {one.name: one for one in devices.counter_sets}
        boards = tuple(
            Board(name, partitions_of(devices, by_name[name], policy), mask, (mask & -mask).bit_length() - 1, {})
            for name, mask in masks.items()
        )
        if len(_boards) >= _MEMO_SIZE:
            _boards.clear()
        known = _boards[key] = (devices, boards, sum(masks.values()))  # holds the devices: ids stay theirs
    return known[1], known[2]


def _masks(facts: Facts) -> dict[str, int]:
    masks: dict[str, int] = {}
    for template, mask in facts.kinds:
        sets = {name for name, _, _ in facts.charges.get(id(template), ())}
        if len(sets) == 1:
            name = next(iter(sets))
            masks[name] = masks.get(name, 0) | mask
    return masks
