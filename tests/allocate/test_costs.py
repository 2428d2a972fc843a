"""The cost of a choice is one thing, however it was found: quickly, by the general search, or as a sum of terms."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from dovetail.allocate import allocator
from dovetail.allocate.ask.demand import Need, Preallocated, types_of
from dovetail.allocate.ask.device_requests import Option, flattened
from dovetail.allocate.index.candidates import candidates_of
from dovetail.allocate.index.device_bits import NodeDevices
from dovetail.allocate.outcome import Budget
from dovetail.allocate.solve.combine import combined
from dovetail.allocate.solve.device_groups import Splitter
from dovetail.allocate.solve.fallback_search import FallbackSearch
from dovetail.allocate.solve.single_request import NotApplicable, solve_single
from dovetail.allocate.solve.solver import FixedOptions, SearchContext
from dovetail.model.policy import DEFAULT_ALLOCATION
from dovetail.replay import allocation_worlds
from dovetail.world.views.node_view import NodeView
from tests.allocate import build
from tests.support import shared


def _terms(view: NodeView, wanted: Any) -> tuple[SearchContext, list[Option]]:
    ground = NodeDevices(view)
    options = [request.options[0] for request in flattened([wanted], build.CLASSES)]
    result = {option: candidates_of(ground, option, fractional=True) for option in options}
    return SearchContext(ground, (), result, DEFAULT_ALLOCATION, Budget(), True), options


@pytest.mark.parametrize("seed", range(40))
def test_the_quick_way_finds_what_the_general_search_finds(seed: int) -> None:
    rng = random.Random(seed)
    names = [tree["name"] for gpu in range(3) for tree in build.partitions(gpu)]
    view = build.mig_node(3, in_use=rng.sample(names, rng.randrange(4)))
    for expected in (build.profile(rng.choice(list(build.PROFILES))), build.exactly()):
        terms, options = _terms(view, build.claim(expected))
        quick = solve_single(terms, options[0])
        assert not isinstance(quick, NotApplicable)
        assert quick == FixedOptions(terms, options).solve()


@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_the_quick_way_takes_the_same_whole_devices(count: int) -> None:
    devices = build.gpus(8)
    for number, item in enumerate(devices):
        item["capacity"] = {"memory": {"value": f"{(number * 5 % 3 + 1) * 40}Gi"}}
    terms, options = _terms(
        build.node(devices, in_use=["gpu-2"]), build.claim(build.exactly(count))
    )
    quick = solve_single(terms, options[0])
    general = FixedOptions(terms, options).solve()
    assert quick == general or (
        quick and general and quick[0] == general[0] and set(quick[1]) == set(general[1])
    )


def test_terms_add_up_to_the_cost_on_recorded_worlds() -> None:
    seen = 0
    for number, world in enumerate(shared.lines("conformance/dra/fuzz_a.jsonl.gz")):
        if number % 6:
            continue
        asked = allocation_worlds.question(
            msgspec.json.decode(json.dumps(world).encode(), type=allocation_worlds.World)
        )
        for view in asked.views.values():
            outcome = allocator.allocate(view, asked.claims, asked.classes)
            if isinstance(outcome, allocator.Allocated):
                seen += 1
                assert sum(term.milli_gpu for term in outcome.terms) == pytest.approx(
                    outcome.milli_gpu
                ), world["id"]
    assert seen > 100


@pytest.mark.parametrize("seed", range(30))
def test_the_search_of_last_resort_agrees_on_what_is_possible(seed: int) -> None:
    rng = random.Random(seed)
    names = [tree["name"] for gpu in range(2) for tree in build.partitions(gpu)]
    view = build.mig_node(2, in_use=rng.sample(names, rng.randrange(3)))
    expected = [
        build.profile(rng.choice(list(build.PROFILES)), rng.randint(1, 4)) for _ in range(2)
    ]
    terms, options = _terms(view, build.claim(*expected, build.exactly(rng.randint(1, 2))))
    needs = [
        Need(
            option,
            option.count or 0,
            terms.candidates[option].mask,
            offered=terms.candidates[option].mask,
        )
        for option in options
    ]
    types = types_of(terms.node, needs, (), has_admin=False)
    counts = tuple(kind.count for kind in types)
    split = Splitter(
        terms.node, types, Preallocated(), policy=DEFAULT_ALLOCATION, fractional=True
    ).split()
    if split is None:
        assert FixedOptions(terms, options).solve() is None
        return
    flat = FallbackSearch(split, counts, policy=DEFAULT_ALLOCATION, budget=Budget()).solve()
    best = combined(split, counts, policy=DEFAULT_ALLOCATION, budget=Budget())
    assert (flat is None) == (best is None)
    if flat is not None and best is not None:
        assert flat[0] >= best[0]
        assert sorted(kind for kind, _ in flat[1]) == sorted(kind for kind, _ in best[1])
        assert len({device for _, device in flat[1]}) == sum(counts)
