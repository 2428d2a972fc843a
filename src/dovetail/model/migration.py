"""Decides what volumes of the old in-tree plugins are where a node has CSI serve them: driver, handle, affinity.

Translates as csi-translation-lib does for the plugins whose migration kube-scheduler counts on. Given a volume; answers
with the volume as CSI sees it, or None where that cannot be said. Never reads a cluster.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from dovetail.model import pods, selectors, volumes

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"  # on a CSINode: names joined by commas
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONE_DELIMITER: Final = "__"  # between several zones in one label: cloud-provider volume/constants
UNSPECIFIED: Final = "UNSPECIFIED"
_AWS_VOLUME: Final = re.compile(r"vol-[^/]*")


class Plugin(NamedTuple):
    """An in-tree plugin, the driver that serves it, and the label its nodes carry the zone in."""

    name: str
    driver: str
    zone_label: str = ""  # empty: the affinity stays as it is


AWS: Final = Plugin("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone")
AZURE: Final = Plugin("kubernetes.io/azure-disk", "disk.csi.azure.com")
CINDER: Final = Plugin("kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone")
GCE: Final = Plugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone")
PORTWORX: Final = Plugin("kubernetes.io/portworx-volume", "pxd.portworx.com")
PLUGINS: Final = {one.name: one for one in (AWS, AZURE, CINDER, GCE, PORTWORX)}


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
    csi = volumes.CSIPersistentVolumeSource(driver=plugin.driver, volume_handle=handle)
    affinity = _affinity(volume, plugin.zone_label) if plugin.zone_label else volume.spec.node_affinity
    return msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, csi=csi, node_affinity=affinity))


def aws_handle(id_: str) -> str | None:
    """A volume's id, bare or with the zone in front: aws://zone/vol-1; None if nobody can read it."""
    if not id_.startswith("aws://"):
        return id_
    bare = id_.removeprefix("aws://").partition("/")[2].strip("/")
    return bare if _AWS_VOLUME.fullmatch(bare) else None


def azure_handle(source: pods.AzureDiskVolumeSource) -> str | None:
    """Where a managed disk is; None for the other kinds."""
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
    """The driver's own label instead of the zone's; without any, the zones its labels tell are added."""
    affinity = volume.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()
    keys = {one.key for term in terms for one in term.match_expressions}
    labels = volume.metadata.labels
    is_beta = ZONE not in keys and (BETA_ZONE in keys or (ZONE not in labels and BETA_ZONE in labels))
    zone, region = (BETA_ZONE, BETA_REGION) if is_beta else (ZONE, REGION)
    named = {value for term in terms for one in term.match_expressions if one.key == zone for value in one.values}
    if named:
        terms = tuple(_renamed(term, zone, label) for term in terms)
    elif zones := sorted({one.strip() for one in labels.get(zone, "").split(ZONE_DELIMITER)} - {""}):
        more = selectors.NodeSelectorRequirement(key=label, operator="In", values=tuple(zones))
        terms = tuple(_with(term, more) for term in terms or (selectors.NodeSelectorTerm(),))
    if any(one.values for term in terms for one in term.match_expressions if one.key == region != REGION):
        terms = tuple(_renamed(term, region, REGION) for term in terms)
    if not terms:
        return affinity
    return volumes.VolumeNodeAffinity(required=selectors.NodeSelector(node_selector_terms=terms))


def _renamed(term: selectors.NodeSelectorTerm, old: str, new: str) -> selectors.NodeSelectorTerm:
    tests = tuple(msgspec.structs.replace(one, key=new) if one.key == old else one for one in term.match_expressions)
    return msgspec.structs.replace(term, match_expressions=tests)


def _with(term: selectors.NodeSelectorTerm, more: selectors.NodeSelectorRequirement) -> selectors.NodeSelectorTerm:
    return msgspec.structs.replace(term, match_expressions=(*term.match_expressions, more))
