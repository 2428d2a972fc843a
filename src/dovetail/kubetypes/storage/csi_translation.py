"""Decides how CSI sees volumes of the old in-tree plugins on nodes where CSI serves them: driver, handle, affinity.

Translates as csi-translation-lib does for the plugins whose migration kube-scheduler takes into account. Given a
volume; returns the volume as CSI sees it, or None where it has no such view. Never reads a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.storage import volumes

# On a CSINode: names joined by commas.
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONE_DELIMITER: Final = "__"  # between several zones in one label: cloud-provider volume/constants
UNSPECIFIED: Final = "UNSPECIFIED"
_AWS_VOLUME: Final = re.compile(r"vol-[^/]*")

Terms = tuple[node_selectors.NodeSelectorTerm, ...]


class Plugin(NamedTuple):
    """An in-tree plugin, the driver that serves it, and the label its nodes carry the zone in."""

    name: str
    driver: str
    zone_label: str = ""  # empty: the affinity stays as it is


AWS: Final = Plugin("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone")
AZURE: Final = Plugin("kubernetes.io/azure-disk", "disk.csi.azure.com")
CINDER: Final = Plugin(
    "kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"
)
GCE: Final = Plugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone")
PORTWORX: Final = Plugin("kubernetes.io/portworx-volume", "pxd.portworx.com")
PLUGINS: Final = {plugin.name: plugin for plugin in (AWS, AZURE, CINDER, GCE, PORTWORX)}


def plugin_of(volume: volumes.PersistentVolume) -> Plugin | None:
    """The in-tree plugin of a volume, if it is one that moved to CSI."""
    spec = volume.spec
    if spec.csi is not None:
        return None
    if spec.aws_elastic_block_store is not None:
        return AWS
    if spec.azure_disk is not None:
        return AZURE
    if spec.cinder is not None:
        return CINDER
    if spec.gce_persistent_disk is not None:
        return GCE
    return PORTWORX if spec.portworx_volume is not None else None


def is_migrated(plugin: Plugin, csi_node: volumes.CSINode | None) -> bool:
    """Whether CSI serves the plugin's volumes on a node."""
    listed = "" if csi_node is None else csi_node.metadata.annotations.get(MIGRATED_PLUGINS, "")
    return plugin.name in listed.split(",")


def translated(volume: volumes.PersistentVolume) -> volumes.PersistentVolume | None:
    """The volume as CSI sees it; None if there is no such view of it."""
    plugin = plugin_of(volume)
    handle = None if plugin is None else _handle(volume)
    if plugin is None or handle is None:
        return None
    affinity = volume.spec.node_affinity
    if plugin.zone_label:
        affinity = _affinity(volume, plugin.zone_label)
    csi = volumes.CSIPersistentVolumeSource(driver=plugin.driver, volume_handle=handle)
    spec = msgspec.structs.replace(volume.spec, csi=csi, node_affinity=affinity)
    return msgspec.structs.replace(volume, spec=spec)


def aws_handle(volume_id: str) -> str | None:
    """A volume's id, bare or with the zone in front: aws://zone/vol-1; None if it is neither."""
    if not volume_id.startswith("aws://"):
        return volume_id
    bare = volume_id.removeprefix("aws://").partition("/")[2].strip("/")
    return bare if _AWS_VOLUME.fullmatch(bare) else None


def azure_handle(source: pods.AzureDiskVolumeSource) -> str | None:
    """The URI of a managed disk; None for the other kinds."""
    return source.disk_uri if source.kind is None or source.kind.lower() == "managed" else None


def gce_handle(disk: str, zone: str = "") -> str:
    """A disk of one zone, known or not."""
    return f"projects/{UNSPECIFIED}/zones/{zone or UNSPECIFIED}/disks/{disk}"


def _handle(volume: volumes.PersistentVolume) -> str | None:
    spec = volume.spec
    if spec.aws_elastic_block_store is not None:
        return aws_handle(spec.aws_elastic_block_store.volume_id)
    if spec.azure_disk is not None:
        return azure_handle(spec.azure_disk)
    if spec.cinder is not None:
        return spec.cinder.volume_id
    if spec.gce_persistent_disk is not None:
        return _gce_handle(volume, spec.gce_persistent_disk.pd_name)
    return spec.portworx_volume.volume_id if spec.portworx_volume is not None else None


def _gce_handle(volume: volumes.PersistentVolume, disk: str) -> str | None:
    labels = volume.metadata.labels
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE, "")).split(ZONE_DELIMITER)
    if len(zones) == 1:
        return gce_handle(disk, zones[0])
    regions = {zone.rpartition("-")[0] for zone in zones}
    if len(regions) != 1 or any(zone.count("-") != 2 for zone in zones):
        return None
    return f"projects/{UNSPECIFIED}/regions/{regions.pop()}/disks/{disk}"


def _affinity(volume: volumes.PersistentVolume, label: str) -> volumes.VolumeNodeAffinity | None:
    """The affinity by the driver's own zone label.

    Tests of the general zone label are renamed; without any, the zones of the volume's labels are added.
    """
    affinity = volume.spec.node_affinity
    terms: Terms = ()
    if affinity is not None and affinity.required is not None:
        terms = affinity.required.node_selector_terms

    labels = volume.metadata.labels
    zone, region = (BETA_ZONE, BETA_REGION) if _uses_beta(terms, labels) else (ZONE, REGION)
    if _has_values(terms, zone):
        terms = _renamed(terms, zone, label)
    else:
        terms = _with_zones(terms, label, labels.get(zone, ""))
    if region != REGION and _has_values(terms, region):
        terms = _renamed(terms, region, REGION)
    if not terms:
        return affinity
    return volumes.VolumeNodeAffinity(
        required=node_selectors.NodeSelector(node_selector_terms=terms)
    )


def _uses_beta(terms: Terms, labels: Mapping[str, str]) -> bool:
    """Whether the volume is placed by the beta labels: in its affinity, else in its own labels."""
    keys = {test.key for term in terms for test in term.match_expressions}
    if ZONE in keys:
        return False
    return BETA_ZONE in keys or (ZONE not in labels and BETA_ZONE in labels)


def _has_values(terms: Terms, key: str) -> bool:
    tests = [test for term in terms for test in term.match_expressions]
    return any(test.values for test in tests if test.key == key)


def _with_zones(terms: Terms, label: str, zone_text: str) -> Terms:
    """The terms with a test for these zones added to each; unchanged without zones."""
    zones = {zone.strip() for zone in zone_text.split(ZONE_DELIMITER)} - {""}
    if not zones:
        return terms
    in_zones = node_selectors.NodeSelectorRequirement(
        key=label, operator="In", values=tuple(sorted(zones))
    )
    return tuple(
        msgspec.structs.replace(term, match_expressions=(*term.match_expressions, in_zones))
        for term in terms or (node_selectors.NodeSelectorTerm(),)
    )


def _renamed(terms: Terms, old: str, new: str) -> Terms:
    """The terms with one label key replaced by another."""
    result = []
    for term in terms:
        tests = tuple(
            msgspec.structs.replace(test, key=new) if test.key == old else test
            for test in term.match_expressions
        )
        result.append(msgspec.structs.replace(term, match_expressions=tests))
    return tuple(result)
