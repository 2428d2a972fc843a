"""Volumes of in-tree plugins as CSI sees them: the handles and affinities csi-translation-lib gives."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import codec
from dovetail.kubetypes.storage import csi_translation, volumes

NOWHERE = "topology.kubernetes.io/nowhere"


def volume(
    affinity: list[dict[str, Any]] | None = None,
    labels: dict[str, str] | None = None,
    **source: Any,
) -> Any:
    spec: dict[str, Any] = dict(source)
    if affinity is not None:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": affinity}]}}
    tree = {"metadata": {"name": "v", "labels": labels or {}}, "spec": spec}
    return codec.decode({"apiVersion": "v1", "kind": "PersistentVolume", **tree}).struct


def asks(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def asked_by(result: volumes.PersistentVolume | None) -> list[tuple[str, tuple[str, ...]]]:
    assert result is not None
    affinity = result.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    return [
        (expression.key, expression.values)
        for term in affinity.required.node_selector_terms
        for expression in term.match_expressions
    ]


GCE = {"gcePersistentDisk": {"pdName": "disk"}}
AWS = {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-7"}}


@pytest.mark.parametrize(
    ("given", "handle"),
    [
        (volume(**AWS), "vol-7"),
        (volume(awsElasticBlockStore={"volumeID": "vol-8"}), "vol-8"),
        (volume(**GCE), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"),
        (
            volume(labels={csi_translation.ZONE: "us-east1-b"}, **GCE),
            "projects/UNSPECIFIED/zones/us-east1-b/disks/disk",
        ),
        (
            volume(labels={csi_translation.BETA_ZONE: "us-east1-b__us-east1-c"}, **GCE),
            "projects/UNSPECIFIED/regions/us-east1/disks/disk",
        ),
        (volume(azureDisk={"diskName": "d", "diskURI": "/disks/d", "kind": "Managed"}), "/disks/d"),
        (volume(cinder={"volumeID": "c"}), "c"),
        (volume(portworxVolume={"volumeID": "p"}), "p"),
    ],
)
def test_a_disk_has_a_handle(given: volumes.PersistentVolume, handle: str) -> None:
    result = csi_translation.translated(given)
    plugin = csi_translation.plugin_of(given)
    assert result is not None
    assert result.spec.csi is not None
    assert plugin is not None
    assert (result.spec.csi.driver, result.spec.csi.volume_handle) == (plugin.driver, handle)


@pytest.mark.parametrize(
    "given",
    [
        volume(awsElasticBlockStore={"volumeID": "aws://us-east-1a/disk-7"}),
        volume(azureDisk={"diskName": "d", "diskURI": "/disks/d", "kind": "Dedicated"}),
        volume(labels={csi_translation.ZONE: "us-east1-b__eu-west1-c"}, **GCE),
        volume(labels={csi_translation.ZONE: "b__c"}, **GCE),
        volume(nfs={"server": "s", "path": "/"}),
        volume(csi={"driver": "d", "volumeHandle": "h"}),
    ],
)
def test_what_cannot_be_translated_is_not(given: volumes.PersistentVolume) -> None:
    assert csi_translation.translated(given) is None


def test_zones_move_to_the_label_of_the_driver() -> None:
    label = csi_translation.GCE.zone_label
    new = volume([asks(csi_translation.ZONE, "a"), asks(NOWHERE, "x")], **GCE)
    assert asked_by(csi_translation.translated(new)) == [(label, ("a",)), (NOWHERE, ("x",))]
    old = volume(
        [asks(csi_translation.BETA_ZONE, "a"), asks(csi_translation.BETA_REGION, "r")], **GCE
    )
    assert asked_by(csi_translation.translated(old)) == [
        (label, ("a",)),
        (csi_translation.REGION, ("r",)),
    ]
    messages = volume(labels={csi_translation.BETA_ZONE: "b__a"}, **AWS)
    assert asked_by(csi_translation.translated(messages)) == [
        (csi_translation.AWS.zone_label, ("a", "b"))
    ]
    both = volume([asks(NOWHERE, "x")], labels={csi_translation.ZONE: "a"}, **AWS)
    assert asked_by(csi_translation.translated(both)) == [
        (NOWHERE, ("x",)),
        (csi_translation.AWS.zone_label, ("a",)),
    ]
    assert asked_by(csi_translation.translated(volume(**GCE))) == []


def test_the_affinity_of_azure_stays_as_it_is() -> None:
    given = volume([asks(csi_translation.ZONE, "a")], azureDisk={"diskName": "d", "diskURI": "u"})
    assert asked_by(csi_translation.translated(given)) == [(csi_translation.ZONE, ("a",))]


def test_a_node_says_which_plugins_csi_serves_there() -> None:
    metadata = {
        "name": "n",
        "annotations": {
            csi_translation.MIGRATED_PLUGINS: "kubernetes.io/gce-pd,kubernetes.io/cinder"
        },
    }
    tree = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": metadata,
        "spec": {"drivers": []},
    }
    node = codec.decode(tree).struct
    assert isinstance(node, volumes.CSINode)
    assert csi_translation.is_migrated(csi_translation.GCE, node)
    assert not csi_translation.is_migrated(csi_translation.AWS, node)
    assert not csi_translation.is_migrated(csi_translation.GCE, None)
