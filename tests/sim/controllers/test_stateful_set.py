"""Stories about StatefulSets: ordinals, order, volume claims, partitions, revisions."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.sim.controllers.tiny_store import Cluster, workload

Tree = dict[str, Any]


def stateful_set(image: str = "v1", **spec: Any) -> Tree:
    return workload("StatefulSet", "db", image=image, **({"serviceName": "db"} | spec))


def claim_template(name: str = "data") -> Tree:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": spec}


def image_of(cluster: Cluster, name: str) -> str:
    return str(cluster.find("Pod", name)["spec"]["containers"][0]["image"])


def names(cluster: Cluster, kind: str) -> list[str]:
    return [tree["metadata"]["name"] for tree in cluster.every(kind)]


def test_pods_start_one_after_the_other_with_their_identity() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=3))
    assert cluster.pod_names == ["db-0"]
    cluster.start()
    assert cluster.pod_names == ["db-0", "db-1"]
    cluster.run()
    assert cluster.pod_names == ["db-0", "db-1", "db-2"]

    pod = cluster.find("Pod", "db-1")
    (revision,) = names(cluster, "ControllerRevision")
    assert pod["metadata"]["labels"] == {
        "app": "db",
        "statefulset.kubernetes.io/pod-name": "db-1",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": revision,
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "db")
    assert pod["metadata"]["generateName"] == "db-"
    assert cluster.status("StatefulSet", "db") == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": revision,
        "updateRevision": revision,
        "collisionCount": 0,
    }


def test_parallel_pods_start_and_end_together() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=3, podManagementPolicy="Parallel"))
    assert cluster.pod_names == ["db-0", "db-1", "db-2"]
    cluster.start()
    cluster.scale("StatefulSet", "db", 0)
    assert cluster.pods == []


def test_scaling_down_removes_the_highest_ordinal_and_waits_for_its_end() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=3))
    cluster.run()
    cluster.scale("StatefulSet", "db", 1)
    assert cluster.pod_names == ["db-0", "db-1"]
    cluster.confirm_deletions()
    assert cluster.pod_names == ["db-0"]


def test_an_unhealthy_pod_stops_the_start_of_later_ones() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=3))
    cluster.run()
    cluster.unready("db-0")
    cluster.delete("Pod", "db-2")
    cluster.confirm_deletions()
    assert cluster.pod_names == ["db-0", "db-1"]
    cluster.unready("db-0")
    cluster.store.now = cluster.store.now.replace(minute=5)
    cluster._set_pod(cluster.find("Pod", "db-0"), phase="Running", is_ready=True)
    cluster.settle()
    assert cluster.pod_names == ["db-0", "db-1", "db-2"]


def test_ordinals_can_start_elsewhere() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=2, ordinals={"start": 5}))
    cluster.run()
    assert cluster.pod_names == ["db-5", "db-6"]


def test_an_update_goes_from_the_highest_ordinal_down() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=3))
    cluster.run()
    cluster.apply(stateful_set("v2", replicas=3))
    assert cluster.pod_names == ["db-0", "db-1"]
    cluster.confirm_deletions()
    assert image_of(cluster, "db-2") == "v2"
    assert image_of(cluster, "db-1") == "v1", "waits until db-2 is ready"
    status = cluster.status("StatefulSet", "db")
    assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
    assert status["currentRevision"] != status["updateRevision"]
    cluster.run()
    assert {image_of(cluster, name) for name in cluster.pod_names} == {"v2"}
    status = cluster.status("StatefulSet", "db")
    assert status["currentRevision"] == status["updateRevision"]


def test_a_partition_keeps_lower_ordinals_at_the_old_revision() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=3))
    cluster.run()
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    cluster.apply(stateful_set("v2", replicas=3, updateStrategy=strategy))
    cluster.run()
    assert [image_of(cluster, name) for name in cluster.pod_names] == ["v1", "v1", "v2"]
    cluster.delete("Pod", "db-0")
    cluster.run()
    assert image_of(cluster, "db-0") == "v1", "a replaced pod below the partition stays old"


def test_on_delete_updates_only_pods_that_users_delete() -> None:
    cluster = Cluster()
    strategy = {"type": "OnDelete"}
    cluster.apply(stateful_set(replicas=2, updateStrategy=strategy))
    cluster.run()
    cluster.apply(stateful_set("v2", replicas=2, updateStrategy=strategy))
    cluster.run()
    assert image_of(cluster, "db-1") == "v1"
    cluster.delete("Pod", "db-1")
    cluster.run()
    assert [image_of(cluster, name) for name in cluster.pod_names] == ["v1", "v2"]


def test_claims_are_created_per_ordinal_and_outlive_pods() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=2, volumeClaimTemplates=[claim_template()]))
    cluster.run()
    assert names(cluster, "PersistentVolumeClaim") == ["data-db-0", "data-db-1"]
    claim = cluster.find("PersistentVolumeClaim", "data-db-0")
    assert claim["metadata"]["labels"] == {"app": "db"}
    volumes = cluster.find("Pod", "db-1")["spec"]["volumes"]
    assert volumes == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}]
    cluster.scale("StatefulSet", "db", 0)
    cluster.run()
    cluster.delete("StatefulSet", "db")
    assert names(cluster, "PersistentVolumeClaim") == ["data-db-0", "data-db-1"]


def test_a_retention_policy_takes_claims_with_the_pod_and_the_set() -> None:
    cluster = Cluster()
    policy = {"whenScaled": "Delete", "whenDeleted": "Delete"}
    cluster.apply(
        stateful_set(
            replicas=2,
            volumeClaimTemplates=[claim_template()],
            persistentVolumeClaimRetentionPolicy=policy,
        )
    )
    cluster.run()
    cluster.scale("StatefulSet", "db", 1)
    cluster.run()
    assert names(cluster, "PersistentVolumeClaim") == ["data-db-0"]
    cluster.delete("StatefulSet", "db")
    cluster.run()
    assert names(cluster, "PersistentVolumeClaim") == []


def test_a_failed_pod_is_replaced_under_its_name() -> None:
    cluster = Cluster()
    cluster.apply(stateful_set(replicas=1))
    cluster.start()
    old = cluster.find("Pod", "db-0")["metadata"]["uid"]
    cluster.fail("db-0")
    assert cluster.find("Pod", "db-0")["metadata"]["uid"] != old
    cluster.run()
    assert cluster.status("StatefulSet", "db")["readyReplicas"] == 1


def test_old_revisions_beyond_the_limit_are_deleted() -> None:
    cluster = Cluster()
    for number in range(5):
        cluster.apply(stateful_set(f"v{number}", replicas=1, revisionHistoryLimit=1))
        cluster.run()
    assert len(cluster.every("ControllerRevision")) == 2


def test_going_back_reuses_a_revision() -> None:
    cluster = Cluster()
    for image in ("v1", "v2", "v1"):
        cluster.apply(stateful_set(image, replicas=1))
        cluster.run()
    revisions = sorted(tree["revision"] for tree in cluster.every("ControllerRevision"))
    assert revisions == [2, 3]


@given(
    replicas=st.integers(1, 4),
    is_parallel=st.booleans(),
    steps=st.lists(st.sampled_from(["kill", "fail", "start", "confirm", "update"]), max_size=20),
    data=st.data(),
)
def test_random_kills_converge_and_no_ordinal_runs_twice(
    replicas: int, is_parallel: bool, steps: list[str], data: st.DataObject
) -> None:
    policy = "Parallel" if is_parallel else "OrderedReady"
    cluster = Cluster()
    version = 1
    cluster.apply(stateful_set(replicas=replicas, podManagementPolicy=policy))
    for step in steps:
        pods = cluster.pod_names
        match step:
            case "kill" if pods:
                cluster.delete("Pod", data.draw(st.sampled_from(pods)))
            case "fail" if pods:
                cluster.fail(data.draw(st.sampled_from(pods)))
            case "start":
                cluster.start()
            case "confirm":
                cluster.confirm_deletions()
            case "update":
                version += 1
                tree = stateful_set(f"v{version}", replicas=replicas, podManagementPolicy=policy)
                cluster.apply(tree)
        everyone = names(cluster, "Pod")
        assert len(everyone) == len(set(everyone)) <= replicas
    cluster.run()
    assert cluster.pod_names == [f"db-{ordinal}" for ordinal in range(replicas)]
    assert {image_of(cluster, name) for name in cluster.pod_names} == {f"v{version}"}
