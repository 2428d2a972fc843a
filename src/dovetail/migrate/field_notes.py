"""Records what a conversion did with every field of an object, so that no field is lost silently.

Given an object as a tree. The converter records a fate per field; fields without one are reported as unknown. Never
decides what a field means.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
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
PLAIN_NAME: Final = re.compile(r"[^./]+", re.DOTALL)  # readable in a path without brackets
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# Labels and annotations by which a deployment tool recognises its objects. On an object it did not create, the tool
# would prune it or revert its fields.
TOOLS: Final = (
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/instance",
    "argocd.argoproj.io/",
    "meta.helm.sh/",
    "helm.sh/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
)
TYPE_FIELDS: Final = (("apiVersion",), ("kind",))  # every conversion reads them
UNKNOWN: Final = "this conversion does not know the field"
WRITTEN_BY_SERVER: Final = "written by the server, not by the owner"
EMPTY: Final = "it is empty"
DUPLICATE: Final = "the same object appears again further down, and the last one counts"


class Fate(StrEnum):
    """What became of a field."""

    CARRIED = "carried over"
    APPROXIMATED = "approximated"
    DROPPED = "dropped"
    ADDED = "added"  # not in the source, but needed so that the rest keeps its meaning
    LEFT_OUT = "left out"  # status, and fields that the server and tools write for themselves


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one field and of everything below it."""

    object: str
    field: str
    fate: Fate
    to: str = ""  # the field that holds it now
    why: str = ""


class Conversion(msgspec.Struct, frozen=True):
    """The converted objects, and the fate of every source field."""

    objects: tuple[Tree, ...]
    notes: tuple[Note, ...]

    def count(self, fate: Fate) -> int:
        """How many fields met this fate."""
        return sum(note.fate is fate for note in self.notes)


class Source:
    """One object to convert, and the fates of its fields."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.kind = self.text("kind")
        self.group, _, self.version = self.text("apiVersion").rpartition("/")
        self.name = self.text("metadata", "name")
        self.namespace = self.text("metadata", "namespace")
        self._notes: dict[Path, Note] = {}

    @property
    def subject(self) -> str:
        """Kind, namespace and name, as notes write them."""
        kind = self.kind or "object"
        name = self.name or "<unnamed>"
        return f"{kind} {self.namespace}/{name}" if self.namespace else f"{kind} {name}"

    def at(self, *path: str | int) -> Any:
        """The value of a field; None if it is absent or its parent has another shape."""
        value: Any = self.tree
        for step in path:
            if isinstance(step, int):
                following = items(value)[step : step + 1]
                value = following[0] if following else None
            else:
                value = mapping(value).get(step)
        return value

    def text(self, *path: str | int) -> str:
        """The value of a field as text; empty if it is absent."""
        return str(self.at(*path) or "")

    def has(self, *path: str | int) -> bool:
        """Whether the field is set."""
        return self.at(*path) is not None

    def carried(self, *path: str | int, to: str) -> None:
        """The converted field means the same."""
        self._note(path, Fate.CARRIED, to=to)

    def approximated(self, *path: str | int, to: str, why: str) -> None:
        """The converted field means nearly the same."""
        self._note(path, Fate.APPROXIMATED, to=to, why=why)

    def dropped(self, *path: str | int, why: str) -> None:
        """The field has no counterpart; without a path, the whole object has none."""
        self._note(path, Fate.DROPPED, why=why)

    def left_out(self, *path: str | int, why: str) -> None:
        """The owner did not write the field, so nothing is lost; without a path, the whole object."""
        self._note(path, Fate.LEFT_OUT, why=why)

    def notes(self) -> Iterator[Note]:
        """All notes in the order of the fields; fields without a note are reported as unknown."""
        for path in leaves(self.tree):
            if path not in TYPE_FIELDS and not self._is_covered(path):
                self._note_uncovered(path)
        yield from self._notes.values()

    def _note_uncovered(self, path: Path) -> None:
        """The fate of a field that the converter did not mention."""
        if path[0] == "status":
            self._note(("status",), Fate.LEFT_OUT, why=WRITTEN_BY_SERVER)
        elif path[0] == "metadata" and OWNED.intersection(path[1:2]):
            self._note(path[:2], Fate.LEFT_OUT, why=WRITTEN_BY_SERVER)
        elif path == ("spec",) and self.at("spec") == {}:
            self._note(path, Fate.LEFT_OUT, why=EMPTY)
        else:
            self._note(path, Fate.DROPPED, why=UNKNOWN)

    def _is_covered(self, path: Path) -> bool:
        return any(path[:length] in self._notes for length in range(len(path) + 1))

    def _note(self, path: Path, fate: Fate, *, to: str = "", why: str = "") -> None:
        if self.at(*path) is not None:
            self._notes[path] = Note(
                object=self.subject, field=written(path), fate=fate, to=to, why=why
            )


def sources(trees: Sequence[Tree]) -> tuple[list[Source], list[Source]]:
    """The objects to convert, and the earlier copies of objects that appear again, as when two exports overlap."""
    last: dict[tuple[str, str, str, str], Source] = {}
    early: list[Source] = []
    for source in map(Source, trees):
        key = (source.group, source.kind, source.namespace, source.name)
        if key in last:
            last[key].left_out(why=DUPLICATE)
            early.append(last.pop(key))
        last[key] = source
    return list(last.values()), early


def drop_whole(source: Source, reasons: Mapping[str, str], *, groups: Collection[str]) -> None:
    """Drops an object of a kind that is not converted, with the reason for its kind if it is of one of the groups."""
    why = reasons.get(source.kind) if source.group in groups else None
    if why is None:
        group = source.group or "the core group"
        why = f"objects of {group}, kind {source.kind}, are not converted"
    source.dropped(why=why)


def mapping(value: Any) -> Tree:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all values, empty objects and empty lists. Null counts as absent."""
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from leaves(child, (*path, name))
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from leaves(child, (*path, index))
    elif value is not None and path:
        yield path


def written(path: Path) -> str:
    """`spec.levels[0].nodeLabel`; indices and names with a dot or a slash are put in brackets."""
    text = ""
    for step in path:
        is_plain = isinstance(step, str) and PLAIN_NAME.fullmatch(step)
        text += f".{step}" if is_plain else f"[{step}]"
    return text.removeprefix(".")


def metadata_of(
    source: Source, name: str, *, kind: str, renamed: str = "the name must fit into a label"
) -> Tree:
    """The metadata of the converted object: the source's labels and annotations, under a valid name."""
    target = f"{kind} {name}: metadata"
    if source.name == name:
        source.carried("metadata", "name", to=f"{target}.name")
    else:
        source.approximated("metadata", "name", to=f"{target}.name = {name}", why=renamed)

    metadata: Tree = {"name": name}
    for field in ("labels", "annotations"):
        if entries := _carried_entries(source, field, to=f"{target}.{field}"):
            metadata[field] = entries
    return metadata


def _carried_entries(source: Source, field: str, *, to: str) -> Tree:
    """The labels or annotations that are not the mark of a tool."""
    entries = {}
    for key, value in mapping(source.at("metadata", field)).items():
        if key == LAST_APPLIED:
            source.left_out("metadata", field, key, why="written by kubectl")
        elif key.startswith(TOOLS):
            why = "the mark of a tool that did not create this object"
            source.left_out("metadata", field, key, why=why)
        else:
            source.carried("metadata", field, key, to=to)
            entries[key] = value
    return entries
