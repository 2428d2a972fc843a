"""Keeps clusters as snapshots: a directory of ordinary Kubernetes lists with a manifest, written whole or not at all.

Given documents, of the local cluster or of whoever calls; `snapshot_live` brings those of a live one. A snapshot is
written beside its place and renamed; the manifest comes last. Reading checks format, version, sums and counts and names
the file that is wrong. Secrets are never read. Nothing is decided anew.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import shutil
import stat
import tempfile
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

import msgspec

import dovetail
from dovetail import errors
from dovetail.boot import files, local
from dovetail.cel import lexer, literals
from dovetail.cel.source import Issue
from dovetail.model import kinds, objects, snapshots
from dovetail.model.snapshots import Facts, File, Manifest
from dovetail.sim import cluster as clusters

Documents = Mapping[kinds.Kind, Iterable[bytes]]
Say = Callable[[str], None]

SAY_EVERY: Final = 5_000

_HEAD: Final = b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":['
_TAIL: Final = b"\n]}\n"
_MAX_DIGITS: Final = 20  # of a version: servers count them in 64 bits
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 2999  # whatever is added to such a moment is a time too
_SENSELESS: Final = "?"  # does not compile, like the expression it stands for
_KIND_NAMED: Final = {kind.name: kind for kind in snapshots.KINDS}


class Snapshot(NamedTuple):
    """A snapshot that was read and found whole."""

    manifest: Manifest
    cluster: clusters.Cluster


def write(
    directory: Path,
    documents: Documents,
    facts: Facts,
    *,
    is_forced: bool = False,
    redacts: bool = False,
    say: Say | None = None,
) -> Manifest:
    """A snapshot of the documents, in the order given. Blocks; to be called in a thread where others wait."""
    with Draft(directory, is_forced=is_forced, redacts=redacts, say=say) as draft:
        for kind, found in documents.items():
            for document in found:
                draft.put(kind, document)
        return draft.finish(facts)


def documents_of(cluster: clusters.Cluster) -> dict[kinds.Kind, list[bytes]]:
    """What a snapshot keeps of the local cluster, by namespace and name."""
    found: dict[kinds.Kind, list[bytes]] = {kind: [] for kind in snapshots.KINDS}
    for key in sorted(cluster.records):
        if kind := _KIND_NAMED.get(key.kind):
            found[kind].append(bytes(cluster.records[key].document))
    return found


def manifest_of(directory: Path) -> Manifest:
    """The manifest, of a format and version this program reads. Raises StateError."""
    path = directory / snapshots.MANIFEST
    text = _read(path, missing=f"{directory}: not a snapshot, there is no {snapshots.MANIFEST} in it")
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format == snapshots.FORMAT and head.version == snapshots.VERSION:
            manifest = msgspec.json.decode(text, type=Manifest)
            moment_of(manifest)
            return manifest
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.StateError(f"{path}: not a readable manifest: {error}") from None
    if head.format != snapshots.FORMAT:
        raise errors.StateError(f'{path}: format "{head.format}", expected "{snapshots.FORMAT}"')
    raise errors.StateError(f"{path}: version {head.version}, this program reads {snapshots.VERSION}")


def moment_of(manifest: Manifest) -> datetime.datetime:
    """When the snapshot was taken. Raises ValidationError where that is no moment clocks can count from."""
    try:
        moment = datetime.datetime.fromisoformat(manifest.taken_at)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        moment = moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise msgspec.ValidationError(f"takenAt: {manifest.taken_at[:40]!r} is not a time") from None
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise msgspec.ValidationError(f"takenAt: {manifest.taken_at[:40]!r} lies out of reach")
    return moment


def checked(directory: Path) -> Manifest:
    """The manifest of a snapshot whose files are as they were saved. Raises StateError naming the file that is not."""
    manifest = manifest_of(directory)
    for file in manifest.files:
        _kind_of(directory, file)
        _content(directory, file)
    return manifest


def read(directory: Path) -> Snapshot:
    """The whole snapshot: every sum and count agrees and every object can be read. Raises StateError."""
    manifest = manifest_of(directory)
    records: dict[clusters.Key, clusters.Record] = {}
    newest = 0
    for file in manifest.files:
        kind = _kind_of(directory, file)
        items = _items(directory / file.name, _content(directory, file))
        if len(items) != file.count:
            raise errors.StateError(f"{directory / file.name}: {len(items)} objects, the manifest says {file.count}")
        for number, raw in enumerate(items):
            key, version = _identity(raw, kind, place=f"{directory / file.name}: items[{number}]")
            if key in records:
                raise errors.StateError(f"{directory / file.name}: items[{number}]: {key} is there twice")
            records[key] = clusters.Record(raw)
            newest = max(newest, version)
    name = manifest.cluster or directory.resolve().name
    return Snapshot(manifest, clusters.Cluster(name, newest, records))


def load(directory: Path, place: local.Local, *, fresh: bool) -> Snapshot:
    """Puts a snapshot where the commands look: statuses, uids and versions as they were, nothing decided anew."""
    found = read(directory)

    def step(old: clusters.Cluster | None) -> tuple[clusters.Cluster | None, Snapshot]:
        if old is not None and not fresh:
            raise errors.InputError(
                f'a cluster "{old.name}" is already in {place.store.directory}; add --fresh to replace it'
            )
        return found.cluster, found

    return place.store.change(step)


class Draft:
    """A snapshot in the making, beside its place. Leaving without `finish` leaves nothing behind."""

    def __init__(
        self, directory: Path, *, is_forced: bool = False, redacts: bool = False, say: Say | None = None
    ) -> None:
        self._directory = directory
        self._is_forced = is_forced
        self._redaction = snapshots.Redaction(rewritten) if redacts else None
        self._seen: list[snapshots.Seen] = []
        self._say = say or _say_nothing
        self._files: dict[str, _ListFile] = {}
        self._put: dict[str, int] = {}  # objects so far, by kind
        self._left_out: dict[str, int] = {}
        _refuse_to_replace(directory, is_forced)
        try:
            directory.absolute().parent.mkdir(parents=True, exist_ok=True)
            self._beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.absolute().parent))
        except OSError as error:
            raise errors.StateError(f"{directory}: cannot be written: {error.strerror or error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._beside, ignore_errors=True)
        if isinstance(error, OSError):
            raise errors.StateError(f"{self._directory}: cannot be written: {error.strerror or error}") from None

    def put(self, kind: kinds.Kind, document: bytes) -> None:
        """One more object. One that nobody could read is told and left out, as the scheduler leaves it out."""
        try:
            if self._redaction is None:
                objects.decode_struct(kind.struct, document)
                self._file(kind).put(_of_one_line(kind, document))
            else:  # waits until all names are known
                self._seen.append(self._redaction.look(kind, document))
        except errors.InputError as error:
            self._left_out[kind.plural] = self._left_out.get(kind.plural, 0) + 1
            self._say(f"left out: {_subject(kind, document)}: {error}")
        self._put[kind.plural] = self._put.get(kind.plural, 0) + 1
        if self._put[kind.plural] % SAY_EVERY == 0:
            self._say(f"{kind.plural}: {self._put[kind.plural]} so far")

    def begin_again(self, kind: kinds.Kind) -> None:
        """Forgets the objects of a kind: they are going to be read anew."""
        if file := self._files.pop(kind.plural, None):
            file.close()
        self._seen = [seen for seen in self._seen if seen.kind.plural != kind.plural]
        self._left_out.pop(kind.plural, None)
        self._put.pop(kind.plural, None)

    def finish(self, facts: Facts) -> Manifest:
        """Everything on disk and in its place."""
        redaction = self._redaction
        if redaction is not None:
            for seen in self._seen:
                self._file(seen.kind).put(redaction.redacted(seen))
        files = tuple(self._closed(kind, facts.resource_versions.get(kind.name, "")) for kind in snapshots.KINDS)
        manifest = Manifest(
            taken_at=facts.taken_at,
            cluster="" if redaction is not None else facts.cluster,
            server_version=facts.server_version,
            redacted=redaction is not None,
            dovetail_version=dovetail.__version__,
            left_out=sum(self._left_out.values()),
            files=files,
        )
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        with (self._beside / snapshots.MANIFEST).open("wb") as file:
            _synced(file, text)
        _sync_directory(self._beside)
        _into_place(self._beside, self._directory, is_forced=self._is_forced)
        return manifest

    def _file(self, kind: kinds.Kind) -> _ListFile:
        if kind.plural not in self._files:
            self._files[kind.plural] = _ListFile(self._beside / snapshots.file_of(kind))
        return self._files[kind.plural]

    def _closed(self, kind: kinds.Kind, resource_version: str) -> File:
        file = self._file(kind)
        file.finish()
        return File(
            name=file.path.name,
            kind=kind.name,
            count=file.count,
            size_bytes=file.size_bytes,
            sha256=file.sum.hexdigest(),
            resource_version=resource_version,
        )


class _ListFile:
    """One list on its way to disk, an item a line, so that a difference of two is one of objects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.size_bytes = 0
        self.sum = hashlib.sha256()
        self._file = path.open("wb")
        self._add(_HEAD)

    def put(self, line: bytes) -> None:
        self._add((b",\n" if self.count else b"\n") + line)
        self.count += 1

    def finish(self) -> None:
        self._add(_TAIL)
        _synced(self._file, b"")
        self.close()

    def close(self) -> None:
        self._file.close()

    def _add(self, data: bytes) -> None:
        self._file.write(data)
        self.sum.update(data)
        self.size_bytes += len(data)


