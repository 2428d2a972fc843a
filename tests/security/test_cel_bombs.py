"""Expressions made to burn time: what they may cost is counted in steps, and nobody else waits for them."""

from __future__ import annotations

import pytest

from dovetail.cel import program, selectors
from dovetail.errors import ExpressionError
from dovetail.model import kinds
from tests.cel import test_hostile
from tests.loops.stage import Stage, play

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
    outcome = program.compile_stored(f"'{text}b'.matches('{pattern}')").evaluate(test_hostile.DEVICE).outcome
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
    remembered = [found.cache_info() for found in vars(selectors).values() if hasattr(found, "cache_info")]
    assert remembered
    assert all(info.maxsize is not None and info.currsize <= info.maxsize for info in remembered)


def test_a_pod_whose_claim_carries_a_bomb_waits_with_a_reason_and_others_start() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        for number, expression in enumerate(BOMBS.values()):
            wanted = {
                "deviceClassName": "gpu.nvidia.com",
                "count": 1,
                "selectors": [{"cel": {"expression": expression}}],
            }
            stage.api.shelf.put(
                kinds.CLAIM,
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": f"bomb-{number}", "namespace": "default", "uid": f"uid-bomb-{number}"},
                    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": wanted}]}},
                },
            )
            stage.pod(f"bomb-{number}", named=(f"bomb-{number}",), priority=1000)
        stage.template("one")
        stage.pod("honest", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(5)
        assert stage.node_of("honest")
        assert stage.node_of("bomb-0") == ""
        (told,) = [one for one in stage.the_pod("bomb-0").status.conditions if one.type == "PodScheduled"]
        assert told.message.isprintable()
        assert len(told.message) < 5_000

    play(story)
