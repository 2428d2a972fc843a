"""Stories about DaemonSets: which nodes run a pod, and how pods are replaced."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.sim.controllers.tiny_store import Cluster, node, workload

Tree = dict[str, Any]


def daemon_set(image: str = "v1", pod_spec: Tree | None = None, **spec: Any) -> Tree:
    tree = workload("DaemonSet", "agent", image=image, **spec)
    tree["spec"]["template"]["spec"] |= pod_spec or {}
    return tree


def cluster_of(*nodes: Tree) -> Cluster:
    cluster = Cluster()
    for tree in nodes:
        cluster.apply(tree)
    return cluster


def targets(cluster: Cluster) -> list[str]:
    """The nodes that pods are meant for."""
    affinities = [pod["spec"]["affinity"]["nodeAffinity"] for pod in cluster.pods]
    required = [
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] for affinity in affinities
    ]
    fields = [selector["nodeSelectorTerms"][0]["matchFields"][0] for selector in required]
    assert all(field["key"] == "metadata.name" for field in fields)
    return sorted(field["values"][0] for field in fields)


def bind(cluster: Cluster) -> None:
    """The scheduler binds every pod to the node it is meant for, and kubelets start it."""
    for pod in cluster.pods:
        if not pod["spec"].get("nodeName"):
            terms = pod["spec"]["affinity"]["nodeAffinity"]
            selector = terms["requiredDuringSchedulingIgnoredDuringExecution"]
            name = selector["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            cluster.patch("Pod", pod["metadata"]["name"], {"spec": {"nodeName": name}})
    cluster.start()


def images(cluster: Cluster) -> dict[str, str]:
    return {
        pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"]
        for pod in cluster.pods
        if pod["spec"].get("nodeName")
    }


def test_every_node_gets_a_pod_also_one_that_comes_later() -> None:
    cluster = cluster_of(node("a"), node("b"))
    cluster.apply(daemon_set())
    assert targets(cluster) == ["a", "b"]
    cluster.apply(node("c"))
    assert targets(cluster) == ["a", "b", "c"]
    bind(cluster)
    assert cluster.status("DaemonSet", "agent") == {
        "currentNumberScheduled": 3,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 3,
        "numberReady": 3,
        "updatedNumberScheduled": 3,
        "numberAvailable": 3,
        "observedGeneration": 1,
    }
    (revision,) = cluster.every("ControllerRevision")
    hash_text = revision["metadata"]["labels"]["controller-revision-hash"]
    assert revision["metadata"]["name"] == f"agent-{hash_text}"
    assert cluster.pods[0]["metadata"]["labels"]["controller-revision-hash"] == hash_text


def test_a_node_selector_chooses_and_a_relabelled_node_loses_its_pod() -> None:
    cluster = cluster_of(node("gpu", labels={"gpu": "yes"}), node("cpu"))
    cluster.apply(daemon_set(pod_spec={"nodeSelector": {"gpu": "yes"}}))
    assert targets(cluster) == ["gpu"]
    bind(cluster)
    cluster.patch("Node", "gpu", {"metadata": {"labels": {"gpu": None}}})
    assert cluster.pods == []
    cluster.confirm_deletions()
    assert cluster.status("DaemonSet", "agent")["desiredNumberScheduled"] == 0


def test_required_affinity_is_respected() -> None:
    cluster = cluster_of(node("a", labels={"zone": "1"}), node("b", labels={"zone": "2"}))
    expression = {"key": "zone", "operator": "In", "values": ["2"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    cluster.apply(daemon_set(pod_spec={"affinity": affinity}))
    assert targets(cluster) == ["b"]


def test_daemon_pods_tolerate_cordons_and_pressure_but_not_other_taints() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    lost = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    cluster = cluster_of(
        node("cordoned", taints=[cordon]), node("lost", taints=[lost]), node("gpu", taints=[gpu])
    )
    cluster.apply(daemon_set())
    assert targets(cluster) == ["cordoned", "lost"]
    keys = {toleration["key"] for toleration in cluster.pods[0]["spec"]["tolerations"]}
    assert "node.kubernetes.io/disk-pressure" in keys
    assert "node.kubernetes.io/network-unavailable" not in keys


def test_a_new_no_schedule_taint_keeps_running_pods_and_no_execute_ends_them() -> None:
    cluster = cluster_of(node("a"))
    cluster.apply(daemon_set())
    bind(cluster)
    cluster.patch("Node", "a", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    assert len(cluster.pods) == 1
    assert cluster.status("DaemonSet", "agent")["numberMisscheduled"] == 1
    cluster.patch("Node", "a", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})
    assert cluster.pods == []


def test_an_update_replaces_one_node_at_a_time() -> None:
    cluster = cluster_of(node("a"), node("b"), node("c"))
    cluster.apply(daemon_set())
    bind(cluster)
    cluster.apply(daemon_set("v2"))
    assert len(cluster.pods) == 2
    cluster.confirm_deletions()
    assert len(cluster.pods) == 3
    assert sorted(images(cluster).values()) == ["v1", "v1"]
    for _ in range(4):
        bind(cluster)
        cluster.confirm_deletions()
    assert images(cluster) == {"a": "v2", "b": "v2", "c": "v2"}
    assert len(cluster.every("ControllerRevision")) == 2


def test_with_surge_the_new_pod_starts_before_the_old_one_ends() -> None:
    limits = {"maxSurge": 1, "maxUnavailable": 0}
    strategy = {"type": "RollingUpdate", "rollingUpdate": limits}
    cluster = cluster_of(node("a"), node("b"))
    cluster.apply(daemon_set(updateStrategy=strategy))
    bind(cluster)
    cluster.apply(daemon_set("v2", updateStrategy=strategy))
    assert len(cluster.pods) == 3
    for _ in range(5):
        bind(cluster)
        cluster.confirm_deletions()
        assert set(images(cluster)) == {"a", "b"}, "each node keeps a pod"
    assert images(cluster) == {"a": "v2", "b": "v2"}


def test_on_delete_waits_for_the_user() -> None:
    cluster = cluster_of(node("a"))
    cluster.apply(daemon_set(updateStrategy={"type": "OnDelete"}))
    bind(cluster)
    cluster.apply(daemon_set("v2", updateStrategy={"type": "OnDelete"}))
    assert images(cluster) == {"a": "v1"}
    cluster.delete("Pod", cluster.pod_names[0])
    cluster.confirm_deletions()
    bind(cluster)
    assert images(cluster) == {"a": "v2"}


def test_failed_pods_are_replaced_with_growing_delays() -> None:
    cluster = cluster_of(node("a"))
    cluster.apply(daemon_set())
    replaced_at = []
    for _ in range(4):
        bind(cluster)
        name = cluster.pod_names[0]
        start = cluster.store.now
        cluster.fail(name)
        while name in cluster.pod_names:
            cluster.wait(1)
        replaced_at.append(round((cluster.store.now - start).total_seconds()))
    assert replaced_at == [0, 1, 2, 4]


def test_a_waiting_pod_of_a_removed_node_is_deleted() -> None:
    cluster = cluster_of(node("a"), node("b"))
    cluster.apply(daemon_set())
    cluster.delete("Node", "b")
    assert targets(cluster) == ["a"]


def test_a_second_pod_on_a_node_is_deleted() -> None:
    cluster = cluster_of(node("a"))
    cluster.apply(daemon_set())
    bind(cluster)
    first = cluster.pod_names
    cluster.wait(10)
    metadata = {"name": "stray", "labels": {"app": "agent"}}
    spec = {"nodeName": "a", "containers": []}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    assert cluster.pod_names == first


def test_a_heartbeat_of_a_node_causes_no_work() -> None:
    cluster = cluster_of(node("a"))
    cluster.apply(daemon_set())
    heartbeat = cluster.find("Node", "a") | {"status": {"conditions": [{"type": "Ready"}]}}
    cluster.controllers.observe(heartbeat)
    assert cluster.controllers.settle(cluster.store.now) == 0


@given(
    steps=st.lists(
        st.sampled_from(["add", "remove", "taint", "clear", "kill", "fail", "update", "bind"]),
        max_size=25,
    ),
    data=st.data(),
)
def test_whatever_happens_every_fitting_node_ends_with_one_pod(
    steps: list[str], data: st.DataObject
) -> None:
    cluster = cluster_of(node("n0"), node("n1"))
    cluster.apply(daemon_set())
    fitting = {"n0", "n1"}
    tainted: set[str] = set()
    version = 1
    for number, step in enumerate(steps, start=2):
        nodes = sorted(fitting | tainted)
        pods = cluster.pod_names
        match step:
            case "add":
                cluster.apply(node(f"n{number}"))
                fitting.add(f"n{number}")
            case "remove" if nodes:
                name = data.draw(st.sampled_from(nodes))
                cluster.delete("Node", name)
                lost = [pod for pod in cluster.pods if pod["spec"].get("nodeName") == name]
                for pod in lost:  # as the collector of orphaned pods does
                    cluster.delete("Pod", pod["metadata"]["name"])
                fitting.discard(name)
                tainted.discard(name)
            case "taint" if fitting:
                name = data.draw(st.sampled_from(sorted(fitting)))
                taint = {"key": "broken", "effect": "NoExecute"}
                cluster.patch("Node", name, {"spec": {"taints": [taint]}})
                fitting.discard(name)
                tainted.add(name)
            case "clear" if tainted:
                name = data.draw(st.sampled_from(sorted(tainted)))
                cluster.patch("Node", name, {"spec": {"taints": []}})
                tainted.discard(name)
                fitting.add(name)
            case "kill" if pods:
                cluster.delete("Pod", data.draw(st.sampled_from(pods)))
            case "fail" if pods:
                cluster.fail(data.draw(st.sampled_from(pods)))
            case "update":
                version += 1
                cluster.apply(daemon_set(f"v{version}"))
            case "bind":
                bind(cluster)
        cluster.wait(1)

    for _ in range(3 * len(fitting) + 3):
        bind(cluster)
        cluster.confirm_deletions()
        cluster.wait(1000)
    assert images(cluster) == dict.fromkeys(fitting, f"v{version}")
    assert len(cluster.pods) == len(fitting)
