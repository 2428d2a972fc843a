"""The SONAME of a shared library: the name programs look it up by, from the dynamic section of a 64-bit ELF file.

Given a path, returns the name, or an empty text for a file without one. Reads the file, never runs it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_MAGIC: Final = b"\x7fELF\x02"  # 64 bits
_HEADER: Final = struct.Struct("<16xHHIQQQIHHHHHH")
_PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
_DYNAMIC_ENTRY: Final = struct.Struct("<qQ")
_LOAD: Final = 1  # PT_LOAD
_DYNAMIC: Final = 2  # PT_DYNAMIC
_STRING_TABLE: Final = 5  # DT_STRTAB
_SONAME: Final = 14  # DT_SONAME
_MAX_NAME_BYTES: Final = 256
_MAX_PART_BYTES: Final = 4 * 1024 * 1024


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def soname(path: Path) -> str:
    """Such as libcuda.so.1. Raises OSError if the file cannot be read."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            return ""
        fields = _HEADER.unpack(header)
        table_offset, entry_size, entry_count = fields[4], fields[8], fields[9]
        if entry_size != _PROGRAM_HEADER.size:
            return ""
        segments = _segments(_part(file, table_offset, entry_size * entry_count))
        dynamic = next((segment for segment in segments if segment.kind == _DYNAMIC), None)
        if dynamic is None:
            return ""
        entries = _dynamic_entries(_part(file, dynamic.offset, dynamic.size))
        if _SONAME not in entries or _STRING_TABLE not in entries:
            return ""
        offset = _file_offset(entries[_STRING_TABLE], segments)
        if offset is None:
            return ""
        text = _part(file, offset + entries[_SONAME], _MAX_NAME_BYTES)
    return text.partition(b"\0")[0].decode("ascii", "replace")


def _part(file: BinaryIO, offset: int, size: int) -> bytes:
    """Some bytes of the file; fewer, or none, where the numbers of a damaged file point beyond its end."""
    if offset > os.fstat(file.fileno()).st_size:
        return b""
    file.seek(offset)
    return file.read(min(size, _MAX_PART_BYTES))


def _segments(table: bytes) -> list[_Segment]:
    whole = len(table) - len(table) % _PROGRAM_HEADER.size
    segments: list[_Segment] = []
    for kind, _, offset, address, _, size, _, _ in _PROGRAM_HEADER.iter_unpack(table[:whole]):
        segments.append(_Segment(kind, offset, address, size))
    return segments


def _dynamic_entries(section: bytes) -> dict[int, int]:
    whole = len(section) - len(section) % _DYNAMIC_ENTRY.size
    return dict(_DYNAMIC_ENTRY.iter_unpack(section[:whole]))


def _file_offset(address: int, segments: list[_Segment]) -> int | None:
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    return None
