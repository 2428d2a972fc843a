"""Fixes of what a pod says about nodes and neighbours: the right one is proposed, accepted, and the pod starts."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.answer.why.why_answer import Fix, Who
from dovetail.model import policy
from tests.answer.fixes import trial_cluster as build
from tests.answer.fixes.trial_cluster import Cluster

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERATE = "tolerate taint nvidia.com/gpu=present:NoSchedule"


def titles(fixes: tuple[Fix, ...]) -> list[str]:
    return [fix.title for fix in fixes]


def fixed_by(cluster: Cluster, title: str, *, who: Who = Who.USER, name: str = "p") -> Fix:
    """Applies the fix of this title and checks that the pod starts where its effect says."""
    fixes = cluster.fixes(name)
    assert title in titles(fixes)
    fix = next(fix for fix in fixes if fix.title == title)
    assert fix.who is who
    cluster.apply(fix)
    after = cluster.starts(name)
    assert after.starts, after.refusal
    assert f"node {after.node}" in fix.effect
    return fix


def test_a_pod_that_starts_needs_no_fix() -> None:
    cluster = Cluster(build.node("a"), build.pod(gpus=1))
    assert cluster.fixes("p") == ()


def test_a_missing_toleration_is_added_to_the_pod_in_place() -> None:
    cluster = Cluster(build.node("a", taints=[TAINT]), build.pod(gpus=1))
    fixes = cluster.fixes("p")
    assert titles(fixes) == [
        TOLERATE,
        "remove taint nvidia.com/gpu=present:NoSchedule from node a",
    ]
    fix = fixed_by(cluster, TOLERATE)
    assert [patch.merge is not None for patch in fix.patch] == [True]


def test_an_administrator_can_take_the_taint_away() -> None:
    cluster = Cluster(build.node("a", taints=[TAINT]), build.pod(gpus=1))
    title = "remove taint nvidia.com/gpu=present:NoSchedule from node a"
    fixed_by(cluster, title, who=Who.CLUSTER_ADMIN)


def test_taints_of_a_broken_node_are_neither_tolerated_nor_removed() -> None:
    broken = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    cluster = Cluster(build.node("a", taints=[broken]), build.pod(gpus=1))
    assert cluster.fixes("p") == ()


def test_a_misspelt_label_value_is_corrected_rather_than_dropped() -> None:
    labels = {"gpu": "NVIDIA-H100-80GB"}
    cluster = Cluster(
        build.node("a", labels=labels), build.pod(gpus=1, nodeSelector={"gpu": "nvidia-h100-80gb"})
    )
    assert titles(cluster.fixes("p")) == [
        'nodeSelector gpu: "nvidia-h100-80gb" -> "NVIDIA-H100-80GB"'
    ]
    fix = fixed_by(cluster, 'nodeSelector gpu: "nvidia-h100-80gb" -> "NVIDIA-H100-80GB"')
    assert [patch.delete for patch in fix.patch] == [True, False]


def test_a_misspelt_label_key_is_corrected() -> None:
    cluster = Cluster(
        build.node("a", labels={"topology.kubernetes.io/zone": "z1"}),
        build.pod(gpus=1, nodeSelector={"topology.kubernetes.io/zones": "z1"}),
    )
    fixed_by(
        cluster, "nodeSelector key topology.kubernetes.io/zones -> topology.kubernetes.io/zone"
    )


def test_a_label_that_no_node_has_is_dropped() -> None:
    cluster = Cluster(build.node("a"), build.pod(gpus=1, nodeSelector={"disk": "nvme"}))
    fixed_by(cluster, "drop nodeSelector disk: nvme")


def affinity(*requirements: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": list(requirements)}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def test_one_requirement_of_a_node_affinity_is_dropped() -> None:
    needs = affinity(
        {"key": "pool", "operator": "In", "values": ["train"]},
        {"key": "disk", "operator": "Exists"},
    )
    cluster = Cluster(build.node("a", labels={"pool": "train"}), build.pod(gpus=1, affinity=needs))
    assert titles(cluster.fixes("p")) == ["drop node affinity disk Exists"]
    fixed_by(cluster, "drop node affinity disk Exists")


def test_the_value_of_a_node_affinity_is_corrected() -> None:
    needs = affinity({"key": "pool", "operator": "In", "values": ["traning"]})
    cluster = Cluster(
        build.node("a", labels={"pool": "training"}), build.pod(gpus=1, affinity=needs)
    )
    fixed_by(cluster, 'node affinity pool: "traning" -> "training"')


def test_the_only_requirement_of_a_node_affinity_goes_with_the_affinity() -> None:
    needs = affinity({"key": "disk", "operator": "Exists"})
    cluster = Cluster(build.node("a"), build.pod(gpus=1, affinity=needs))
    fixed_by(cluster, "drop node affinity disk Exists")


def neighbours(kind: str, app: str) -> dict[str, Any]:
    term = {
        "labelSelector": {"matchLabels": {"app": app}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_an_affinity_to_pods_that_are_nowhere_becomes_a_preference() -> None:
    cluster = Cluster(
        build.node("a"), build.pod(gpus=1, affinity=neighbours("podAffinity", "cache"))
    )
    fixed_by(cluster, "prefer instead of require pod affinity over kubernetes.io/hostname")


def test_an_anti_affinity_becomes_a_preference() -> None:
    cluster = Cluster(
        build.node("a"),
        build.pod("there", metadata={"labels": {"app": "db"}}, nodeName="a"),
        build.pod(gpus=1, affinity=neighbours("podAntiAffinity", "db")),
    )
    fixed_by(cluster, "prefer instead of require pod anti-affinity over kubernetes.io/hostname")


def test_a_spread_allows_no_more_skew_than_needed() -> None:
    labels = {"labels": {"app": "web"}}
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    full = build.node("b", gpus=0)
    cluster = Cluster(
        build.node("a"),
        full,
        build.pod("first", metadata=labels, nodeName="a"),
        build.pod("second", metadata=labels, nodeName="a"),
        build.pod(gpus=1, metadata=labels, topologySpreadConstraints=[rule]),
    )
    fixed_by(cluster, "spread over kubernetes.io/hostname: maxSkew 1 -> 3")


def test_a_host_port_in_use_is_given_up() -> None:
    def with_port(name: str, **spec: Any) -> dict[str, Any]:
        tree = build.pod(name, **spec)
        tree["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        return tree

    cluster = Cluster(build.node("a"), with_port("there", nodeName="a"), with_port("p"))
    fixed_by(cluster, "do not occupy host port 8080")


def test_a_gate_of_no_known_controller_is_removed_in_place() -> None:
    cluster = Cluster(
        build.node("a"), build.pod(gpus=1, schedulingGates=[{"name": "example.com/data-ready"}])
    )
    fix = fixed_by(cluster, "remove scheduling gate example.com/data-ready")
    assert fix.patch[0].merge == {"spec": {"schedulingGates": []}}


def test_a_gate_that_a_controller_opens_is_left_alone() -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    cluster = Cluster(build.node("a"), build.pod(gpus=1, schedulingGates=gates))
    assert cluster.fixes("p") == ()


def test_a_node_name_that_does_not_exist_is_dropped() -> None:
    cluster = Cluster(build.node("a"), build.pod(gpus=1, nodeName="gone"))
    fixed_by(cluster, "drop nodeName gone: no such node exists")


def test_the_name_of_the_scheduler_is_corrected() -> None:
    ours = policy.Policy(scheduler_names=("dovetail",))
    cluster = Cluster(build.node("a"), build.pod(gpus=1, schedulerName="dovtail"), policy_=ours)
    fixed_by(cluster, "schedulerName dovtail -> dovetail")


def test_pods_of_another_scheduler_stay_with_it() -> None:
    ours = policy.Policy(scheduler_names=("dovetail",))
    cluster = Cluster(build.node("a"), build.pod(gpus=1), policy_=ours)
    assert cluster.fixes("p") == ()


def test_a_cordoned_node_is_uncordoned() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cluster = Cluster(build.node("a", unschedulable=True, taints=[cordon]), build.pod(gpus=1))
    fixes = cluster.fixes("p")
    assert titles(fixes) == ["uncordon node a"]
    assert fixes[0].patch[0].merge == {"spec": {"unschedulable": None}}


def test_two_obstacles_on_every_node_are_removed_together() -> None:
    cluster = Cluster(
        build.node("a", labels={"gpu": "H100"}, taints=[TAINT]),
        build.pod(gpus=1, nodeSelector={"gpu": "h100"}),
    )
    fixed_by(cluster, f'{TOLERATE}; nodeSelector gpu: "h100" -> "H100"')


def test_no_pair_contains_a_fix_that_works_alone() -> None:
    cluster = Cluster(
        build.node("a", taints=[TAINT]),
        build.node("b", labels={"gpu": "A100"}),
        build.pod(gpus=1, nodeSelector={"gpu": "h100"}),
    )
    assert titles(cluster.fixes("p")) == ['nodeSelector gpu: "h100" -> "A100"']


# Amounts


def test_gpus_are_lowered_to_what_a_node_has() -> None:
    cluster = Cluster(build.node("a", gpus=6), build.node("b", gpus=4), build.pod(gpus=8))
    assert titles(cluster.fixes("p")) == ["nvidia.com/gpu: 8 -> 6"]
    fixed_by(cluster, "nvidia.com/gpu: 8 -> 6")


@pytest.mark.parametrize(
    ("requests", "title"),
    [
        ({"cpu": "100"}, "cpu request: 100 -> 64"),
        ({"memory": "300Gi"}, "memory request: 300Gi -> 256Gi"),
    ],
)
def test_cpu_and_memory_are_lowered_to_what_fits(requests: dict[str, str], title: str) -> None:
    cluster = Cluster(build.node("a"), build.pod(requests=requests))
    fixed_by(cluster, title)


def test_a_misspelt_resource_becomes_the_one_that_nodes_offer() -> None:
    tree = build.pod()
    tree["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpus": "1"}}
    cluster = Cluster(build.node("a"), tree)
    fixed_by(cluster, "resource nvidia.com/gpus -> nvidia.com/gpu")


def test_a_mig_profile_that_is_not_offered_becomes_the_nearest() -> None:
    tree = build.pod()
    tree["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/mig-3g.40gb": "1"}}
    offered = {"nvidia.com/mig-2g.20gb": "3", "nvidia.com/mig-1g.10gb": "1"}
    cluster = Cluster(build.node("a", gpus=0, allocatable=offered), tree)
    fixed_by(cluster, "resource nvidia.com/mig-3g.40gb -> nvidia.com/mig-2g.20gb")


# Priority


def test_the_lowest_class_that_may_preempt_is_proposed() -> None:
    cluster = Cluster(
        build.node("a"),
        build.priority_class("batch", 100),
        build.priority_class("urgent", 1000),
        build.priority_class("critical", 5000),
        build.pod("running", gpus=8, priorityClassName="batch", nodeName="a"),
        build.pod(gpus=8),
    )
    title = "priority class none -> urgent (priority 0 -> 1000)"
    fixes = cluster.fixes("p")
    assert title in titles(fixes)
    fix = next(fix for fix in fixes if fix.title == title)
    assert "evicts team/running (priority 100)" in fix.effect
    cluster.apply(fix)
    after = cluster.starts("p")
    assert after.starts
    assert [eviction.pod.name for eviction in after.evictions] == ["running"]


def test_a_pod_of_its_own_namespace_can_be_ended() -> None:
    cluster = Cluster(
        build.node("a"), build.pod("notebook", gpus=8, nodeName="a"), build.pod(gpus=8)
    )
    fix = fixed_by(cluster, "end pod team/notebook", who=Who.QUEUE_ADMIN)
    assert "ends team/notebook" in fix.effect


def test_a_class_that_never_preempts_becomes_one_that_does() -> None:
    cluster = Cluster(
        build.node("a"),
        build.priority_class("patient", 1000, preemptionPolicy="Never"),
        build.priority_class("urgent", 1000),
        build.pod("running", gpus=8, nodeName="a"),
        build.pod(gpus=8, priorityClassName="patient"),
    )
    title = "priority class patient -> urgent (which preempts)"
    fix = next(fix for fix in cluster.fixes("p") if fix.title == title)
    cluster.apply(fix)
    assert cluster.starts("p").evictions
