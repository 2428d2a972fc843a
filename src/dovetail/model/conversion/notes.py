"""Keeps account of what became of every field of an object that is converted: none is lost without a word.

Given an object as a tree; whoever converts it says what became of which field, and what nobody spoke of is told as not
known. Never decides what a field means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

Tree = dict[str, Any]
Path = tuple[str | int, ...]

OWNED: Final = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
        "ownerReferences",
        "finalizers",
    }
)
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# Labels and annotations by which a deployment tool knows its objects again: on an object it did not make they would
# have it pruned or fought over.
TOOLS: Final = (
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/instance",
    "argocd.argoproj.io/",
    "meta.helm.sh/",
    "helm.sh/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
)
UNKNOWN: Final = "this conversion does not know the field"
SERVERS_OWN: Final = "the server's own, not its owner's wish"
SAYS_NOTHING: Final = "it is empty"
GIVEN_AGAIN: Final = "the same object is given again further down, and the last one counts"


class Fate(StrEnum):
    """What became of a field."""

    CARRIED = "carried over"
    APPROXIMATED = "approximated"
    DROPPED = "dropped"
    ADDED = "added"  # what no field says, and what stands there so that the rest means the same
    LEFT_OUT = "left out"  # what is nobody's wish: status, and marks that the server and tools make for themselves


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one field, and of all below it."""

    object: str
    field: str
    fate: Fate
    to: str = ""  # where it stands now
    why: str = ""


class Conversion(msgspec.Struct, frozen=True):
    """Our objects, and what became of theirs."""

    objects: tuple[Tree, ...]
    notes: tuple[Note, ...]

    def count(self, fate: Fate) -> int:
        """How many fields met this fate."""
        return sum(one.fate is fate for one in self.notes)


class Source:
    """One object to convert, and the account of its fields."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        metadata = mapping(tree.get("metadata"))
        self.kind = str(tree.get("kind") or "")
        self.group, _, self.version = str(tree.get("apiVersion") or "").rpartition("/")
        self.name = str(metadata.get("name") or "")
        self.namespace = str(metadata.get("namespace") or "")
        self._notes: dict[Path, Note] = {}

    @property
    def subject(self) -> str:
        """How notes name it."""
        return f"{self.kind or 'object'} {self.namespace + '/' if self.namespace else ''}{self.name or '<unnamed>'}"

    def at(self, *path: str | int) -> Any:
        """The value of a field; None where it is not there, or where nothing of that shape is."""
        found: Any = self.tree
        for step in path:
            if isinstance(step, int):
                found = found[step] if isinstance(found, list) and step < len(found) else None
            else:
                found = found.get(step) if isinstance(found, dict) else None
        return found

    def has(self, *path: str | int) -> bool:
        """Whether the field says something."""
        return self.at(*path) is not None

    def carried(self, *path: str | int, to: str) -> None:
        """The field says the same over there."""
        self._note(path, Fate.CARRIED, to=to)

    def approximated(self, *path: str | int, to: str, why: str) -> None:
        """The field says something alike over there."""
        self._note(path, Fate.APPROXIMATED, to=to, why=why)

    def dropped(self, *path: str | int, why: str) -> None:
        """Nothing over there says this; without a path, nothing of the whole object."""
        self._note(path, Fate.DROPPED, why=why)

    def left_out(self, *path: str | int, why: str) -> None:
        """The field is nobody's wish, so nothing is lost; without a path, the whole object."""
        self._note(path, Fate.LEFT_OUT, why=why)

    def finished(self) -> Iterator[Note]:
        """The whole account, in the order of the fields; fields nobody spoke of are told as unknown."""
        for path in leaves(self.tree):
            if path in (("apiVersion",), ("kind",)) or self._is_covered(path):
                continue
            if path[0] == "status":
                self._note(("status",), Fate.LEFT_OUT, why=SERVERS_OWN)
            elif path[0] == "metadata" and len(path) > 1 and path[1] in OWNED:
                self._note(path[:2], Fate.LEFT_OUT, why=SERVERS_OWN)
            elif path == ("spec",) and self.at("spec") == {}:
                self._note(path, Fate.LEFT_OUT, why=SAYS_NOTHING)
            else:
                self._note(path, Fate.DROPPED, why=UNKNOWN)
        yield from self._notes.values()

    def _is_covered(self, path: Path) -> bool:
        return any(path[:length] in self._notes for length in range(len(path) + 1))

    def _note(self, path: Path, fate: Fate, *, to: str = "", why: str = "") -> None:
        if self.at(*path) is not None:
            self._notes[path] = Note(object=self.subject, field=written(path), fate=fate, to=to, why=why)


def sources(trees: Sequence[Tree]) -> tuple[list[Source], list[Source]]:
    """The objects to convert, and those that are given again further down, as when two exports overlap."""
    last: dict[tuple[str, str, str, str], Source] = {}
    early: list[Source] = []
    for source in map(Source, trees):
        key = (source.group, source.kind, source.namespace, source.name)
        if key in last:
            last[key].left_out(why=GIVEN_AGAIN)
            early.append(last.pop(key))
        last[key] = source
    return list(last.values()), early


def mapping(value: Any) -> Tree:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of everything that says something: values, and objects and lists that are empty. Null says nothing."""
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from leaves(below, (*path, name))
    elif isinstance(value, list) and value:
        for index, below in enumerate(value):
            yield from leaves(below, (*path, index))
    elif value is not None and path:
        yield path


def written(path: Path) -> str:
    """`spec.levels[0].nodeLabel`; names that hold a dot stand in brackets."""
    text = ""
    for step in path:
        plain = isinstance(step, str) and "." not in step and "/" not in step and bool(step)
        text += f"{'.' if text else ''}{step}" if plain else f"[{step}]"
    return text


def metadata_of(source: Source, name: str, *, kind: str, renamed: str = "the name must fit into a label") -> Tree:
    """The metadata of the object made of this one: its labels and annotations, under a name that fits."""
    target = f"{kind} {name}: metadata"
    if source.name == name:
        source.carried("metadata", "name", to=f"{target}.name")
    else:
        source.approximated("metadata", "name", to=f"{target}.name = {name}", why=renamed)
    made: Tree = {"name": name}
    for field in ("labels", "annotations"):
        kept = {}
        for key, value in mapping(source.at("metadata", field)).items():
            if key == LAST_APPLIED:
                source.left_out("metadata", field, key, why="kubectl's own")
            elif key.startswith(TOOLS):
                source.left_out("metadata", field, key, why="the mark of a tool that did not make this object")
            else:
                source.carried("metadata", field, key, to=f"{target}.{field}")
                kept[key] = value
        if kept:
            made[field] = kept
    return made
