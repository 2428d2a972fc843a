"""Which place on which board: the allocator's costs are the LEX rule, derived from counters alone."""

from __future__ import annotations

import itertools
import random

import pytest

from dovetail.allocate.index import counter_sets
from dovetail.model.policy import DEFAULT_ALLOCATION
from tests.allocate import build

Mask = int
KINDS = ("7g", "3g", "2g", "1gd", "1g")  # in the order of the rule; 4g is left out on purpose


def _extent(profile: str, start: int) -> Mask:
    return ((1 << build.PROFILES[profile][1]) - 1) << start


def _free(mask: Mask, profile: str) -> list[int]:
    return [start for start in build.PROFILES[profile][2] if not mask & _extent(profile, start)]


def _lost(mask: Mask, after: Mask) -> tuple[int, ...]:
    return tuple(len(_free(mask, kind)) - len(_free(after, kind)) for kind in KINDS)


def _states() -> dict[Mask, tuple[tuple[str, int], ...]]:
    """Every reachable mask with one way to reach it."""
    known: dict[Mask, tuple[tuple[str, int], ...]] = {0: ()}
    waiting = [0]
    while waiting:
        mask = waiting.pop()
        for profile in build.PROFILES:
            for start in _free(mask, profile):
                after = mask | _extent(profile, start)
                if after not in known:
                    known[after] = (*known[mask], (profile, start))
                    waiting.append(after)
    return known


STATES = _states()


def _left(layout: tuple[tuple[str, int], ...], names: tuple[str, ...]) -> tuple[int, ...]:
    left = {"multiprocessors": 98, **{f"memory-slice-{place}": 1 for place in range(8)}}
    for profile, start in layout:
        left["multiprocessors"] -= 14 * build.PROFILES[profile][0]
        for place in range(start, start + build.PROFILES[profile][1]):
            left[f"memory-slice-{place}"] -= 1
    return tuple(left[name] * 10**9 for name in names)


def test_there_are_as_many_states_as_the_geometry_says() -> None:
    assert len(STATES) == 192


@pytest.mark.parametrize("profile", build.PROFILES)
def test_costs_order_places_as_the_rule_does(profile: str) -> None:
    """A lower tuple of lost places is a lower cost; of equal tuples the fuller board is never dearer."""
    pool = build.mig_node(1).pools[0]
    partitions = counter_sets.partitions_of(
        pool.devices, pool.devices.counter_sets[0], DEFAULT_ALLOCATION
    )
    result: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for mask, layout in STATES.items():
        before = partitions.value(_left(layout, partitions.counters))
        for start in _free(mask, profile):
            after = mask | _extent(profile, start)
            taken = (*layout, (profile, start))
            if sum(build.PROFILES[name][0] for name, _ in taken) > 7:
                continue
            cost = before - partitions.value(_left(taken, partitions.counters))
            result.setdefault(_lost(mask, after), []).append((mask.bit_count(), cost))
    assert len(result) > 1 or profile == "7g"
    for lower, higher in itertools.pairwise(sorted(result)):
        assert max(cost for _, cost in result[lower]) < min(cost for _, cost in result[higher]), (
            lower,
            higher,
        )


def test_the_allocator_puts_partitions_where_the_rule_says() -> None:
    rng = random.Random(7)
    masks = sorted(STATES)
    for _ in range(120):
        chosen = [rng.choice(masks) for _ in range(3)]
        profile = rng.choice(list(build.PROFILES))
        in_use = [
            f"gpu-{gpu}-{name}-{start}"
            for gpu, mask in enumerate(chosen)
            for name, start in STATES[mask]
        ]
        outcome = build.ask(build.mig_node(3, in_use=in_use), build.claim(build.profile(profile)))
        ways = [
            (_lost(mask, mask | _extent(profile, start)), -mask.bit_count(), gpu, start)
            for gpu, mask in enumerate(chosen)
            for start in _free(mask, profile)
        ]
        if not ways:
            assert type(outcome).__name__ == "Refused"
            continue
        (name,) = build.devices_of(outcome)
        _, gpu, _, start = name.split("-")
        assert (int(gpu), int(start)) == min(ways)[2:], (chosen, profile, sorted(ways)[:3])


def test_an_empty_board_is_opened_last() -> None:
    view = build.mig_node(3, in_use=["gpu-1-2g-4"])
    assert build.devices_of(build.ask(view, build.claim(build.profile("1g")))) == ["gpu-1-1g-6"]
    assert build.devices_of(build.ask(view, build.claim(build.profile("4g")))) == ["gpu-1-4g-0"]
    assert build.devices_of(build.ask(view, build.claim(build.profile("7g")))) == ["gpu-0-7g-0"]
