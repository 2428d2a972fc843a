"""Decides which disks a pod names itself, without a claim, and which of them two pods on a node cannot both have.

Follows kube-scheduler's VolumeRestrictions: a disk of Google Cloud, an iSCSI disk or a Ceph image may be shared on a
node only by readers, a disk of Amazon not at all; it ignores all others. Given pods. Never reads a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.storage import csi_translation

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
        if self.sort != other.sort or self.sort not in EXCLUSIVE:
            return False
        if self.identities.isdisjoint(other.identities):
            return False
        return not (self.is_read_only and other.is_read_only)


def disks_of(pod: pods.Pod) -> tuple[Disk, ...]:
    """The disks a pod names itself."""
    if not pod.spec.volumes:
        return ()
    return tuple(disk for volume in pod.spec.volumes for disk in _disks(volume))


def _disks(volume: pods.Volume) -> Iterator[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        handle = csi_translation.gce_handle(gce.pd_name)
        yield Disk(
            "gce", frozenset({(gce.pd_name,)}), gce.read_only, csi_translation.GCE.driver, handle
        )
    if (aws := volume.aws_elastic_block_store) is not None:
        handle = csi_translation.aws_handle(aws.volume_id) or ""
        yield Disk(
            "aws", frozenset({(aws.volume_id,)}), driver=csi_translation.AWS.driver, handle=handle
        )
    if (iscsi := volume.iscsi) is not None:
        yield Disk("iscsi", frozenset({(iscsi.iqn,)}), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        yield Disk(
            "rbd",
            frozenset((monitor, rbd.pool, rbd.image) for monitor in rbd.monitors),
            rbd.read_only,
        )
    if (azure := volume.azure_disk) is not None:
        handle = csi_translation.azure_handle(azure) or ""
        yield Disk(
            "azure",
            frozenset({(azure.disk_uri,)}),
            driver=csi_translation.AZURE.driver,
            handle=handle,
        )
    if (cinder := volume.cinder) is not None:
        yield Disk(
            "cinder",
            frozenset({(cinder.volume_id,)}),
            False,
            csi_translation.CINDER.driver,
            cinder.volume_id,
        )
    if (portworx := volume.portworx_volume) is not None:
        identity, driver = portworx.volume_id, csi_translation.PORTWORX.driver
        yield Disk("portworx", frozenset({(identity,)}), driver=driver, handle=identity)
