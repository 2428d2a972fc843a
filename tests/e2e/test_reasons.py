"""On a real API server: why a pod waits, in one word, and a pod that starts once its annotation is corrected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.namespace_scene import SCENE, Scene, pod_tree, scene
from tests.support.live import Live

pytestmark = [pytest.mark.slow, pytest.mark.newest]


def _reason(story: Scene, name: str) -> str:
    conditions = story.pods()[name].get("status", {}).get("conditions", ())
    return next(
        (
            condition["reason"]
            for condition in conditions
            if condition["type"] == "PodScheduled" and "reason" in condition
        ),
        "",
    )


def _member(story: Scene, name: str, labels: dict[str, str], annotations: dict[str, str]) -> None:
    tree: dict[str, Any] = pod_tree(name, templates=["gpu"], annotations=annotations)
    tree["metadata"]["labels"] = labels
    tree["spec"]["nodeSelector"] = {SCENE: story.namespace}
    story.rest.create("pods", tree, story.namespace)


def test_only_pods_that_a_node_could_start_are_unschedulable(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fleet(nodes=1, gpus=1)
        story.template()
        story.pod("first", templates=["gpu"])
        story.wait_running("first")
        story.pod("full", templates=["gpu"])
        story.pod("gated", templates=["gpu"], schedulingGates=[{"name": "example.com/gate"}])
        story.pod("missing", claims=["none"])
        _member(story, "incomplete", {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": "2"}, {})
        expected = {
            "full": "Unschedulable",
            "gated": "SchedulingGated",
            "missing": "ClaimNotReady",
            "incomplete": "GangIncomplete",
        }
        story.wait(
            "all reasons", lambda: {name: _reason(story, name) for name in expected} == expected
        )


def test_a_pod_whose_annotation_is_corrected_starts(cluster: Live) -> None:
    with scene(cluster) as story:
        story.fleet(nodes=1, gpus=1)
        story.template()
        level = "dovetail.dev/topology-required"
        _member(story, "typo", {"dovetail.dev/gang": "typo"}, {level: "no-such-label"})
        story.wait_refused("typo", "no-such-label")
        story.rest.patch(
            "pods", "typo", {"metadata": {"annotations": {level: None}}}, namespace=story.namespace
        )
        story.wait_running("typo")
