"""The JSON paths of printer columns and scale subresources: a field, an index, or a filter by one equality.

Given a path such as `.status.conditions[?(@.type=="Ready")].status` and a tree; returns the values it selects. What it
cannot read selects nothing. Never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from dovetail import cache

Tree = dict[str, Any]

_STEP: Final = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\]\\])+)
    |\[(?P<index>-?\d+)\]
    |\[(?P<start>-?\d*):(?P<end>-?\d*)\]
    |\[(?P<all>\*)\]
    |\['(?P<quoted>[^']*)'\]
    |\[\?\(@(?P<path>(?:\.[\w-]+)+)\s*==\s*(?P<mark>["'])(?P<value>.*?)(?P=mark)\)\]""",
    re.VERBOSE,
)

Step = re.Match[str]


def values(path: str, tree: Any) -> list[Any]:
    """Everything the path selects."""
    selected = [tree]
    for step in _steps(path):
        selected = [value for item in selected for value in _below(step, item)]
    return selected


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


@cache.remembered()
def _steps(path: str) -> tuple[Step, ...]:
    steps = []
    at = 0
    text = path if path.startswith((".", "[")) else f".{path}"
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return ()
        steps.append(step)
        at = step.end()
    return tuple(steps)


def _below(step: Step, item: Any) -> Iterator[Any]:
    if step["field"] is not None or step["quoted"] is not None:
        name = step["quoted"] if step["quoted"] is not None else step["field"].replace("\\", "")
        if isinstance(item, dict) and item.get(name) is not None:
            yield item[name]
        return
    if not isinstance(item, list):
        return
    if step["index"] is not None:
        index = int(step["index"])
        if -len(item) <= index < len(item):
            yield item[index]
    elif step["all"] is not None:
        yield from item
    elif step["start"] is not None:
        start = int(step["start"]) if step["start"] else None
        end = int(step["end"]) if step["end"] else None
        yield from item[start:end]
    else:
        for entry in item:
            if str(first(step["path"], entry)) == step["value"]:
                yield entry
