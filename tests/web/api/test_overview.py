"""The overview: what needs attention, ranked, each note with where to look; and numbers of pods and work."""

from __future__ import annotations

import copy
from typing import Any

from dovetail.sim.fleet import fleet_spec
from dovetail.tables.overview import attention
from dovetail.web import asked
from dovetail.web.api import overview_resource
from dovetail.web.endpoints import Nothing
from tests.web.api import clusters


def overview(
    trees: list[clusters.Tree], name: str, may: asked.Visibility = asked.EVERYTHING
) -> overview_resource.Overview:
    return overview_resource.answer(clusters.asked_of(trees, name=name, may=may), Nothing())


def codes(answer: overview_resource.Overview) -> dict[str, attention.Attention]:
    return {note.code: note for note in answer.attention}


def calm() -> list[clusters.Tree]:
    """Nothing needs attention."""
    trees = clusters.fleet(fleet_spec.Pool(name="h100", count=2, gpu="H100-SXM5-80GB"))
    return [*trees, clusters.namespace("train"), clusters.queue("train")]


def changed(trees: list[clusters.Tree], kind: str, name: str, **change: Any) -> list[clusters.Tree]:
    after = copy.deepcopy(trees)
    for tree in after:
        if tree["kind"] == kind and tree["metadata"]["name"] == name:
            for part, fields in change.items():
                tree[part] = tree.get(part, {}) | fields
    return after


def test_a_calm_cluster_needs_no_attention() -> None:
    assert overview(calm(), "calm").attention == ()


def test_unusable_gpus_are_computed_apart_and_repeated_by_the_overview() -> None:
    question = clusters.asked_of(calm(), name="unusable")
    before = overview_resource.answer(question, Nothing())
    assert [row.unusable for row in before.types] == [None]

    computed = overview_resource.unusable(question, Nothing())
    after = overview_resource.answer(question, Nothing())
    known = {row.type: row.unusable for row in after.types}
    assert known == {row.type: row.unusable for row in computed.types}
    assert None not in known.values()


def test_broken_hardware_comes_first() -> None:
    trees = [
        clusters.ready(tree, "False") if tree["metadata"]["name"] == "h100-0" else tree
        for tree in changed(calm(), "Node", "h100-1", spec={"unschedulable": True})
    ]
    answer = overview(trees, "hardware")
    assert [note.code for note in answer.attention] == ["NodesNotReady", "CordonedIdle"]
    assert answer.attention[0].severity == "high"
    assert answer.attention[0].link == "/nodes/h100-0"
    assert answer.attention[0].title == "1 node with 8 GPUs is not ready"
    assert answer.attention[1].title == "8 GPUs idle on 1 cordoned node"


def test_tainted_gpus_are_urgent_where_work_holds_them() -> None:
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "sick"},
        "spec": {
            "deviceSelector": {"driver": clusters.DRIVER, "pool": "h100-0", "device": "gpu-3"},
            "taint": {"key": "xid", "value": "79", "effect": "NoSchedule"},
        },
    }
    idle = codes(overview([*calm(), rule], "tainted"))["GpusTainted"]
    assert (idle.severity, idle.count) == ("medium", 1)
    assert "GPU 3 of h100-0 (xid=79:NoSchedule)" in idle.detail
    held = clusters.running("a", where="train", node="h100-0", devices=["gpu-3"])
    assert codes(overview([*calm(), rule, *held], "tainted held"))["GpusTainted"].severity == "high"


def test_gpus_that_labels_count_and_no_driver_shows_are_missing() -> None:
    node = clusters.plugin_node("l4-0", 4)
    node["status"]["allocatable"]["nvidia.com/gpu"] = "3"
    note = codes(overview([*calm(), node], "missing"))["GpusMissing"]
    assert (note.severity, note.count, note.detail) == ("high", 1, "l4-0 shows 3 of 4 GPUs")


def test_a_queue_that_takes_no_work_is_named_with_the_reason() -> None:
    trees = [*calm(), clusters.queue("orphan", parent="nowhere")]
    note = codes(overview(trees, "queue"))["QueuesUnusable"]
    assert note.detail.startswith("orphan: ")


def test_a_queue_below_its_quota_that_waits_is_named() -> None:
    numbers = {"charged": "2", "requested": "6", "fairShare": "8"}
    trees = changed(calm(), "Queue", "train", status={"resources": {"gpu": numbers}})
    note = codes(overview(trees, "quota"))["QueuesBelowQuota"]
    assert note.detail == "train has 2 of its 8 GPUs while 4 wait"


def test_work_that_waits_is_grouped_by_whose_move_it_is() -> None:
    answer = overview(clusters.typical(), "waiting")
    note = codes(answer)["WaitsForCapacity"]
    assert (note.severity, note.count) == ("medium", 2)
    assert "the longest, secret/pod/deep-0, for 5h" in note.detail
    assert note.link == "/workloads?state=Pending"


def test_a_mistake_is_noted_at_once() -> None:
    pod = clusters.pod(
        "typo", where="train", gpus=1, minutes=0, spec={"nodeSelector": {"disk": "fast"}}
    )
    note = codes(overview([*calm(), pod], "mistake"))["WaitsForConfig"]
    assert note.severity == "medium"


def test_a_claim_that_no_pod_uses_is_noted() -> None:
    claim = clusters.claim("left", where="train", node="h100-0", devices=["gpu-0"])
    assert codes(overview([*calm(), claim], "unused"))["ClaimsUnused"].detail == "train/left"


def test_numbers_of_pods_and_work_are_those_the_user_may_see() -> None:
    all_of_it = overview(clusters.typical(), "numbers")
    assert (all_of_it.pods.running, all_of_it.pods.waiting) == (5, 2)
    assert (all_of_it.work.running, all_of_it.work.waiting) == (5, 2)
    own = overview(clusters.typical(), "own numbers", clusters.TENANT)
    assert (own.pods.running, own.pods.waiting) == (2, 1)
    assert (own.work.running, own.work.waiting) == (2, 1)
    assert own.types == all_of_it.types


def test_waiting_gpus_count_for_the_type_that_could_take_them() -> None:
    by_type = {row.type: row.waiting for row in overview(clusters.typical(), "demand").types}
    assert by_type == {"A100-SXM4-80GB": 0.0, "H100 80GB HBM3": 16.0, "L4": 0.0}


def test_the_last_hour_is_counted_from_the_timeline() -> None:
    answer = overview(clusters.typical(), "hour")
    assert answer.last_hour.started == 3  # llama, vault and eval
    assert len(answer.recent) == 10
