"""The driver: only owners that changes concern are looked at, broken objects stop none, a restart changes nothing."""

from __future__ import annotations

from typing import Any

from dovetail.sim.controllers import controller_actions, workload_controllers
from tests.sim.controllers.tiny_store import Cluster, TinyStore, job, workload

Tree = dict[str, Any]


def test_a_change_of_one_pod_concerns_its_owners_only() -> None:
    cluster = Cluster()
    for number in range(20):
        cluster.apply(workload("Deployment", f"web-{number}", replicas=2))
    cluster.start()
    pod = cluster.pods[0]
    cluster.unready(pod["metadata"]["name"])
    changed = cluster.find("Pod", pod["metadata"]["name"])
    changed = changed | {"metadata": changed["metadata"] | {"annotations": {"seen": "1"}}}
    cluster.controllers.observe(changed)
    assert cluster.controllers.settle(cluster.store.now) == 1


def test_controllers_that_start_on_a_running_cluster_change_nothing() -> None:
    cluster = Cluster()
    cluster.apply(workload("Deployment", replicas=3))
    cluster.apply(workload("StatefulSet", "db", replicas=2))
    cluster.apply(job(completions=2, parallelism=2))
    cluster.start()
    cluster.start()
    before = dict(cluster.store.trees)
    successor = workload_controllers.WorkloadControllers(cluster.store)
    for tree in cluster.store.trees.values():
        successor.observe(tree)
    successor.settle(cluster.store.now)
    assert cluster.store.trees == before


def test_a_successor_names_pods_unlike_those_that_exist() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", replicas=3))
    trees = cluster.store.trees
    cluster.controllers = workload_controllers.WorkloadControllers(cluster.store)
    cluster.store.observers[:] = [cluster.controllers.observe]
    for tree in trees.values():
        cluster.controllers.observe(tree)
    cluster.scale("ReplicaSet", "web", 6)
    assert len(cluster.pods) == 6


class PatientStore(TinyStore):
    """A store that keeps reports about unreadable objects."""

    def record(self, event: controller_actions.Record) -> None:
        self.events.append(event)


def test_an_object_that_cannot_be_read_is_reported_and_stops_no_other() -> None:
    cluster = Cluster()
    cluster.store = PatientStore()
    cluster.controllers = workload_controllers.WorkloadControllers(cluster.store)
    cluster.store.observers.append(cluster.controllers.observe)
    broken = workload("ReplicaSet", "broken", replicas="many")
    cluster.apply(broken)
    cluster.apply(workload("ReplicaSet", replicas=1))
    assert len(cluster.pods) == 1
    assert cluster.reasons("ReplicaSet", "broken") == ["UnreadableObject"]


def test_work_can_be_done_in_slices() -> None:
    store = TinyStore()
    controllers = workload_controllers.WorkloadControllers(store)
    store.observers.append(controllers.observe)
    tree = workload("ReplicaSet", replicas=5)
    tree["metadata"]["namespace"] = "default"
    store.create(tree)
    slices = 0
    while not controllers.is_idle:
        assert controllers.settle(store.now, limit=1) <= 1
        slices += 1
    assert slices > 1
    assert sum(key.kind == "Pod" for key in store.trees) == 5


def test_without_work_there_is_nothing_to_wake_up_for() -> None:
    cluster = Cluster()
    cluster.apply(workload("ReplicaSet", replicas=1))
    cluster.start()
    assert cluster.controllers.next_wake_up is None
    assert cluster.controllers.is_idle
