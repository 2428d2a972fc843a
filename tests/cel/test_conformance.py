"""The recorded answers of upstream's CEL environment: verdicts, errors, compile errors and costs, all of them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import pytest

from dovetail.cel import derived_attributes, device_views, environment
from dovetail.cel.check.types import Kind
from dovetail.cel.environment import Environment
from dovetail.cel.evaluate.frame import DeviceView
from dovetail.cel.evaluate.program import Program
from dovetail.cel.evaluate.values import CelError
from dovetail.cel.language import ast
from dovetail.errors import ExpressionError
from dovetail.kubetypes.resource import slices
from dovetail.quantity import quantity
from tests.support import shared

EXTRA = "conformance/dra/cel_extra.json.gz"
TABLE = "conformance/dra/cel_table.json.gz"


def view_of(device: dict[str, Any], *, empty_is_list: bool) -> DeviceView:
    """A recorded device. Go's encoder dropped empty lists, so `{}` may stand for one: the answer tells which."""
    body = dict(device)
    driver = body.pop("driver", "")
    if empty_is_list:
        attributes = body.get("attributes", {})
        body["attributes"] = {name: value or {"strings": []} for name, value in attributes.items()}
    return device_views.view(
        driver, msgspec.convert(body, slices.Device, dec_hook=quantity.decode_hook)
    )


@lru_cache(maxsize=4096)
def compiled(expression: str, env: Environment, *, is_derived: bool = False) -> Program | None:
    try:
        return Program(expression, env, is_derived=is_derived)
    except ExpressionError:
        return None


def may_stop_within_a_map(program: Program) -> bool:
    """Upstream walks maps in random order: where the walk may stop early, its cost is a matter of chance."""
    pending = [program.checked.root]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Comprehension):
            over = program.checked.type_of(node.iter_range)
            can_stop = not (
                isinstance(node.condition, ast.Literal) and node.condition.value is True
            )
            if over.kind == Kind.MAP and can_stop:
                return True
        pending.extend(ast.children(node))
    return False


def judge(
    expression: str, device: dict[str, Any], expected: dict[str, Any], env: Environment
) -> list[str]:
    """What differs from a recorded answer; empty when nothing does."""
    program = compiled(expression, env)
    if program is None or "compileError" in expected:
        same = (program is None) == ("compileError" in expected)
        return (
            []
            if same
            else [
                f"compiles: {program is not None}, upstream: {expected.get('compileError', 'compiles')}"
            ]
        )
    unsupported = "unsupported attribute value" in expected.get("matchError", "")
    result = program.evaluate(view_of(device, empty_is_list=not unsupported))
    wanted = "error" if "matchError" in expected else "match" if expected["match"] else "no-match"
    outcome = []
    if result.outcome != wanted:
        outcome.append(
            f"outcome {result.outcome} ({result.reason}), upstream {wanted} {expected.get('matchError', '')}"
        )
    if program.estimated_cost != expected["estimatedCost"]:
        outcome.append(f"estimate {program.estimated_cost}, upstream {expected['estimatedCost']}")
    if result.cost != expected.get("actualCost") and not may_stop_within_a_map(program):
        outcome.append(f"cost {result.cost}, upstream {expected.get('actualCost')}")
    return outcome


def test_every_expression_of_our_own_gets_the_recorded_answer() -> None:
    data = shared.document(EXTRA)
    failures = {
        (case["expression"], case["device"]): names
        for case in data["cases"]
        if (
            names := judge(
                case["expression"],
                data["devices"][case["device"]],
                case["evaluation"],
                environment.stored(),
            )
        )
    }
    assert failures == {}
    assert len(data["cases"]) > 500


def test_validation_accepts_and_prices_the_same_expressions() -> None:
    data = shared.document(EXTRA)
    failures = {}
    for case in data["cases"]:
        program = compiled(case["expression"], environment.new())
        if (program is None) != ("validationCompileError" in case):
            failures[case["expression"]] = case.get("validationCompileError", "upstream compiles")
        elif program is not None and program.estimated_cost != case["validationEstimatedCost"]:
            failures[case["expression"]] = (program.estimated_cost, case["validationEstimatedCost"])
    assert failures == {}


def environment_named(label: str) -> Environment:
    """The environment a recorded run names: kind, then its two feature switches."""
    kind, *switches = label.split()
    on = {name: value == "true" for name, value in (switch.split("=") for switch in switches)}
    if kind == "StoredExpressions":
        return environment.stored()
    return environment.new(
        list_attributes=on["listTypeAttributes"], consumable_capacity=on["consumableCapacity"]
    )


@pytest.mark.slow
def test_upstreams_own_selectors_in_every_environment() -> None:
    failures = {}
    for case in shared.document(TABLE)["selectors"]:
        for run in case["runs"]:
            for env in {environment_named(label) for label in run["env"]}:
                names = judge(case["expression"], case["device"], run, env)
                if names:
                    failures[case["name"], run["env"][0]] = names
    assert failures == {}


def test_derived_attributes_compile_as_upstream_says() -> None:
    failures = {}
    for case in shared.document(TABLE)["derivedCompile"]:
        env = environment.stored()
        if case["env"] == "NewExpressions":
            env = environment.new(list_attributes=case["listTypeAttributes"])
        program = compiled(case["expression"], env, is_derived=True)
        if (program is None) != ("compileError" in case):
            failures[case["name"]] = case
    assert failures == {}


def test_derived_attributes_have_upstreams_values() -> None:
    failures = {}
    for case in shared.document(TABLE)["derivedEval"]:
        program = compiled(case["expression"], environment.stored(), is_derived=True)
        assert program is not None, case["name"]
        value, cost, reason = program.value(view_of(case["device"], empty_is_list=False))
        got: dict[str, Any] | None = None
        if not reason:
            try:
                got = msgspec.json.decode(
                    msgspec.json.encode(derived_attributes.attribute_of(value))
                )
            except CelError:
                got = None
        if got != case.get("attribute") or cost != case.get("actualCost", cost):
            failures[case["name"]] = (got, cost, case)
    assert failures == {}


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ('device.attributes["d"].x', ""),
        ("1", "must evaluate to bool"),
        ("true &&", "expected an expression"),
        ("device.foo", "undefined field 'foo'"),
        ("unknown == 1", "undeclared name 'unknown'"),
        ('"a" + 1 == "a1"', "does not take (string, int)"),
    ],
)
def test_a_wrong_expression_gets_an_error_with_its_place(expression: str, reason: str) -> None:
    if not reason:
        Program(expression, environment.stored())
        return
    with pytest.raises(ExpressionError) as caught:
        Program(expression, environment.stored())
    assert reason in str(caught.value)
    assert "^" in str(caught.value)
