"""Scenarios are read as they are written, and a line that is none is refused with its place and field."""

from __future__ import annotations

import pytest

from dovetail import errors
from dovetail.replay.scenarios import scenario_format
from tests.scenarios import build


def test_expectations_and_unknown_fields_are_ignored() -> None:
    tree = build.document(build.job("a", build.waiting(gpu=1)), expect={"jobs": {}}, colour="red")
    assert build.read(tree).jobs[0].pods[0].request.gpu == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "scenario/2"}, "schema: expected 'scenario/1', got 'scenario/2'"),
        ({"nodes": [{"name": 7}]}, "$.nodes[0].name"),
        ({"run": {"mode": "forever"}}, "$.run.mode"),
        ({"nodes": [build.node("n0"), build.node("n0")]}, "nodes: two are named 'n0'"),
        (
            {"jobs": [build.job("a", build.running("n9"))]},
            "jobs[0].pods[0].node: a running pod needs a node",
        ),
        ({"jobs": [build.job("a", {**build.waiting(), "group": "g"})]}, "jobs[0].pods[0].group"),
        (
            {"jobs": [build.job("a", {**build.waiting(), "state": "asleep"})]},
            "$.jobs[0].pods[0].state",
        ),
        ({"device_slices": [{"name": "s", "node": "n9", "pool": "p"}]}, "device_slices[0].node"),
        (
            {
                "claims": [
                    {"name": "c", "device_class": "t", "allocated": [{"pool": "p", "device": "0"}]}
                ]
            },
            "claims[0].all",
        ),
    ],
)
def test_a_line_that_is_no_scenario_is_refused_with_its_place_and_field(
    change: build.Tree, message: str
) -> None:
    with pytest.raises(errors.InputError) as refused:
        build.read(build.document() | change)
    assert str(refused.value).startswith("small.jsonl: line 1: ")
    assert message in str(refused.value)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(errors.InputError, match="line 3: not JSON"):
        scenario_format.read(b"{", place="f: line 3")
