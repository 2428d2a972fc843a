"""Writes and reads snapshots: a directory of ordinary Kubernetes lists with a manifest.

Given documents. A snapshot is written under a temporary name and renamed, the manifest last, so
that it exists whole or not at all. Reading checks format, version, checksums and counts and names
the file at fault. Never reads Secrets.
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

import msgspec

import dovetail
from dovetail import errors, timestamps
from dovetail.files import bounded_files
from dovetail.kubetypes import codec, registry, untyped
from dovetail.snapshot import redaction, snapshot_format
from dovetail.snapshot.snapshot_format import Facts, File, Manifest

Documents = Mapping[registry.Kind, Iterable[bytes]]
Say = Callable[[str], None]

SAY_EVERY: Final = 5_000
MAX_MANIFEST_BYTES: Final = 1 << 20  # ours; that of a cluster with every kind has some kilobytes

_HEAD: Final = b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":['
_TAIL: Final = b"\n]}\n"
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 2999  # leaves room to add durations
_SENSELESS: Final = "?"  # does not compile, like the expression it stands for
KIND_NAMED: Final = {kind.unique_name: kind for kind in snapshot_format.KINDS}


class Item(NamedTuple):
    """One object of a snapshot and its file and line."""

    kind: registry.Kind
    place: str
    document: msgspec.Raw


def write(
    directory: Path,
    documents: Documents,
    facts: Facts,
    *,
    is_forced: bool = False,
    redacts: bool = False,
    say: Say | None = None,
) -> Manifest:
    """Writes a snapshot of the documents, in the order given. Blocks; call it in a thread from an event loop."""
    with Draft(directory, is_forced=is_forced, redacts=redacts, say=say) as draft:
        for kind, items in documents.items():
            for document in items:
                draft.put(kind, document)
        return draft.finish(facts)


def manifest_of(directory: Path) -> Manifest:
    """The manifest. Raises StateError if this program does not read its format and version."""
    path = directory / snapshot_format.MANIFEST
    text = _read(
        path, missing=f"{directory}: not a snapshot, there is no {snapshot_format.MANIFEST} in it"
    )
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format == snapshot_format.FORMAT and head.version in snapshot_format.READ_VERSIONS:
            manifest = msgspec.json.decode(text, type=Manifest)
            taken_at(manifest)
            return manifest
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.StateError(f"{path}: not a readable manifest: {error}") from None
    if head.format != snapshot_format.FORMAT:
        raise errors.StateError(
            f'{path}: format "{head.format}", expected "{snapshot_format.FORMAT}"'
        )
    readable = ", ".join(map(str, snapshot_format.READ_VERSIONS))
    raise errors.StateError(f"{path}: version {head.version}, this program reads {readable}")


def taken_at(manifest: Manifest) -> datetime.datetime:
    """When the snapshot was taken. Raises ValidationError if it is not a usable time."""
    try:
        taken_at = timestamps.parse_as_utc(manifest.taken_at).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise msgspec.ValidationError(
            f"takenAt: {manifest.taken_at[:40]!r} is not a time"
        ) from None
    if not _FIRST_YEAR <= taken_at.year <= _LAST_YEAR:
        raise msgspec.ValidationError(f"takenAt: {manifest.taken_at[:40]!r} is out of range")
    return taken_at


def checked(directory: Path) -> Manifest:
    """The manifest of a snapshot with intact files. Raises StateError with the file that was changed."""
    manifest = manifest_of(directory)
    for file in manifest.files:
        _kind_of(directory, file)
        _content(directory, file)
    return manifest


def items(
    directory: Path, manifest: Manifest, *, kinds: Collection[str] | None = None
) -> Iterator[Item]:
    """Every object of a snapshot, or those of some kinds. Raises StateError if a sum, a count or a list is wrong."""
    for file in manifest.files:
        kind = _kind_of(directory, file)
        if kinds is not None and file.kind not in kinds:
            continue
        path = directory / file.name
        documents = _items(path, _content(directory, file))
        if len(documents) != file.count:
            raise errors.StateError(
                f"{path}: {len(documents)} objects, the manifest says {file.count}"
            )
        for number, document in enumerate(documents):
            yield Item(kind, f"{path}: items[{number}]", document)


class Draft:
    """A snapshot being written next to its final path. Leaving without `finish` removes it."""

    def __init__(
        self,
        directory: Path,
        *,
        is_forced: bool = False,
        redacts: bool = False,
        say: Say | None = None,
    ) -> None:
        self._directory = directory
        self._is_forced = is_forced
        self._redaction = redaction.Redaction(rewritten) if redacts else None
        self._seen: list[redaction.Seen] = []
        self._say = say or _say_nothing
        self._files: dict[str, _ListFile] = {}
        self._put: dict[str, int] = {}  # objects so far, by kind
        self._left_out: dict[str, int] = {}
        _refuse_to_replace(directory, is_forced)
        try:
            directory.absolute().parent.mkdir(parents=True, exist_ok=True)
            self._temporary = Path(
                tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.absolute().parent)
            )
        except OSError as error:
            raise errors.StateError(
                f"{directory}: cannot be written: {error.strerror or error}"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise errors.StateError(
                f"{self._directory}: cannot be written: {error.strerror or error}"
            ) from None

    def put(self, kind: registry.Kind, document: bytes) -> None:
        """Adds an object. An unreadable one is reported and left out, as the scheduler leaves it out."""
        name = kind.unique_name
        try:
            if self._redaction is None:
                codec.decode_struct(kind.struct, document)
                self._file(kind).put(_of_one_line(kind, document))
            else:  # waits until all names are known
                self._seen.append(self._redaction.look(kind, document))
        except errors.InputError as error:
            self._left_out[name] = self._left_out.get(name, 0) + 1
            self._say(f"left out: {_subject(kind, document)}: {error}")
        self._put[name] = self._put.get(name, 0) + 1
        if self._put[name] % SAY_EVERY == 0:
            self._say(f"{kind.plural}: {self._put[name]} so far")

    def restart_kind(self, kind: registry.Kind) -> None:
        """Drops the objects of a kind, because they will be read again."""
        name = kind.unique_name
        if file := self._files.pop(name, None):
            file.close()
        self._seen = [item for item in self._seen if item.kind.unique_name != name]
        self._left_out.pop(name, None)
        self._put.pop(name, None)

    def finish(self, facts: Facts) -> Manifest:
        """Writes everything to disk and moves it to its final path."""
        redactor = self._redaction
        if redactor is not None:
            for item in self._seen:
                self._file(item.kind).put(redactor.redacted(item))
        files = tuple(
            self._closed(kind, facts.resource_versions.get(kind.unique_name, ""))
            for kind in snapshot_format.KINDS
        )
        manifest = Manifest(
            taken_at=facts.taken_at,
            cluster="" if redactor is not None else facts.cluster,
            server_version=facts.server_version,
            redacted=redactor is not None,
            dovetail_version=dovetail.__version__,
            left_out=sum(self._left_out.values()),
            files=files,
            not_saved=facts.not_saved,
        )
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        with (self._temporary / snapshot_format.MANIFEST).open("wb") as file:
            _synced(file, text)
        _sync_directory(self._temporary)
        _into_place(self._temporary, self._directory, is_forced=self._is_forced)
        return manifest

    def _file(self, kind: registry.Kind) -> _ListFile:
        name = kind.unique_name
        if name not in self._files:
            self._files[name] = _ListFile(self._temporary / snapshot_format.file_of(kind))
        return self._files[name]

    def _closed(self, kind: registry.Kind, resource_version: str) -> File:
        file = self._file(kind)
        file.finish()
        return File(
            name=file.path.name,
            kind=kind.unique_name,
            count=file.count,
            size_bytes=file.size_bytes,
            sha256=file.sum.hexdigest(),
            resource_version=resource_version,
        )


class _ListFile:
    """One list being written, one item per line, so that a diff of two snapshots shows objects."""

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


def rewritten(expression: str, rename: redaction.Rename) -> str:
    """A CEL expression with renamed text literals and without comments."""
    from dovetail.cel.language import lexer, literals  # reading a snapshot needs none of it
    from dovetail.cel.language.source import Issue

    def renamed_literal(written: str) -> str:
        value = literals.string(written)
        if value is None or (renamed := rename(value)) == value:
            return written
        # The new names need no escapes that JSON and CEL write differently.
        return msgspec.json.encode(renamed).decode()

    tokens = lexer.tokens(expression)
    if isinstance(tokens, Issue):
        return _SENSELESS
    parts: list[str] = []
    end = 0
    for token in tokens:
        between = expression[end : token.offset]  # blanks and comments
        parts.append(" " if "//" in between else between)
        is_text = token.kind == lexer.STRING
        parts.append(renamed_literal(token.text) if is_text else token.text)
        end = token.offset + len(token.text)
    return "".join(parts)


def _of_one_line(kind: registry.Kind, document: bytes) -> bytes:
    """The document on one line, with the kind that items of a typed list leave out. Raises InputError."""
    if b"\n" in document:
        document = msgspec.json.format(document, indent=-1)
    try:
        head = msgspec.json.decode(document, type=_TypeMeta)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{kind.name}: {untyped.path_first(error)}") from None
    if head.api_version and head.kind:
        return document
    type_meta = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name})
    fields = document.strip()[1:].lstrip()
    return type_meta[:-1] + (b"" if fields == b"}" else b",") + fields


def _subject(kind: registry.Kind, document: bytes) -> str:
    try:
        about = codec.decode_struct(codec.Generic, document).metadata
    except errors.InputError:
        return kind.name
    return codec.named(kind.name, about.namespace, about.name)


class _TypeMeta(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


def _kind_of(directory: Path, file: File) -> registry.Kind:
    """The kind of a file. Unknown kinds are refused: without their objects decisions would differ."""
    kind = KIND_NAMED.get(file.kind)
    if kind is None or file.name != snapshot_format.file_of(kind):
        raise errors.StateError(
            f"{directory / file.name}: holds {file.kind}, which this program does not know"
        )
    return kind


def _content(directory: Path, file: File) -> bytes:
    path = directory / file.name
    content = _read(
        path, missing=f"{path}: is missing, the manifest lists it", most_bytes=file.size_bytes
    )
    if hashlib.sha256(content).hexdigest() != file.sha256:
        is_longer = len(content) > file.size_bytes
        size = f"more than {file.size_bytes} bytes" if is_longer else f"{len(content)} bytes"
        difference = (
            f"{size}, {file.size_bytes} were saved"
            if len(content) != file.size_bytes
            else "sums differ"
        )
        raise errors.StateError(
            f"{path}: changed since it was saved ({difference}); take the snapshot again"
        )
    return content


def _read(path: Path, *, missing: str, most_bytes: int = bounded_files.MAX_BYTES) -> bytes:
    """The file up to one byte more than expected. Pipes and devices are refused."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise errors.StateError(f"{path}: is not a file")
        with path.open("rb") as file:
            return file.read(max(0, min(most_bytes, path.stat().st_size)) + 1)
    except FileNotFoundError:
        raise errors.StateError(missing) from None
    except (OSError, ValueError) as error:
        raise errors.StateError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def _items(path: Path, content: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(content, type=_List).items
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.StateError(f"{path}: not a list of objects: {error}") from None


def _refuse_to_replace(directory: Path, is_forced: bool) -> None:
    """Raises unless nothing would be lost, or only a snapshot that the caller wants to replace."""
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir() or directory.is_symlink():
        raise errors.InputError(f"{directory}: is not a directory; name another place")
    if not any(directory.iterdir()):
        return
    if not _is_snapshot(directory):
        raise errors.InputError(
            f"{directory}: holds something that is no snapshot; name another place"
        )
    if not is_forced:
        raise errors.InputError(
            f"{directory}: holds a snapshot already; name another place or add --force"
        )


def _is_snapshot(directory: Path) -> bool:
    """Whether the directory is a snapshot, of any version."""
    try:
        text = _read(directory / snapshot_format.MANIFEST, missing="none")
        return msgspec.json.decode(text, type=_Head).format == snapshot_format.FORMAT
    except (errors.StateError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _into_place(draft: Path, directory: Path, *, is_forced: bool) -> None:
    _refuse_to_replace(directory, is_forced)  # again: another process may have been quicker
    with contextlib.ExitStack() as after:
        if directory.exists() and any(directory.iterdir()):
            old = tempfile.mkdtemp(
                prefix=f".{directory.name}.old.", dir=directory.absolute().parent
            )
            after.callback(shutil.rmtree, old, ignore_errors=True)
            directory.rename(Path(old) / directory.name)
        draft.rename(directory)
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
    """For callers that show no progress."""
