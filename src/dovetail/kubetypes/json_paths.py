"""JSON paths as kubectl and CustomResourceDefinitions write them: fields, indexes, slices, wildcards and filters.

Given a path such as `.status.conditions[?(@.type=="Ready")].status` and a tree; returns the values it selects. `parsed`
refuses a path it cannot read; `values` and `first`, for paths that a server has stored, then select nothing. Never
changes a tree.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from dovetail import cache, errors

Tree = dict[str, Any]

_PATH: Final = r"@?(?P<path>(?:\.(?:\\.|[\w-])+|\[\d+\]|\['[^']*'\])*)"  # inside a filter
_STEP: Final = re.compile(
    rf"""\.\.(?P<anywhere>[\w-]+)
    |\.?(?P<all>\*|\[\*\])
    |\.(?P<field>(?:\\.|[^.\[\]\\*])+)
    |\[(?P<index>-?\d+)\]
    |\[(?P<start>-?\d*):(?P<end>-?\d*)\]
    |\[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
    |\[\?\(\s*{_PATH}\s*(?:(?P<compare>==|!=|<=|>=|<|>)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*)?\)\]""",
    re.VERBOSE,
)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Select = Callable[[Any], Iterator[Any]]


class Path(NamedTuple):
    """A path, ready to select."""

    steps: tuple[Select, ...]

    def values(self, tree: Any) -> list[Any]:
        """Everything the path selects."""
        selected = [tree]
        for select in self.steps:
            selected = [value for item in selected for value in select(item)]
        return selected


@cache.remembered()
def parsed(text: str) -> Path:
    """The path of a text with or without its first dot. Raises InputError at the part it cannot read."""
    bare = text.removeprefix("$").removeprefix("@")
    if bare in ("", "."):
        return Path(())
    steps = []
    at = 0
    whole = bare if bare.startswith((".", "[")) else f".{bare}"
    while at < len(whole):
        step = _STEP.match(whole, at)
        if step is None:
            raise errors.InputError(f'JSON path "{text}": cannot read "{whole[at:]}"')
        steps.append(_selection(step))
        at = step.end()
    return Path(tuple(steps))


def values(path: str, tree: Any) -> list[Any]:
    """Everything a stored path selects; nothing if it cannot be read."""
    try:
        return parsed(path).values(tree)
    except errors.InputError:
        return []


def first(path: str, tree: Any) -> Any:
    """The first value, or None."""
    selected = values(path, tree)
    return selected[0] if selected else None


def with_value(path: str, tree: Tree, value: Any) -> Tree:
    """The tree with another value at a path of plain fields."""
    fields = [name for name in path.split(".") if name]
    replaced: Tree = _replaced(tree, fields, value)
    return replaced


def _replaced(tree: Any, fields: list[str], value: Any) -> Any:
    if not fields:
        return value
    below = tree if isinstance(tree, dict) else {}
    return below | {fields[0]: _replaced(below.get(fields[0]), fields[1:], value)}


def _selection(step: re.Match[str]) -> Select:
    if step["anywhere"] is not None:
        return _anywhere(step["anywhere"])
    if step["all"] is not None:
        return _all_items
    if step["field"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", step["field"]))
    if step["quoted"] is not None:
        return _field(step["quoted"])
    if step["index"] is not None:
        return _index(int(step["index"]))
    if step["start"] is not None:
        start = int(step["start"]) if step["start"] else None
        end = int(step["end"]) if step["end"] else None
        return _slice(slice(start, end))
    return _filter(parsed(step["path"]), step["compare"], step["value"])


def _field(name: str) -> Select:
    def select(item: Any) -> Iterator[Any]:
        if isinstance(item, dict) and item.get(name) is not None:
            yield item[name]

    return select


def _anywhere(name: str) -> Select:
    """A field at any depth."""

    def select(item: Any) -> Iterator[Any]:
        if isinstance(item, dict) and item.get(name) is not None:
            yield item[name]
        for below in _all_items(item):
            yield from select(below)

    return select


def _all_items(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, list):
        yield from item


def _index(number: int) -> Select:
    def select(item: Any) -> Iterator[Any]:
        if isinstance(item, list) and -len(item) <= number < len(item):
            yield item[number]

    return select


def _slice(part: slice) -> Select:
    def select(item: Any) -> Iterator[Any]:
        if isinstance(item, list):
            yield from item[part]

    return select


def _filter(path: Path, compare: str | None, literal: str | None) -> Select:
    """The items of a list for which a comparison holds, or that have the field at all."""

    def select(item: Any) -> Iterator[Any]:
        for entry in item if isinstance(item, list) else ():
            selected = path.values(entry)
            if compare is None or literal is None:
                if selected:
                    yield entry
            elif selected and _holds(selected[0], compare, literal):
                yield entry

    return select


def _holds(value: Any, compare: str, literal: str) -> bool:
    """Compares as numbers where both are, else as text."""
    is_text = literal[:1] in ("'", '"')
    wanted: Any = literal[1:-1] if is_text else literal
    if isinstance(value, bool):
        value = str(value).lower()
    elif not is_text and isinstance(value, int | float):
        try:
            wanted = float(literal)
        except ValueError:
            return False
    else:
        value = str(value)
    return _COMPARISONS[compare](value, wanted)
