"""Hostile objects: real ones with fields dropped, doubled, retyped, blown up, and text that is no JSON.

Given an object and a `random.Random`; the same seed gives the same bytes. Never judges what it makes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

Tree = dict[str, Any]

# Texts that steer a terminal, start a line, leave a folder, turn a direction, or pass for a number.
TEXTS: Final = (
    "", " ", "\x00", "\x07", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "a\nb", "a\r\nb", "\u2028",
    "\u202eabc", "\ufeff", "\U0001f600", "a\u0301" * 40, "../../x", "..", ".", "/etc/passwd", "%2e%2e%2f",
    "a/b/c", "a b",
    "-", "_",
    "NaN", "Infinity", "-0", "1e999999999", "1e-999999999", "9" * 400, "0x10", "1_000", "1.5.5", "Ki", "1KiKi", "null",
    "true", "9999-99-99T99:99:99Z", "0000-00-00T00:00:00Z", "2026-01-01T00:00:00Z", "x" * 64, "x" * 254, "X" * 70_000,
    "device.driver == 'x'", "device.attributes['a'].b", "[1].all(x, [1].all(y, true))", "(" * 300, "'" * 50,
    "default", "kube-system", "r0", "r0/s0", "gpu.nvidia.com", "kubernetes.io/hostname", "metadata.name",
)  # fmt: skip
NUMBERS: Final = (
    0, 1, -1, 2, 127, 128, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1,
    -(2**63), 0.5, 1.5, -0.0, 1e-9, 1e21, 1.7e308, 5e-324,
)  # fmt: skip
COUNTS: Final = (2, 3, 8, 33, 129, 1000)
DEPTHS: Final = (3, 60, 150, 300, 1200, 6000)
HUGE_BYTES: Final = 1_600_000  # a little more than etcd takes
# What can stand in a JSON text where a value is expected; most of it should not.
WORDS: Final = (
    b"NaN", b"-Infinity", b"nul", b"truE", b"01", b"1.", b".5", b"+1", b"1e400", b"-1e400", b"1e-400", b"0x1F", b"",
    b"9" * 5000, b"-" + b"9" * 400, b"1." + b"0" * 3000 + b"1", b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"',
    b'"\\x"', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf5\x80\x80\x80"',
    b'"\t"', b"'a'", b"{,}", b"[,]", b"[1,]",
    b'{"a"}', b'{"a":1,"a":2}', b"/* */ 1", b"\xef\xbb\xbf1", b"\x00",
)  # fmt: skip
BYTES: Final = (
    b"\xff",
    b"\x00",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\n",
    b"\r",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
)
_VALUE: Final = re.compile(rb'(?<=:)(?:"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null)')


def bent(tree: Tree, rng: random.Random) -> Tree:
    """The tree with one to four places changed for the worse, in place. Seldom in its identity."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        holder, key = _somewhere(tree, rng)
        if holder is tree and key in ("apiVersion", "kind") and rng.random() < 0.9:
            continue
        _change(holder, key, rng)
    return tree


def garbled(document: bytes, rng: random.Random) -> bytes:
    """The text with something in it that JSON, UTF-8 or a reader's patience has no room for."""
    if not document:
        return rng.choice(BYTES)
    at = rng.randrange(len(document) + 1)
    match rng.randrange(8):
        case 0:
            return document[:at]
        case 1:
            return document[:at] + rng.choice(BYTES) + document[at:]
        case 2:
            until = min(len(document), at + rng.randrange(1, 40))
            return document[:at] + document[until:]
        case 3:
            until = min(len(document), at + rng.randrange(1, 400))
            return document[:until] + document[at:until] + document[until:]
        case 4:
            flipped = bytearray(document)
            for _ in range(rng.randrange(1, 6)):
                flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        case 5:
            return _doubled_key(document, rng)
        case _:
            return _with_value(document, _word(rng), rng)


def deep(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """So many lists in each other, as JSON."""
    return opening * levels + closing * levels


def pieces(stream: bytes, rng: random.Random) -> Iterator[bytes]:
    """The stream cut anywhere, also inside of characters; if it is short even byte by byte, with empty pieces."""
    at = 0
    widest = rng.choice(
        (1, 7, 64)
        if len(stream) < 3_000
        else (64, 1500, 65536)
        if len(stream) < 50_000
        else (1 << 16,)
    )
    while at < len(stream):
        size = rng.randrange(widest + 1)
        yield stream[at : at + size]
        at += size


def _somewhere(tree: Tree, rng: random.Random) -> tuple[Any, Any]:
    """A place in the tree: its holder and its key there."""
    holder: Any = tree
    while True:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = rng.choice(keys)
        below = holder[key]
        if not isinstance(below, dict | list) or not below or rng.random() < 0.2:
            return holder, key
        holder = below


def _change(holder: Any, key: Any, rng: random.Random) -> None:
    value = holder[key]
    match rng.randrange(9):
        case 0 if len(holder) > 1:
            del holder[key]
        case 1:
            holder[key] = None
        case 2:
            holder[key] = [value] if rng.random() < 0.5 else {"value": value}
        case 3 if isinstance(holder, dict):
            holder[rng.choice(TEXTS)] = value
        case 4 if isinstance(holder, list):
            holder.extend([value] * (rng.choice(COUNTS) if rng.random() < 0.2 else 2))
        case 5 if isinstance(value, list) and value:
            holder[key] = value[0]
        case 6 if isinstance(holder, dict):
            other = rng.choice(list(holder))
            holder[key], holder[other] = holder[other], value
        case _:
            holder[key] = _wrong(rng)


def _wrong(rng: random.Random) -> Any:
    """A value of any type, likely not the one that was expected."""
    roll = rng.random()
    if roll < 0.5:
        return rng.choice(TEXTS)
    if roll < 0.8:
        return rng.choice(NUMBERS)
    if roll < 0.9:
        return rng.choice((True, False, None))
    if roll < 0.9995:
        return rng.choice(
            ([], {}, [[]], [None], {"": ""}, {"a": {"b": [{}]}}, ["a", 1, None], {"a": None})
        )
    return "y" * HUGE_BYTES


def _doubled_key(document: bytes, rng: random.Random) -> bytes:
    """An object that says two things under one name."""
    opening = [at.start() for at in re.finditer(rb"[{]", document)]
    if not opening:
        return document * 2
    at = rng.choice(opening) + 1
    name = rng.choice(
        (b"metadata", b"spec", b"name", b"uid", b"kind", b"status", b"resourceVersion", b"x")
    )
    value = rng.choice((b"{}", b"[]", b'"a"', b"1", b"null"))
    rest = document[at:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return document[:at] + b'"' + name + b'":' + value + comma + rest


def _with_value(document: bytes, word: bytes, rng: random.Random) -> bytes:
    """The text with one of its scalars replaced."""
    places = list(_VALUE.finditer(document))
    if not places:
        return word
    place = rng.choice(places)
    return document[: place.start()] + word + document[place.end() :]


def _word(rng: random.Random) -> bytes:
    if rng.random() < 0.8:
        return rng.choice(WORDS)
    levels = rng.choice(DEPTHS)
    return (
        deep(levels)
        if rng.random() < 0.6
        else deep(levels, b'{"":', b"}").replace(b":}", b":1}", 1)
    )


def copied(document: bytes) -> Tree:
    """A tree of its own."""
    tree: Tree = msgspec.json.decode(document)
    return tree
