"""Whether a node suits a pod: name, cordon, taints, labels, room."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model import pod_requests
from dovetail.schedule.node import node_fit
from tests.schedule import build

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def cause(pod: dict[str, Any], node: dict[str, Any]) -> str | None:
    misfit = node_fit.node_misfit(build.pod("p", **pod), build.node("n", **node))
    return None if misfit is None else misfit.cause.value


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {name: {"nodeSelectorTerms": list(terms)}}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_a_plain_pod_suits_a_plain_node() -> None:
    assert cause({}, {}) is None


def test_a_named_node_is_the_only_one() -> None:
    assert cause({"nodeName": "n"}, {}) is None
    assert cause({"nodeName": "other"}, {}) == "other-node"


def test_a_cordoned_node_takes_only_pods_that_tolerate_the_cordon() -> None:
    assert cause({}, {"unschedulable": True}) == "cordoned"
    tolerant = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}
    assert cause(tolerant, {"unschedulable": True}) is None
    wrong_effect = {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}
    assert cause(wrong_effect, {"unschedulable": True}) == "cordoned"


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "a"}, True),
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Equal", "value": "b"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "a"}, True),  # an empty key is any key
        ({"key": "team"}, False),  # an empty value is a value
        ({"key": "team", "operator": "Gt", "value": "0"}, False),  # alpha, off
    ],
)
def test_tolerations(toleration: dict[str, str], is_tolerated: bool) -> None:
    got = cause({"tolerations": [toleration]}, {"taints": [TAINT]})
    assert got == (None if is_tolerated else "taint")


def test_every_taint_must_be_tolerated_and_a_soft_one_never_forbids() -> None:
    other = {"key": "gpu", "effect": "NoExecute"}
    only_one = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    assert cause(only_one, {"taints": [TAINT, other]}) == "taint"
    assert cause({}, {"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}) is None
    misfit = node_fit.node_misfit(
        build.pod("p", **only_one), build.node("n", taints=[TAINT, other])
    )
    assert misfit is not None
    assert misfit.what == "gpu:NoExecute"


def test_the_node_selector_needs_every_label() -> None:
    assert cause({"nodeSelector": {"zone": "z"}}, {"labels": {"zone": "z"}}) is None
    assert (
        cause({"nodeSelector": {"zone": "z", "disk": "ssd"}}, {"labels": {"zone": "z"}}) == "labels"
    )


def test_affinity_needs_one_term_and_selector_and_affinity_both_hold() -> None:
    pod = required(expression("zone", "In", "x"), expression("gpu", "Exists"))
    assert cause(pod, {"labels": {"gpu": "yes"}}) is None
    assert cause(pod, {"labels": {"zone": "y"}}) == "labels"
    assert cause(pod | {"nodeSelector": {"a": "b"}}, {"labels": {"gpu": "yes"}}) == "labels"


def test_affinity_without_terms_and_empty_terms_pick_nothing() -> None:
    assert cause(required(), {}) == "labels"
    assert cause(required({}), {}) == "labels"


def test_affinity_by_field_and_by_number() -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert cause(required(by_name), {}) is None
    assert cause(required(expression("gpus", "Gt", "4")), {"labels": {"gpus": "8"}}) is None
    assert cause(required(expression("gpus", "Gt", "8")), {"labels": {"gpus": "8"}}) == "labels"


def test_an_unreadable_term_does_not_hide_one_that_holds() -> None:
    broken = expression("zone", "In")
    assert cause(required(broken), {}) == "labels"
    assert cause(required(broken, expression("gpu", "Exists")), {"labels": {"gpu": "1"}}) is None


def test_every_resource_that_lacks_is_named() -> None:
    need = pod_requests.Resources(2000, 100, 0, 1, (("nvidia.com/gpu", 2),))
    left = pod_requests.Resources(1000, 50, 0, 5, (("nvidia.com/gpu", 1),))
    got = node_fit.room_misfits(need, left)
    assert [(misfit.what, misfit.need, misfit.have) for misfit in got] == [
        ("cpu", 2000, 1000),
        ("memory", 100, 50),
        ("nvidia.com/gpu", 2, 1),
    ]
    assert node_fit.room_misfits(need, need) == ()
