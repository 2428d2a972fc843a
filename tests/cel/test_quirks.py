"""Corners where upstream surprises: each answer was given by upstream and is asked again where the oracle is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.cel import device_views
from dovetail.cel.evaluate.program import Program, compile_stored
from dovetail.errors import ExpressionError
from dovetail.kubetypes.resource import slices
from dovetail.quantity import quantity
from tests.support.oracle import Oracle

DEVICE = {
    "driver": "d",
    "attributes": {
        "i": {"int": 1},
        "s": {"string": "x"},
        "v": {"version": "1.0.0"},
        "l": {"ints": [1, 2]},
    },
    "capacity": {"m": {"value": "1Gi"}},
}
QUIRKS = {
    # A sum of quantities is refused on the right of an equality, and only there.
    'quantity("1") == quantity("1").add(0)': "error",
    'quantity("1").add(0) == quantity("1")': "match",
    'quantity("1") != quantity("1").add(0)': "match",
    'quantity("1") in [quantity("1").add(0)]': "no-match",
    '[quantity("1")] == [quantity("2").add(0)]': "match",
    # Map keys are compared as Go's maps do it.
    '{quantity("1"): 1, quantity("1"): 2}.size() == 2': "match",
    "{[1]: 1, [1]: 2}.size() == 2": "match",
    '{ip("::1"): 1, ip("::1"): 2}.size() == 1': "match",
    "null in {null: 0u}": "match",
    "{1: 'a'}[dyn(true)] == 'a'": "error",
    "{1: 'a'}[dyn(1.0)] == 'a'": "match",
    'timestamp("2020-01-01T00:00:00+01:00") in {timestamp("2020-01-01T00:00:00+01:00"): 1}': "match",
    '{semver("1.0.0"): 1}.size() == 1': "error",
    "{bytes(device.driver): 1}.size() == 1 || true": "error",
    '{device.attributes["d"]: 1, device.attributes["d"]: 2}.size() == 1': "no-match",
    '{device.attributes["x"]: 1, device.attributes["y"]: 2}.size() == 1': "match",
    "dyn(b'') in device.attributes": "no-match",
    # Sets made of constant lists cannot look up every value.
    'device.attributes["d"].v in ["1.0.0"]': "error",
    'device.attributes["d"].v in ["1.0.0"] || true': "error",
    'device.attributes["d"].s in ["x"]': "match",
    # What is constant is done while compiling.
    'int("abc") == 1': "compile-error",
    '"".find("(?=a)") == ""': "compile-error",
    'matches("(", "a")': "compile-error",
    "cel.bind(x, int, true)": "compile-error",
    "[int].all(x, true)": "match",
    'dyn(int).matches("^int$")': "match",
    'dyn(optional.of("ab")).matches("^a")': "match",
    "dyn(optional.none()).matches('^a')": "error",
    # Unknown domains read as empty, except through a binding of a device without attributes.
    'device.attributes["nowhere"] == {}': "match",
    "has(device.attributes.nowhere)": "match",
    '"nowhere" in device.attributes': "no-match",
    'device.attributes["nowhere"].x == 1': "error",
    # A list that a binding starts empty grows in place.
    "cel.bind(x, [], (x + [1]).size() + x.size()) == 2": "match",
    # Names with a leading dot never mean a variable.
    "[1].exists(.v, .v == 1)": "compile-error",
    '[1].map(device, .device.driver) == ["d"]': "match",
    # The device's own maps are maps like any other.
    '"%s".format([device.attributes["nowhere"]]) == "{}"': "match",
    'device.attributes["d"].size() == 4': "match",
    # One comma may follow the last item, and may stand alone.
    "[1, 2,].size() == 2": "match",
    "[1,,] == [1]": "compile-error",
    "[,].size() == 0": "match",
    "{1: 2,,}.size() == 1": "compile-error",
    "{,}.size() == 0": "match",
    "[1 2] == [1]": "compile-error",
    # An integer meets a double as a double.
    "9007199254740993 == dyn(9007199254740992.0)": "match",
    # The price of a call on a wrong argument cannot be reckoned, and nothing absorbs that.
    "[1/0].distinct() == [1] || true": "error",
    "google.protobuf.Empty{} == google.protobuf.Empty{}": "match",
}


def ours(expression: str) -> tuple[str, int | None, Program | None]:
    try:
        program = compile_stored(expression)
    except ExpressionError:
        return "compile-error", None, None
    body: dict[str, Any] = {"attributes": DEVICE["attributes"], "capacity": DEVICE["capacity"]}
    view = device_views.view(
        "d", msgspec.convert(body, slices.Device, dec_hook=quantity.decode_hook)
    )
    result = program.evaluate(view)
    assert program.outcome(view) == result.outcome, "counting cost must not change the verdict"
    return str(result.outcome), result.cost, program


@pytest.mark.parametrize(("expression", "outcome"), QUIRKS.items())
def test_the_surprise_is_shared(expression: str, outcome: str) -> None:
    assert ours(expression)[0] == outcome


@pytest.mark.slow
def test_upstream_still_answers_so(oracle: Oracle) -> None:
    requests = [{"op": "cel", "expression": expression, "device": DEVICE} for expression in QUIRKS]
    differences = {}
    for expression, answer in zip(QUIRKS, oracle.ask_many(requests), strict=True):
        outcome, cost, _ = ours(expression)
        if "compileError" in answer:
            theirs: tuple[str, int | None] = ("compile-error", None)
        else:
            verdict = (
                "error" if "matchError" in answer else "match" if answer["match"] else "no-match"
            )
            theirs = (verdict, answer.get("actualCost"))
        if (outcome, cost) != theirs:
            differences[expression] = ((outcome, cost), theirs)
    assert differences == {}
