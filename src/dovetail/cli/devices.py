"""Devices for `dovetail cel eval`: those of the cluster, or those of the ResourceSlices in a file."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from dovetail import errors
from dovetail.boot import files, local
from dovetail.cel import devices as views
from dovetail.cel.frame import DeviceView
from dovetail.model import manifests, slices
from dovetail.sim import cluster as clusters


class NamedDevice(msgspec.Struct, frozen=True):
    """A device as expressions see it, under the name people know it by."""

    name: str
    view: DeviceView


def from_cluster(place: local.Local) -> list[NamedDevice]:
    """Every device of the cluster; the sample fleet where none was started."""
    cluster = place.cluster() or place.up(None, fresh=False).cluster
    return _named(stored.struct for stored in clusters.listed(cluster, "ResourceSlice"))


def from_file(file: Path) -> list[NamedDevice]:
    """Every device of a manifest's ResourceSlices."""
    loaded = manifests.load(files.content(file), file=str(file))
    if loaded.problems:
        raise errors.InputError("\n".join(map(str, loaded.problems)))
    return _named(one.stored.struct for one in loaded.objects)


def _named(found: Iterable[object]) -> list[NamedDevice]:
    return [
        NamedDevice(f"{one.spec.pool.name}/{device.name}", views.view(one.spec.driver, device))
        for one in found
        if isinstance(one, slices.ResourceSlice)
        for device in one.spec.devices
    ]
