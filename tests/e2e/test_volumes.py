"""Volumes on a real API server: provisioned where the pod goes, one user at a time, no more than a node can attach.

The volume controllers are kube-controller-manager's own; only the provisioner is played here. What is provisioned
statically has its story among the examples.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.namespace_scene import Scene, node_of, scene
from tests.support.live import Live

pytestmark = pytest.mark.slow

SELECTED = "volume.kubernetes.io/selected-node"
Tree = dict[str, Any]


def test_a_volume_is_provisioned_for_the_node_of_the_pod_and_elsewhere_if_that_fails(
    cluster: Live,
) -> None:
    with scene(cluster) as story:
        story.node("n0")
        story.node("n1")
        put_class(story, "example.com/nobody")
        put_claim(story, "data")
        put_pod(story, "a", "data")
        first = story.wait("a node for the claim", lambda: selected(story, "data"))
        assert node_of(story.pods()["a"]) == "", "nothing is bound before the volume is"
        story.rest.patch("nodes", first, {"spec": {"unschedulable": True}})
        gone = {"metadata": {"annotations": {SELECTED: None}}}
        story.rest.patch("persistentvolumeclaims", "data", gone, story.namespace)
        second = story.wait(
            "another node", lambda: (node := selected(story, "data")) != first and node
        )
        put_volume(story, "made", node=second, claim="data", hostPath={"path": "/made"})
        pods = story.wait_running("a")
        assert node_of(pods["a"]) == second
        (claim,) = story.rest.list("persistentvolumeclaims", story.namespace)
        assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == (
            "Bound",
            f"{story.namespace}-made",
        )


def test_one_pod_at_a_time_and_no_more_volumes_than_a_node_attaches(cluster: Live) -> None:
    with scene(cluster) as story:
        node = story.node("n0")
        put_class(story, "kubernetes.io/no-provisioner", mode="Immediate")
        driver = f"{story.namespace}.csi.example.com"
        limits = [{"name": driver, "nodeID": node, "topologyKeys": [], "allocatable": {"count": 1}}]
        # No driver attaches anything here: a volume never attached would count as attached until a controller gives up.
        head = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": driver},
        }
        story.put("csidrivers", head | {"spec": {"attachRequired": False}})
        head = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}}
        story.put("csinodes", head | {"spec": {"drivers": limits}})
        for name in ("x", "y"):
            modes = ["ReadWriteOncePod"] if name == "x" else ["ReadWriteOnce"]
            csi = {"driver": driver, "volumeHandle": f"{story.namespace}-{name}"}
            put_claim(story, name, accessModes=modes, volumeName=f"{story.namespace}-{name}")
            put_volume(story, name, claim=name, accessModes=modes, csi=csi)
        put_pod(story, "a", "x")
        story.wait_running("a")
        put_pod(story, "b", "x")
        story.wait_refused("b", "volume claim x: may be used by one pod at a time")
        put_pod(story, "c", "y")
        story.wait_refused(
            "c", f"can attach too few volumes of CSI driver {driver} (needs 1, at most 0 more)"
        )
        story.rest.delete(
            "pods", "c", story.namespace
        )  # one of the two could start, and it does not matter which
        story.rest.delete("pods", "a", story.namespace)
        story.wait_running("b")


def selected(story: Scene, claim: str) -> str:
    """The node a claim is to be provisioned at."""
    result = {
        item["metadata"]["name"]: item
        for item in story.rest.list("persistentvolumeclaims", story.namespace)
    }
    return str(result[claim]["metadata"].get("annotations", {}).get(SELECTED, ""))


def put_class(story: Scene, provisioner: str, *, mode: str = "WaitForFirstConsumer") -> None:
    head = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": story.namespace},
    }
    story.put("storageclasses", head | {"provisioner": provisioner, "volumeBindingMode": mode})


def put_claim(story: Scene, name: str, **more: Any) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": story.namespace}
    spec |= {"resources": {"requests": {"storage": "1Gi"}}} | more
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
    story.rest.create("persistentvolumeclaims", head | {"spec": spec}, story.namespace)


def put_volume(story: Scene, name: str, *, claim: str, node: str = "", **more: Any) -> None:
    """A volume for a claim, on a node or anywhere."""
    spec: Tree = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": story.namespace,
    }
    spec |= {"claimRef": {"namespace": story.namespace, "name": claim}} | more
    if node:
        test = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [test]}]}}
    head = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{story.namespace}-{name}"},
    }
    story.put("persistentvolumes", head | {"spec": spec})


def put_pod(story: Scene, name: str, claim: str) -> None:
    story.pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])
