"""The form of an answer of `dovetail why -o json`, and of what it prints for people.

Given the text of an answer. Reads JSON into structs, so that a missing field or a wrong type is an error that names its
place; fields that scripts do not rely on may be added. Never judges what an answer says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tests.answers import story_file

WIDTH: Final = 100  # columns
Tree = dict[str, Any]


class ObjectRef(msgspec.Struct, frozen=True, rename="camel"):
    """The object that a patch is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""


class Patch(msgspec.Struct, frozen=True):
    """One change: a merge patch, a deletion or a creation."""

    object: ObjectRef
    merge: Tree | None = None
    delete: bool = False
    create: Tree | None = None

    def __post_init__(self) -> None:
        changes = (self.merge is not None, self.delete, self.create is not None)
        if sum(changes) != 1:
            raise ValueError("expected exactly one of merge, delete and create")


class Fix(msgspec.Struct, frozen=True):
    """A suggestion."""

    who: story_file.Who
    patch: list[Patch]
    verified: bool
    effect: str
    title: str = ""


class Cause(msgspec.Struct, frozen=True, rename={"class_": "class"}):
    """What keeps the pod from starting."""

    class_: story_file.Class
    code: str
    sentence: str


class Answer(msgspec.Struct, frozen=True):
    """The whole answer."""

    schedulable: bool
    cause: Cause | None
    funnel: list[Tree]
    holders: list[Tree]
    fixes: list[Fix]


def read(text: str) -> Answer:
    """The answer. Raises msgspec.ValidationError or DecodeError that names the place."""
    return msgspec.json.decode(text, type=Answer)


def printed_problems(text: str) -> Iterator[str]:
    """What is wrong with an answer as people see it: lines that are too long, headings with nothing below."""
    lines = text.rstrip("\n").split("\n")
    if not text.strip():
        yield "nothing is printed"
    for line in lines:
        if len(line) > WIDTH:
            yield f"{len(line)} columns: {line}"

    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        is_heading = re.fullmatch(r"\s*[\w ,]+:", line) is not None
        is_list = next_line.lstrip().startswith("- ")  # of YAML: as far to the left as its key
        if is_heading and not is_list and _indent(next_line) <= _indent(line):
            yield f"nothing under the heading {line.strip()}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else -1
