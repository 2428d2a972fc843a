"""MIG slices that come and go: what each rule chooses, what moves, what fits after repacking, and whole runs."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import errors
from dovetail.study.partitions import (
    board_places,
    repacking,
    slice_arrivals,
    slice_policies,
    slice_run,
)
from dovetail.study.partitions.slice_fleet import Slice, SliceFleet
from tests.support import shared

BOARD = board_places.named("H100-SXM5-80GB")
ONE, DOUBLE, TWO, THREE, FOUR, SEVEN = BOARD.profiles


def fleet(
    gpus: int, *slices: tuple[int, board_places.SliceProfile, int], **options: object
) -> SliceFleet:
    """GPUs with slices, each by GPU, profile and start; numbered from 100."""
    rule = slice_policies.RULES[str(options.pop("policy", "lex"))]
    placed = SliceFleet(BOARD, gpus, rule=rule, **options)  # type: ignore[arg-type]
    for number, (gpu, profile, start) in enumerate(slices, start=100):
        placed.put(Slice(number, profile, gpu, start))
    return placed


def test_the_geometry_is_the_enumerated_one() -> None:
    text = shared.data("conformance/mig/placements.json").read_text()
    (seven, a30) = json.loads(text)["geometries"].values()
    for board, geometry in ((BOARD, seven), (board_places.named("A30"), a30)):
        known = {(p.compute_slices, p.memory_slices, p.starts) for p in board.profiles}
        assert known == {
            (p["compute_slices"], p["memory_slices"], tuple(p["starts"]))
            for p in geometry["profiles"]
        }


def test_four_slices_are_not_guarded_where_three_fit_both_halves() -> None:
    assert BOARD.guarded() == (SEVEN, THREE, TWO, DOUBLE, ONE)


@pytest.mark.parametrize(
    ("policy", "gpu_and_start"), [("first-fit", (0, 0)), ("best-fit", (2, 4)), ("lex", (1, 6))]
)
def test_each_rule_puts_a_small_slice_elsewhere(
    policy: str, gpu_and_start: tuple[int, int]
) -> None:
    """An empty GPU; one where only the odd last place is cheap; the fullest, whose free half would break."""
    placed = fleet(3, (1, TWO, 4), (2, FOUR, 0), policy=policy)
    assert placed.choice(ONE) == gpu_and_start


def test_one_slice_moves_so_that_a_whole_gpu_is_served() -> None:
    placed = fleet(2, (0, TWO, 0), (1, ONE, 6), most_moves=1)
    assert placed.take(1, SEVEN)
    assert placed.moves == 1
    assert {(held.profile, held.gpu) for held in placed.slices()} == {
        (SEVEN, 1),
        (TWO, 0),
        (ONE, 0),
    }


def test_without_moves_it_is_refused_and_nothing_changes() -> None:
    placed = fleet(2, (0, TWO, 0), (1, ONE, 6))
    before = placed.slices()
    assert not placed.take(1, SEVEN)
    assert placed.slices() == before


def test_a_move_that_leaves_a_slice_without_a_place_is_undone() -> None:
    placed = fleet(2, (0, FOUR, 0), (1, FOUR, 0), most_moves=1)
    before = sorted(placed.slices())
    assert not placed.take(1, SEVEN)
    assert (sorted(placed.slices()), placed.moves) == (before, 0)


@given(st.integers(0, 1000), st.integers(0, 2))
def test_slices_never_overlap_whatever_moves(seed: int, most_moves: int) -> None:
    chance = random.Random(seed)
    placed = fleet(4, most_moves=most_moves)
    for number in range(40):
        running = [held.number for held in placed.slices()]
        if running and chance.random() < 0.4:
            placed.give(chance.choice(running))
        wanted = chance.choice(BOARD.profiles)
        had_room = placed.choice(wanted) is not None
        count = len(placed.slices())
        is_served = placed.take(number, wanted)
        assert is_served or not had_room
        assert len(placed.slices()) == count + is_served

    bits = Counter(
        (held.gpu, bit) for held in placed.slices() for bit in range(8) if held.mask >> bit & 1
    )
    assert set(bits.values()) <= {1}
    masks = [0] * 4
    for held in placed.slices():
        assert held.start in held.profile.starts
        masks[held.gpu] |= held.mask
    assert masks == placed.used


def _layout_counts(used: int, first: int) -> set[tuple[int, ...]]:
    """The numbers of each profile that fit on one GPU besides what is used."""
    counts = {(0,) * 6}
    places = [(index, start) for index, p in enumerate(BOARD.profiles) for start in p.starts]
    for position in range(first, len(places)):
        index, start = places[position]
        mask = BOARD.profiles[index].mask(start)
        if used & mask:
            continue
        for rest in _layout_counts(used | mask, position + 1):
            counts.add(tuple(n + (place == index) for place, n in enumerate(rest)))
    return counts


def test_what_can_be_packed_is_what_layouts_allow() -> None:
    """All counts of slices on two GPUs, by adding up layouts; 78 and 778 are the enumerated numbers."""
    of_one = _layout_counts(0, 0)
    of_two = {tuple(map(sum, zip(a, b, strict=True))) for a in of_one for b in of_one}
    assert (len(of_one), len(of_two)) == (78, 778)
    ranges = [range(limit + 2) for limit in (14, 8, 6, 4, 2, 2)]
    for counts in itertools.product(*ranges):
        assert repacking.is_packable(2, list(counts)) == (counts in of_two)


def test_every_policy_sees_the_same_requests_and_a_seed_gives_one_result() -> None:
    setting = slice_run.SliceSetting(gpus=4, mix="small>large", seed=3)
    results = {
        policy: slice_run.run(msgspec.structs.replace(setting, policy=policy))
        for policy in slice_policies.NAMES
    }
    assert len({result.requests for result in results.values()}) == 1
    assert results["lex"] == slice_run.run(setting)
    assert results["lex"].accepted_slices_pct > results["first-fit"].accepted_slices_pct
    moved = slice_run.run(msgspec.structs.replace(setting, moves=1))
    assert moved.accepted_slices_pct > results["lex"].accepted_slices_pct
    assert moved.moves_per_refusal is not None
    assert 0 < moved.moves_per_refusal <= 1


def test_a_mix_that_shifts_asks_for_more_small_slices_first() -> None:
    requests = list(slice_arrivals.requests(BOARD, 4, mix="small>large", load=1.0, seed=1))
    halves = [Counter(r.profile for r in requests if (r.time > 30) == late) for late in (0, 1)]
    shares = [half[ONE] / half.total() for half in halves]
    assert shares[0] > 2 * shares[1]
    offered = [sum(p.compute_slices * n for p, n in half.items()) / 30 / 28 for half in halves]
    assert all(0.85 < load < 1.15 for load in offered)


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(errors.NotFound, match="uniform, small, large"):
        slice_arrivals.named("tiny")
    with pytest.raises(errors.NotFound, match="first-fit, best-fit, lex, repack"):
        slice_policies.named("worst")
    with pytest.raises(errors.NotFound, match="H100-SXM5-80GB"):
        board_places.named("H1")
    with pytest.raises(errors.InputError, match="seven compute slices"):
        slice_run.run(slice_run.SliceSetting(board="A30", policy="repack"))