class _Head(msgspec.Struct, frozen=True):
    format: str = ""
    version: int = 0


class _List(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


def rewritten(expression: str, rename: snapshots.Rename) -> str:
    """A CEL expression with its text literals renamed and its comments left out."""
    found = lexer.tokens(expression)
    if isinstance(found, Issue):
        return _SENSELESS
    parts: list[str] = []
    end = 0
    for token in found:
        between = expression[end : token.offset]  # blanks and comments
        parts.append(" " if "//" in between else between)
        parts.append(_renamed_literal(token.text, rename) if token.kind == lexer.STRING else token.text)
        end = token.offset + len(token.text)
    return "".join(parts)


def _renamed_literal(written: str, rename: snapshots.Rename) -> str:
    value = literals.string(written)
    if value is None or (renamed := rename(value)) == value:
        return written
    return msgspec.json.encode(renamed).decode()  # the new names need no escapes that JSON and CEL write differently


def _of_one_line(kind: kinds.Kind, document: bytes) -> bytes:
    """The document as it is, but on one line and with the kind that items of a typed list leave out."""
    if b"\n" in document:
        document = msgspec.json.format(document, indent=-1)
    head = msgspec.json.decode(document, type=_TypeMeta)
    if head.api_version and head.kind:
        return document
    named = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name})
    rest = document.strip()[1:].lstrip()
    return named[:-1] + (b"" if rest == b"}" else b",") + rest


