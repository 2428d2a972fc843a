"""Reads YAML and JSON text into plain trees as kubectl does, within bounds.

Given text of any origin; returns one tree per document, or a fault with its line. Scalars follow the rules of the Go
library kubectl reads with (YAML 1.1: `yes` and `y` are true, 010 is 8, dates stay text). Refused: duplicate keys, tags
that create objects, aliases that loop or grow beyond bounds, deep nesting, numbers JSON cannot represent. The trees are
shallow enough for code that walks them by recursion. Never builds anything but JSON data.
"""

import base64
import binascii
import decimal
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec
import yaml

from dovetail import errors

MAX_BYTES: Final = 64 * 1024 * 1024  # ours; one object is at most 3 MiB at an API server
MAX_DEPTH: Final = 200  # ours; the deepest Kubernetes schema stays below 100
MAX_NODES: Final = 4_000_000  # ours, per document and with aliases written out
MAX_DIGITS: Final = 400  # ours; the largest 64-bit float has 309 before its point

_TAG: Final = "tag:yaml.org,2002:"
_BOOLEANS: Final = {
    **dict.fromkeys(
        ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True
    ),
    **dict.fromkeys(
        ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False
    ),
}
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
WORDS: Final = frozenset(_BOOLEANS) | _NULL  # plain text with another meaning
_NOT_FINITE: Final = frozenset(
    sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")
) | frozenset((".nan", ".NaN", ".NAN"))
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INTEGER: Final = re.compile(
    r"([-+]?)(?:(0[xX])([0-9a-fA-F]+)|(0[bB])([01]+)|(0[oO]?)([0-7]+)|(0|[1-9][0-9]*))"
)
_TOO_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep"
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")  # perhaps half a character
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_BLANKS: Final = re.compile(r"\s*")


class Document(msgspec.Struct, frozen=True):
    """One document of a text: where it begins and what it holds."""

    line: int
    tree: Any


