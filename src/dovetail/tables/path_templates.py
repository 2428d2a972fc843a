"""The output formats `-o jsonpath=` and `-o custom-columns=` of `dovetail get`, and the order of `--sort-by`.

Given a template and Kubernetes objects as trees; returns text. A template is text with paths in braces, `{range PATH}`
to `{end}`, and `{"\n"}`; what a path does not find prints nothing, as with kubectl. Raises InputError naming the part
it cannot read. Never prints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.kubetypes import json_paths
from dovetail.tables import text

Tree = dict[str, Any]

NOTHING: Final = "<none>"  # what kubectl prints in a column without a value
_PART: Final = re.compile(r"""\{(?P<inside>(?:"[^"]*"|'[^']*'|[^{}"'])*)\}|(?P<text>[^{]+)""")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


class _Literal(NamedTuple):
    text: str


class _Value(NamedTuple):
    path: json_paths.Path


class _Range(NamedTuple):
    path: json_paths.Path
    body: tuple[_Literal | _Value | _Range, ...]


_Node = _Literal | _Value | _Range


def printed(template: str, tree: Any) -> str:
    """What a jsonpath template prints about an object or a list of them."""
    nodes, rest = _nodes(list(_parts(template)), template, is_inside=False)
    assert not rest
    return "".join(_text(node, tree) for node in nodes)


def columns(definition: str, trees: Sequence[Tree], *, has_headers: bool) -> list[str]:
    """The lines of custom columns, `HEADER:PATH,HEADER:PATH`."""
    pairs = [part.partition(":") for part in re.split(r",(?![^\[]*\])", definition)]
    if not all(header and path for header, _, path in pairs):
        raise errors.InputError(
            f'custom-columns "{definition}": expected HEADER:PATH, joined by commas'
        )
    paths = [path_of(path) for _, _, path in pairs]
    lines = [[header for header, _, _ in pairs]] if has_headers else []
    lines += [[_cell(path.values(tree)) for path in paths] for tree in trees]
    return text.aligned(lines)


def path_of(written: str) -> json_paths.Path:
    """A path as people write it: `.a.b`, `a.b` or `{.a.b}`."""
    bare = written.strip()
    if bare.startswith("{") and bare.endswith("}"):
        bare = bare[1:-1].strip()
    if not bare or "{" in bare or "}" in bare:
        raise errors.InputError(f'"{written}" is not a path; expected one such as .metadata.name')
    return json_paths.parsed(bare)


def sort_key(path: json_paths.Path, tree: Tree) -> tuple[int, float, list[tuple[int, int, str]]]:
    """Objects without the value first, then numbers, then text with its numbers read."""
    selected = path.values(tree)
    if not selected:
        return 0, 0.0, []
    value = selected[0]
    if isinstance(value, int | float):
        return 1, float(value), []
    return 2, 0.0, text.natural(_word(value))


def _parts(template: str) -> list[str | _Literal]:
    """Text as literals, and what stands in braces."""
    parts: list[str | _Literal] = []
    at = 0
    while at < len(template):
        part = _PART.match(template, at)
        if part is None:
            raise errors.InputError(f'jsonpath "{template}": unclosed "{template[at:]}"')
        inside = part["inside"]
        parts.append(_Literal(part["text"]) if inside is None else inside.strip())
        at = part.end()
    return parts


def _nodes(
    parts: list[str | _Literal], template: str, *, is_inside: bool
) -> tuple[tuple[_Node, ...], list[str | _Literal]]:
    """The nodes up to the end of the template or of a range, and the parts after it."""
    nodes: list[_Node] = []
    while parts:
        part, *parts = parts
        if isinstance(part, _Literal):
            nodes.append(part)
        elif part == "end":
            if not is_inside:
                raise errors.InputError(f'jsonpath "{template}": {{end}} without {{range}}')
            return tuple(nodes), parts
        elif part.startswith("range "):
            body, parts = _nodes(parts, template, is_inside=True)
            nodes.append(_Range(json_paths.parsed(part.removeprefix("range ").strip()), body))
        elif part[:1] in ("'", '"'):
            nodes.append(_Literal(_unescaped(part[1:-1])))
        else:
            nodes.append(_Value(json_paths.parsed(part)))
    if is_inside:
        raise errors.InputError(f'jsonpath "{template}": {{range}} without {{end}}')
    return tuple(nodes), []


def _unescaped(literal: str) -> str:
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), literal)


def _text(node: _Node, tree: Any) -> str:
    match node:
        case _Literal(literal):
            return literal
        case _Value(path):
            return " ".join(map(_word, path.values(tree)))
        case _Range(path, body):
            items = path.values(tree)
            return "".join(_text(below, item) for item in items for below in body)


def _cell(selected: list[Any]) -> str:
    return ",".join(map(_word, selected)) if selected else NOTHING


def _word(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
