"""Reads a cluster from files, whatever they are: a snapshot of ours, or objects as kubectl prints them.

Given a path, or `-` for standard input. A directory with the manifest of a snapshot is read as one, and must be as it
was saved; anything else is searched for objects. Never writes.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from dovetail.kubetypes import object_set
from dovetail.snapshot import saved_objects, snapshot_files, snapshot_format


class Snapshot(NamedTuple):
    """A cluster as it was at one time."""

    objects: object_set.ObjectSet
    taken_at: datetime.datetime
    name: str  # how messages name it
    kinds: frozenset[str]  # that were looked for when it was taken
    is_whole: bool = True  # whether all its kinds were read now
    server_version: str = ""
    problems: tuple[str, ...] = ()  # what was left out
    duplicates: tuple[str, ...] = ()


class _Head(msgspec.Struct, frozen=True):
    format: str = ""


def read(path: str, *, kinds: Collection[str] | None = None) -> Snapshot:
    """The cluster; of a snapshot of ours only these kinds, if some are named, because it keeps them apart.

    Raises StateError for a snapshot that was changed, InputError where nothing can be read.
    """
    if is_saved(path):
        saved = saved_objects.read(Path(path), kinds=kinds)
        return Snapshot(
            saved.objects,
            snapshot_files.taken_at(saved.manifest),
            f"snapshot {saved.objects.cluster} in {path}",
            frozenset(file.kind for file in saved.manifest.files),
            kinds is None,
            saved.manifest.server_version,
        )
    from dovetail.snapshot import object_dump  # a snapshot of ours needs none of it

    dump = object_dump.read(path)
    return Snapshot(
        dump.objects,
        dump.taken_at,
        dump.name,
        frozenset(dump.versions),
        problems=dump.problems,
        duplicates=dump.duplicates,
    )


def is_saved(path: str) -> bool:
    """Whether `dovetail snapshot save` wrote the directory. A manifest that cannot be read may be such a one."""
    manifest = Path(path) / snapshot_format.MANIFEST
    try:
        if not manifest.is_file():
            return False
        text = manifest.read_bytes()[: snapshot_files.MAX_MANIFEST_BYTES]
        return bool(msgspec.json.decode(text, type=_Head).format)
    except msgspec.ValidationError:
        return False  # JSON of another sort
    except (OSError, ValueError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
