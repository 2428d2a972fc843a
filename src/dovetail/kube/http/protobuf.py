"""Adds a finalizer to an object in the API server's protobuf encoding. Reads and changes nothing else.

A server compares a claim's spec byte by byte with the stored one, and driver parameters that were written with spaces
do not survive a round trip through JSON. In this encoding they do. Takes and returns whole documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.errors import InputError

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_RAW: Final = 2  # runtime.Unknown
_METADATA: Final = 1  # every object
_UID: Final = 5  # ObjectMeta of meta/v1
_VERSION: Final = 6
_FINALIZERS: Final = 14
_LENGTH_DELIMITED: Final = 2


class Identity(NamedTuple):
    """The uid and the version of a document's object."""

    uid: str
    resource_version: str
    finalizers: tuple[str, ...]


def identity_of(document: bytes) -> Identity:
    """Reads them from the metadata. Raises InputError if the document is not an object."""
    values: dict[int, list[bytes]] = {}
    for number, value in _fields(_only(_raw_of(document), _METADATA)):
        values.setdefault(number, []).append(value)
    try:
        uid, version = (values.get(number, [b""])[-1].decode() for number in (_UID, _VERSION))
        finalizers = tuple(finalizer.decode() for finalizer in values.get(_FINALIZERS, ()))
    except UnicodeDecodeError as error:
        raise InputError("the object's metadata holds text that is not UTF-8") from error
    return Identity(uid, version, finalizers)


def with_finalizer(document: bytes, finalizer: str) -> bytes:
    """The document with one more finalizer. Appends a second metadata message: protobuf merges them and joins lists."""
    addition = _field(_METADATA, _field(_FINALIZERS, finalizer.encode()))
    parts = [
        _field(number, value + addition if number == _RAW else value)
        for number, value in _fields(document.removeprefix(_MAGIC))
    ]
    return _MAGIC + b"".join(parts)


def _raw_of(document: bytes) -> bytes:
    if not document.startswith(_MAGIC):
        raise InputError("not an object in the server's own encoding")
    return _only(document.removeprefix(_MAGIC), _RAW)


def _only(message: bytes, field_number: int) -> bytes:
    return b"".join(value for number, value in _fields(message) if number == field_number)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The text and message fields of a message; numbers are skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                size, at = _varint(message, at)
                if at + size > len(message):
                    raise InputError("the object ends in the middle")
                yield tag >> 3, message[at : at + size]
                at += size
            case wire_type:
                raise InputError(f"unknown wire type {wire_type}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
    raise InputError("the object ends in the middle of a number")


def _field(number: int, value: bytes) -> bytes:
    return _number(number << 3 | _LENGTH_DELIMITED) + _number(len(value)) + value


def _number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
