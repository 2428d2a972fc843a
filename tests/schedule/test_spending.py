"""Expensive selectors: a pod spends a little in every decision, delays no other pod, and keeps its answers."""

from __future__ import annotations

import itertools

import pytest

from dovetail.allocate.index import selector_matches
from dovetail.cel import selectors
from dovetail.cel.effort import EVALUATION_UNITS
from dovetail.kubetypes.resource import claims
from dovetail.model import plan, policy
from dovetail.model.reasons import ReasonCode
from dovetail.schedule import refusal_summary
from dovetail.world.world import World
from tests.schedule import build

UUID = f"device.attributes['{build.DRIVER}'].uuid"
TENS = "[1,2,3,4,5,6,7,8,9,10]"
SMALL = policy.Budget(cel_cost=8_000, cel_cost_total=16_000, cel_cost_ever=10_000_000)
MOST_DECISIONS = 2_000


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    selectors.forget()
    selector_matches.forget()


def looping(rounds: int, tag: str) -> str:
    """A selector of some six units a round that reads what every device has of its own."""
    return f"lists.range({rounds}).all(a, a >= 0) && {UUID} != '{tag}'"


def bomb(tag: str) -> str:
    """What an API server admits: 744,446 units on every device."""
    body = "a + b > 0"
    for name in reversed("abcde"):
        body = f"{TENS}.all({name}, {body})"
    return f"{body} && {UUID} != '{tag}'"


def free_steps(tag: str) -> str:
    """Costs little, as constants are free, and takes two hundred times as long."""
    return f"lists.range(2000).all(x, [{'0, ' * 2000}x].size() > 0) && {UUID} != '{tag}'"


def claim(name: str, texts: list[str], count: int = 1) -> claims.ResourceClaim:
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": text}} for text in texts],
    }
    return build.claim(name, requests=[{"name": "gpus", "exactly": exactly}])


def wanting(name: str, texts: list[str], *, priority: int = 0) -> tuple[build.Object, build.Object]:
    return claim(name, texts), build.pod(name, uses=(name,), priority=priority)


def decisions(
    world: World, budget: policy.Budget, *, forgets: bool = False, memo: bool = True
) -> list[plan.Plan]:
    """Decides until nothing is to be continued, as the live loop does."""
    plans: list[plan.Plan] = []
    while not plans or any(map(refusal_summary.is_to_be_continued, plans[-1].refusals)):
        assert len(plans) < MOST_DECISIONS, "there is no end to it"
        if forgets:
            selectors.forget()
            selector_matches.forget()
        plans.append(build.decided(world, budget=budget, policy=policy.Policy(memo=memo)))
    return plans


def code_of(decision: plan.Plan, name: str) -> ReasonCode:
    [refusal] = [item for item in decision.refusals if item.pod.name == name]
    return refusal.obstacles[0].reason.code


@pytest.mark.parametrize("memo", [True, False])
def test_what_is_too_much_for_one_decision_is_answered_by_several_and_the_answer_is_the_same(
    memo: bool,
) -> None:
    texts = [looping(60, f"n{number}-0") for number in range(5)]
    given = [*wanting("dear", texts), *wanting("picky", [*texts, f"{UUID} == 'n7-3'"])]
    whole = build.decided(build.world(*given, nodes=8))
    selectors.forget()
    selector_matches.forget()
    cut = decisions(build.world(*given, nodes=8), SMALL, memo=memo)
    assert len(cut) > 5
    assert {refusal.pod.name for refusal in cut[0].refusals} == {"dear", "picky"}
    assert cut[0].undecided == 2
    last = {name: node for made in cut for name, node in build.nodes_of(made).items()}
    assert last == build.nodes_of(whole) == {"dear": "n0", "picky": "n7"}


def test_a_decision_evaluates_no_more_than_its_budget() -> None:
    given = [
        item
        for number in range(20)
        for item in wanting(f"p{number}", [f"{UUID} != 'p{number}-{n}'" for n in range(4)])
    ]
    world = build.world(*given, nodes=16)
    most = (SMALL.cel_cost_total or 0) + (SMALL.cel_cost or 0)
    evaluated = [0]
    for _ in range(40):
        build.decided(world, budget=SMALL)
        evaluated.append(selectors.remembered()[2])
    steps = [after - before for before, after in itertools.pairwise(evaluated)]
    assert 0 < max(steps) <= most // EVALUATION_UNITS
    assert evaluated[-1] > 20 * 4 * 4, "and it goes on"


