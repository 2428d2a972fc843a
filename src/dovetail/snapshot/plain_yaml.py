"""Reads the plain part of YAML quickly: block mappings and lists with scalars on one line, and literal texts.

That is most of what kubectl prints. Given the text of one document; returns what `manifest/yaml_text.py` would return,
or None where the text uses anything else (folded texts, flow style, anchors, tags, faults): the caller then reads it
with that module. The lines of a large dump repeat, so every line is taken apart once. Never guesses.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from dovetail.manifest import yaml_text

MAX_KNOWN_LINES: Final = 100_000  # taken apart and kept; some megabytes

# A plain scalar may begin with none of YAML's signs, and hold neither a comment nor another key.
_PLAIN: Final = r"(?:[A-Za-z0-9/.+(<=^$_~;\\]|--?(?=[0-9A-Za-z.]))(?:[!-~]| (?![ #]))*"
_QUOTED: Final = r"\"(?:[ !#-\[\]-~]|\\[\"\\nt])*\"|'(?:[ -&(-~]|'')*'"
_KEY: Final = r"[A-Za-z][A-Za-z0-9_./-]*(?::[A-Za-z0-9_./-]+)*"
_LINE: Final = re.compile(
    rf"(?P<indent> *)(?P<item>- )?(?:(?P<key>{_KEY}):(?: (?P<value>.+))?|(?P<scalar>.+))"
)
_SCALAR: Final = re.compile(rf"(?P<plain>{_PLAIN})|(?P<quoted>{_QUOTED})|\{{\}}|\[\]")
_INNER_KEY: Final = re.compile(r":(?: |$)")
_ITEM_WIDTH: Final = 2  # of "- "

_NESTED: Final = object()  # the value stands in the lines below, or there is none
_EMPTY_MAPPING: Final = object()  # a new one for every line that says so
_EMPTY_LIST: Final = object()
_LITERAL: Final = object()  # a text in the lines below, with one line end at its own end
_LITERAL_STRIPPED: Final = object()  # the same without

# Indent, whether it begins an item of a list, key (None: a scalar in a list), value.
_Entry = tuple[int, bool, str | None, Any]
_Waiting = tuple[dict[str, Any], str, int]


def parsed(text: str) -> Any | None:
    """The tree of a document that is plain throughout, never None; None for any other."""
    if not text.isascii() or "\t" in text or "\r" in text:
        return None
    lines = text.split("\n")
    if lines[0].rstrip() == "---":
        lines[0] = ""
    return _Builder().tree(lines)


class _Builder:
    """Puts lines together. The innermost open container is the last of the stack."""

    def __init__(self) -> None:
        self._stack: list[tuple[int, Any, bool]] = []  # indent, container, whether it is a list
        self._root: Any = None
        # A key whose value has not been seen yet, its mapping and its indent.
        self._waiting: _Waiting | None = None

    def tree(self, lines: list[str]) -> Any | None:
        resume_at = 0
        for number, line in enumerate(lines):
            if number < resume_at:
                continue
            entry = _known.get(line)
            if entry is None:
                if not line or line.lstrip(" ")[:1] in ("", "#"):
                    continue
                entry = _entry_of(line)
                if entry is None:
                    return None
            value = entry[3]
            if value is _LITERAL or value is _LITERAL_STRIPPED:
                literal = _literal(lines, number + 1, entry[0])
                if literal is None:
                    return None
                text, resume_at = literal
                ending = "\n" if value is _LITERAL else ""
                entry = (*entry[:3], text + ending)
            if not self._add(entry):
                return None
        return self._root

    def _add(self, entry: _Entry) -> bool:
        indent, is_item, key, value = entry
        if is_item:
            container = self._list_at(indent)
            if container is None:
                return False
            if key is None:
                container.append(_fresh(value))
                return True
            indent += _ITEM_WIDTH
            mapping: dict[str, Any] = {}
            container.append(mapping)
            self._stack.append((indent, mapping, False))
        elif key is None:
            return False
        else:
            found = self._mapping_at(indent)
            if found is None or key in found:
                return False
            mapping = found
        if value is _NESTED:
            mapping[key] = None
            self._waiting = (mapping, key, indent)
        else:
            mapping[key] = _fresh(value)
        return len(self._stack) < yaml_text.MAX_DEPTH

    def _mapping_at(self, indent: int) -> dict[str, Any] | None:
        """The mapping that a key with this indent belongs to; None where no mapping has that indent."""
        waiting = self._waiting
        if waiting is not None:
            self._waiting = None
            if indent > waiting[2]:
                return self._new_mapping(indent, waiting)
        stack = self._stack
        while stack and (stack[-1][0] > indent or (stack[-1][0] == indent and stack[-1][2])):
            stack.pop()
        if stack:
            top_indent, container, is_list = stack[-1]
            mapping: dict[str, Any] | None = container
            return mapping if top_indent == indent and not is_list else None
        return None if self._root is not None else self._new_mapping(indent, None)

    def _list_at(self, indent: int) -> list[Any] | None:
        """The list that an item with this indent belongs to."""
        waiting = self._waiting
        if waiting is not None:
            self._waiting = None
            if indent >= waiting[2]:
                return self._new_list(indent, waiting)
        stack = self._stack
        while stack and stack[-1][0] > indent:
            stack.pop()
        if stack:
            top_indent, container, is_list = stack[-1]
            items: list[Any] | None = container
            return items if top_indent == indent and is_list else None
        return None if self._root is not None else self._new_list(indent, None)

    def _new_mapping(self, indent: int, waiting: _Waiting | None) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        self._open(indent, mapping, waiting, is_list=False)
        return mapping

    def _new_list(self, indent: int, waiting: _Waiting | None) -> list[Any]:
        items: list[Any] = []
        self._open(indent, items, waiting, is_list=True)
        return items

    def _open(
        self, indent: int, container: Any, waiting: _Waiting | None, *, is_list: bool
    ) -> None:
        """Puts a container in its place: the value of the key that waits for one, or the whole document."""
        if waiting is None:
            self._root = container
        else:
            mapping, key, _ = waiting
            mapping[key] = container
        self._stack.append((indent, container, is_list))


_known: dict[str, _Entry] = {}


def _literal(lines: list[str], start: int, indent: int) -> tuple[str, int] | None:
    """The text of a literal and the line after it; None where it is empty or not plain. `indent` is that of its key."""
    first = next((line for line in lines[start : start + 1]), "")
    width = len(first) - len(first.lstrip(" "))
    if width <= indent or width == len(first):
        return None
    margin = first[:width]
    texts: list[str] = []
    number = start
    while number < len(lines):
        line = lines[number]
        if line.startswith(margin):
            if not line.isprintable():
                return None
            texts.append(line[width:])
        elif line.strip(" "):
            break
        else:
            texts.append("")
        number += 1
    if number == len(lines) and lines[-1]:
        return None  # without a line end, which then is not part of the text either
    while texts and not texts[-1]:
        texts.pop()
    return "\n".join(texts), number


def _entry_of(line: str) -> _Entry | None:
    """A line taken apart; None where it is not plain."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    indent, is_item, key = len(match["indent"]), match["item"] is not None, match["key"]
    if key is None:
        if not is_item:
            return None
        value = _value_of(match["scalar"])
    elif key in yaml_text.WORDS:
        return None
    else:
        value = _NESTED if match["value"] is None else _value_of(match["value"])
    if value is None:
        return None
    entry = (indent, is_item, key, value)
    if len(_known) >= MAX_KNOWN_LINES:
        _known.clear()
    _known[line] = entry
    return entry


_NULL: Final = object()


def _value_of(text: str) -> Any:
    """The value of a scalar; None where it is not plain."""
    if text == "|":
        return _LITERAL
    if text == "|-":
        return _LITERAL_STRIPPED
    match = _SCALAR.fullmatch(text)
    if match is None:
        return None
    if text == "{}":
        return _EMPTY_MAPPING
    if text == "[]":
        return _EMPTY_LIST
    if match["quoted"] is not None:
        if "\\" in text and text[0] == '"':
            return msgspec.json.decode(text)  # of these escapes, JSON has the same
        inner = text[1:-1]
        return inner.replace("''", "'") if text[0] == "'" else inner
    if _INNER_KEY.search(text):
        return None
    try:
        value = yaml_text.resolved(text, 1)
    except yaml_text.TextError:
        return None
    return _NULL if value is None else value


def _fresh(value: Any) -> Any:
    """The value that a line stands for: containers are never shared between lines."""
    if value is _EMPTY_MAPPING:
        return {}
    if value is _EMPTY_LIST:
        return []
    return None if value is _NULL else value
