"""How a selector is explained: each part with its verdict and what it read."""

from __future__ import annotations

import msgspec

from dovetail.cel import device_views, explain_verdict, selectors
from dovetail.cel.evaluate.frame import DeviceView
from dovetail.kubetypes.resource import slices
from dovetail.quantity import quantity


def gpu(**attributes: object) -> DeviceView:
    kinds = {int: "int", bool: "bool", str: "string"}
    body = {
        "attributes": {name: {kinds[type(value)]: value} for name, value in attributes.items()},
        "capacity": {"memory": {"value": "40Gi"}},
    }
    return device_views.view(
        "gpu", msgspec.convert(body, slices.Device, dec_hook=quantity.decode_hook)
    )


def verdicts(expression: str, device: DeviceView) -> list[tuple[str, str]]:
    program = selectors.selector(expression).program
    return [(part.verdict, part.text) for part in explain_verdict.explain(program, device)]


def test_each_part_of_a_conjunction_has_its_own_verdict() -> None:
    expression = 'device.driver == "gpu" && device.attributes["gpu"].index < 2 && device.attributes["gpu"].ecc'
    assert verdicts(expression, gpu(index=3, ecc=True)) == [
        ("true", 'device.driver == "gpu"'),
        ("false", 'device.attributes["gpu"].index < 2'),
        ("true", 'device.attributes["gpu"].ecc'),
    ]


def test_parts_inside_a_binding_are_explained_separately() -> None:
    expression = 'cel.bind(g, device.attributes["gpu"], g.model == "A" && g.index == 1)'
    assert verdicts(expression, gpu(model="A", index=0)) == [
        ("true", 'g.model == "A"'),
        ("false", "g.index == 1"),
    ]


def test_what_was_read_is_shown_with_its_value_or_as_absent() -> None:
    program = selectors.selector(
        'device.attributes["gpu"].missing == 1 || device.capacity["gpu"].memory.compareTo(quantity("80Gi")) >= 0'
    ).program
    first, second = explain_verdict.explain(program, gpu(index=1))
    assert first.verdict == "error"
    assert first.reads == (explain_verdict.Read("gpu/missing", "absent"),)
    assert second.reads == (explain_verdict.Read("capacity gpu/memory", "40Gi"),)


def test_a_part_that_costs_too_much_is_said_to() -> None:
    (part,) = explain_verdict.explain(
        selectors.selector(
            "lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))"
        ).program,
        gpu(index=1),
    )
    assert part.verdict == "error"
    assert "cost limit" in part.reason


def test_a_device_that_cannot_be_read_is_an_error_as_a_whole() -> None:
    body = {"attributes": {"version": {"version": "not a version"}}}
    broken = device_views.view(
        "gpu", msgspec.convert(body, slices.Device, dec_hook=quantity.decode_hook)
    )
    assert selectors.selector("true").match(broken) == "error"
    (part,) = explain_verdict.explain(selectors.selector("true").program, broken)
    assert "attribute version" in part.reason
