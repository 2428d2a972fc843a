"""The metadata of an object in Kubernetes' protobuf envelope, for clients that add a finalizer and nothing else.

Only uid, version and finalizers are written and read, with the field numbers of meta/v1. Objects have no full protobuf
form here: clients that accept JSON get JSON. Given records and bodies; never touches any other field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.sim.rest import status_answers
from dovetail.sim.server.object_store import Record

_MAGIC: Final = b"k8s\x00"
# runtime.Unknown
_TYPE_META: Final = 1
_RAW: Final = 2
_METADATA: Final = 1  # every object
# ObjectMeta of meta/v1
_NAME: Final = 1
_NAMESPACE: Final = 3
_UID: Final = 5
_VERSION: Final = 6
_FINALIZERS: Final = 14


class Identity(NamedTuple):
    """What a client sent of an object."""

    uid: str
    resource_version: str
    finalizers: tuple[str, ...]


def encoded(record: Record) -> bytes:
    """The envelope with the metadata of a record."""
    metadata = record.metadata
    fields = [
        _field(_NAME, metadata.name),
        _field(_NAMESPACE, metadata.namespace),
        _field(_UID, metadata.uid),
        _field(_VERSION, metadata.resource_version),
        *(_field(_FINALIZERS, finalizer) for finalizer in metadata.finalizers),
    ]
    types = _field(1, record.struct.api_version) + _field(2, record.struct.kind)
    raw = _part(_METADATA, b"".join(fields))
    return _MAGIC + _part(_TYPE_META, types) + _part(_RAW, raw)


def decoded(body: bytes) -> Identity:
    """The metadata of an envelope that holds nothing else."""
    if not body.startswith(_MAGIC):
        raise status_answers.bad("provided data does not appear to be a protobuf message")
    values: dict[int, list[bytes]] = {}
    try:
        for number, value in _fields(body.removeprefix(_MAGIC)):
            if number == _RAW:
                _collect(value, values)
        uid, version = (values.get(number, [b""])[-1].decode() for number in (_UID, _VERSION))
        finalizers = tuple(value.decode() for value in values.get(_FINALIZERS, ()))
    except (IndexError, UnicodeDecodeError) as error:
        raise status_answers.bad(f"the protobuf message cannot be read: {error}") from None
    return Identity(uid, version, finalizers)


def _collect(raw: bytes, values: dict[int, list[bytes]]) -> None:
    for number, part in _fields(raw):
        if number != _METADATA:
            raise status_answers.unsupported_media("application/json")
        for field, value in _fields(part):
            values.setdefault(field, []).append(value)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The text and message fields; others are not written by clients that only add a finalizer."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 != 2:
            raise status_answers.unsupported_media("application/json")
        size, at = _varint(message, at)
        if at + size > len(message):
            raise IndexError("it ends in the middle")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def _field(number: int, text: str) -> bytes:
    return _part(number, text.encode()) if text else b""


def _part(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value


def _number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
