"""Capacity policies, tolerations and node selectors: what Kubernetes answered, and the laws behind it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.resource import capacity
from dovetail.quantity import quantity
from tests.support import shared

quantities = st.integers(0, 5000).map(quantity.Quantity.from_milli)
steps = st.integers(1, 700).map(quantity.Quantity.from_milli)


def recorded(table: str) -> list[dict[str, Any]]:
    return list(shared.document("conformance/dra/predicates.json.gz")[table])


def amounts(row: dict[str, Any], key: str) -> dict[str, quantity.Quantity]:
    return {name: quantity.parse(text) for name, text in row.get(key, {}).items()}


def capacities_of(raw: Any) -> dict[str, capacity.DeviceCapacity]:
    return msgspec.convert(raw, dict[str, capacity.DeviceCapacity], dec_hook=quantity.decode_hook)


def has(value: str, **policy: Any) -> dict[str, capacity.DeviceCapacity]:
    return capacities_of(
        {"memory": {"value": value, **({"requestPolicy": policy} if policy else {})}}
    )


def share(
    device: dict[str, capacity.DeviceCapacity], asked: str | None = None, **others: Any
) -> str | None:
    requests = {"memory": quantity.parse(asked)} if asked else {}
    taken = capacity.share_of(device, requests, **{"fractional": True, **others})
    return None if taken is None else str(taken["memory"])


def upstream_paths(message: str) -> set[str]:
    """The field paths in upstream's message, which repeats the label key after the path of a bad value."""
    result = re.findall(r"(nodeSelectorTerms[^ ]+?): ", message)
    return {re.sub(r"(values\[\d+\])\[[^\]]+\]$", r"\1", path) for path in result}


def selector(*terms: dict[str, Any]) -> node_selectors.NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": list(terms)}, node_selectors.NodeSelector)


