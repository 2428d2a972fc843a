"""The controllers of volumes in memory: what they bind, make, free, and what a local cluster does with them."""

from __future__ import annotations

import datetime
from typing import Any

from dovetail.kubetypes import codec
from dovetail.kubetypes.storage import volumes
from dovetail.sim.local import control, local_cluster
from dovetail.sim.server import volume_controllers

NOW = datetime.datetime(2026, 11, 2, 8, tzinfo=datetime.UTC)
STAMP = "2026-11-02T08:00:00Z"
Tree = dict[str, Any]


def settled(*given: Tree) -> dict[tuple[str, str], Tree]:
    """Everything after the controllers did all they can, by kind and name."""
    known = {(one["kind"], one["metadata"]["name"]): one for one in given}
    while True:
        listed = {
            kind: [one for (k, _), one in known.items() if k == kind]
            for kind in volume_controllers.KINDS
        }
        after = known | {
            (one["kind"], one["metadata"]["name"]): one
            for one in volume_controllers.changes(listed)
        }
        if after == known:
            return known
        known = after


def storage_class(name: str, provisioner: str, *, waits: bool = True) -> Tree:
    mode = volumes.WAIT_FOR_FIRST_CONSUMER if waits else "Immediate"
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **body}


def volume(
    name: str, class_: str = "c", *, node: str = "", size: str = "10Gi", **spec: Any
) -> Tree:
    whole: Tree = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_,
        **spec,
    }
    if node:
        test = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        whole["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [test]}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": whole,
    }


def claim(name: str, class_: str = "c", **annotations: str) -> Tree:
    spec = {
        "resources": {"requests": {"storage": "5Gi"}},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_,
    }
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "annotations": annotations,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def phase(found: Tree) -> str:
    return str(found.get("status", {}).get("phase", ""))


def test_a_class_that_waits_binds_nothing_by_itself() -> None:
    after = settled(storage_class("c", volumes.NO_PROVISIONER), volume("v"), claim("data"))
    assert phase(after["PersistentVolume", "v"]) == "Available"
    assert phase(after["PersistentVolumeClaim", "data"]) == "Pending"


def test_a_class_that_does_not_wait_binds_the_smallest() -> None:
    immediate = storage_class("c", volumes.NO_PROVISIONER, waits=False)
    after = settled(
        immediate,
        volume("large", size="20Gi"),
        volume("small", size="6Gi"),
        volume("tiny", size="1Gi"),
    )
    after = settled(*after.values(), claim("data"), claim("more"), claim("left"))
    have = {
        name: after["PersistentVolumeClaim", name]["spec"].get("volumeName")
        for name in ("data", "more", "left")
    }
    assert have == {"data": "small", "more": "large", "left": None}


def test_a_claim_whose_time_stands_still_is_left_alone() -> None:
    immediate, data = storage_class("c", "disk.example.com", waits=False), claim("data")
    listed = {
        "StorageClass": [immediate],
        "PersistentVolumeClaim": [data],
        "PersistentVolume": [],
        "Pod": [],
    }
    assert list(volume_controllers.changes(listed, still={("default", "data")})) == []
    assert list(volume_controllers.changes(listed)) != []


def test_a_claim_gets_the_volume_that_names_it() -> None:
    given = volume_controllers.with_claim_ref(volume("v"), claim("data"))
    after = settled(storage_class("c", volumes.NO_PROVISIONER), given, claim("data"))
    bound = after["PersistentVolumeClaim", "data"]
    assert (phase(bound), bound["spec"]["volumeName"]) == ("Bound", "v")
    assert volumes.BIND_COMPLETED in bound["metadata"]["annotations"]
    assert phase(after["PersistentVolume", "v"]) == "Bound"


def test_a_volume_is_made_for_the_node_that_was_chosen() -> None:
    dynamic = storage_class("c", "disk.example.com")
    assert not [key for key in settled(dynamic, claim("data")) if key[0] == "PersistentVolume"]
    after = settled(dynamic, volume_controllers.with_selected_node(claim("data"), "n1"))
    made = after["PersistentVolume", "pvc-uid-data"]
    assert "n1" in str(made["spec"]["nodeAffinity"])
    assert phase(after["PersistentVolumeClaim", "data"]) == "Bound"


def test_a_volume_whose_claim_is_gone_is_not_given_to_the_next_of_that_name() -> None:
    given = volume_controllers.with_claim_ref(volume("v"), claim("data"))
    again = claim("data")
    again["metadata"]["uid"] = "another"
    after = settled(storage_class("c", volumes.NO_PROVISIONER), given, again)
    assert phase(after["PersistentVolume", "v"]) == "Released"
    assert "volumeName" not in after["PersistentVolumeClaim", "data"]["spec"]


def test_a_local_cluster_places_pods_where_their_volumes_are() -> None:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "10"}
    named = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
        for name in ("n0", "n1")
    ]
    wanted = {"spec": claim("x", "dynamic")["spec"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {
            "containers": [{"name": "main", "image": "x"}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": wanted}},
            ],
        },
    }
    given = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
        *named,
        storage_class("c", volumes.NO_PROVISIONER),
        storage_class("dynamic", "disk.example.com"),
        volume("v", node="n1"),
        claim("data"),
        pod,
    ]
    applied = local_cluster.apply(
        local_cluster.Cluster(name="test"),
        [local_cluster.Given(one) for one in given],
        now=STAMP,
        check_selector=lambda _: None,
    )
    assert isinstance(applied, local_cluster.Applied), applied
    after = control.turn(applied.cluster, now=NOW)
    found = local_cluster.get(after, local_cluster.Key("Pod", "default", "a"))
    assert found is not None
    assert found.tree["spec"]["nodeName"] == "n1"
    for name in ("data", "a-scratch"):
        held = local_cluster.get(after, local_cluster.Key("PersistentVolumeClaim", "default", name))
        assert held is not None
        assert isinstance(held.struct, volumes.PersistentVolumeClaim)
        assert held.struct.is_bound, codec.tree_of(held.struct)
