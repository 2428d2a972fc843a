"""Stories about garbage: children follow their owners in the background or first, or stay as orphans."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kubetypes import registry
from dovetail.sim.server import garbage_collector
from tests.sim.controllers.tiny_store import Cluster, node, workload

Tree = dict[str, Any]


def config_map(name: str, *owners: Tree, **reference: Any) -> Tree:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        | reference
        for owner in owners
    ]
    metadata: Tree = {"name": name}
    if references:
        metadata["ownerReferences"] = references
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def names(cluster: Cluster, kind: str) -> list[str]:
    return [tree["metadata"]["name"] for tree in cluster.every(kind)]


def shelf_kind(cluster: Cluster) -> registry.Kind:
    ((_, table),) = cluster.store.shelf.tables()
    return table.kind


def test_background_deletion_reaches_grandchildren() -> None:
    cluster = Cluster()
    cluster.apply(workload("Deployment", replicas=2))
    cluster.start()
    cluster.delete("Deployment", "web")
    cluster.confirm_deletions()
    assert cluster.store.trees == {}


def test_foreground_deletion_keeps_the_owner_until_its_children_are_gone() -> None:
    cluster = Cluster()
    cluster.apply(workload("Deployment", replicas=2))
    cluster.start()
    cluster.delete("Deployment", "web", propagation="Foreground")
    assert names(cluster, "Deployment") == ["web"]
    assert len(cluster.every("ReplicaSet")) == 1
    assert cluster.pods == [], "the pods are ending"
    assert len(cluster.every("Pod")) == 2
    cluster.confirm_deletions()
    assert cluster.store.trees == {}


def test_orphans_stay_and_can_be_adopted_again() -> None:
    cluster = Cluster()
    cluster.apply(workload("Deployment", replicas=2))
    cluster.start()
    pods = cluster.pod_names
    cluster.delete("Deployment", "web", propagation="Orphan")
    assert names(cluster, "Deployment") == []
    (replica_set,) = cluster.every("ReplicaSet")
    assert "ownerReferences" not in replica_set["metadata"]
    cluster.apply(workload("Deployment", replicas=2))
    assert len(cluster.every("ReplicaSet")) == 1
    assert cluster.pod_names == pods


def test_an_object_stays_while_one_owner_stays() -> None:
    cluster = Cluster()
    first = cluster.apply(config_map("first"))
    second = cluster.apply(config_map("second"))
    cluster.apply(config_map("child", first, second))
    cluster.delete("ConfigMap", "first")
    (reference,) = cluster.find("ConfigMap", "child")["metadata"]["ownerReferences"]
    assert reference["name"] == "second"
    cluster.delete("ConfigMap", "second")
    assert names(cluster, "ConfigMap") == []


def test_owners_of_kinds_that_are_not_served_count_as_present() -> None:
    cluster = Cluster()
    stranger = {
        "apiVersion": "example.com/v1",
        "kind": "Robot",
        "metadata": {"name": "r", "uid": "1"},
    }
    cluster.apply(config_map("child", stranger))
    assert names(cluster, "ConfigMap") == ["child"]


def test_a_child_of_an_owner_that_never_was_is_collected() -> None:
    cluster = Cluster()
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no"}}
    cluster.apply(config_map("child", ghost))
    assert names(cluster, "ConfigMap") == []


def test_an_owner_of_the_same_name_but_another_uid_does_not_count() -> None:
    cluster = Cluster()
    owner = cluster.apply(config_map("owner"))
    impostor = owner | {"metadata": owner["metadata"] | {"uid": "other"}}
    cluster.apply(config_map("child", impostor))
    assert names(cluster, "ConfigMap") == ["owner"]


def test_children_seen_before_their_owner_are_not_garbage() -> None:
    cluster = Cluster()
    owner = cluster.apply(config_map("owner"))
    child = cluster.apply(config_map("child", owner))
    restarted = Cluster()
    shelf = restarted.store.shelf
    kind = shelf_kind(cluster)
    for tree in (child, owner):
        shelf.restore(kind, msgspec.json.encode(tree))
    collector = garbage_collector.GarbageCollector(shelf, lambda version, name: kind)
    collector.collect()
    assert names(restarted, "ConfigMap") == ["child", "owner"]
    shelf.delete(kind, ("default", "owner"))
    collector.collect()
    assert names(restarted, "ConfigMap") == []


def test_a_dependent_that_does_not_block_does_not_hold_up_its_owner() -> None:
    cluster = Cluster()
    owner = cluster.apply(config_map("owner"))
    child = config_map("child", owner, blockOwnerDeletion=False)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.apply(child)
    cluster.delete("ConfigMap", "owner", propagation="Foreground")
    assert names(cluster, "ConfigMap") == ["child"]
    assert cluster.find("ConfigMap", "child")["metadata"]["deletionTimestamp"]


def test_a_blocking_dependent_with_a_finalizer_holds_up_its_owner() -> None:
    cluster = Cluster()
    owner = cluster.apply(config_map("owner"))
    child = config_map("child", owner, blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.apply(child)
    cluster.delete("ConfigMap", "owner", propagation="Foreground")
    assert names(cluster, "ConfigMap") == ["child", "owner"]
    cluster.patch("ConfigMap", "child", {"metadata": {"finalizers": None}})
    assert names(cluster, "ConfigMap") == []


def test_owners_in_a_circle_go_in_the_foreground() -> None:
    cluster = Cluster()
    first = cluster.apply(config_map("first"))
    second = cluster.apply(config_map("second", first, blockOwnerDeletion=True))
    reference = config_map("first", second, blockOwnerDeletion=True)["metadata"]
    cluster.patch("ConfigMap", "first", {"metadata": reference})
    cluster.delete("ConfigMap", "first", propagation="Foreground")
    assert names(cluster, "ConfigMap") == []


def test_a_second_deletion_in_the_background_ends_the_wait_for_dependents() -> None:
    cluster = Cluster()
    owner = cluster.apply(config_map("owner"))
    child = config_map("child", owner, blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.apply(child)
    cluster.delete("ConfigMap", "owner", propagation="Foreground")
    assert names(cluster, "ConfigMap") == ["child", "owner"]
    cluster.delete("ConfigMap", "owner", propagation="Background")
    assert names(cluster, "ConfigMap") == ["child"]


def test_a_node_cannot_be_owned_from_within_a_namespace() -> None:
    cluster = Cluster()
    owner = cluster.apply(config_map("owner"))
    cluster.apply(node("n") | {"metadata": config_map("n", owner)["metadata"]})
    cluster.delete("ConfigMap", "owner")
    assert names(cluster, "Node") == ["n"], "upstream reports such a reference and keeps the object"
