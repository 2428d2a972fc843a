"""Stories about Deployments: rollouts step by step, pauses, scaling, history, deadlines; and what never happens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.ports import failures
from dovetail.sim.controllers.apps import deployment_scaling
from tests.sim.controllers import tiny_store
from tests.sim.controllers.tiny_store import Cluster, workload

Tree = dict[str, Any]


def deployment(image: str = "v1", *, surge: Any = 1, unavailable: Any = 0, **spec: Any) -> Tree:
    limits = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": "RollingUpdate", "rollingUpdate": limits}
    return workload("Deployment", image=image, **({"strategy": strategy} | spec))


def images(cluster: Cluster) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"] for pod in cluster.pods)


def sizes(cluster: Cluster) -> list[int]:
    """The sizes of the ReplicaSets, oldest first."""
    replica_sets = deployment_scaling.oldest_first(cluster.every("ReplicaSet"))
    by_revision = sorted(replica_sets, key=revision)
    return [replica_set["spec"]["replicas"] for replica_set in by_revision]


def revision(tree: Tree) -> int:
    return int(tree["metadata"]["annotations"]["deployment.kubernetes.io/revision"])


def test_a_new_deployment_has_one_replica_set_with_its_hash() -> None:
    cluster = Cluster()
    cluster.apply(deployment(replicas=3))
    (replica_set,) = cluster.every("ReplicaSet")
    hash_text = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{hash_text}"
    assert replica_set["spec"]["selector"]["matchLabels"]["pod-template-hash"] == hash_text
    assert all(
        pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": hash_text}
        for pod in cluster.pods
    )
    assert revision(cluster.find("Deployment", "web")) == 1
    assert cluster.condition("Deployment", "web", "Available") == (
        "False",
        "MinimumReplicasUnavailable",
    )
    cluster.start()
    assert cluster.condition("Deployment", "web", "Available") == (
        "True",
        "MinimumReplicasAvailable",
    )
    assert cluster.condition("Deployment", "web", "Progressing") == (
        "True",
        "NewReplicaSetAvailable",
    )
    status = cluster.status("Deployment", "web")
    del status["conditions"]
    assert status == {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "terminatingReplicas": 0,
    }


def test_defaults_are_those_of_the_api() -> None:
    cluster = Cluster()
    cluster.apply(workload("Deployment"))
    assert len(cluster.pods) == 1
    annotations = cluster.every("ReplicaSet")[0]["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/max-replicas"] == "2"


def test_a_rollout_moves_pod_by_pod_and_keeps_the_old_replica_set() -> None:
    cluster = Cluster()
    cluster.apply(deployment(replicas=3))
    cluster.start()
    cluster.apply(deployment("v2", replicas=3))
    assert sizes(cluster) == [3, 1]
    cluster.start()
    assert sizes(cluster) == [2, 2]
    cluster.run()
    assert sizes(cluster) == [0, 3]
    assert images(cluster) == ["v2"] * 3
    assert revision(cluster.find("Deployment", "web")) == 2


def test_going_back_reuses_the_replica_set_as_a_new_revision() -> None:
    cluster = Cluster()
    for image in ("v1", "v2", "v1"):
        cluster.apply(deployment(image, replicas=2))
        cluster.run()
    assert len(cluster.every("ReplicaSet")) == 2
    assert images(cluster) == ["v1"] * 2
    newest = max(cluster.every("ReplicaSet"), key=revision)
    assert revision(newest) == 3
    assert newest["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"


def test_pods_that_never_become_ready_stop_a_rollout_and_the_deadline_says_so() -> None:
    cluster = Cluster()
    cluster.apply(deployment(replicas=3))
    cluster.start()
    cluster.apply(deployment("broken", replicas=3))
    cluster.wait(599)
    assert images(cluster) == ["broken", "v1", "v1", "v1"]
    assert cluster.condition("Deployment", "web", "Progressing") == ("True", "ReplicaSetUpdated")
    cluster.wait(5)
    assert cluster.condition("Deployment", "web", "Progressing") == (
        "False",
        "ProgressDeadlineExceeded",
    )
    cluster.apply(deployment("v1", replicas=3))
    cluster.run()
    assert images(cluster) == ["v1"] * 3
    assert cluster.condition("Deployment", "web", "Progressing") == (
        "True",
        "NewReplicaSetAvailable",
    )


def test_recreate_ends_every_old_pod_first() -> None:
    cluster = Cluster()
    cluster.apply(workload("Deployment", replicas=2, strategy={"type": "Recreate"}))
    cluster.start()
    cluster.apply(workload("Deployment", image="v2", replicas=2, strategy={"type": "Recreate"}))
    assert cluster.pods == []
    assert len(cluster.every("Pod")) == 2, "old pods are still ending"
    cluster.confirm_deletions()
    assert images(cluster) == ["v2", "v2"]


def test_a_paused_deployment_scales_but_does_not_roll_out() -> None:
    cluster = Cluster()
    cluster.apply(deployment(replicas=2))
    cluster.start()
    cluster.apply(deployment("v2", replicas=2, paused=True))
    assert images(cluster) == ["v1", "v1"]
    assert cluster.condition("Deployment", "web", "Progressing") == ("Unknown", "DeploymentPaused")
    cluster.scale("Deployment", "web", 4)
    assert images(cluster) == ["v1"] * 4
    cluster.apply(deployment("v2", replicas=4))
    cluster.run()
    assert images(cluster) == ["v2"] * 4


def test_scaling_in_the_middle_of_a_rollout_keeps_proportions() -> None:
    cluster = Cluster()
    cluster.apply(deployment(replicas=10, surge=3, unavailable=2))
    cluster.start()
    cluster.apply(deployment("v2", replicas=10, surge=3, unavailable=2))
    assert sizes(cluster) == [8, 5]
    cluster.scale("Deployment", "web", 15)
    # The example of the Kubernetes documentation: 5 more pods are spread 3 to 2.
    assert sizes(cluster) == [11, 7]


def test_history_beyond_the_limit_is_deleted() -> None:
    cluster = Cluster()
    for number in range(5):
        cluster.apply(deployment(f"v{number}", replicas=1, revisionHistoryLimit=2))
        cluster.run()
    assert sorted(map(revision, cluster.every("ReplicaSet"))) == [3, 4, 5]


def test_a_refused_pod_shows_in_the_deployment() -> None:
    cluster = Cluster()

    def quota(tree: Tree, store: tiny_store.TinyStore) -> None:
        if tree["kind"] == "Pod":
            raise failures.Refused("exceeded quota", status=403)

    cluster.store.admit = quota
    cluster.apply(deployment(replicas=1))
    assert cluster.condition("Deployment", "web", "ReplicaFailure") == ("True", "FailedCreate")


def test_annotations_are_inherited_except_private_ones() -> None:
    cluster = Cluster()
    tree = deployment(replicas=1)
    last_applied = "kubectl.kubernetes.io/last-applied-configuration"
    tree["metadata"]["annotations"] = {"team": "vision", last_applied: "{}"}
    cluster.apply(tree)
    annotations = cluster.every("ReplicaSet")[0]["metadata"]["annotations"]
    assert annotations["team"] == "vision"
    assert last_applied not in annotations


def test_settling_again_does_nothing() -> None:
    cluster = Cluster()
    cluster.apply(deployment(replicas=3))
    cluster.run()
    before = dict(cluster.store.trees)
    for tree in list(cluster.store.trees.values()):
        cluster.controllers.observe(tree)
    cluster.settle()
    assert cluster.store.trees == before


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "expected"),
    [
        ("25%", "25%", 10, (3, 2)),
        ("25%", "25%", 3, (1, 0)),
        ("0%", "1%", 2, (0, 1)),
        ("1%", "25%", 1, (1, 0)),
        (0, "10%", 5, (0, 1)),
        (2, 1, 4, (2, 1)),
    ],
)
def test_percentages_are_rounded_as_upstream(
    surge: Any, unavailable: Any, replicas: int, expected: tuple[int, int]
) -> None:
    tree = deployment(surge=surge, unavailable=unavailable, replicas=replicas)
    limits = (deployment_scaling.max_surge(tree), deployment_scaling.max_unavailable(tree))
    assert limits == expected


STEPS = st.lists(
    st.sampled_from(["start", "unready", "kill", "confirm", "update", "wait", "scale"]),
    min_size=1,
    max_size=25,
)


@given(
    replicas=st.integers(1, 6),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 3),
    steps=STEPS,
    data=st.data(),
)
def test_no_rollout_leaves_its_limits(
    replicas: int, surge: int, unavailable: int, steps: list[str], data: st.DataObject
) -> None:
    """Never more pods than surge allows; a rollout alone never makes more pods unavailable than it may."""
    if surge == unavailable == 0:
        unavailable = 1
    cluster = Cluster()
    version = 1
    tree = deployment(replicas=replicas, surge=surge, unavailable=unavailable)
    cluster.apply(tree)
    cluster.run()
    for step in steps:
        pods = cluster.pod_names
        match step:
            case "start" if pods:
                cluster.start(data.draw(st.sampled_from(pods)))
            case "unready" if pods:
                cluster.unready(data.draw(st.sampled_from(pods)))
            case "kill" if pods:
                cluster.delete("Pod", data.draw(st.sampled_from(pods)))
            case "confirm":
                cluster.confirm_deletions()
            case "wait":
                cluster.wait(60)
            case "scale":
                replicas = data.draw(st.integers(1, 6))
                cluster.scale("Deployment", "web", replicas)
            case "update":
                version += 1
                before = available(cluster)
                new = deployment(
                    f"v{version}", replicas=replicas, surge=surge, unavailable=unavailable
                )
                cluster.apply(new)
                limit = replicas - min(unavailable, replicas)
                assert available(cluster) >= min(before, limit)
        assert len(cluster.pods) <= replicas + surge, f"{step}: too many pods"
    cluster.run()
    assert images(cluster) == [f"v{version}"] * replicas


def available(cluster: Cluster) -> int:
    statuses = [pod["status"].get("conditions") or [{}] for pod in cluster.pods]
    return sum(conditions[0].get("status") == "True" for conditions in statuses)
