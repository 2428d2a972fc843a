"""What holds for every expression: verdicts depend on what is read and on nothing else, however they are reached."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.cel import environment, projection, selectors
from dovetail.cel.device_views import split_name
from dovetail.cel.evaluate import program
from dovetail.cel.reads import OWN_DOMAIN, Path
from dovetail.errors import ExpressionError
from dovetail.quantity import quantity, semver
from tests.fuzz.cel import view
from tests.generators import devices, expressions, functions, literals

# Long expressions raise the interpreter's recursion limit, once; here, so that Hypothesis does not wonder.
selectors.Selector(" && ".join(["true"] * 100))
seeds = st.integers(0, 2**40)
steadily = settings(max_examples=150, suppress_health_check=list(HealthCheck), derandomize=True)


def compiled(rng: random.Random) -> selectors.Selector:
    """A random expression that compiles."""
    while True:
        try:
            return selectors.Selector(str(expressions.expression(rng)))
        except ExpressionError:
            continue


def readable(rng: random.Random) -> dict[str, Any]:
    """A random device whose attributes can all be read."""
    while view(tree := devices.device(rng)).problem is not None:
        pass
    return tree


def is_read(field: str, name: str, *, driver: str, reads: frozenset[Path]) -> bool:
    """Whether an attribute or capacity lies under one of the paths."""
    domain, id_ = split_name(name, driver)
    spellings = [(field, domain, id_)] + ([(field, OWN_DOMAIN, id_)] if domain == driver else [])
    return any(path == spelled[: len(path)] for path in reads for spelled in spellings)


@steadily
@given(seeds)
def test_a_remembered_verdict_is_the_verdict(seed: int) -> None:
    rng = random.Random(seed)
    selector = compiled(rng)
    for device in [view(devices.device(rng)) for _ in range(4)] * 2:
        assert (
            selector.match(device)
            == selector.match_afresh(device)
            == selector.evaluate(device).outcome
        ), selector.expression


@steadily
@given(seeds)
def test_what_is_not_read_never_changes_the_verdict(seed: int) -> None:
    rng = random.Random(seed)
    selector, device = compiled(rng), readable(rng)
    verdict, key = selector.match_afresh(view(device)), selector.project(view(device))
    for changed in unread_changes(device, selector.reads, rng):
        assert selector.project(view(changed)) == key, (selector.expression, device, changed)
        assert selector.match_afresh(view(changed)) == verdict, (
            selector.expression,
            device,
            changed,
        )


def unread_changes(
    device: dict[str, Any], reads: frozenset[Path], rng: random.Random
) -> list[dict[str, Any]]:
    """The device with each thing the expression does not read taken away, exchanged or added."""
    result = []
    driver = device["driver"]
    for field, fresh in (("attributes", {"int": 424242}), ("capacity", {"value": "424242Ki"})):
        entries = device.get(field, {})
        for name in [
            *entries,
            "brandNew",
            "new.example.com/x",
            f"{driver}/brandNew",
            f"{rng.choice(devices.DOMAINS)}/other",
        ]:
            if not is_read(field, name, driver=driver, reads=reads):
                result.append({**device, field: {**entries, name: fresh}})
                result.append(
                    {
                        **device,
                        field: {other: value for other, value in entries.items() if other != name},
                    }
                )
    if ("allowMultipleAllocations",) not in reads and () not in reads:
        result.append(
            {
                **device,
                "allowMultipleAllocations": not device.get("allowMultipleAllocations", False),
            }
        )
    return result


def test_unread_changes_are_many_enough_to_mean_something() -> None:
    rng = random.Random(3)
    assert (
        sum(len(unread_changes(readable(rng), compiled(rng).reads, rng)) for _ in range(100)) > 1000
    )


@steadily
@given(seeds)
def test_counting_costs_changes_no_verdict(seed: int) -> None:
    rng = random.Random(seed)
    selector = compiled(rng)
    for _ in range(3):
        device = view(devices.device(rng))
        assert selector.program.outcome(device) == selector.program.evaluate(device).outcome, (
            selector.expression
        )


@steadily
@given(seeds)
def test_compiling_twice_gives_the_same_program_or_the_same_refusal(seed: int) -> None:
    rng = random.Random(seed)
    text, device = str(expressions.expression(rng)), view(devices.device(rng))

    def evaluation() -> tuple[object, ...]:
        try:
            once = program.compile_stored(text)
        except ExpressionError as error:
            return ("refused", str(error))
        result = once.evaluate(device)
        return (once.estimated_cost, result.outcome, result.cost, result.reason)

    assert evaluation() == evaluation(), text


@pytest.mark.parametrize(
    ("expression", "path"),
    [
        ("device.attributes.exists(d, d != '')", ("attributes",)),
        ("device.attributes[device.driver + ''].model == 'a'", ("attributes",)),
        ("device.attributes['a.b'].exists(k, k == 'x')", ("attributes", "a.b")),
        ("device.attributes['a.b']['mo' + 'del'] == 'a'", ("attributes", "a.b")),
        ("size(device.capacity) > 0", ("capacity",)),
        ("[device].exists(d, d.allowMultipleAllocations)", ()),
        ("dyn(device).driver == 'a'", ()),
        ("device.capacity['a' + '.b'].memory.isInteger()", ("capacity",)),
        ("device.attributes['a.b'][device.driver].size() > 0", ("attributes", "a.b")),
        ("device.attributes['a.b' + ''].?x.hasValue()", ("attributes",)),
    ],
)
def test_computed_keys_and_iteration_read_all_there_is(expression: str, path: Path) -> None:
    reads = selectors.Selector(expression).reads
    assert any(read == path[: len(read)] for read in reads), reads


def test_constant_keys_read_one_value_however_they_are_spelled() -> None:
    for text in (
        "device.attributes['a.b'].model == 'x'",
        "cel.bind(own, device.attributes['a.b'], own.model == 'x')",
        "device.attributes['a.b']['model'] == 'x'",
        "device.attributes['a.b'].?model.orValue('') == 'x'",
        "device.attributes['a.b'][?'model'].hasValue()",
        "has(device.attributes['a.b'].model)",
        "'model' in device.attributes['a.b']",
    ):
        assert selectors.Selector(text).reads == {("attributes", "a.b", "model")}, text


def test_values_that_differ_in_type_never_share_a_key() -> None:
    values = [
        True,
        1,
        1.0,
        "1",
        quantity.parse("1"),
        semver.parse("1.0.0"),
        "1.0.0",
        [1],
        [True],
        ["1"],
        False,
        0,
        "",
    ]
    keys = [projection.tagged(value) for value in values]
    for at, key in enumerate(keys):
        others = keys[:at] + keys[at + 1 :]
        assert all(repr(key) != repr(other) and key != other for other in others), values[at]


def test_a_verdict_on_one_type_is_not_remembered_for_another() -> None:
    selector = selectors.Selector("device.attributes['a.b'].x == 1")
    kinds = [{"int": 1}, {"bool": True}, {"string": "1"}, {"version": "1.0.0"}, {"int": 1}]
    verdicts = [
        str(selector.match(view({"driver": "a.b", "attributes": {"x": kind}}))) for kind in kinds
    ]
    assert verdicts == ["match", "no-match", "no-match", "error", "match"]


def test_the_generator_knows_every_function_of_the_environment() -> None:
    known = " ".join(
        (
            functions.TABLE,
            *literals.DATES,
            *literals.CLOCKS,
            *literals.AUTHZ,
            *literals.DECISIONS,
            *literals.FORMATS,
        )
    )
    declared = {
        name
        for name in environment.stored().library.functions
        if name[0].isalpha() and "@" not in name
    }
    formats = {f"format.{name}" for name in literals.FORMATS}
    missing = {name for name in declared - formats if name.rsplit(".")[-1] not in known}
    assert missing <= {"in"}, missing
    assert len(declared) > 100
