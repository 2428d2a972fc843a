"""Reads bodies in Kubernetes' protobuf encoding into plain trees, for the kinds that kubectl's own commands send.

The field numbers are in `protobuf_fields.txt`, made from the struct tags of k8s.io/api. Values a Go client leaves at
their zero are dropped, as its JSON would. Kinds without field numbers are refused as an unknown format. Never writes
this encoding: answers are JSON.
"""

from __future__ import annotations

import base64
import datetime
import struct
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import cache, timestamps
from dovetail.sim.rest import status_answers

Tree = dict[str, Any]

MAGIC: Final = b"k8s\x00"
_TYPE_META: Final = 1  # runtime.Unknown
_RAW: Final = 2
_INLINE: Final = "<"
_DELETE_OPTIONS: Final = "metav1.DeleteOptions"
_MAX_DEPTH: Final = 100
_ACCEPTED: Final = "application/json, application/yaml"


class Field(NamedTuple):
    """One field of a message."""

    name: str  # in JSON; `<` if its own fields belong to the message around it
    type: str
    is_list: bool = False
    is_map: bool = False
    is_pointer: bool = False  # zero values count


Wire = tuple[int, int, int | bytes]  # field number, wire type, value


def decoded(body: bytes) -> Tree:
    """The object of an envelope, with its apiVersion and kind."""
    try:
        api_version, kind, raw = _envelope(body)
        message = _message_name(api_version, kind)
        if message not in _messages():
            raise status_answers.unsupported_media(_ACCEPTED)
        return {"apiVersion": api_version, "kind": kind} | _object(message, raw)
    except (IndexError, UnicodeDecodeError, struct.error, ValueError) as error:
        raise status_answers.bad(f"the protobuf message cannot be read: {error}") from None


def is_metadata_only(body: bytes) -> bool:
    """Whether an envelope holds an object's metadata and nothing else."""
    try:
        _, _, raw = _envelope(body)
        return all(number == 1 for number, _, _ in wire_fields(raw))
    except (IndexError, UnicodeDecodeError):
        return False


def _envelope(body: bytes) -> tuple[str, str, bytes]:
    if not body.startswith(MAGIC):
        raise status_answers.bad("provided data does not appear to be a protobuf message")
    types: dict[int, str] = {}
    raw = b""
    for number, _, value in wire_fields(body.removeprefix(MAGIC)):
        if number == _TYPE_META and isinstance(value, bytes):
            types = {field: _text(text) for field, _, text in wire_fields(value)}
        elif number == _RAW and isinstance(value, bytes):
            raw = value
    return types.get(1, ""), types.get(2, ""), raw


def _message_name(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return _DELETE_OPTIONS
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}/{version}.{kind}"


@cache.remembered()
def _messages() -> dict[str, dict[int, Field]]:
    text = resources.files("dovetail.sim.rest.encoding").joinpath("protobuf_fields.txt").read_text()
    messages = {}
    for line in text.splitlines():
        name, _, fields = line.partition(": ")
        messages[name] = dict(_field(field) for field in fields.split(", ") if field)
    return messages


def _field(text: str) -> tuple[int, Field]:
    number, name, type_ = text.split(" ")
    is_pointer = type_.startswith("*")
    type_ = type_.removeprefix("*")
    is_map = type_.startswith("map:")
    type_ = type_.removeprefix("map:")
    is_list = type_.startswith("[]") and not is_map
    return int(number), Field(name, type_.removeprefix("[]"), is_list, is_map, is_pointer)


def _object(message: str, raw: bytes, depth: int = 0) -> Tree:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    fields = _messages()[message]
    tree: Tree = {}
    for number, wire_type, value in wire_fields(raw):
        field = fields.get(number)
        if field is None:
            continue  # of a newer Kubernetes
        if field.is_map:
            key, item = _map_entry(field, value, depth)
            tree.setdefault(field.name, {})[key] = item
        elif field.is_list:
            items = _items(field, wire_type, value, depth)
            tree.setdefault(field.name, []).extend(items)
        else:
            _set(tree, field, _value(field.type, wire_type, value, depth))
    return tree


def _set(tree: Tree, field: Field, value: Any) -> None:
    if field.name == _INLINE:
        tree |= value
    elif field.is_pointer or value not in (None, "", 0, False, {}):
        tree[field.name] = value


def _map_entry(field: Field, value: int | bytes, depth: int) -> tuple[str, Any]:
    key, item = "", _zero(field.type)
    for number, wire_type, part in wire_fields(_bytes(value)):
        if number == 1:
            key = _text(part)
        else:
            item = _value(field.type, wire_type, part, depth)
    return key, item


def _zero(type_: str) -> Any:
    return {"string": "", "bytes": "", "quantity": "0", "int": 0, "bool": False}.get(type_, {})


def _items(field: Field, wire_type: int, value: int | bytes, depth: int) -> Iterator[Any]:
    if field.type == "int" and isinstance(value, bytes):  # packed
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            yield _signed(number)
    else:
        yield _value(field.type, wire_type, value, depth)


def _value(type_: str, wire_type: int, value: int | bytes, depth: int) -> Any:
    match type_:
        case "string":
            return _text(value)
        case "int":
            return _signed(_int(value))
        case "bool":
            return bool(_int(value))
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "float":
            return struct.unpack("<d", _bytes(value))[0]
        case "quantity":
            return _first_text(_bytes(value)) or "0"
        case "intorstring":
            return _int_or_string(_bytes(value))
        case "time":
            return _time(_bytes(value))
        case "json":
            raw = _first(_bytes(value))
            return msgspec.json.decode(raw) if raw else None
        case message:
            return _object(message, _bytes(value), depth + 1)


def _int_or_string(raw: bytes) -> int | str:
    parts = {number: value for number, _, value in wire_fields(raw)}
    if _int(parts.get(1, 0)) == 1:
        return _text(parts.get(3, b""))
    return _signed(_int(parts.get(2, 0)))


def _time(raw: bytes) -> str | None:
    parts = {number: value for number, _, value in wire_fields(raw)}
    if 1 not in parts:
        return None
    seconds = _signed(_int(parts[1]))
    return timestamps.to_text(datetime.datetime.fromtimestamp(seconds, datetime.UTC))


def _first(raw: bytes) -> bytes:
    for number, _, value in wire_fields(raw):
        if number == 1:
            return _bytes(value)
    return b""


def _first_text(raw: bytes) -> str:
    return _first(raw).decode()


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where text or a message is expected")
    return value


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("text where a number is expected")
    return value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def wire_fields(message: bytes) -> Iterator[Wire]:
    """The fields of a message. Raises IndexError where it ends in the middle."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = _varint(message, at)
            yield number, wire_type, value
            continue
        if wire_type == 2:
            size, at = _varint(message, at)
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
        else:
            raise IndexError(f"unknown wire type {wire_type}")
        if at + size > len(message):
            raise IndexError("it ends in the middle")
        yield number, wire_type, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
    raise IndexError("a number is too long")
