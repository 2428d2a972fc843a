"""The common case, answered without a search: devices for one request that nothing else in the claims affects.

Given an option whose devices are exclusive and under no constraint. Returns exactly what the general search would:
plain devices do not affect each other, so the cheapest ones are the answer; a single partition affects only its own
counter set, so each set is looked at once. Returns UNFIT if the request is not of this kind.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from dovetail import cache
from dovetail.allocate.ask.device_requests import Option
from dovetail.allocate.index import consumed_capacity
from dovetail.allocate.index.consumed_capacity import UNIT
from dovetail.allocate.index.counter_sets import Partitions, partitions_of
from dovetail.allocate.index.pool_index import PoolIndex, Sizes, bits
from dovetail.allocate.solve.solver import SearchContext, Solution
from dovetail.kubetypes.resource.claims import MAX_RESULTS
from dovetail.model.policy import AllocationPolicy
from dovetail.world.devices.device_columns import Devices, Template
from dovetail.world.views.node_view import Amounts

_MEMO_SIZE = 4096


class NotApplicable(Enum):
    """The general search must answer."""

    UNFIT = "unfit"


class Board(NamedTuple):
    """The devices that draw on one counter set and on no other."""

    name: str
    partitions: Partitions
    mask: int
    low: int  # position of the first of them
    best: dict[tuple[object, ...], tuple[int, int] | None]  # earlier answers


def solve_single(context: SearchContext, option: Option) -> Solution | NotApplicable | None:
    """The cheapest devices, None if there are not enough, UNFIT if the general search must answer."""
    node = context.node
    mask = context.candidates[option].mask
    count = option.count
    if count is None or not _is_plain(context, option, count):
        return NotApplicable.UNFIT
    if mask & node.charged:
        return _one_partition(context, option, mask) if count == 1 else NotApplicable.UNFIT
    if mask.bit_count() < count:
        return None
    cheapest = sorted(_plain(context, mask, count))[:count]
    return sum(cost for cost, _ in cheapest), [(option, device) for _, device in cheapest]


def _is_plain(context: SearchContext, option: Option, count: int) -> bool:
    """Whether neither limit nor sharing nor administrative access nor a constraint complicates the option."""
    if not 0 < count <= MAX_RESULTS or option.is_admin:
        return False
    if context.candidates[option].mask & context.node.shareable:
        return False
    return not any(constraint.covers(option) for constraint in context.constraints)


def _plain(context: SearchContext, mask: int, count: int) -> list[tuple[int, int]]:
    """Cost and number of the first `count` devices of each kind: devices of one kind cost the same."""
    node = context.node
    sizes = node.sizes(mask)
    candidates: list[tuple[int, int]] = []
    for start, pool, facts in zip(node.starts, node.pools, node.facts, strict=True):
        in_pool = mask >> start & ((1 << len(pool.devices)) - 1)
        if not in_pool:
            continue
        for template, devices in facts.kinds:
            remaining = devices & in_pool
            if not remaining:
                continue
            cost = _linear(template, sizes, context.policy)
            for _ in range(count):
                if not remaining:
                    break
                lowest = remaining & -remaining
                candidates.append((cost, start + lowest.bit_length() - 1))
                remaining ^= lowest
    return candidates


def _one_partition(
    context: SearchContext, option: Option, mask: int
) -> Solution | NotApplicable | None:
    """One partition out of all boards. The first of equally cheap ones wins, as in the general search."""
    node = context.node
    sizes = node.sizes(mask)
    best: tuple[int, int] | None = None
    for start, pool, facts in zip(node.starts, node.pools, node.facts, strict=True):
        in_pool = mask >> start & ((1 << len(pool.devices)) - 1)
        if not in_pool:
            continue
        boards, covered = boards_of(pool.devices, facts, context.policy)
        if in_pool & ~covered:  # a candidate without counters, or with several counter sets
            return NotApplicable.UNFIT
        for board in boards:
            on_board = in_pool & board.mask
            if not on_board:
                continue
            remaining = _in_order(pool.counters_left[board.name], board.partitions)
            pick = _cheapest(board, on_board >> board.low, remaining, sizes, facts)
            if pick is not None and (best is None or pick[0] < best[0]):
                best = (pick[0], start + board.low + pick[1])
    return None if best is None else (best[0], [(option, best[1])])


def _in_order(amounts: Amounts, partitions: Partitions) -> tuple[int, ...]:
    names = partitions.counters
    if tuple(amounts) == names:
        return tuple(amounts.values())
    return tuple(amounts.get(name, 0) for name in names)


def _cheapest(
    board: Board, local: int, remaining: tuple[int, ...], sizes: Sizes, facts: PoolIndex
) -> tuple[int, int] | None:
    """Cost and position on the board of the candidate that loses the least value; cached on the board."""
    partitions = board.partitions
    key = (local, remaining, tuple(sizes.items()))
    if key in board.best:
        return board.best[key]
    best: tuple[int, int] | None = None
    before = partitions.value(remaining)
    for position in bits(local):
        template = facts.templates[board.low + position]
        draws = {name: amount for _, name, amount in facts.charges_at(board.low + position)}
        after = tuple(
            have - draws.get(name, 0)
            for name, have in zip(partitions.counters, remaining, strict=True)
        )
        # A counter may be overdrawn already; that matters only to devices that draw on it.
        is_short = any(
            have < 0 and name in draws
            for name, have in zip(partitions.counters, after, strict=True)
        )
        if is_short:
            continue
        cost = before - partitions.value(after) + _linear(template, sizes, partitions.policy)
        if best is None or cost < best[0]:
            best = (cost, position)
    if len(board.best) >= _MEMO_SIZE:
        board.best.clear()
    board.best[key] = best
    return best


def _linear(template: Template, sizes: Sizes, policy: AllocationPolicy) -> int:
    """The part of the cost that does not depend on other picks."""
    binding = policy.binding * UNIT if template.binding_conditions else 0
    return binding + consumed_capacity.oversize(template, sizes, policy)


_BOARDS: Final = cache.Memo[tuple[int, int, AllocationPolicy], tuple[tuple[Board, ...], int]](
    _MEMO_SIZE
)


def boards_of(
    devices: Devices, facts: PoolIndex, policy: AllocationPolicy
) -> tuple[tuple[Board, ...], int]:
    """The counter sets of a pool with their devices, and all devices that draw on just one of them."""
    key = (id(devices.templates), id(devices.counter_sets), policy)
    boards_and_mask = _BOARDS.get(key)
    if boards_and_mask is None:
        masks = _masks(facts)
        by_name = {one.name: one for one in devices.counter_sets}
        boards = tuple(
            Board(
                name,
                partitions_of(devices, by_name[name], policy),
                mask,
                (mask & -mask).bit_length() - 1,
                {},
            )
            for name, mask in masks.items()
        )
        boards_and_mask = (boards, sum(masks.values()))
        _BOARDS.put(key, boards_and_mask, alive=devices)
    return boards_and_mask


def _masks(facts: PoolIndex) -> dict[str, int]:
    masks: dict[str, int] = {}
    for template, mask in facts.kinds:
        sets = {name for name, _, _ in facts.charges.get(id(template), ())}
        if len(sets) == 1:
            name = next(iter(sets))
            masks[name] = masks.get(name, 0) | mask
    return masks
