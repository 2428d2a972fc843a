"""Expressions made to burn time: what they may cost is counted in steps, and no other pod waits for them."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.allocate.index import selector_matches
from dovetail.cel import effort, selectors
from dovetail.cel.evaluate import program
from dovetail.errors import ExpressionError
from dovetail.kubetypes import registry
from dovetail.model import plan, policy
from dovetail.schedule import decide as cycle
from tests.cel import test_hostile
from tests.live.live_scheduler import Stage, play
from tests.schedule import build

LIMIT = 1_000_000  # CELSelectorExpressionMaxCost, resource.k8s.io/v1
BOMBS = {
    "nested loops": "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))",
    "growing text": "lists.range(60).all(i, ('a' + 'b').replace('a', 'aaaaaaaaaaaaaaaaaaaa').size() > 0)",
    "attributes in attributes": "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, true)))",
    "backtracking": "('a' + 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab').matches('^(a+)+$')",
    "alternation": "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('(a|aa|aaa|aaaa|a?)+b')",
}


@pytest.mark.parametrize("expression", BOMBS.values(), ids=BOMBS)
def test_evaluation_ends_within_the_cost_upstream_allows(expression: str) -> None:
    compiled = program.compile_stored(expression)
    result = compiled.evaluate(test_hostile.DEVICE)
    assert (result.cost or 0) <= 2 * LIMIT, "counting stops at the first step beyond the limit"
    assert str(result.outcome) in ("match", "no-match", "error")


def test_a_pattern_is_matched_in_linear_time_by_re2() -> None:
    text, pattern = "a" * 9_000, "(a+)+$" * 20
    outcome = (
        program.compile_stored(f"'{text}b'.matches('{pattern}')")
        .evaluate(test_hostile.DEVICE)
        .outcome
    )
    assert str(outcome) == "no-match"


@pytest.mark.parametrize("text", ["(" * 400 + "1" + ")" * 400, "[" * 3_000, "x" * 20_000])
def test_an_expression_too_deep_or_too_long_is_refused_before_it_is_planned(text: str) -> None:
    with pytest.raises(ExpressionError) as refusal:
        program.compile_stored(text)
    assert len(str(refusal.value)) < 50_000
    assert selectors.problem(text) is not None


def test_compiled_expressions_are_remembered_up_to_a_number() -> None:
    """A user who sends a new expression with every claim fills no memory."""
    for number in range(5000):
        selectors.problem(f"device.driver == 'driver-{number}'")
    remembered = [
        var.cache_info() for var in vars(selectors).values() if hasattr(var, "cache_info")
    ]
    assert remembered
    assert all(info.maxsize is not None and info.currsize <= info.maxsize for info in remembered)


def test_steps_that_cost_nothing_are_counted_where_effort_is_bounded() -> None:
    """Constants are free in CEL: 4,000 of them in a loop take as long as 4,000 steps, at a cost of ten."""
    text = f"lists.range(2000).all(x, [{'0, ' * 2000}x].size() > 0)"
    assert selectors.problem(text) is None, "an API server takes it"
    compiled = program.compile_stored(text)
    spent = effort.Effort(5_000, most=100_000)
    with pytest.raises(effort.Unfinished):
        compiled.within(test_hostile.DEVICE, spent)
    assert 5_000 < spent.spent <= 5_002


def test_everything_that_is_remembered_of_selectors_has_one_bound() -> None:
    """Texts that are new each time and read what every device has of its own, on many devices."""
    selectors.forget()
    selector_matches.forget()
    world = build.world(nodes=64)
    pools = [*world.published()]
    for number in range(300):
        for devices in pools:
            selector_matches.verdict(
                devices, f"device.attributes['{build.DRIVER}'].uuid != 'x{number}'"
            )
    texts, nodes, verdicts = selectors.remembered()
    assert 0 < verdicts <= selectors.MOST_VERDICTS
    assert (
        0
        < selector_matches.remembered()
        <= selector_matches.MOST_VERDICTS + selector_matches.MOST_SELECTED
    )
    assert texts == 300, "what is compiled stays"
    assert nodes <= selectors.MOST_NODES


def test_long_texts_push_out_what_was_compiled_before() -> None:
    selectors.forget()
    for number in range(40):
        selectors.selector(f"[{'device.driver, ' * 600}'x{number}'].size() > 0")
    texts, nodes, _ = selectors.remembered()
    assert 1 < texts < 40
    assert nodes <= selectors.MOST_NODES


def test_texts_that_do_not_compile_are_remembered_up_to_a_size() -> None:
    selectors.forget()
    for number in range(300):
        with pytest.raises(ExpressionError):
            selectors.selector(f"'{'x' * 9_000}{number}' +")
    assert selectors.remembered()[0] == 0
    assert 0 < selectors.remembered_errors() <= selectors.MOST_BROKEN_CHARACTERS


def claim_tree(name: str, texts: list[str]) -> dict[str, Any]:
    expected = {
        "deviceClassName": "gpu.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": text}} for text in texts],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": expected}]}},
    }


def unique(text: str, tag: str) -> str:
    """The same work, but another text, and on every device another value is read."""
    return f"({text}) && device.attributes['gpu.nvidia.com'].uuid != '{tag}'"


@pytest.mark.parametrize("has_queue", [False, True], ids=["alone", "with a queue"])
def test_pods_whose_claims_carry_bombs_wait_with_a_reason_and_others_start(has_queue: bool) -> None:
    """Many devices that all differ, many claims, many selectors: no decision evaluates more than its budget."""
    evaluated: list[int] = []

    def decide(*args: Any, **options: Any) -> plan.Plan:
        before = selectors.remembered()[2]
        decision = cycle.decide(*args, **options)
        evaluated.append(selectors.remembered()[2] - before)
        return decision

    async def story() -> None:
        selectors.forget()
        stage = Stage(nodes=8, gpus=8)
        labels = {"dovetail.dev/queue": "all"} if has_queue else {}
        if has_queue:
            stage.queue("all", resources={"gpu": {"quota": "64"}})
        for number, expression in enumerate(BOMBS.values()):
            texts = [unique(expression, f"{number}-{place}") for place in range(4)]
            stage.api.shelf.put(registry.CLAIM, claim_tree(f"bomb-{number}", texts))
            stage.pod(f"bomb-{number}", named=(f"bomb-{number}",), priority=1000, labels=labels)
        stage.claim("plain")
        stage.pod("honest", named=("plain",), labels=labels)
        async with stage.scheduling(decide=decide):
            await stage.pass_time(5)
            assert stage.node_of("honest")
            stage.claim("later")
            stage.pod("honest-too", named=("later",), labels=labels)
            await stage.pass_time(25)
        assert stage.ended is None
        assert stage.node_of("honest-too")
        assert stage.node_of("bomb-0") == ""
        (messages,) = [
            condition
            for condition in stage.the_pod("bomb-0").status.conditions
            if condition.type == "PodScheduled"
        ]
        assert "its selectors are too expensive" in messages.message
        assert messages.message.isprintable()
        assert len(messages.message) < 5_000

    play(story)
    units = policy.LIVE_CEL_COST_TOTAL + policy.LIVE_CEL_COST
    assert max(evaluated) <= units // effort.EVALUATION_UNITS