class TextError(errors.InputError):
    """Text that cannot be read; nothing of it should be used."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


def documents(text: str) -> Iterator[Document]:
    """Every document that is not empty. Raises TextError at the first place that cannot be read."""
    if len(text) > MAX_BYTES:
        raise TextError(f"{len(text)} characters; at most {MAX_BYTES} are read at once", 1)
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("{") and "\n---" not in text:
        yield from _json_documents(text)
    else:
        yield from _yaml_documents(text)


def _json_documents(text: str) -> Iterator[Document]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_without_duplicates,
        parse_constant=_refused_constant,
        parse_int=_json_integer,
        parse_float=_json_float,
    )
    position, line, counted = 0, 1, 0
    while True:
        blanks = _BLANKS.match(text, position)
        position = blanks.end() if blanks else position
        if position == len(text):
            return
        line, counted = line + text.count("\n", counted, position), position
        try:
            tree, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            cause = error.msg.removesuffix(" starting at").lower()
            # Cut off, as by a full disk: the text ends inside a string or where something has to follow.
            is_cut = cause.startswith("unterminated") or error.pos >= len(text.rstrip())
            hint = "; the file seems to be cut off" if is_cut else ""
            raise TextError(f"not JSON: {cause}{hint}", error.lineno) from None
        except RecursionError:
            raise TextError(_TOO_DEEP, line) from None
        except ValueError as error:
            raise TextError(str(error), line) from None
        _check_size(tree, line, may_hold_halves=bool(_HALF.search(text)))
        yield Document(line, tree)


def _check_size(tree: Any, line: int, *, may_hold_halves: bool) -> None:
    """Raises for a tree deeper or larger than YAML may be, or with half a character in a text or key.

    Walks level by level instead of by recursion, so that the depth of the tree does not matter.
    """
    level, values = [tree], 0
    for _ in range(MAX_DEPTH + 1):
        if may_hold_halves:
            _check_characters(level, line)
        containers = [value for value in level if isinstance(value, dict | list)]
        if not containers:
            return
        values += sum(map(len, containers))
        if values > MAX_NODES:
            raise TextError(f"more than {MAX_NODES} values", line)
        level = []
        for container in containers:
            level.extend(container.values() if isinstance(container, dict) else container)
    raise TextError(_TOO_DEEP, line)


def _check_characters(level: list[Any], line: int) -> None:
    texts = [value for value in level if isinstance(value, str)]
    for value in level:
        if isinstance(value, dict):
            texts.extend(value)
    for text in texts:
        if _SURROGATE.search(text):
            raise TextError("half a character (\\ud800 to \\udfff without its other half)", line)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise ValueError(f'the key "{_cut(name)}" is given twice')
            names.add(name)
    return result


def _json_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits; at most {MAX_DIGITS} are read")
    return int(digits)


def _json_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{_cut(digits)} is larger than any number JSON readers take")
    return value


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}..."


def _refused_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _yaml_documents(text: str) -> Iterator[Document]:
    try:
        yield from _Composer().documents(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        parts = [part for part in (error.context, error.problem) if part]
        raise TextError(f"not YAML: {' '.join(parts)}", line) from None
    except yaml.YAMLError as error:
        raise TextError(f"not YAML: {error}", 1) from None


class _Open:
    """A list or mapping whose end event is still to come."""

    __slots__ = (
        "anchor",
        "height",
        "is_mapping",
        "is_merging",
        "items",
        "key",
        "line",
        "merged",
        "size",
    )

    def __init__(self, *, is_mapping: bool, anchor: str | None, line: int) -> None:
        self.is_mapping = is_mapping
        self.items: Any = {} if is_mapping else []
        self.anchor = anchor
        self.line = line
        self.key: str | None = None
        self.is_merging = False
        self.merged: list[Any] = []
        self.size = 1
        self.height = 1  # levels from here down, aliases written out


_MERGE: Final = "<<"
_NOTHING: Final = object()


class _Composer:
    """Turns parser events into trees without recursion, counting as it goes."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}  # value, size and height
        self._result: Any = _NOTHING

    def documents(self, text: str) -> Iterator[Document]:
        """Every document that is not empty."""
        first_line = 1
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            line = event.start_mark.line + 1
            match event:
                case yaml.ScalarEvent():  # first, because nearly all events are scalars
                    self._add_scalar(event, line)
                case yaml.DocumentStartEvent():
                    self._open, self._anchors, self._result = [], {}, _NOTHING
                    first_line = line
                case yaml.DocumentEndEvent():
                    if self._result is not _NOTHING and self._result is not None:
                        yield Document(first_line, self._result)
                case yaml.AliasEvent():
                    self._add_alias(event.anchor, line)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._begin(event, line)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end()

    def _begin(self, event: Any, line: int) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        own_tag = f"{_TAG}map" if is_mapping else f"{_TAG}seq"
        if event.tag not in (None, "!", own_tag):
            raise TextError(f"the tag {event.tag} is not allowed", line)
        if len(self._open) >= MAX_DEPTH:
            raise TextError(_TOO_DEEP, line)
        parent = self._open[-1] if self._open else None
        if parent is not None and parent.is_mapping and parent.key is None:
            raise TextError("a list or mapping cannot be a key", line)
        self._open.append(_Open(is_mapping=is_mapping, anchor=event.anchor, line=line))

    def _end(self) -> None:
        closed = self._open.pop()
        if closed.merged:
            whole: dict[str, Any] = {}
            for merged in reversed(closed.merged):  # of two that are merged the first counts
                whole.update(merged)
            whole.update(closed.items)
            closed.items = whole
        if closed.anchor is not None:
            self._anchors[closed.anchor] = (closed.items, closed.size, closed.height)
        self._add(closed.items, closed.size, closed.line, height=closed.height)

    def _add_alias(self, anchor: str | None, line: int) -> None:
        if anchor is None or anchor not in self._anchors:
            raise TextError(f"the alias *{anchor} refers to nothing before it, or to itself", line)
        value, size, height = self._anchors[anchor]
        self._add(value, size, line, height=height)

    def _add_scalar(self, event: Any, line: int) -> None:
        is_plain = not event.style and event.tag in (None, "!") and event.implicit[0]
        if is_plain:
            value = resolved(event.value, line)
        else:
            value = _tagged(event.tag, event.value, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1, 0)
        self._add(value, 1, line)

        # Only a plain << merges; quoted, it is a key like any other.
        is_merge = is_plain and event.value == _MERGE
        if is_merge and self._open and self._open[-1].key == _MERGE:
            self._open[-1].is_merging = True

    def _add(self, value: Any, size: int, line: int, *, height: int = 0) -> None:
        if not self._open:
            self._result = value
            return
        parent = self._open[-1]
        parent.size += size
        parent.height = max(parent.height, height + 1)
        if len(self._open) + height > MAX_DEPTH:  # an alias brings the levels of what it stands for
            raise TextError(_TOO_DEEP, line)
        if parent.size > MAX_NODES:
            raise TextError(f"more than {MAX_NODES} values once aliases are written out", line)
        if not parent.is_mapping:
            parent.items.append(value)
        elif parent.key is None:
            parent.key = _key(value, line)
        elif parent.is_merging:
            parent.merged.extend(_mappings_to_merge(value, line))
            parent.key, parent.is_merging = None, False
        else:
            if parent.key in parent.items:
                raise TextError(f'the key "{_cut(parent.key)}" is given twice', line)
            parent.items[parent.key] = value
            parent.key = None


