"""The objects of a snapshot as one read-only set.

Statuses, uids and versions are as they were saved. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.kubetypes import codec, object_set
from dovetail.snapshot import snapshot_files, snapshot_format

MAX_VERSION_DIGITS: Final = 20  # API servers count versions in 64 bits


class Snapshot(NamedTuple):
    """A complete snapshot."""

    manifest: snapshot_format.Manifest
    objects: object_set.ObjectSet


def read(directory: Path, *, kinds: Collection[str] | None = None) -> Snapshot:
    """Reads the snapshot: these kinds of it, or all. Raises StateError with the object or file at fault."""
    manifest = snapshot_files.manifest_of(directory)
    saved: dict[object_set.Key, codec.Stored] = {}
    newest = 0
    for item in snapshot_files.items(directory, manifest, kinds=kinds):
        stored = _stored(item)
        key = object_set.key_of(stored.struct)
        if key in saved:
            raise errors.StateError(f"{item.place}: {key} is there twice")
        saved[key] = stored
        newest = max(newest, _version(stored))
    name = manifest.cluster or directory.resolve().name
    return Snapshot(manifest, object_set.of_keyed(name, saved, revision=newest))


def _stored(item: snapshot_files.Item) -> codec.Stored:
    """The object, if it is what the file says it holds."""
    document, kind = bytes(item.document), item.kind
    try:
        struct = codec.decode_struct(kind.struct, document)
        if not struct.api_version or not struct.kind:
            codec.kind_of(document)  # names what its type lacks
    except errors.InputError as error:
        raise errors.StateError(f"{item.place}: {error}") from None

    # Owners are kept in the version their cluster served; everything else in the version that is decided with.
    is_of_version = struct.api_version == kind.api_version
    is_readable = is_of_version or (
        not kind.is_in_world and struct.api_version.rpartition("/")[0] == kind.group
    )
    if not is_readable or struct.kind != kind.name or not struct.metadata.name:
        raise errors.StateError(
            f"{item.place}: expected a {kind.name} with a name, got {codec.subject_of(struct)}"
        )
    return codec.Stored(struct, document)


def _version(stored: codec.Stored) -> int:
    """The version of an object; 0 for one that no API server writes."""
    version = stored.struct.metadata.resource_version
    is_counted = version.isdecimal() and len(version) <= MAX_VERSION_DIGITS
    return int(version) if is_counted else 0
