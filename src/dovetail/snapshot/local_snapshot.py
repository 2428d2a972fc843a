"""Snapshots of the local cluster: which objects are saved, and loading them back unchanged.

Statuses, uids and versions stay as they were saved. Decides nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.kubetypes import codec, registry
from dovetail.sim.local import local_cluster, state_dir
from dovetail.snapshot import snapshot_files, snapshot_format

MAX_VERSION_DIGITS: Final = 20  # API servers count versions in 64 bits


class Snapshot(NamedTuple):
    """A complete snapshot."""

    manifest: snapshot_format.Manifest
    cluster: local_cluster.Cluster


def documents_of(cluster: local_cluster.Cluster) -> dict[registry.Kind, list[bytes]]:
    """The documents of the local cluster that a snapshot has, by namespace and name."""
    documents: dict[registry.Kind, list[bytes]] = {kind: [] for kind in snapshot_format.KINDS}
    for key in sorted(cluster.records):
        if kind := snapshot_files.KIND_NAMED.get(key.kind):
            documents[kind].append(bytes(cluster.records[key].document))
    return documents


def read(directory: Path) -> Snapshot:
    """Reads the whole snapshot. Raises StateError with the object or file at fault."""
    manifest = snapshot_files.manifest_of(directory)
    records: dict[local_cluster.Key, local_cluster.Record] = {}
    newest = 0
    for item in snapshot_files.items(directory, manifest):
        key, version = _identity(item)
        if key in records:
            raise errors.StateError(f"{item.place}: {key} is there twice")
        records[key] = local_cluster.Record(item.document)
        newest = max(newest, version)
    name = manifest.cluster or directory.resolve().name
    return Snapshot(manifest, local_cluster.Cluster(name, newest, records))


def load(directory: Path, place: state_dir.Local, *, fresh: bool) -> Snapshot:
    """Loads a snapshot as the local cluster; with `fresh` it replaces an existing one."""
    snapshot = read(directory)

    def replace(
        old: local_cluster.Cluster | None,
    ) -> tuple[local_cluster.Cluster | None, Snapshot]:
        if old is not None and not fresh:
            raise errors.InputError(
                f'a cluster "{old.name}" is already in {place.store.directory}; '
                "add --fresh to replace it"
            )
        return snapshot.cluster, snapshot

    return place.store.change(replace)


def _identity(item: snapshot_files.Item) -> tuple[local_cluster.Key, int]:
    """The key of an object and its version; 0 for a version that no API server writes."""
    try:
        struct = codec.decode(bytes(item.document)).struct
    except errors.InputError as error:
        raise errors.StateError(f"{item.place}: {error}") from None
    kind = item.kind
    if not isinstance(struct, kind.struct) or struct.kind != kind.name or not struct.metadata.name:
        raise errors.StateError(
            f"{item.place}: expected a {kind.name} with a name, got {codec.subject_of(struct)}"
        )
    version = struct.metadata.resource_version
    is_counted = version.isdecimal() and len(version) <= MAX_VERSION_DIGITS
    return local_cluster.key_of(struct), int(version) if is_counted else 0
