"""The metadata of an object in Kubernetes' protobuf envelope, for clients that add a finalizer and nothing else.

Only identity and finalizers are written and read, with the field numbers of meta/v1. Objects have no full protobuf form
here: clients that accept JSON get JSON. Given records and bodies; never touches any other field.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.sim.rest import status_answers
from dovetail.sim.rest.encoding.protobuf_bodies import MAGIC, wire_fields
from dovetail.sim.server.object_store import Record

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
    return MAGIC + _part(_TYPE_META, types) + _part(_RAW, raw)


def decoded(body: bytes) -> Identity:
    """The metadata of an envelope that holds nothing else."""
    values: dict[int, list[str]] = {}
    try:
        for number, _, value in wire_fields(body.removeprefix(MAGIC)):
            if number == _RAW and isinstance(value, bytes):
                _collect(value, values)
    except (IndexError, UnicodeDecodeError) as error:
        raise status_answers.bad(f"the protobuf message cannot be read: {error}") from None
    uid, version = (values.get(number, [""])[-1] for number in (_UID, _VERSION))
    return Identity(uid, version, tuple(values.get(_FINALIZERS, ())))


def _collect(raw: bytes, values: dict[int, list[str]]) -> None:
    """Several metadata messages count as one: a client adds a finalizer by appending another."""
    for number, _, part in wire_fields(raw):
        if number == _METADATA and isinstance(part, bytes):
            for field, _, value in wire_fields(part):
                if isinstance(value, bytes):
                    values.setdefault(field, []).append(value.decode())


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
