"""Fixes of pods that controllers make: the object a person wrote changes, and its controller brings pods that start."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dovetail.answer.replica import verdict
from dovetail.answer.replica.replica import Edit, Replica
from dovetail.answer.why.fixes import search
from dovetail.answer.why.why_answer import Fix, Who
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from tests.answer.fixes import trial_cluster as build
from tests.answer.fixes.test_claim_fixes import cluster_of, kinds
from tests.answer.fixes.test_pod_fixes import TAINT, TOLERATE, titles
from tests.answer.fixes.trial_cluster import Cluster

WRONG = {"gpu": "h100"}
CORRECT = 'nodeSelector gpu: "h100" -> "H100"'
LABELS = {"gpu": "H100"}


def applied(cluster: Cluster, title: str, *, name: str = "") -> Fix:
    """Applies the fix of this title to a pod of the cluster; all pods that are left must start."""
    fixes = cluster.fixes(name or cluster.pod_names()[0])
    assert title in titles(fixes)
    fix = next(fix for fix in fixes if fix.title == title)
    cluster.apply(fix)
    assert cluster.pod_names()
    for left in cluster.pod_names():
        after = cluster.starts(left)
        assert after.starts, after.refusal
    return fix


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("Deployment", {"replicas": 1, "strategy": {"type": "Recreate"}}, ["merge"]),
        ("StatefulSet", {"replicas": 1, "serviceName": "w"}, ["merge", "delete"]),
        ("ReplicaSet", {"replicas": 2}, ["merge", "delete", "delete"]),
        ("Job", {"parallelism": 2, "completions": 2}, ["delete", "create"]),
    ],
)
def test_the_object_that_a_person_wrote_is_changed(
    kind: str, more: dict[str, Any], expected: list[str]
) -> None:
    spec = build.pod_spec(gpus=1, nodeSelector=WRONG)
    cluster = Cluster(build.node("a", labels=LABELS), build.workload(kind, spec=spec, **more))
    fix = applied(cluster, CORRECT)
    assert [verb for verb, _ in kinds(fix)] == expected
    assert fix.patch[0].object.kind == kind


def test_a_toleration_goes_to_the_template_not_to_the_pod() -> None:
    spec = build.pod_spec(gpus=1)
    cluster = Cluster(
        build.node("a", taints=[TAINT]),
        build.workload("Deployment", spec=spec, replicas=1, strategy={"type": "Recreate"}),
    )
    fix = applied(cluster, TOLERATE)
    assert kinds(fix) == [("merge", "Deployment")]


def test_an_amount_is_lowered_in_the_container_that_the_template_has() -> None:
    """A sidecar that admission added before the others is not in the template."""
    cluster = Cluster(
        build.node("a"), build.workload("Job", spec=build.pod_spec(gpus=9), parallelism=1)
    )
    replica = cluster.replica()
    pod = next(iter(replica.world.pods.values()))
    tree = codec.tree_of(pod)
    tree["spec"]["containers"].insert(0, {"name": "proxy"})
    with replica.edited([Edit(object_set.key_of(pod), codec.decode(tree))]):
        fixes = search.search(replica, pod.metadata.uid)
    fix = next(fix for fix in fixes if fix.title == "nvidia.com/gpu: 9 -> 8")
    created = fix.patch[1].create
    assert created is not None
    containers = created["spec"]["template"]["spec"]["containers"]
    assert [own["resources"]["limits"] for own in containers] == [{build.GPU: "8"}]


def test_a_cron_job_changes_for_its_next_jobs_too() -> None:
    spec = build.pod_spec(gpus=1, nodeSelector=WRONG)
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": build.NAMESPACE},
        "spec": {
            "schedule": "0 2 * * *",
            "jobTemplate": {
                "spec": build.workload("Job", spec=spec)["spec"],
            },
        },
    }
    cluster = Cluster(build.node("a", labels=LABELS), cron_job)
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "nightly",
        "uid": cluster.tree("CronJob", "nightly")["metadata"]["uid"],
        "controller": True,
    }
    cluster.put(build.workload("Job", "w", spec=spec, metadata={"ownerReferences": [owner]}))
    fix = applied(cluster, CORRECT)
    assert sorted(kinds(fix)) == [("create", "Job"), ("delete", "Job"), ("merge", "CronJob")]


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("StatefulSet", {"replicas": 1, "serviceName": "w"}, ("delete", "Pod")),
        ("Job", {}, ("create", "Job")),
    ],
)
def test_pods_of_a_changed_claim_template_come_again(
    kind: str, more: dict[str, Any], expected: tuple[str, str]
) -> None:
    cluster = cluster_of(
        build.template(count=8), build.workload(kind, spec=build.pod_spec(**build.uses()), **more)
    )
    fix = applied(cluster, "request gpus: count 8 -> 4")
    assert kinds(fix)[:2] == [
        ("delete", "ResourceClaimTemplate"),
        ("create", "ResourceClaimTemplate"),
    ]
    assert kinds(fix)[-1] == expected


def test_a_claim_template_changes_before_the_job_that_uses_it() -> None:
    cluster = Cluster(
        build.node("a", gpus=0, taints=[TAINT]),
        build.gpu_slice("a"),
        build.device_class(),
        build.template(count=8),
        build.workload("Job", spec=build.pod_spec(**build.uses())),
    )
    fix = applied(cluster, f"{TOLERATE}; request gpus: count 8 -> 4")
    assert [kind for _, kind in kinds(fix)] == ["ResourceClaimTemplate"] * 2 + ["Job"] * 2


def test_a_pod_of_an_unknown_controller_is_changed_only_in_place() -> None:
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Trainer",
        "name": "t",
        "uid": "t",
        "controller": True,
    }
    tree = build.pod(gpus=1, metadata={"ownerReferences": [owner]})
    cluster = Cluster(build.node("a", taints=[TAINT]))
    cluster.api.put(tree, namespace=build.NAMESPACE)
    fixes = [fix for fix in cluster.fixes("p") if fix.who is Who.USER]
    assert [(fix.title, kinds(fix)) for fix in fixes] == [(TOLERATE, [("merge", "Pod")])]

    tree["spec"]["nodeSelector"] = WRONG
    tree["metadata"]["name"] = "q"
    cluster = Cluster(build.node("a", labels=LABELS))
    cluster.api.put(tree, namespace=build.NAMESPACE)
    assert cluster.fixes("q") == ()


# Gangs


def gang(count: int, *, minimum: str, **spec: Any) -> list[dict[str, Any]]:
    labels = {"dovetail.dev/gang": "g", "dovetail.dev/gang-min": minimum}
    return [build.pod(f"g-{index}", metadata={"labels": labels}, **spec) for index in range(count)]


def test_every_pod_of_a_gang_tolerates_the_taint() -> None:
    nodes = [build.node(name, taints=[TAINT]) for name in "ab"]
    cluster = Cluster(*nodes, *gang(4, minimum="4", gpus=4))
    fix = applied(cluster, TOLERATE)
    assert kinds(fix) == [("merge", "Pod")] * 4
    assert "4 pods of the gang start on nodes a, b" in fix.effect


def test_the_minimum_of_a_gang_is_lowered_no_further_than_needed() -> None:
    wanted = [build.pod(name="x", gpus=gpus)["spec"]["containers"] for gpus in (3, 3, 9, 9)]
    pods = gang(4, minimum="4", gpus=3)
    for pod, containers in zip(pods, wanted, strict=True):
        pod["spec"]["containers"] = containers
    cluster = Cluster(build.node("a"), *pods)
    fixes = cluster.fixes("g-0")
    title = "gang minimum: 4 -> 2 pods"
    assert title in titles(fixes)
    fix = next(fix for fix in fixes if fix.title == title)
    cluster.apply(fix)
    assert [cluster.starts(f"g-{index}").starts for index in range(4)].count(True) == 2


def test_the_minimum_is_not_lowered_where_chance_decides_which_of_equal_pods_start() -> None:
    cluster = Cluster(build.node("a"), *gang(4, minimum="4", gpus=3))
    assert titles(cluster.fixes("g-0")) == ["nvidia.com/gpu: 3 -> 2"]


def test_the_minimum_of_a_job_is_lowered_on_the_job() -> None:
    spec = build.pod_spec(gpus=3)
    metadata = {"annotations": {"dovetail.dev/gang-min": "all"}}
    job = build.workload("Job", spec=spec, parallelism=4, completions=4, metadata=metadata)
    cluster = Cluster(build.node("a"), job)
    fixes = cluster.fixes(cluster.pod_names()[0])
    fix = next(fix for fix in fixes if fix.title == "gang minimum: 4 -> 2 pods")
    assert kinds(fix) == [("merge", "Job")]
    cluster.apply(fix)
    started = [cluster.starts(name).starts for name in cluster.pod_names()]
    assert started.count(True) == 2


def test_a_required_topology_level_becomes_wider() -> None:
    topology = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "hall"},
        "spec": {"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]},
    }
    nodes = [build.node(name, gpus=4, labels={"zone": "z", "rack": f"r-{name}"}) for name in "ab"]
    metadata = {"annotations": {"dovetail.dev/topology-required": "rack"}}
    pods = gang(2, minimum="2", gpus=4)
    for tree in pods:
        tree["metadata"] |= metadata
    cluster = Cluster(topology, *nodes, *pods)
    fix = applied(cluster, "require topology level zone instead of rack")
    assert kinds(fix) == [("merge", "Pod")] * 2


def test_a_gang_of_all_gated_pods_has_its_gates_removed_together() -> None:
    gates = [{"name": "example.com/ready"}]
    cluster = Cluster(build.node("a"), *gang(2, minimum="2", gpus=4, schedulingGates=gates))
    fix = applied(cluster, "remove scheduling gate example.com/ready")
    assert kinds(fix) == [("merge", "Pod")] * 2


# Queues


def in_queue(name: str, queue: str, **spec: Any) -> dict[str, Any]:
    """A pod that may be evicted, so that its queue may lend it more than its quota."""
    metadata = {
        "labels": {"dovetail.dev/queue": queue},
        "annotations": {"dovetail.dev/when-evicted": "end"},
    }
    return build.pod(name, metadata=metadata, **spec)


def test_a_limit_is_raised_by_what_is_short() -> None:
    cluster = Cluster(
        build.node("a"),
        build.queue("research", resources={"gpu": {"limit": "2"}}),
        in_queue("p", "research", gpus=4),
    )
    title = "queue research: limit of gpu 2 -> 4"
    fixes = cluster.fixes("p")
    fix = next(fix for fix in fixes if fix.title == title)
    assert fix.who is Who.QUEUE_ADMIN
    applied(cluster, title)


def test_another_queue_that_has_room_is_proposed() -> None:
    cluster = Cluster(
        build.node("a"),
        build.queue("research", resources={"gpu": {"limit": "2"}}),
        build.queue("shared"),
        in_queue("p", "research", gpus=4),
    )
    fix = applied(cluster, "queue research -> shared")
    assert kinds(fix) == [("merge", "Pod")]


def test_the_name_of_a_queue_is_corrected() -> None:
    cluster = Cluster(
        build.node("a"),
        build.queue("other"),
        build.queue("research"),
        in_queue("p", "reserach", gpus=4),
    )
    fixes = titles(cluster.fixes("p"))
    assert fixes[0] == "queue reserach -> research"
    applied(cluster, "queue reserach -> research")


def test_a_queue_without_namespaces_is_opened_to_the_one() -> None:
    closed = build.queue("research")
    del closed["spec"]["namespaceSelector"]
    cluster = Cluster(build.node("a"), closed, in_queue("p", "research", gpus=4))
    fix = applied(cluster, "queue research: admit namespace team")
    assert fix.who is Who.QUEUE_ADMIN


def test_a_namespace_gets_the_labels_that_its_queue_asks_for() -> None:
    closed = build.queue("research", namespaceSelector={"matchLabels": {"unit": "lab"}})
    cluster = Cluster(build.node("a"), closed, in_queue("p", "research", gpus=4))
    fix = applied(cluster, "label namespace team unit=lab, for queue research")
    assert kinds(fix) == [("merge", "Namespace")]


def test_work_over_quota_may_become_preemptible() -> None:
    tree = in_queue("p", "research", gpus=4)
    tree["metadata"]["annotations"] = {"dovetail.dev/preemptible": "false"}
    cluster = Cluster(
        build.node("a"), build.queue("research", resources={"gpu": {"quota": "2"}}), tree
    )
    assert "queue research: quota of gpu 2 -> 4" in titles(cluster.fixes("p"))
    keys = "dovetail.dev/preemptible: true, dovetail.dev/when-evicted: end"
    applied(cluster, f"allow its eviction ({keys})")


def test_a_queue_at_its_limit_lends_fewer_gpus() -> None:
    cluster = Cluster(
        build.node("a"),
        build.queue("research", resources={"gpu": {"limit": "2"}}),
        in_queue("p", "research", gpus=4),
    )
    applied(cluster, "nvidia.com/gpu: 4 -> 2")


# Others


def test_what_starts_now_has_started_when_a_fix_is_carried_out() -> None:
    cluster = Cluster(
        build.node("a", taints=[TAINT]),
        build.pod("other", gpus=8, tolerations=[{"operator": "Exists"}]),
        build.priority_class("urgent", 1000),
    )
    tree = build.pod(gpus=8, priorityClassName="urgent")
    cluster.put(tree)
    fix = next(fix for fix in cluster.fixes("p") if fix.title == TOLERATE)
    expected = "starts on node a once the pods there are gone; evicts team/other (priority 0)"
    assert fix.effect == expected


# Workloads whose controllers are not at work here


def owned(kind: str, version: str, *, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": version, "kind": kind, "name": "w", "uid": "w", "controller": True}
    metadata = {"labels": labels, "ownerReferences": [owner]}
    return build.pod(gpus=1, metadata=metadata, **spec)


def fixes_of(*trees: dict[str, Any]) -> tuple[Fix, ...]:
    """The fixes for pod p, where the owners exist and nothing acts on them."""
    stored = [codec.decode(tree) for tree in trees]
    now = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
    replica = Replica(object_set.of("test", stored), policy.DEFAULT, now)
    pod_id = verdict.id_of(replica, build.NAMESPACE, "p")
    assert pod_id is not None
    return search.search(replica, pod_id)


def template_of(**spec: Any) -> dict[str, Any]:
    return {"spec": build.pod_spec(gpus=1, **spec)}


OWNERS: dict[str, tuple[dict[str, Any], dict[str, str], list[str]]] = {
    "JobSet": (
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "spec": {
                "replicatedJobs": [
                    {"name": "driver", "template": {"spec": {"template": {"spec": {}}}}},
                    {
                        "name": "workers",
                        "template": {"spec": {"template": template_of(nodeSelector=WRONG)}},
                    },
                ]
            },
        },
        {"jobset.sigs.k8s.io/replicatedjob-name": "workers"},
        ["delete", "create"],
    ),
    "PyTorchJob": (
        {
            "apiVersion": "kubeflow.org/v1",
            "spec": {
                "pytorchReplicaSpecs": {
                    "Master": {"template": {"spec": {}}},
                    "Worker": {"template": template_of(nodeSelector=WRONG)},
                }
            },
        },
        {
            "training.kubeflow.org/job-name": "w",
            "training.kubeflow.org/replica-type": "worker",
        },
        ["delete", "create"],
    ),
    "RayCluster": (
        {
            "apiVersion": "ray.io/v1",
            "spec": {
                "headGroupSpec": {"template": {"spec": {}}},
                "workerGroupSpecs": [
                    {"groupName": "gpu", "template": template_of(nodeSelector=WRONG)}
                ],
            },
        },
        {"ray.io/group": "gpu"},
        ["merge", "delete"],
    ),
    "LeaderWorkerSet": (
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "spec": {
                "leaderWorkerTemplate": {
                    "size": 1,
                    "workerTemplate": template_of(nodeSelector=WRONG),
                }
            },
        },
        {"leaderworkerset.sigs.k8s.io/name": "w"},
        ["merge"],
    ),
}


FIRST_ROLE = {"workers": "driver", "worker": "master", "gpu": "headgroup"}


@pytest.mark.parametrize("kind", OWNERS)
def test_the_template_of_the_role_is_changed(kind: str) -> None:
    tree, labels, verbs = OWNERS[kind]
    metadata = {"name": "w", "namespace": build.NAMESPACE, "uid": "w"}
    owner = {"kind": kind, "metadata": metadata, **tree}
    pod = owned(kind, tree["apiVersion"], labels=labels, nodeSelector=WRONG)
    pod["metadata"]["uid"] = "p"
    leads = {key: FIRST_ROLE.get(value, value) for key, value in labels.items()}
    leader = owned(kind, tree["apiVersion"], labels=leads)
    leader["metadata"] |= {"name": "leader", "uid": "leader"}
    fixes = fixes_of(build.node("a", labels=LABELS), owner, pod, leader)
    fix = next(fix for fix in fixes if fix.title == CORRECT)
    assert [verb for verb, _ in kinds(fix)] == verbs
    assert {patch.object.kind for patch in fix.patch} <= {kind, "Pod"}
    written = str(fix.patch)
    assert "'gpu': 'H100'" in written
    assert "h100" not in written


def test_an_effect_names_the_pods_that_a_rollout_replaces() -> None:
    spec = build.pod_spec(gpus=8, nodeSelector={"gpu": "H100"})
    cluster = Cluster(
        build.node("a", labels=LABELS),
        build.node("b", labels={"gpu": "A100"}),
        build.workload("Deployment", spec=spec, replicas=2),
    )
    first, second = cluster.pod_names()
    cluster.bind(first, "a")
    fix = next(fix for fix in cluster.fixes(second) if fix.title == "drop nodeSelector gpu: H100")
    assert kinds(fix) == [("merge", "Deployment")]
    assert fix.effect == f"starts on node b; a pod that runs starts again: team/{first}"
