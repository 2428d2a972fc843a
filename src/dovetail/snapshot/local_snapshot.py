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


_KINDS_CALLED: Final = {
    name: tuple(kind for kind in snapshot_format.KINDS if kind.name == name)
    for name in {kind.name for kind in snapshot_format.KINDS}
}


class Snapshot(NamedTuple):
    """A complete snapshot."""

    manifest: snapshot_format.Manifest
    cluster: local_cluster.Cluster


def documents_of(cluster: local_cluster.Cluster) -> dict[registry.Kind, list[bytes]]:
    """The documents of the local cluster that a snapshot has, by namespace and name."""
    documents: dict[registry.Kind, list[bytes]] = {kind: [] for kind in snapshot_format.KINDS}
    for key in sorted(cluster.records):
        document = bytes(cluster.records[key].document)
        kind = _kept_kind(key.kind, document)
        if kind is not None:
            documents[kind].append(document)
    return documents


def _kept_kind(name: str, document: bytes) -> registry.Kind | None:
    """The kind under which a snapshot keeps an object; None where it does not."""
    kinds = _KINDS_CALLED.get(name.partition(".")[0], ())
    if not kinds:
        return None
    group = _group(codec.decode_struct(codec.Generic, document).api_version)
    return next((kind for kind in kinds if _group(kind.api_version) == group), None)


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


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
        codec.kind_of(bytes(item.document))  # names what its type lacks
        struct = codec.decode_struct(item.kind.struct, bytes(item.document))
    except errors.InputError as error:
        raise errors.StateError(f"{item.place}: {error}") from None
    kind = item.kind
    is_of_version = struct.api_version == kind.api_version
    is_of_group = _group(struct.api_version) == _group(kind.api_version)
    is_readable = is_of_version if kind.is_in_world else is_of_group
    if not is_readable or struct.kind != kind.name or not struct.metadata.name:
        raise errors.StateError(
            f"{item.place}: expected a {kind.name} with a name, got {codec.subject_of(struct)}"
        )
    version = struct.metadata.resource_version
    is_counted = version.isdecimal() and len(version) <= MAX_VERSION_DIGITS
    return local_cluster.key_of(struct), int(version) if is_counted else 0
