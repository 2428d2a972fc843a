"""Finds the files of a dump and reads them: one file, a directory, an archive, compressed or not, or standard input.

Given a path of any origin. A directory is searched within bounds for YAML and JSON files; what was compressed is read
within the same bounds, however well it compresses. Links are not followed, so that a dump cannot name other files of
the machine. Never parses what it reads, never writes.
"""

from __future__ import annotations

import datetime
import gzip
import io
import os
import stat
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from dovetail import errors
from dovetail.files import bounded_files

MAX_FILES: Final = 50_000  # ours; a must-gather of a large cluster has some thousands
MAX_ENTRIES: Final = 500_000  # ours; of all names that are looked at
MAX_DEPTH: Final = 32  # ours
MAX_BYTES: Final = 1 << 30  # ours; of everything, uncompressed
CHUNK_BYTES: Final = 4 << 20  # a reader makes room for all it is asked for

TEXT_SUFFIXES: Final = (".json", ".yaml", ".yml", ".jsonl", ".ndjson")
ARCHIVE_SUFFIXES: Final = (".tar", ".tgz", ".tar.gz")
GZIP_SUFFIX: Final = ".gz"
_GZIP: Final = b"\x1f\x8b"
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_OFFSET: Final = 257  # POSIX.1-1988
_DAMAGED: Final = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError)


class FoundFile(NamedTuple):
    """One file of a dump: its name in messages, what it holds, and when it was written, where that is known."""

    name: str
    content: bytes
    modified_at: datetime.datetime | None


class ObjectFiles:
    """The files of one dump. Afterwards `passed_over` says how many were of another sort, `unreadable` which failed."""

    def __init__(self, path: str) -> None:
        self.passed_over = 0
        self.unreadable: list[str] = []
        self._path = path
        self._bytes_left = MAX_BYTES
        self._files_left = MAX_FILES

    def read(self) -> Iterator[FoundFile]:
        """Every file, by name. Raises InputError where the path is not there or exceeds the bounds."""
        if self._path == bounded_files.STDIN:
            yield from self._opened(bounded_files.display_name(self._path), sys.stdin.buffer, None)
            return
        path = Path(self._path)
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise errors.InputError(f"{path}: there is no such file or directory") from None
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
            raise errors.InputError(f"{path}: cannot be read: {_reason(error)}") from None
        if stat.S_ISDIR(mode):
            yield from self._directory(path)
        else:
            yield from self._named_file(path)

    def _named_file(self, path: Path) -> Iterator[FoundFile]:
        """The file that the user named, whatever it is called."""
        try:
            with path.open("rb") as file:
                yield from self._opened(str(path), file, _modified_at(os.fstat(file.fileno())))
        except (OSError, ValueError) as error:
            if isinstance(error, errors.InputError):
                raise
            raise errors.InputError(f"{path}: cannot be read: {_reason(error)}") from None

    def _directory(self, top: Path) -> Iterator[FoundFile]:
        entries_left = MAX_ENTRIES
        waiting = [(top, 0)]
        while waiting:
            directory, depth = waiting.pop()
            try:
                with os.scandir(directory) as scanned:
                    entries = sorted(scanned, key=lambda entry: entry.name)
            except OSError as error:
                if directory == top:
                    raise errors.InputError(f"{top}: cannot be read: {_reason(error)}") from None
                self.unreadable.append(f"{directory}: {_reason(error)}")
                continue
            entries_left -= len(entries)
            if entries_left < 0:
                raise errors.InputError(f"{top}: more than {MAX_ENTRIES} files; name a part of it")
            folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            if folders and depth >= MAX_DEPTH:
                raise errors.InputError(
                    f"{directory}: more than {MAX_DEPTH} directories deep; name a part of it"
                )
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield from self._entry(Path(entry.path))
                elif entry not in folders:
                    self.passed_over += 1
            waiting += [(Path(folder.path), depth + 1) for folder in reversed(folders)]

    def _entry(self, path: Path) -> Iterator[FoundFile]:
        if not _is_wanted(path.name, may_be_archive=True):
            self.passed_over += 1
            return
        try:
            yield from self._named_file(path)
        except errors.InputError as error:
            if self._bytes_left < 0 or self._files_left < 0:
                raise
            self.unreadable.append(str(error))

    def _opened(
        self, name: str, file: IO[bytes], modified_at: datetime.datetime | None
    ) -> Iterator[FoundFile]:
        """The file, or the files of the archive that it is."""
        content = self._unpacked(name, self._content(name, file))
        if content[_TAR_MAGIC_OFFSET:].startswith(_TAR_MAGIC):
            self._bytes_left += len(content)  # its members count instead
            yield from self._archive(name, content)
            return
        yield FoundFile(name, content, modified_at)

    def _content(self, name: str, file: IO[bytes]) -> bytes:
        """All of it, within what is left of the bounds."""
        self._files_left -= 1
        if self._files_left < 0:
            raise errors.InputError(f"{name}: more than {MAX_FILES} files; name a part of it")
        return self._bounded(name, file)

    def _bounded(self, name: str, file: IO[bytes] | gzip.GzipFile) -> bytes:
        chunks = []
        while chunk := file.read(CHUNK_BYTES):
            self._bytes_left -= len(chunk)
            if self._bytes_left < 0:
                raise errors.InputError(
                    f"{name}: more than {MAX_BYTES >> 20} MiB in all; name a part of it"
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _unpacked(self, name: str, content: bytes) -> bytes:
        """The content without its compression."""
        if not content.startswith(_GZIP):
            return content
        self._bytes_left += len(content)
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                return self._bounded(name, file)
        except (OSError, EOFError, zlib.error) as error:
            raise errors.InputError(f"{name}: damaged gzip data ({error})") from None

    def _archive(self, name: str, content: bytes) -> Iterator[FoundFile]:
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
                for member in archive:
                    if not member.isfile():
                        continue
                    if not _is_wanted(member.name, may_be_archive=False):
                        self.passed_over += 1
                        continue
                    file = archive.extractfile(member)
                    if file is None:
                        continue
                    inner = f"{name}: {member.name}"
                    text = self._unpacked(inner, self._content(inner, file))
                    yield FoundFile(inner, text, _time_of(member.mtime))
        except _DAMAGED as error:
            if isinstance(error, errors.InputError):
                raise
            raise errors.InputError(f"{name}: damaged archive ({error})") from None


def _is_wanted(name: str, *, may_be_archive: bool) -> bool:
    """Whether a file that was not named by the user may hold objects."""
    lower = name.lower()
    if may_be_archive and lower.endswith(ARCHIVE_SUFFIXES):
        return True
    return lower.removesuffix(GZIP_SUFFIX).endswith(TEXT_SUFFIXES)


def _modified_at(status: os.stat_result) -> datetime.datetime | None:
    """When a file was written; None for a pipe, which has no such time."""
    return _time_of(status.st_mtime) if stat.S_ISREG(status.st_mode) else None


def _time_of(seconds: float) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