def label_test(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def name_test(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


def test_every_recorded_capacity_share_agrees() -> None:
    rows = recorded("capacity")
    assert len(rows) == 400
    for row in rows:
        given_ = {
            "in_use": amounts(row, "alreadyConsumed"),
            "fractional": row["fractionalCapacityRange"],
        }
        device, requests = capacities_of(row["capacity"]), amounts(row, "requests")
        if "error" in row:
            with pytest.raises(capacity.CapacityError):
                capacity.share_of(device, requests, **given_)
            continue
        taken = capacity.share_of(device, requests, **given_)
        assert (taken is not None) == row["fits"], row
        if taken is not None and "consumed" in row:
            assert {name: amount.text for name, amount in taken.items()} == row["consumed"], row


def test_every_recorded_toleration_agrees() -> None:
    rows = recorded("tolerations")
    assert len(rows) == 216
    for row in rows:
        toleration = msgspec.convert(row["toleration"], node_selectors.DeviceToleration)
        taint = msgspec.convert(row["taint"], node_selectors.DeviceTaint)
        assert node_selectors.tolerates(toleration, taint) == row["tolerates"], row


def test_every_recorded_node_selector_agrees() -> None:
    rows = recorded("nodeSelectors")
    assert len(rows) == 150
    for row in rows:
        chosen = msgspec.convert(row["nodeSelector"], node_selectors.NodeSelector)
        if "error" in row:
            with pytest.raises(node_selectors.SelectorError) as refused:
                node_selectors.picks_node(chosen, row["labels"], node_name=row["nodeName"])
            paths = {problem.split(": ")[0] for problem in refused.value.problems}
            assert paths == upstream_paths(row["error"]), row
        else:
            assert (
                node_selectors.picks_node(chosen, row["labels"], node_name=row["nodeName"])
                == row["matches"]
            ), row


def test_nothing_asked_takes_the_default_or_everything() -> None:
    assert share(has("80Gi")) == "80Gi"
    assert share(has("80Gi", default="10Gi")) == "10Gi"
    assert share(has("80Gi"), in_use={"memory": quantity.parse("1")}) is None
    assert share(has("80Gi", default="10Gi"), in_use={"memory": quantity.parse("70Gi")}) == "10Gi"


def test_a_request_is_rounded_up_to_what_the_policy_sells() -> None:
    ranged = has("80Gi", default="1Gi", validRange={"min": "1Gi", "max": "40Gi", "step": "2Gi"})
    assert [share(ranged, asked) for asked in ("1", "1Gi", "2Gi", "38Gi", "40Gi")] == [
        "1Gi",
        "1Gi",
        "3Gi",
        "39Gi",
        None,
    ]
    listed = has("80Gi", default="10Gi", validValues=["10Gi", "20Gi"])
    assert [share(listed, asked) for asked in ("1", "10Gi", "11Gi", "21Gi")] == [
        "10Gi",
        "10Gi",
        "20Gi",
        None,
    ]


def test_fractions_are_counted_only_behind_the_gate() -> None:
    halves = has("4", default="500m", validRange={"min": "500m", "step": "500m"})
    assert share(halves, "1200m") == "1500m"
    assert share(halves, "1200m", fractional=False) == "2"


def test_an_unknown_capacity_excludes_the_device_before_anything_is_counted() -> None:
    device = has("4", default="1", validRange={"min": "1", "step": "1"})
    asked = {"memory": quantity.parse("1e30"), "bandwidth": quantity.parse("1")}
    assert capacity.share_of(device, asked, fractional=True) is None
    with pytest.raises(capacity.CapacityError):
        share(device, "1e30")


@pytest.mark.parametrize("asked", ["-1", "-5Gi"])
def test_negative_amounts_end_the_attempt(asked: str) -> None:
    with pytest.raises(capacity.CapacityError, match="negative"):
        share(has("4"), asked)


def test_a_step_of_zero_is_an_error_not_a_crash() -> None:
    with pytest.raises(capacity.CapacityError, match="step"):
        share(has("4", default="1", validRange={"min": "1", "step": "0"}), "2")


@given(quantities, quantities, steps)
def test_stepping_up_lands_on_the_first_step_that_is_enough(
    asked: quantity.Quantity, lowest: quantity.Quantity, step: quantity.Quantity
) -> None:
    valid = capacity.CapacityRequestPolicyRange(min=lowest, step=step)
    device = capacity.DeviceCapacity(
        value=quantity.parse("1k"), request_policy=capacity.CapacityRequestPolicy(valid_range=valid)
    )
    taken = capacity.consumed(device, asked, fractional=True)
    assert taken >= asked
    assert taken >= lowest
    assert taken.sub(step) < asked or taken == lowest
    assert capacity.is_allowed(taken, device.request_policy, fractional=True)
    assert capacity.consumed(device, taken, fractional=True) == taken


@given(st.lists(quantities, max_size=6), quantities)
def test_shares_never_add_up_to_more_than_the_device_has(
    asked: list[quantity.Quantity], value: quantity.Quantity
) -> None:
    device = {"memory": capacity.DeviceCapacity(value=value)}
    held = quantity.ZERO
    for amount in asked:
        taken = capacity.share_of(
            device, {"memory": amount}, in_use={"memory": held}, fractional=True
        )
        assert (taken is None) == (held.add(amount) > value)
        held = held.add(taken["memory"]) if taken else held
    assert held <= value


def test_a_selector_without_terms_or_with_empty_terms_picks_nothing() -> None:
    assert not node_selectors.picks_node(selector(), {"a": "b"}, node_name="n")
    assert not node_selectors.picks_node(selector({}), {"a": "b"}, node_name="n")
    assert node_selectors.picks_node(
        selector({}, label_test("a", "Exists")), {"a": "b"}, node_name="n"
    )


@pytest.mark.parametrize(
    ("operator", "values", "label", "picked"),
    [
        ("In", ("x", "y"), "y", True),
        ("In", ("x",), None, False),
        ("NotIn", ("x",), None, True),
        ("NotIn", ("x",), "x", False),
        ("Exists", (), "", True),
        ("DoesNotExist", (), "", False),
        ("Gt", ("7",), "8", True),
        ("Gt", ("8",), "8", False),
        ("Lt", ("8",), "-3", True),
        ("Lt", ("8",), "+0007", True),
        ("Lt", ("8",), "7.0", False),
        ("Lt", ("8",), "1_0", False),
        ("Gt", ("8",), "9223372036854775808", False),
        ("Gt", ("8",), None, False),
    ],
)
def test_label_operators(
    operator: str, values: tuple[str, ...], label: str | None, picked: bool
) -> None:
    labels = {} if label is None else {"k": label}
    assert (
        node_selectors.picks_node(
            selector(label_test("k", operator, *values)), labels, node_name="n"
        )
        == picked
    )


def test_fields_know_only_the_name_and_a_nameless_node_skips_them() -> None:
    assert node_selectors.picks_node(selector(name_test("In", "n")), {}, node_name="n")
    assert not node_selectors.picks_node(selector(name_test("In", "m")), {}, node_name="n")
    assert node_selectors.picks_node(selector(name_test("In", "m")), {}, node_name="")
    assert node_selectors.picks_node(selector(name_test("In", "", key="spec.x")), {}, node_name="n")
    assert node_selectors.picks_node(
        selector(name_test("NotIn", "n", key="spec.x")), {}, node_name="n"
    )


@pytest.mark.parametrize(
    ("term", "path"),
    [
        (label_test("a/b/c", "Exists"), "nodeSelectorTerms[0].matchExpressions[0].key"),
        (label_test("", "Exists"), "nodeSelectorTerms[0].matchExpressions[0].key"),
        (label_test("/a", "Exists"), "nodeSelectorTerms[0].matchExpressions[0].key"),
        (label_test("UPPER/a", "Exists"), "nodeSelectorTerms[0].matchExpressions[0].key"),
        (label_test("x" * 64, "Exists"), "nodeSelectorTerms[0].matchExpressions[0].key"),
        (label_test("k", "In"), "nodeSelectorTerms[0].matchExpressions[0].values"),
        (label_test("k", "In", "v" * 64), "nodeSelectorTerms[0].matchExpressions[0].values[0]"),
        (label_test("k", "In", "ok", "v\n"), "nodeSelectorTerms[0].matchExpressions[0].values[1]"),
        (label_test("k", "Gt", "1", "2"), "nodeSelectorTerms[0].matchExpressions[0].values"),
        (label_test("k", "Gt", "9" * 20), "nodeSelectorTerms[0].matchExpressions[0].values[0]"),
        (name_test("Exists"), "nodeSelectorTerms[0].matchFields[0].operator"),
        (name_test("In", "a", "b"), "nodeSelectorTerms[0].matchFields[0].values"),
    ],
)
def test_a_malformed_term_is_named_even_next_to_one_that_holds(
    term: dict[str, Any], path: str
) -> None:
    both = selector(term, label_test("zone", "Exists"))
    with pytest.raises(node_selectors.SelectorError) as refused:
        node_selectors.picks_node(both, {"zone": "a"}, node_name="n")
    assert refused.value.problems[0].startswith(path + ":")
    assert node_selectors.picks_node_leniently(both, {"zone": "a"}, node_name="n")
    with pytest.raises(node_selectors.SelectorError):
        node_selectors.picks_node_leniently(both, {}, node_name="n")


@given(st.text("0123456789+-_ ", max_size=25))
def test_integers_in_labels_are_read_as_go_reads_them(text: str) -> None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    is_int64 = digits.isdigit() and -(1 << 63) <= int(text) < 1 << 63
    above = node_selectors.picks_node(
        selector(label_test("k", "Gt", "5")), {"k": text}, node_name="n"
    )
    below = node_selectors.picks_node(
        selector(label_test("k", "Lt", "6")), {"k": text}, node_name="n"
    )
    assert (above or below) == is_int64
    assert above == (is_int64 and int(text) > 5)


def test_absent_fields_stay_absent_on_the_wire() -> None:
    raw = b'{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}'
    assert msgspec.json.encode(msgspec.json.decode(raw, type=node_selectors.NodeSelector)) == raw
    raw = b'{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":0}'
    assert (
        msgspec.json.encode(msgspec.json.decode(raw, type=node_selectors.DeviceToleration)) == raw
    )
