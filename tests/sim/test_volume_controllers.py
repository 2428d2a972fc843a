"""The volume controllers of the server in memory: what they bind, provision and release."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.storage import volumes
from dovetail.sim.server.api_server import SimApi

Tree = dict[str, Any]
VOLUME, CLAIM = registry.VOLUME, registry.VOLUME_CLAIM


@pytest.fixture
def api() -> SimApi:
    return SimApi()


def storage_class(name: str, provisioner: str, *, waits: bool = True) -> Tree:
    mode = volumes.WAIT_FOR_FIRST_CONSUMER if waits else "Immediate"
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def volume(name: str, *, size: str = "10Gi", **spec: Any) -> Tree:
    whole = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": whole,
    }


def claim(name: str, **annotations: str) -> Tree:
    spec = {
        "resources": {"requests": {"storage": "5Gi"}},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }


def reference(uid: str) -> Tree:
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {"claimRef": kind | {"namespace": "default", "name": "data", "uid": uid}}


def put(api: SimApi, *trees: Tree) -> None:
    for tree in trees:
        api.put(tree)
    api.settle()


def phase(api: SimApi, kind: registry.Kind, name: str) -> str:
    namespace = "default" if kind.is_namespaced else ""
    return str(api.tree(kind, name, namespace=namespace).get("status", {}).get("phase", ""))


def volume_of(api: SimApi, name: str) -> str | None:
    spec = api.tree(CLAIM, name, namespace="default")["spec"]
    return spec.get("volumeName")


def test_a_class_that_waits_for_a_pod_binds_nothing_by_itself(api: SimApi) -> None:
    put(api, storage_class("c", volumes.NO_PROVISIONER), volume("v"), claim("data"))
    assert phase(api, VOLUME, "v") == "Available"
    assert phase(api, CLAIM, "data") == "Pending"


def test_a_class_that_does_not_wait_binds_the_smallest_volume_that_fits(api: SimApi) -> None:
    put(
        api,
        storage_class("c", volumes.NO_PROVISIONER, waits=False),
        volume("large", size="20Gi"),
        volume("small", size="6Gi"),
        volume("tiny", size="1Gi"),
    )
    for name in ("data", "more", "left"):
        put(api, claim(name))
    assert [volume_of(api, name) for name in ("data", "more", "left")] == ["small", "large", None]


def test_a_claim_gets_the_volume_that_names_it(api: SimApi) -> None:
    put(api, storage_class("c", volumes.NO_PROVISIONER), claim("data"))
    uid = api.tree(CLAIM, "data", namespace="default")["metadata"]["uid"]
    put(api, volume("v", **reference(uid)))
    assert (phase(api, CLAIM, "data"), volume_of(api, "data")) == ("Bound", "v")
    annotations = api.tree(CLAIM, "data", namespace="default")["metadata"]["annotations"]
    assert volumes.BIND_COMPLETED in annotations
    assert phase(api, VOLUME, "v") == "Bound"


def test_a_volume_is_provisioned_for_the_node_that_was_chosen(api: SimApi) -> None:
    put(api, storage_class("c", "disk.example.com"), claim("data"))
    assert api.all(VOLUME) == []
    put(api, claim("chosen", **{volumes.SELECTED_NODE: "n1"}))
    (provisioned,) = api.shelf.all(VOLUME)
    assert "n1" in str(provisioned.tree["spec"]["nodeAffinity"])
    assert phase(api, CLAIM, "chosen") == "Bound"


def test_a_volume_whose_claim_is_gone_is_not_given_to_the_next_of_that_name(api: SimApi) -> None:
    put(api, storage_class("c", volumes.NO_PROVISIONER, waits=False), claim("data"))
    put(api, volume("v", **reference("of-an-older-claim")))
    assert phase(api, VOLUME, "v") == "Released"
    assert volume_of(api, "data") is None