def test_a_cheap_pod_behind_many_expensive_ones_is_placed_in_the_first_decisions() -> None:
    hostile = [
        item
        for number in range(60)
        for item in wanting(f"h{number}", [bomb(f"{number}")], priority=1000)
    ]
    honest = wanting("honest", [f"{UUID} != 'me'"])
    world = build.world(*hostile, *honest, nodes=8)
    made = [build.decided(world, budget=policy.LIVE) for _ in range(4)]
    assert any("honest" in build.nodes_of(item) for item in made)


def test_a_cheap_pod_whose_selectors_are_known_is_placed_in_the_same_decision() -> None:
    hostile = [
        item
        for number in range(60)
        for item in wanting(f"h{number}", [bomb(f"{number}")], priority=1000)
    ]
    first, second = wanting("first", [f"{UUID} != 'me'"]), wanting("second", [f"{UUID} != 'me'"])
    world = build.world(*first, nodes=8)
    decisions(world, policy.LIVE)
    build.put(world, *hostile, *second)
    assert "second" in build.nodes_of(build.decided(world, budget=policy.LIVE))


@pytest.mark.parametrize("text", [bomb("x"), free_steps("x")], ids=["cost", "free steps"])
def test_an_evaluation_that_is_never_affordable_is_refused_with_a_reason(text: str) -> None:
    plans = decisions(build.world(*wanting("dear", [text]), nodes=2), policy.LIVE)
    assert len(plans) < 20
    assert code_of(plans[-1], "dear") is ReasonCode.SELECTOR_COST
    assert "takes more than 100000 units" in build.summary_of(plans[-1], "dear")
    assert not plans[-1].undecided


def test_without_a_budget_such_an_evaluation_is_made() -> None:
    given = wanting("dear", [looping(30_000, "x")])
    cut = decisions(build.world(*given, nodes=1, gpus=1), policy.LIVE)
    assert code_of(cut[-1], "dear") is ReasonCode.SELECTOR_COST
    assert build.nodes_of(build.decided(build.world(*given, nodes=1, gpus=1))) == {"dear": "n0"}


def test_pods_of_the_same_text_pay_once_for_finding_out_that_it_is_too_expensive() -> None:
    world = build.world(*wanting("a", [bomb("x")]), nodes=1)
    decisions(world, policy.LIVE)
    build.put(world, *wanting("b", [bomb("x")]))
    assert code_of(build.decided(world, budget=policy.LIVE), "b") is ReasonCode.SELECTOR_COST


def test_what_costs_more_than_all_pods_ever_may_is_refused_with_the_numbers() -> None:
    texts = [looping(80, f"{number}") for number in range(8)]
    budget = policy.Budget(cel_cost=8_000, cel_cost_total=16_000, cel_cost_ever=50_000)
    plans = decisions(build.world(*wanting("dear", texts), nodes=16), budget)
    assert code_of(plans[-1], "dear") is ReasonCode.SELECTOR_COST
    text = build.summary_of(plans[-1], "dear")
    assert "its selectors are too expensive" in text
    assert "at most 50000 are spent" in text
    again = build.decided(build.world(*wanting("dear", texts), nodes=16))
    assert build.nodes_of(again) == {"dear": "n0"}


def test_nodes_stay_judged_where_nothing_else_is_remembered() -> None:
    world = build.world(*wanting("dear", [looping(50, "x")]), nodes=12, gpus=2)
    plans = decisions(world, SMALL, forgets=True)
    assert len(plans) > 2
    assert build.nodes_of(plans[-1]) == {"dear": "n0"}


def test_a_claim_that_fits_into_no_memory_is_refused_in_the_end() -> None:
    texts = [
        looping(100, f"{number}") for number in range(40)
    ]  # one node alone is more than one decision
    budget = policy.Budget(cel_cost=8_000, cel_cost_total=16_000, cel_cost_ever=100_000)
    plans = decisions(build.world(*wanting("dear", texts), nodes=2), budget, forgets=True)
    assert code_of(plans[-1], "dear") is ReasonCode.SELECTOR_COST


def test_long_texts_are_compiled_one_after_the_other() -> None:
    texts = [
        f"{UUID} != '{'x' * 400}{number}'" for number in range(30)
    ]  # ten thousand units each to compile
    world = build.world(*wanting("dear", texts), nodes=1)
    before = 0
    for _ in range(30):
        decision = build.decided(world, budget=policy.LIVE)
        compiled = selectors.remembered()[0]
        assert compiled - before <= 11
        before = compiled
        if decision.placements:
            break
    assert build.nodes_of(decision) == {"dear": "n0"}


def test_a_refusal_is_explained_within_bounds() -> None:
    texts = [*(looping(60, f"{number}") for number in range(20)), f"{UUID} == 'nothing'"]
    plans = decisions(build.world(*wanting("none", texts), nodes=2), SMALL)
    assert code_of(plans[-1], "none") is ReasonCode.SELECTOR
