"""Devices of pods removed by force stay out of use while the pods may still run."""

from __future__ import annotations

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims
from dovetail.live.bind import quarantine_rules

HELD = claims.AllocationResult(
    devices=claims.DeviceAllocationResult(
        results=(claims.DeviceRequestAllocationResult(device="gpu-0"),)
    )
)


def pod(phase: str = "Running", node: str = "n1", grace: int | None = 10) -> pods.Pod:
    return pods.Pod(
        metadata=meta.ObjectMeta(namespace="a", name="b", uid="u"),
        spec=pods.PodSpec(node_name=node, termination_grace_period_seconds=grace),
        status=pods.PodStatus(phase=phase),
    )


def node(ready: str = "True") -> dict[str, nodes.Node]:
    status = nodes.NodeStatus(conditions=(nodes.NodeCondition(type="Ready", status=ready),))
    return {"n1": nodes.Node(metadata=meta.ObjectMeta(name="n1"), status=status)}


def test_a_pod_that_ended_or_never_ran_leaves_nothing_behind() -> None:
    ward = quarantine_rules.QuarantineRules()
    assert ward.pod_lost(pod(phase="Succeeded"), [HELD], 0.0) is None
    assert ward.pod_lost(pod(node=""), [HELD], 0.0) is None
    assert ward.pod_lost(pod(), [], 0.0) is None
    assert not ward.held


def test_a_ready_node_lets_go_after_the_grace_period_and_some_slack() -> None:
    ward = quarantine_rules.QuarantineRules(slack_seconds=5)
    assert ward.pod_lost(pod(), [HELD], 100.0) is not None
    assert ward.end_due(node(), 114.9) == ()
    assert ward.end_due(node(), 115.0) == ("u",)
    assert not ward.held


def test_a_node_that_does_not_report_keeps_its_devices() -> None:
    ward = quarantine_rules.QuarantineRules(slack_seconds=5)
    ward.pod_lost(pod(), [HELD], 100.0)
    assert ward.end_due(node(ready="Unknown"), 1000.0) == ()
    assert ward.end_due(node(), 1014.0) == ()
    assert ward.end_due(node(), 1015.0) == ("u",)


def test_a_node_that_is_gone_lets_go() -> None:
    ward = quarantine_rules.QuarantineRules()
    ward.pod_lost(pod(), [HELD], 100.0)
    assert ward.end_due({}, 100.1) == ("u",)


def test_an_end_that_is_heard_late_frees_at_once_and_nothing_is_held_twice() -> None:
    ward = quarantine_rules.QuarantineRules()
    assert ward.pod_lost(pod(), [HELD], 100.0) is not None
    assert ward.pod_lost(pod(), [HELD], 101.0) is None
    assert ward.ended("u")
    assert not ward.ended("u")


def test_the_grace_a_pod_chose_is_bounded() -> None:
    ward = quarantine_rules.QuarantineRules(slack_seconds=5, most_seconds=300)
    held = ward.pod_lost(pod(grace=2**63 - 1), [HELD], 100.0)
    assert held is not None
    assert held.grace == 300
    assert ward.end_due(node(), 400.0) == ("u",)