def _subject(kind: kinds.Kind, document: bytes) -> str:
    try:
        about = objects.decode_struct(objects.Generic, document).metadata
    except errors.InputError:
        return kind.name
    return objects.named(kind.name, about.namespace, about.name)


class _TypeMeta(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


def _kind_of(directory: Path, file: File) -> kinds.Kind:
    """The kind a file holds. One we do not know is refused: without its objects decisions would differ."""
    kind = _KIND_NAMED.get(file.kind)
    if kind is None or file.name != snapshots.file_of(kind):
        raise errors.StateError(f"{directory / file.name}: holds {file.kind}, which this program does not know")
    return kind


def _content(directory: Path, file: File) -> bytes:
    path = directory / file.name
    content = _read(path, missing=f"{path}: is missing, the manifest lists it", most_bytes=file.size_bytes)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        is_longer = len(content) > file.size_bytes
        size = f"more than {file.size_bytes} bytes" if is_longer else f"{len(content)} bytes"
        told = f"{size}, {file.size_bytes} were saved" if len(content) != file.size_bytes else "sums differ"
        raise errors.StateError(f"{path}: changed since it was saved ({told}); take the snapshot anew")
    return content


def _read(path: Path, *, missing: str, most_bytes: int = files.MAX_BYTES) -> bytes:
    """The file, or as much of it as tells that it is larger. A pipe or a device is no part of a snapshot."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise errors.StateError(f"{path}: is not a file")
        with path.open("rb") as file:
            return file.read(max(0, min(most_bytes, path.stat().st_size)) + 1)
    except FileNotFoundError:
        raise errors.StateError(missing) from None
    except (OSError, ValueError) as error:
        raise errors.StateError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _items(path: Path, content: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(content, type=_List).items
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.StateError(f"{path}: not a list of objects: {error}") from None


def _identity(raw: msgspec.Raw, kind: kinds.Kind, *, place: str) -> tuple[clusters.Key, int]:
    try:
        struct = objects.decode(bytes(raw)).struct
    except errors.InputError as error:
        raise errors.StateError(f"{place}: {error}") from None
    if not isinstance(struct, kind.struct) or struct.kind != kind.name or not struct.metadata.name:
        raise errors.StateError(f"{place}: expected a {kind.name} with a name, got {objects.subject_of(struct)}")
    version = struct.metadata.resource_version
    return clusters.key_of(struct), int(version) if version.isdecimal() and len(version) <= _MAX_DIGITS else 0


def _refuse_to_replace(directory: Path, is_forced: bool) -> None:
    """Raises unless nothing would be lost, or a snapshot and the caller wants that."""
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir() or directory.is_symlink():
        raise errors.InputError(f"{directory}: is not a directory; name another place")
    if not any(directory.iterdir()):
        return
    if not _is_snapshot(directory):
        raise errors.InputError(f"{directory}: holds something that is no snapshot; name another place")
    if not is_forced:
        raise errors.InputError(f"{directory}: holds a snapshot already; name another place or add --force")


def _is_snapshot(directory: Path) -> bool:
    """Whether it is one of ours, of whatever version."""
    try:
        text = _read(directory / snapshots.MANIFEST, missing="none")
        return msgspec.json.decode(text, type=_Head).format == snapshots.FORMAT
    except (errors.StateError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _into_place(beside: Path, directory: Path, *, is_forced: bool) -> None:
    _refuse_to_replace(directory, is_forced)  # again: somebody may have been quicker
    with contextlib.ExitStack() as after:
        if directory.exists() and any(directory.iterdir()):
            old = tempfile.mkdtemp(prefix=f".{directory.name}.old.", dir=directory.absolute().parent)
            after.callback(shutil.rmtree, old, ignore_errors=True)
            directory.rename(Path(old) / directory.name)
        beside.rename(directory)
        _sync_directory(directory.absolute().parent)


def _synced(file: IO[bytes], text: bytes) -> None:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _say_nothing(message: str) -> None:
    """For callers nobody watches."""