def _key(value: Any, line: int) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return f"{value:g}"
        case _:
            raise TextError("a key must be text", line)


def _mappings_to_merge(value: Any, line: int) -> list[dict[str, Any]]:
    mappings = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in mappings):
        raise TextError('"<<" merges a mapping or a list of mappings', line)
    return mappings


def _tagged(tag: str | None, text: str, line: int) -> Any:
    if tag in (None, "!", f"{_TAG}str"):
        return text
    if tag == f"{_TAG}binary":
        try:
            return base64.b64decode(text, validate=False).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise TextError("!!binary does not hold text in base64", line) from None
    kinds: dict[str, tuple[type, ...]] = {
        f"{_TAG}int": (int,),
        f"{_TAG}float": (int, float),
        f"{_TAG}bool": (bool,),
        f"{_TAG}null": (type(None),),
        f"{_TAG}timestamp": (str,),
    }
    if tag not in kinds:
        raise TextError(f"the tag {tag} is not allowed", line)
    value = resolved(text, line)
    if not isinstance(value, kinds[tag]) or (isinstance(value, bool) and bool not in kinds[tag]):
        raise TextError(f'"{text[:40]}" is no {tag.removeprefix(_TAG)}', line)
    return value


def resolved(text: str, line: int) -> Any:
    """The value of a plain scalar: null, a boolean, a number, or text."""
    if text in _NULL:
        return None
    first = text[0]
    if first in "yYnNtTfFoO":
        return _BOOLEANS.get(text, text)
    if text in _NOT_FINITE:
        raise TextError(f"{text} is not a number JSON can represent; quote it if it is text", line)
    if first == ".":
        return _float(text) if _FLOAT.fullmatch(text) else text
    if first in "+-0123456789":
        return _number(text)
    return text


def _number(text: str) -> Any:
    plain = text.replace("_", "")
    if len(plain) > MAX_DIGITS:
        return text  # no number a JSON reader would accept
    if parts := _INTEGER.fullmatch(plain):
        sign, _, hexadecimal, _, binary, _, octal, decimal = parts.groups()
        by_base = {16: hexadecimal, 2: binary, 8: octal, 10: decimal}
        base, digits = next(
            (base, digits) for base, digits in by_base.items() if digits is not None
        )
        value = -int(digits, base) if sign == "-" else int(digits, base)
        if -(2**63) <= value < 2**64:
            return value
    return _float(plain, text) if _FLOAT.fullmatch(plain) else text


def _float(plain: str, text: str | None = None) -> Any:
    value = float(plain)
    if not math.isfinite(value):
        return text if text is not None else plain
    # Go writes a whole number without fraction below 10^21, shortest digits first: 1e3 is the integer 1000.
    is_whole = value.is_integer() and abs(value) < 1e21
    return int(decimal.Decimal(repr(value))) if is_whole else value
