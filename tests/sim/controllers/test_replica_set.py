"""Stories about ReplicaSets: scaling, adoption, release, deletion order, and quotas that refuse pods."""

from __future__ import annotations

from typing import Any

from dovetail.ports import failures
from tests.sim.controllers import tiny_store
from tests.sim.controllers.tiny_store import Cluster, workload

Tree = dict[str, Any]


def bare_pod(name: str, **labels: str) -> Tree:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


def test_pods_are_created_named_and_counted() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", replicas=3))
    assert len(cluster.pods) == 3
    first = cluster.pods[0]
    assert first["metadata"]["generateName"] == "web-"
    assert first["metadata"]["name"].startswith("web-")
    assert first["metadata"]["labels"] == {"app": "web"}
    owner = first["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", "web", True)
    assert cluster.status("ReplicaSet", "web") == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "terminatingReplicas": 0,
        "observedGeneration": 1,
    }
    cluster.start()
    assert cluster.status("ReplicaSet", "web")["availableReplicas"] == 3
    assert cluster.reasons("ReplicaSet", "web") == ["SuccessfulCreate"] * 3


def test_names_are_the_same_on_every_run() -> None:
    first, second = Cluster(), Cluster()
    for cluster in (first, second):
        cluster.apply(workload("ReplicaSet", replicas=4))
    assert first.pod_names == second.pod_names
    assert len(set(first.pod_names)) == 4


def test_a_killed_pod_is_replaced_under_another_name() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", replicas=2))
    cluster.start()
    victim = cluster.pod_names[0]
    cluster.delete("Pod", victim)
    assert len(cluster.pods) == 2
    assert cluster.status("ReplicaSet", "web")["terminatingReplicas"] == 1
    cluster.run()
    assert victim not in cluster.pod_names
    assert cluster.status("ReplicaSet", "web")["readyReplicas"] == 2


def test_scaling_down_takes_unbound_then_pending_then_unready_pods_first() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", replicas=4))
    ready, unready, unbound, later = cluster.pod_names
    cluster.start(ready)
    cluster.unready(unready)
    cluster.wait(1000)
    cluster.start(later)
    for size, staying in ((3, {ready, unready, later}), (2, {ready, later}), (1, {ready})):
        cluster.scale("ReplicaSet", "web", size)
        assert set(cluster.pod_names) == staying, f"unbound is {unbound}"


def test_a_low_deletion_cost_decides_between_ready_pods() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", replicas=3))
    cluster.start()
    cheap = cluster.pod_names[1]
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
    cluster.patch("Pod", cheap, {"metadata": {"annotations": cost}})
    cluster.scale("ReplicaSet", "web", 2)
    assert cheap not in cluster.pod_names


def test_matching_orphans_are_adopted_and_strangers_released() -> None:
    cluster = Cluster()
    cluster.apply(bare_pod("old", app="web"))
    cluster.apply(workload("ReplicaSet", replicas=2))
    assert "old" in cluster.pod_names
    assert len(cluster.pods) == 2
    cluster.patch("Pod", "old", {"metadata": {"labels": {"app": "debug"}}})
    assert len(cluster.pods) == 3
    assert "ownerReferences" not in cluster.find("Pod", "old")["metadata"]
    cluster.patch("Pod", "old", {"metadata": {"labels": {"app": "web"}}})
    assert len(cluster.pods) == 2


def test_a_pod_of_another_controller_is_left_alone() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", "other", replicas=1))
    pod = cluster.pod_names[0]
    cluster.patch("Pod", pod, {"metadata": {"labels": {"app": "other", "extra": "1"}}})
    tree = workload("ReplicaSet", "rival", replicas=1)
    tree["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    tree["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    cluster.apply(tree)
    assert cluster.find("Pod", pod)["metadata"]["ownerReferences"][0]["name"] == "other"
    assert len(cluster.pods) == 2


def test_min_ready_seconds_delay_availability() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", replicas=1, minReadySeconds=30))
    cluster.start()
    assert "availableReplicas" not in cluster.status("ReplicaSet", "web")
    cluster.wait(29)
    assert "availableReplicas" not in cluster.status("ReplicaSet", "web")
    cluster.wait(1)
    assert cluster.status("ReplicaSet", "web")["availableReplicas"] == 1


def test_a_full_quota_is_reported_and_tried_again_until_it_has_room() -> None:
    cluster = Cluster()
    room = [2]

    def quota(tree: Tree, store: tiny_store.TinyStore) -> None:
        count = sum(key.kind == "Pod" for key in store.trees)
        if tree["kind"] == "Pod" and count >= room[0]:
            raise failures.Refused("pods is forbidden: exceeded quota: two-pods", status=403)

    cluster.store.admit = quota
    cluster.apply(workload("ReplicaSet", replicas=5))
    assert len(cluster.pods) == 2
    assert cluster.condition("ReplicaSet", "web", "ReplicaFailure") == ("True", "FailedCreate")
    assert "FailedCreate" in cluster.reasons("ReplicaSet", "web")
    cluster.wait(10)
    attempts = cluster.reasons("ReplicaSet", "web").count("FailedCreate")
    assert attempts < 20, "attempts become rare"

    room[0] = 10
    cluster.wait(20)
    assert len(cluster.pods) == 5
    assert cluster.condition("ReplicaSet", "web", "ReplicaFailure") is None


def test_a_failed_pod_is_replaced_and_kept() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", replicas=1))
    name = cluster.pod_names[0]
    cluster.fail(name)
    assert len(cluster.every("Pod")) == 2
    assert cluster.status("ReplicaSet", "web")["replicas"] == 1
    assert name in [pod["metadata"]["name"] for pod in cluster.every("Pod")]
