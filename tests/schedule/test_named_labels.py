"""A pod that no node's labels suit reads which labels: keys, values, and how a condition was written."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model import policy
from tests.schedule import build


def in_zone(*values: str, key: str = "zone", operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def bound_to(*terms: dict[str, Any]) -> dict[str, Any]:
    """A required node affinity."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return {"nodeAffinity": required}


def reason(*nodes: dict[str, str], **spec: Any) -> str:
    """Why a pod waits in a cluster of nodes with these labels; the same without any memo."""
    world = build.world(build.pod("p", **spec))
    for number, labels in enumerate(nodes):
        build.put(world, build.node(f"n{number}", labels=labels))
    summaries = {
        build.summary_of(build.decided(world, policy=policy.Policy(memo=memo)), "p")
        for memo in (True, False)
    }
    (summary,) = summaries
    return summary


def test_the_label_of_a_node_selector_is_named_with_its_value() -> None:
    assert reason({}, {"disk": "hdd"}, nodeSelector={"disk": "ssd"}) == (
        "2 nodes: 2 lack the labels the pod asks for: disk=ssd"
    )


def test_nodes_that_lack_fewer_labels_come_first() -> None:
    nodes: list[dict[str, str]] = [{}, {}, {"disk": "ssd"}]
    assert reason(*nodes, nodeSelector={"disk": "ssd", "zone": "a"}) == (
        "3 nodes: 1 lacks the labels the pod asks for: zone=a, "
        "2 lack the labels the pod asks for: disk=ssd and zone=a"
    )


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (in_zone("a", "b"), "zone In [a, b]"),
        (in_zone("c", operator="NotIn"), "zone NotIn [c]"),
        (in_zone(key="gpu", operator="Exists"), "gpu Exists"),
        (in_zone(operator="DoesNotExist"), "zone DoesNotExist"),
        (in_zone("7", key="generation", operator="Gt"), "generation Gt 7"),
        (in_zone(*"abdefg"), "zone In [a, b, d, e, 2 more]"),
    ],
)
def test_a_condition_is_named_as_it_is_written(expression: dict[str, Any], text: str) -> None:
    assert reason({"zone": "c"}, affinity=bound_to(term(expression))) == (
        f"1 node: 1 lacks the labels the pod asks for: {text}"
    )


def test_of_a_term_only_what_fails_is_named_and_terms_are_alternatives() -> None:
    affinity = bound_to(
        term(in_zone("a"), in_zone(key="gpu", operator="Exists")), term(in_zone("b"))
    )
    assert reason({"gpu": "h100"}, affinity=affinity).endswith(": zone In [a] or zone In [b]")
    assert reason({}, nodeSelector={"disk": "ssd"}, affinity=affinity).endswith(
        ": disk=ssd and (zone In [a] and gpu Exists or zone In [b])"
    )


def test_an_affinity_that_holds_is_no_part_of_the_reason() -> None:
    affinity = bound_to(term(in_zone("a")), term(in_zone("b")))
    assert reason({"zone": "b"}, nodeSelector={"disk": "ssd"}, affinity=affinity).endswith(
        ": disk=ssd"
    )


def test_a_term_that_cannot_be_read_is_said_to_be() -> None:
    assert "cannot be read" in reason({}, affinity=bound_to(term(in_zone())))


def test_a_field_is_named_like_a_label() -> None:
    field = {"matchFields": [in_zone("elsewhere", key="metadata.name")]}
    assert reason({}, affinity=bound_to(field)).endswith(": metadata.name In [elsewhere]")
