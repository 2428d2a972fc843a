"""Devices for `dovetail cel eval`: those of the cluster, or those of the ResourceSlices in a file."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from dovetail import errors
from dovetail.cel import device_views
from dovetail.cel.evaluate.frame import DeviceView
from dovetail.files import bounded_files
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.resource import slices
from dovetail.manifest import manifests


class NamedDevice(msgspec.Struct, frozen=True):
    """A device as expressions see it, with its pool/name."""

    name: str
    view: DeviceView


def from_cluster(objects: object_set.ObjectSet) -> list[NamedDevice]:
    """Every device that the slices of a cluster publish."""
    return _named(stored.struct for stored in objects.listed("ResourceSlice"))


def from_sample() -> list[NamedDevice]:
    """Every device of the sample fleet, for expressions that are tried without any cluster."""
    from dovetail.sim.fleet import fleet_objects, fleet_spec

    trees = fleet_objects.objects_of(fleet_spec.sample())
    published = [codec.decode(tree).struct for tree in trees if tree["kind"] == "ResourceSlice"]
    return _named(published)


def from_file(file: Path) -> list[NamedDevice]:
    """Every device of a manifest's ResourceSlices."""
    loaded = manifests.load(bounded_files.content(file), file=str(file))
    if loaded.problems:
        raise errors.InputError("\n".join(map(str, loaded.problems)))
    return _named(item.stored.struct for item in loaded.objects)


def _named(structs: Iterable[object]) -> list[NamedDevice]:
    return [
        NamedDevice(
            f"{slice_.spec.pool.name}/{device.name}", device_views.view(slice_.spec.driver, device)
        )
        for slice_ in structs
        if isinstance(slice_, slices.ResourceSlice)
        for device in slice_.spec.devices
    ]
