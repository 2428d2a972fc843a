"""kube-scheduler's messages, before and since 1.35: counts, reasons, preemption."""

from __future__ import annotations

import pytest

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import scheduler_messages

FORMS = {
    "Insufficient nvidia.com/gpu": CauseCode.BUSY,
    "Insufficient memory": CauseCode.BUSY,
    "Too many pods": CauseCode.BUSY,
    "node(s) had untolerated taint {nvidia.com/gpu: present}": CauseCode.TAINT,
    "node(s) had untolerated taint(s)": CauseCode.TAINT,
    "node(s) didn't match Pod's node affinity/selector": CauseCode.NODE_LABELS,
    "node(s) didn't match scheduler-enforced node affinity": CauseCode.NODE_LABELS,
    "node(s) were unschedulable": CauseCode.CORDONED,
    "node(s) had unknown conditions": CauseCode.NOT_READY,
    "node(s) didn't match pod affinity rules": CauseCode.POD_AFFINITY,
    "node(s) didn't match pod anti-affinity rules": CauseCode.POD_ANTI_AFFINITY,
    "node(s) didn't satisfy existing pods anti-affinity rules": CauseCode.POD_ANTI_AFFINITY,
    "node(s) didn't match pod topology spread constraints": CauseCode.SPREAD,
    "node(s) didn't match pod topology spread constraints (missing required label)": CauseCode.SPREAD,
    "node(s) didn't have free ports for the requested pod ports": CauseCode.HOST_PORT,
    "node(s) didn't match the requested node name": CauseCode.NODE_NAME,
    "node(s) didn't find available persistent volumes to bind": CauseCode.VOLUME_NONE,
    "node(s) didn't match PersistentVolume's node affinity": CauseCode.VOLUME_ELSEWHERE,
    "node(s) had no available volume zone": CauseCode.VOLUME_ELSEWHERE,
    "node(s) did not have enough free storage": CauseCode.VOLUME_NONE,
    "node(s) exceed max volume count": CauseCode.VOLUME_LIMIT,
    "node(s) didn't match Pod's required features": CauseCode.NODE_FEATURES,
    "cannot allocate all claims": CauseCode.DEVICES_BUSY,
    "resourceclaim not available on the node": CauseCode.CLAIM_ELSEWHERE,
    "resourceclaim in use": CauseCode.CLAIM_IN_USE,
    "request gpu: device class big does not exist": CauseCode.CLASS_MISSING,
    "node n: timed out trying to allocate devices": CauseCode.SEARCH_UNFINISHED,
    "invalid resource pools were encountered": CauseCode.POOL_INVALID,
    "cannot schedule extended resource claim": CauseCode.DEVICES_BUSY,
    "words of a later version": None,
}


@pytest.mark.parametrize(("reason", "code"), FORMS.items())
def test_each_reason_stands_for_a_cause(reason: str, code: CauseCode | None) -> None:
    message = scheduler_messages.message(f"0/12 nodes are available: 7 {reason}, 5 Too many pods.")
    assert message is not None
    assert message.total == 12
    counts = {each.reason: each.nodes for each in message.reasons}
    if reason == "Too many pods":
        assert counts == {"Too many pods": 12}
    else:
        assert counts == {reason: 7, "Too many pods": 5}
    assert message.reasons[0].code is code


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("pod has unbound immediate PersistentVolumeClaims", CauseCode.VOLUME_UNBOUND),
        ('persistentvolumeclaim "data" not found', CauseCode.VOLUME_MISSING),
        (
            "waiting for minCount pods from a gang to appear in scheduling queue",
            CauseCode.GANG_INCOMPLETE,
        ),
        ("minCount (4) cannot be satisfied: 1 scheduled, 2 remaining", CauseCode.GANG_CANNOT_START),
    ],
)
def test_a_reason_about_the_pod_alone_has_no_count(reason: str, code: CauseCode) -> None:
    message = scheduler_messages.message(
        f"0/3 nodes are available: {reason}. preemption: 0/3 nodes are available: "
        "3 Preemption is not helpful for scheduling."
    )
    assert message is not None
    assert [(each.nodes, each.code) for each in message.reasons] == [(0, code)]
    assert message.preemption == (
        scheduler_messages.CountedReason(3, "Preemption is not helpful for scheduling", None),
    )


def test_what_the_claim_plugin_appends_is_no_reason() -> None:
    message = scheduler_messages.message(
        "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    assert message is not None
    assert [each.reason for each in message.reasons] == ["cannot allocate all claims"]
    assert message.preemption[0].nodes == 1


def test_a_pod_that_may_not_preempt() -> None:
    message = scheduler_messages.message(
        "0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to "
        "preemptionPolicy=Never."
    )
    assert message is not None
    assert message.preemption[0].reason == "not eligible due to preemptionPolicy=Never"


def test_another_message_is_not_taken_apart() -> None:
    assert scheduler_messages.message("Unable to schedule pod") is None


def test_a_reason_about_the_pod_comes_before_the_counted_ones() -> None:
    message = scheduler_messages.message(
        "0/5 nodes are available: pod has unbound immediate PersistentVolumeClaims. "
        "3 Insufficient cpu, 2 node(s) were unschedulable."
    )
    assert message is not None
    assert [(each.nodes, each.code) for each in message.reasons] == [
        (3, CauseCode.BUSY),
        (2, CauseCode.CORDONED),
        (0, CauseCode.VOLUME_UNBOUND),
    ]
