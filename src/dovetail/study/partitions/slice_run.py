"""One run of the MIG study: requests arrive, are served or refused for good, and leave.

Given a board, a number of GPUs, a mix, a load, a policy and how many slices may move per refusal. Reports what part of
the requested compute slices was served, by profile and in all. Simulated: no queue, no nodes, no cost of a move.
"""

from __future__ import annotations

import heapq
from collections import Counter

import msgspec

from dovetail.study.partitions import board_places, slice_arrivals, slice_policies
from dovetail.study.partitions.board_places import SliceProfile
from dovetail.study.partitions.repacking import RepackedFleet
from dovetail.study.partitions.slice_fleet import SliceFleet


class SliceSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What is run."""

    board: str = "H100-SXM5-80GB"
    gpus: int = 100
    mix: str = "uniform"
    load: float = 1.0
    policy: str = "lex"
    moves: int = 0  # slices that may move for one refused request
    seed: int = 1


class SliceResult(msgspec.Struct, frozen=True):
    """What was served, in percent of what was requested after the warm-up."""

    accepted_slices_pct: float
    accepted_pct: dict[str, float]  # by profile
    requests: int
    moves_per_100_served: float | None  # None where moves are not counted
    moves_per_refusal: float | None  # for each request that found no free place


def run(setting: SliceSetting) -> SliceResult:
    """All requests of one seed."""
    board = board_places.named(setting.board)
    fleet = _fleet(board, setting)
    asked: Counter[SliceProfile] = Counter()
    served: Counter[SliceProfile] = Counter()
    ends: list[tuple[float, int]] = []
    moves_before = without_room_before = 0
    requests = slice_arrivals.requests(
        board, setting.gpus, mix=setting.mix, load=setting.load, seed=setting.seed
    )
    for number, request in enumerate(requests):
        while ends and ends[0][0] <= request.time:
            fleet.give(heapq.heappop(ends)[1])
        is_served = fleet.take(number, request.profile)
        if is_served:
            heapq.heappush(ends, (request.time + request.life, number))
        if request.is_counted:
            asked[request.profile] += 1
            served[request.profile] += is_served
        else:
            moves_before, without_room_before = fleet.moves, fleet.without_room

    moves = fleet.moves - moves_before
    without_room = fleet.without_room - without_room_before
    is_counted = not isinstance(fleet, RepackedFleet)
    return SliceResult(
        accepted_slices_pct=_percent(_slices(served), _slices(asked)),
        accepted_pct={
            profile.name: _percent(served[profile], asked[profile]) for profile in board.profiles
        },
        requests=asked.total(),
        moves_per_100_served=_percent(moves, served.total()) if is_counted else None,
        moves_per_refusal=round(moves / max(without_room, 1), 2) if is_counted else None,
    )


def _fleet(board: board_places.Board, setting: SliceSetting) -> SliceFleet | RepackedFleet:
    if setting.policy == slice_policies.REPACK:
        return RepackedFleet(board, setting.gpus)
    rule = slice_policies.RULES[setting.policy]
    return SliceFleet(board, setting.gpus, rule=rule, most_moves=setting.moves)


def _slices(counts: Counter[SliceProfile]) -> int:
    return sum(profile.compute_slices * count for profile, count in counts.items())


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0
