"""Keeps a cluster in a directory, so that separate commands see one cluster.

One JSON file, replaced whole: written beside, synced, renamed; nobody but its owner may read or write it. Killed at
any moment it leaves the old state or the new one. A change holds a lock from reading to writing; readers need none. A
file that is broken or not ours raises StateError and is left alone.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from dovetail import errors
from dovetail.files import private_files
from dovetail.kubetypes import codec, meta
from dovetail.sim.local import local_cluster

FORMAT: Final = "dovetail.dev/cluster"
VERSION: Final = 1

_STATE: Final = "cluster.json"
_LOCK: Final = "lock"

R = TypeVar("R")


class _Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    namespace: str
    name: str
    document: msgspec.Raw
    applied: msgspec.Raw = meta.NO_RAW


class _Names(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Identity(msgspec.Struct, frozen=True, rename="camel"):
    """Whom a document is about."""

    api_version: str = ""
    kind: str = ""
    metadata: _Names = _Names()


class _Head(msgspec.Struct, frozen=True):
    format: str = ""
    version: int = 0


class _State(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    version: int = VERSION
    name: str
    revision: int
    objects: list[_Entry]


class Store:
    """A state directory. Nothing is created before the first write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def path(self) -> Path:
        """The state file."""
        return self.directory / _STATE

    def load(self) -> local_cluster.Cluster | None:
        """The stored cluster, or None where there is none yet."""
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):  # a pipe would have to be waited for
                raise errors.StateError(
                    f"{self.path}: not a file; move it away or name another directory with --state"
                )
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise errors.StateError(
                f"{self.path}: cannot be read: {error.strerror or error}"
            ) from None
        return self._decoded(text)

    def stamp(self) -> tuple[int, int, int] | None:
        """Something that differs after every change; cheap enough to ask several times a second."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def change(
        self, step: Callable[[local_cluster.Cluster | None], tuple[local_cluster.Cluster | None, R]]
    ) -> R:
        """Reads, asks `step` for the cluster to keep (None keeps the file) and its answer, writes; alone."""
        with self._locked():
            after, answer = step(self.load())
            if after is not None:
                self._write(after)
        return answer

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        private_files.make_directory(self.directory)
        try:
            lock = private_files.open_lock(self.directory / _LOCK)
        except OSError as error:
            raise errors.StateError(
                f"{self.directory}: cannot be used: {error.strerror or error}"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, cluster: local_cluster.Cluster) -> None:
        try:
            private_files.replace(self.path, _encoded(cluster), is_synced=True)
            self._sync_directory()
        except OSError as error:
            raise errors.StateError(
                f"{self.path}: cannot be written: {error.strerror or error}"
            ) from None

    def _sync_directory(self) -> None:
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _decoded(self, text: bytes) -> local_cluster.Cluster:
        way_out = "move it away or name another directory with --state"
        try:
            head = msgspec.json.decode(text, type=_Head)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise errors.StateError(f"{self.path}: not a readable state file; {way_out}") from None
        if head.format != FORMAT:
            raise errors.StateError(f"{self.path}: not a Dovetail state file; {way_out}")
        if head.version != VERSION:
            raise errors.StateError(
                f"{self.path}: state version {head.version}, this program reads {VERSION}; {way_out}"
            )
        try:
            return _cluster(msgspec.json.decode(text, type=_State))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise errors.StateError(f"{self.path}: damaged: {error}; {way_out}") from None


def _encoded(cluster: local_cluster.Cluster) -> bytes:
    entries = [
        _Entry(key.kind, key.namespace, key.name, record.document, record.applied)
        for key, record in sorted(cluster.records.items())
    ]
    return (
        msgspec.json.encode(_State(name=cluster.name, revision=cluster.revision, objects=entries))
        + b"\n"
    )


def _cluster(state: _State) -> local_cluster.Cluster:
    """What was written, object by object. Raises ValidationError where a document is not what it is filed as."""
    records: dict[local_cluster.Key, local_cluster.Record] = {}
    for number, entry in enumerate(state.objects):
        key = local_cluster.Key(entry.kind, entry.namespace, entry.name)
        identity = _IDENTITIES.decode(entry.document)
        kind = local_cluster.filed_kind(identity.api_version, identity.kind)
        if key != local_cluster.Key(kind, identity.metadata.namespace, identity.metadata.name):
            raise msgspec.ValidationError(
                f"objects[{number}] is filed under another name than its own"
            )
        if kind in _KINDS and (identity.api_version, kind) not in codec.KINDS:
            raise msgspec.ValidationError(
                f"objects[{number}] is a {identity.kind} of another version"
            )
        records[key] = local_cluster.Record(entry.document, entry.applied)
    return local_cluster.Cluster(state.name, state.revision, records)


_IDENTITIES: Final = msgspec.json.Decoder(_Identity)
_KINDS: Final = frozenset(kind for _, kind in codec.KINDS)
