"""Definitions of table columns, and the parts of an object that most of them read.

Given plain trees; returns values for cells. Never reads a store.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dovetail.sim.rest.printing.printed_values import age

Tree = dict[str, Any]
Cells = list[Any]
CellsOf = Callable[[Tree, datetime.datetime], Cells]
WIDE: Final = 1  # the priority of columns that only -o wide shows


class Definition(NamedTuple):
    """One column."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


class Printer(NamedTuple):
    """The columns of a kind and how their cells come about."""

    columns: tuple[Definition, ...]
    cells: CellsOf


NAME: Final = Definition(
    "Name", format="name", description="Name must be unique within a namespace."
)
AGE: Final = Definition("Age", description="How long ago the object was created.")


def columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[Definition, ...]:
    """Definitions by name; `Name:integer` states another type than text."""
    definitions = [NAME]
    for priority, group in ((0, names), (WIDE, wide)):
        for name in group:
            title, _, type_ = name.partition(":")
            definitions.append(Definition(title, type_ or "string", priority))
    return tuple(definitions)


def age_of(tree: Tree, now: datetime.datetime) -> str:
    """How long ago an object was created."""
    return age(tree["metadata"].get("creationTimestamp"), now)


def spec_of(tree: Tree) -> Tree:
    """The spec; empty if there is none."""
    spec: Tree = tree.get("spec") or {}
    return spec


def status_of(tree: Tree) -> Tree:
    """The status; empty if there is none."""
    status: Tree = tree.get("status") or {}
    return status


def name_of(tree: Tree) -> str:
    """The name."""
    return str(tree["metadata"]["name"])
