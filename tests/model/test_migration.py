"""Volumes of in-tree plugins as CSI sees them: the handles and affinities csi-translation-lib gives."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model import migration, objects, volumes

NOWHERE = "topology.kubernetes.io/nowhere"


def volume(affinity: list[dict[str, Any]] | None = None, labels: dict[str, str] | None = None, **source: Any) -> Any:
    spec: dict[str, Any] = dict(source)
    if affinity is not None:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": affinity}]}}
    tree = {"metadata": {"name": "v", "labels": labels or {}}, "spec": spec}
    return objects.decode({"apiVersion": "v1", "kind": "PersistentVolume", **tree}).struct


def asks(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def asked_by(found: volumes.PersistentVolume | None) -> list[tuple[str, tuple[str, ...]]]:
    assert found is not None
    affinity = found.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    return [(one.key, one.values) for term in affinity.required.node_selector_terms for one in term.match_expressions]


GCE = {"gcePersistentDisk": {"pdName": "disk"}}
AWS = {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-7"}}


@pytest.mark.parametrize(
    ("given", "handle"),
    [
        (volume(**AWS), "vol-7"),
        (volume(awsElasticBlockStore={"volumeID": "vol-8"}), "vol-8"),
        (volume(**GCE), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"),
        (volume(labels={migration.ZONE: "us-east1-b"}, **GCE), "projects/UNSPECIFIED/zones/us-east1-b/disks/disk"),
        (
            volume(labels={migration.BETA_ZONE: "us-east1-b__us-east1-c"}, **GCE),
            "projects/UNSPECIFIED/regions/us-east1/disks/disk",
        ),
        (volume(azureDisk={"diskName": "d", "diskURI": "/disks/d", "kind": "Managed"}), "/disks/d"),
        (volume(cinder={"volumeID": "c"}), "c"),
        (volume(portworxVolume={"volumeID": "p"}), "p"),
    ],
)
def test_a_disk_has_a_handle(given: volumes.PersistentVolume, handle: str) -> None:
    found = migration.translated(given)
    plugin = migration.plugin_of(given)
    assert found is not None
    assert found.spec.csi is not None
    assert plugin is not None
    assert (found.spec.csi.driver, found.spec.csi.volume_handle) == (plugin.driver, handle)


@pytest.mark.parametrize(
    "given",
    [
        volume(awsElasticBlockStore={"volumeID": "aws://us-east-1a/disk-7"}),
        volume(azureDisk={"diskName": "d", "diskURI": "/disks/d", "kind": "Dedicated"}),
        volume(labels={migration.ZONE: "us-east1-b__eu-west1-c"}, **GCE),
        volume(labels={migration.ZONE: "b__c"}, **GCE),
        volume(nfs={"server": "s", "path": "/"}),
        volume(csi={"driver": "d", "volumeHandle": "h"}),
    ],
)
def test_what_cannot_be_translated_is_not(given: volumes.PersistentVolume) -> None:
    assert migration.translated(given) is None


def test_zones_move_to_the_label_of_the_driver() -> None:
    label = migration.GCE.zone_label
    new = volume([asks(migration.ZONE, "a"), asks(NOWHERE, "x")], **GCE)
    assert asked_by(migration.translated(new)) == [(label, ("a",)), (NOWHERE, ("x",))]
    old = volume([asks(migration.BETA_ZONE, "a"), asks(migration.BETA_REGION, "r")], **GCE)
    assert asked_by(migration.translated(old)) == [(label, ("a",)), (migration.REGION, ("r",))]
    told = volume(labels={migration.BETA_ZONE: "b__a"}, **AWS)
    assert asked_by(migration.translated(told)) == [(migration.AWS.zone_label, ("a", "b"))]
    both = volume([asks(NOWHERE, "x")], labels={migration.ZONE: "a"}, **AWS)
    assert asked_by(migration.translated(both)) == [(NOWHERE, ("x",)), (migration.AWS.zone_label, ("a",))]
    assert asked_by(migration.translated(volume(**GCE))) == []


def test_the_affinity_of_azure_stays_as_it_is() -> None:
    given = volume([asks(migration.ZONE, "a")], azureDisk={"diskName": "d", "diskURI": "u"})
    assert asked_by(migration.translated(given)) == [(migration.ZONE, ("a",))]


def test_a_node_says_which_plugins_csi_serves_there() -> None:
    metadata = {"name": "n", "annotations": {migration.MIGRATED_PLUGINS: "kubernetes.io/gce-pd,kubernetes.io/cinder"}}
    tree = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": []}}
    node = objects.decode(tree).struct
    assert isinstance(node, volumes.CSINode)
    assert migration.is_migrated(migration.GCE, node)
    assert not migration.is_migrated(migration.AWS, node)
    assert not migration.is_migrated(migration.GCE, None)
