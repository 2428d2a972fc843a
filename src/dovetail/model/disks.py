"""Decides which disks a pod names itself, without a claim, and which of them two pods on a node cannot both have.

Judges as kube-scheduler's VolumeRestrictions does: a disk of Google Cloud, an iSCSI disk or a Ceph image may be shared
on a node only by readers, a disk of Amazon not at all; others are not its business. Given pods. Never reads a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.model import migration, pods

EXCLUSIVE: Final = frozenset({"aws", "gce", "iscsi", "rbd"})


class Disk(NamedTuple):
    """A disk as others see it. Two are the same if they are of one sort and share an identity."""

    sort: str
    identities: frozenset[tuple[str, ...]]
    is_read_only: bool = False  # of the sorts that readers may share
    driver: str = ""  # the CSI driver that serves it where there is CSI
    handle: str = ""

    def excludes(self, other: Disk) -> bool:
        """Whether two pods on a node cannot have both."""
        if self.sort != other.sort or self.sort not in EXCLUSIVE or self.identities.isdisjoint(other.identities):
            return False
        return not (self.is_read_only and other.is_read_only)


def of(pod: pods.Pod) -> tuple[Disk, ...]:
    """The disks a pod names itself."""
    return tuple(disk for volume in pod.spec.volumes for disk in _disks(volume)) if pod.spec.volumes else ()


def _disks(volume: pods.Volume) -> Iterator[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        handle = migration.gce_handle(gce.pd_name)
        yield Disk("gce", frozenset({(gce.pd_name,)}), gce.read_only, migration.GCE.driver, handle)
    if (aws := volume.aws_elastic_block_store) is not None:
        handle = migration.aws_handle(aws.volume_id) or ""
        yield Disk("aws", frozenset({(aws.volume_id,)}), driver=migration.AWS.driver, handle=handle)
    if (iscsi := volume.iscsi) is not None:
        yield Disk("iscsi", frozenset({(iscsi.iqn,)}), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        yield Disk("rbd", frozenset((monitor, rbd.pool, rbd.image) for monitor in rbd.monitors), rbd.read_only)
    if (azure := volume.azure_disk) is not None:
        handle = migration.azure_handle(azure) or ""
        yield Disk("azure", frozenset({(azure.disk_uri,)}), driver=migration.AZURE.driver, handle=handle)
    if (cinder := volume.cinder) is not None:
        yield Disk("cinder", frozenset({(cinder.volume_id,)}), False, migration.CINDER.driver, cinder.volume_id)
    if (portworx := volume.portworx_volume) is not None:
        identity, driver = portworx.volume_id, migration.PORTWORX.driver
        yield Disk("portworx", frozenset({(identity,)}), driver=driver, handle=identity)
