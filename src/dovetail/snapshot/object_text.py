"""Cuts the text of a dump into single objects: YAML documents, JSON, JSON lines, lists of any sort, all mixed.

Given the bytes of one file. Every object comes as JSON with its place; what cannot be read comes as a problem, and the
rest goes on. A list as kubectl prints it is cut into its items before YAML is parsed: a fault costs one item, not the
file, and large lists stay within the bounds of a document. Secrets are left where they stand. Never reads files, never
decides what an object means.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.kubetypes import codec, untyped
from dovetail.manifest import manifests, yaml_text
from dovetail.snapshot import plain_yaml

MAX_LIST_DEPTH: Final = 8  # ours; lists of lists
SECRET: Final = ("v1", "Secret")

_DOCUMENT_MARK: Final = re.compile(r"^---(?=[ \t\n]|\Z)", re.MULTILINE)
_ITEM_MARK: Final = re.compile(r"^- ", re.MULTILINE)
_ITEMS_KEY: Final = re.compile(r"^items:[ \t]*\n", re.MULTILINE)
_TOP_KEY: Final = re.compile(r"^[A-Za-z]", re.MULTILINE)
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # what PowerShell's `>` writes
_EXPECTED: Final = "expected an object with apiVersion and kind"


class Place(NamedTuple):
    """Where an object stands: a document of a file, the line it begins in, and its path inside a list."""

    file: str
    document: int
    line: int
    path: str = ""

    def problem(self, subject: str, path: str, message: str) -> manifests.ManifestProblem:
        """Something wrong with the object that stands here."""
        whole_path = f"{self.path}.{path}" if self.path and path else self.path or path
        return manifests.ManifestProblem(
            self.file, self.document, subject, whole_path, message, self.line
        )

    def item(self, number: int) -> Place:
        """The place of an item of the list that stands here."""
        item = f"items[{number}]"
        return self._replace(path=f"{self.path}.{item}" if self.path else item)


class WrittenObject(NamedTuple):
    """One object of a dump, as JSON with apiVersion and kind."""

    place: Place
    api_version: str
    kind: str
    document: bytes


class SecretSeen(NamedTuple):
    """A Secret stands there. Nothing of it is kept."""

    place: Place


Part = WrittenObject | SecretSeen | manifests.ManifestProblem


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    """What tells an object from a list. Any other type of a field is a problem of the object."""

    api_version: str | None = None
    kind: str | None = None
    items: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_HEAD: Final = msgspec.json.Decoder(_Head)
_RAW_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw] | None)
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def parts(file: str, content: bytes) -> Iterator[Part]:
    """The objects of a file, and what is wrong with it, in the order they stand there."""
    start = content[:4096].lstrip(codecs.BOM_UTF8 + b" \t\r\n")[:1]
    if start in (b"{", b"["):
        yield from _json_parts(file, content.removeprefix(codecs.BOM_UTF8))
        return
    try:
        text = _text_of(content)
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text: byte {error.start} cannot be read"
        yield Place(file, 0, 0).problem("", "", message)
        return
    if text.lstrip()[:1] in ("{", "["):
        yield from _json_parts(file, text.encode())
    else:
        yield from _yaml_parts(file, text)


def _text_of(content: bytes) -> str:
    if content.startswith(_UTF_16):
        text = content.decode("utf-16")
    else:
        text = content.decode()
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


# JSON


def _json_parts(file: str, content: bytes) -> Iterator[Part]:
    """One value, a value in every line, or several values one after the other; YAML documents may follow."""
    if _is_json(content):
        yield from _value_parts(Place(file, 1, 1), content)
        return
    lines = content.split(b"\n")
    first = next(line for line in lines if line.strip())
    if _is_json(first):
        yield from _line_parts(file, lines)
        return
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text: byte {error.start} cannot be read"
        yield Place(file, 1, 1).problem("", "", message)
        return
    yield from _yaml_parts(file, text.replace("\r\n", "\n"))


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except _NOT_JSON:
        return False
    return True


def _line_parts(file: str, lines: list[bytes]) -> Iterator[Part]:
    document = 0
    for number, line in enumerate(lines, start=1):
        if line.strip():
            document += 1
            yield from _value_parts(Place(file, document, number), line)


def _value_parts(place: Place, content: bytes) -> Iterator[Part]:
    """A JSON value: an object, a list of objects, or an array of either."""
    is_array = content.lstrip()[:1] == b"["
    try:
        if is_array:
            yield from _item_parts(place, _RAW_ITEMS.decode(content) or [], "", "")
            return
        head = _HEAD.decode(content)
    except msgspec.ValidationError:
        yield place.problem("", *_type_problem(content))
        return
    except _NOT_JSON as error:
        yield place.problem("", "", f"not JSON: {error}")
        return
    yield from _headed_parts(place, head, content)


def _headed_parts(place: Place, head: _Head, content: bytes) -> Iterator[Part]:
    api_version, kind = head.api_version or "", head.kind or ""
    if kind.endswith("List") and head.items is not msgspec.UNSET:
        try:
            items = _RAW_ITEMS.decode(head.items) or []
        except msgspec.ValidationError:
            yield place.problem(kind, "items", "expected a list")
            return
        # Typed lists leave out what each item's type would repeat.
        is_typed = kind != "List"
        item_kind = kind.removesuffix("List") if is_typed else ""
        yield from _item_parts(place, items, api_version if is_typed else "", item_kind)
    elif not api_version or not kind:
        field = "kind" if api_version else "apiVersion"
        is_list = api_version == "v1" and head.items is not msgspec.UNSET
        # kubectl ends a List with its kind.
        hint = "; the file seems to be cut off" if is_list and not kind else ""
        yield place.problem(kind, field, f"{_EXPECTED}; this is not there{hint}")
    elif (api_version, kind) == SECRET:
        yield SecretSeen(place)
    else:
        yield WrittenObject(place, api_version, kind, content)


def _item_parts(
    place: Place, items: list[msgspec.Raw], api_version: str, kind: str
) -> Iterator[Part]:
    if place.path.count("items[") >= MAX_LIST_DEPTH:
        yield place.problem("", "", f"lists in lists, more than {MAX_LIST_DEPTH} deep")
        return
    if (api_version, kind) == SECRET:
        yield from (SecretSeen(place.item(number)) for number in range(len(items)))
        return
    for number, raw in enumerate(items):
        item, item_place = bytes(raw), place.item(number)
        if kind:
            item = _typed(item, api_version, kind)
        yield from _value_parts(item_place, item)


def _typed(item: bytes, api_version: str, kind: str) -> bytes:
    """The item of a typed list with its type, where it leaves that out."""
    try:
        head = _HEAD.decode(item)
    except _NOT_JSON:
        return item
    if head.api_version and head.kind:
        return item
    tree = codec.parsed(item)
    written = {name: value for name, value in tree.items() if value is not None}
    return codec.encode_tree({"apiVersion": api_version, "kind": kind} | written)


def _type_problem(content: bytes) -> tuple[str, str]:
    """The field and message of a value that is no object, or one whose type is not text."""
    try:
        value = msgspec.json.decode(content)
    except _NOT_JSON as error:
        return "", f"not JSON: {error}"
    if not isinstance(value, dict):
        return "", f"{_EXPECTED}, got {untyped.shown(value)}"
    names = [name for name in ("apiVersion", "kind") if not isinstance(value.get(name), str)]
    field = names[0] if names else "items"
    return field, f"expected text, got {untyped.shown(value.get(field))}"


# YAML


def _yaml_parts(file: str, text: str) -> Iterator[Part]:
    """Every document of the text by itself: a fault in one leaves the others."""
    numbers = itertools.count(1)
    for line, document_text in _cut(text, _DOCUMENT_MARK, first_line=1):
        listed = _list_items(document_text)
        if listed is not None:
            yield from _listed_parts(Place(file, next(numbers), line), document_text, listed)
            continue
        try:
            for document in _trees(document_text):
                place = Place(file, next(numbers), line + document.line - 1)
                yield from _tree_parts(place, document.tree)
        except yaml_text.TextError as error:
            place = Place(file, next(numbers), line + error.line - 1)
            yield place.problem("", "", error.message)


def _trees(text: str) -> Iterator[yaml_text.Document]:
    """The documents of a text; by the quick way where all of it is plain."""
    tree = plain_yaml.parsed(text)
    if tree is not None:
        yield yaml_text.Document(1, tree)
    else:
        yield from yaml_text.documents(text)


def _tree_parts(place: Place, tree: Any) -> Iterator[Part]:
    """The objects of a parsed document."""
    try:
        _drop_managed_fields(tree)
        content = codec.encode_tree(tree)
    except errors.InputError as error:
        yield place.problem("", "", str(error))
        return
    yield from _value_parts(place, content)


def _drop_managed_fields(tree: Any) -> None:
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)


class _ListText(NamedTuple):
    """A list whose items begin with `- ` at the start of a line: where they begin and end, and what is around them."""

    start: int
    end: int
    frame: dict[str, Any]


def _list_items(text: str) -> _ListText | None:
    """The items of a list as kubectl prints it; None for any other document.

    Nothing inside an item can begin a line: its own text is indented. A quoted text that breaks this rule is cut open
    and fails to parse, and then the document is read as a whole.
    """
    key = _ITEMS_KEY.search(text)
    if key is None or not text.startswith("- ", key.end()):
        return None
    after = _TOP_KEY.search(text, key.end())
    end = after.start() if after else len(text)
    frame_text = text[: key.end()] + text[end:]
    try:
        frames = list(yaml_text.documents(frame_text))
    except yaml_text.TextError:
        return None
    if len(frames) != 1 or not isinstance(frames[0].tree, dict):
        return None
    frame = frames[0].tree
    is_list = str(frame.get("kind") or "").endswith("List") and frame.get("items", 0) is None
    return _ListText(key.end(), end, frame) if is_list else None


def _listed_parts(place: Place, text: str, listed: _ListText) -> Iterator[Part]:
    kind = str(listed.frame["kind"])
    is_typed = kind != "List"
    api_version = str(listed.frame.get("apiVersion") or "") if is_typed else ""
    item_kind = kind.removesuffix("List") if is_typed else ""
    first_line = place.line + text.count("\n", 0, listed.start)
    pieces = [*_cut(text[listed.start : listed.end], _ITEM_MARK, first_line=first_line)]
    if (api_version, item_kind) == SECRET:
        yield from (SecretSeen(place.item(number)) for number in range(len(pieces)))
        return
    items: list[Any] = []
    problems: list[Part] = []
    for number, (line, piece) in enumerate(pieces):
        try:
            [document] = _trees(piece)
            [item] = document.tree
            items.append((number, line, item))
        except yaml_text.TextError as error:
            at = place.item(number)._replace(line=line + error.line - 1)
            problems.append(at.problem("", "", error.message))
        except (TypeError, ValueError):
            at = place.item(number)._replace(line=line)
            problems.append(at.problem("", "", _EXPECTED))
    if problems:
        whole = _whole_tree(text)
        if whole is not None:  # the pieces were not what they seemed
            yield from _tree_parts(place, whole)
            return
    types = {"apiVersion": api_version, "kind": item_kind} if is_typed else {}
    for number, line, item in items:
        item_place = place.item(number)._replace(line=line)
        yield from _tree_parts(item_place, types | item if isinstance(item, dict) else item)
    yield from problems


def _whole_tree(text: str) -> Any | None:
    """The document, if it can be read in one piece."""
    try:
        trees = [document.tree for document in yaml_text.documents(text)]
    except yaml_text.TextError:
        return None
    return trees[0] if len(trees) == 1 else None


def _cut(text: str, mark: re.Pattern[str], *, first_line: int) -> Iterator[tuple[int, str]]:
    """The pieces of a text that begin with a mark, each with the line it begins in; empty ones are left out."""
    starts = [match.start() for match in mark.finditer(text)]
    edges = [0, *(start for start in starts if start), len(text)]
    line = first_line
    for start, end in itertools.pairwise(edges):
        piece = text[start:end]
        if piece.strip():
            yield line, piece
        line += piece.count("\n")
