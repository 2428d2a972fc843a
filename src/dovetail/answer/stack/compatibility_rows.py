"""Compatibility as data: rows that say what one version of a part contains, needs, supports or breaks.

Given rows of several origins. The most trusted origin decides, then the most specific subject; two rows of one origin
that say different things of the same subject are an error that names both. Never knows a version by itself.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dovetail import errors
from dovetail.quantity import dotted_versions

DRIVER, CUDA, KUBERNETES, KUBELET = "driver", "cuda", "kubernetes", "kubelet"
CONTAINERD, TOOLKIT, OPERATOR, DRA_DRIVER = "containerd", "toolkit", "operator", "dra-driver"
MIG_MANAGER: Final = "mig-manager"
GPU, BOARD, MIG, IMAGE = "gpu", "board", "mig", "image"
VERSIONED: Final = (
    DRIVER,
    CUDA,
    KUBERNETES,
    KUBELET,
    CONTAINERD,
    TOOLKIT,
    OPERATOR,
    DRA_DRIVER,
    MIG_MANAGER,
)
NAMED: Final = (GPU, BOARD, MIG, IMAGE)  # subjects with a name before their versions
CONFIDENCES: Final = ("high", "medium", "low")


class Relation(enum.StrEnum):
    """What a row says about its subject."""

    CONTAINS = "contains"  # a driver or an image contains a CUDA
    MINOR_FLOOR = "minor-floor"  # the lowest driver on which a CUDA runs by minor compatibility
    FORWARD = "forward"  # the driver branches for which a CUDA has a forward-compatibility package
    SUPPORTS = "supports"  # the versions its maker publishes as supported
    NEEDS = "needs"  # the versions without which it does not work
    DEFAULT = "default"  # what an operator installs unless it is configured
    ENDS = "ends"  # the day its support ends
    BREAKS = "breaks"  # known to be bad, under conditions
    STEP = "step"  # how many releases it may be ahead, or may be upgraded at once
    RELEASED = "released"  # the day a version was released


# Of these there may be several for one subject.
_PLURAL: Final = frozenset({Relation.BREAKS, Relation.DEFAULT})


class Origin(enum.IntEnum):
    """Where a row comes from. A higher one decides."""

    SHIPPED = 0
    VENDOR = 1  # a release file of a vendor
    USER = 2


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fact with its provenance, as it stands in a file."""

    subject: str  # such as `driver 580`, `gpu volta`, `image nvidia/pytorch 25.12`
    relation: Relation
    range: str  # such as `cuda 13.0`, `driver >=580`, `2028-06-30`
    source: str
    date: str  # when the source was read
    confidence: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.subject} {self.relation} {self.range}"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A row that was understood."""

    row: Row
    place: str  # file and position, for messages
    origin: Origin
    component: str
    name: str
    versions: dotted_versions.Range
    other: str  # the component that its range speaks of; empty for dates, numbers and conditions
    others: dotted_versions.Range | None

    @property
    def specificity(self) -> int:
        """How exactly the subject is named: how many numbers all its versions begin with."""
        return max(
            (
                len(bound.numbers)
                for alternative in self.versions.alternatives
                for bound in alternative
                if bound.sign in ("~", "=")
            ),
            default=0,
        )

    @property
    def key(self) -> tuple[str, ...]:
        """Two rows with one key speak of the same thing."""
        parts = (self.component, self.name, self.versions.text, self.row.relation, self.other)
        return (*parts, self.row.range) if self.row.relation in _PLURAL else parts


class Rows:
    """All rows of a question, by what they speak of."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[tuple[str, ...], Entry] = {}
        for entry in entries:
            self._add(entry)
        self._by_relation: dict[tuple[str, str, str], list[Entry]] = {}
        for entry in self._entries.values():
            place = (entry.row.relation, entry.component, entry.other)
            self._by_relation.setdefault(place, []).append(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def all(self) -> list[Entry]:
        """Every row that counts."""
        return list(self._entries.values())

    def decides(
        self, relation: Relation, component: str, version: str, *, other: str = "", name: str = ""
    ) -> Entry | None:
        """The row that decides for one version of a part; None where no row speaks of it."""
        matching = [
            entry
            for entry in self.matching(relation, component, version, name=name)
            if entry.other == other
        ]
        if not matching:
            return None
        best = max(matching, key=lambda entry: (entry.origin, entry.specificity))
        for entry in matching:
            is_equal = (entry.origin, entry.specificity) == (best.origin, best.specificity)
            if is_equal and entry.row.range != best.row.range:
                raise _contradiction(best, entry, f"both speak of {component} {version}")
        return best

    def matching(
        self, relation: Relation, component: str, version: str, *, name: str = ""
    ) -> list[Entry]:
        """All rows of a relation whose subject is that version."""
        return [
            entry
            for (known_relation, known_component, _), entries in self._by_relation.items()
            if (known_relation, known_component) == (relation, component)
            for entry in entries
            if entry.name == name and version in entry.versions
        ]

    def named(self, relation: Relation, component: str) -> list[Entry]:
        """All rows of a relation about named subjects of a component, such as boards."""
        return [
            entry
            for entry in self._entries.values()
            if entry.row.relation is relation and entry.component == component
        ]

    def _add(self, entry: Entry) -> None:
        known = self._entries.get(entry.key)
        is_same_origin = known is not None and known.origin == entry.origin
        if known is not None and is_same_origin and known.row.range != entry.row.range:
            raise _contradiction(known, entry, "they contradict each other")
        if known is None or entry.origin >= known.origin:
            self._entries[entry.key] = entry


def understood(row: Row, *, place: str, origin: Origin) -> Entry:
    """The row with its parts read. Raises InputError that names the place."""
    try:
        return _entry(row, place, origin)
    except errors.InputError as error:
        raise errors.InputError(f"{place}: {error}") from None


def _entry(row: Row, place: str, origin: Origin) -> Entry:
    words = row.subject.split()
    component = words[0] if words else ""
    if component not in (*VERSIONED, *NAMED):
        known = ", ".join((*VERSIONED, *NAMED))
        raise errors.InputError(f"subject {row.subject!r}: expected one of {known}, then versions")
    name = ""
    if component in NAMED:
        name, words = _name(row.subject, words)
    versions = dotted_versions.parse_range(" ".join(words[1:]) or "*")
    if row.confidence not in CONFIDENCES:
        raise errors.InputError(
            f"confidence {row.confidence!r}: expected one of {', '.join(CONFIDENCES)}"
        )
    _day(row.date, "date")
    if not row.source:
        raise errors.InputError("source: missing; say where the row is from")
    other, others = _range(row)
    return Entry(
        row=row,
        place=place,
        origin=origin,
        component=component,
        name=name.lower(),
        versions=versions,
        other=other,
        others=others,
    )


def _name(subject: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The name of a subject, which may have several words: all up to what looks like versions."""
    name = [word for word in words[1:] if not _is_range(word)]
    if not name:
        raise errors.InputError(f"subject {subject!r}: expected a name after {words[0]}")
    return " ".join(name), [words[0], *(word for word in words[1:] if _is_range(word))]


def _is_range(word: str) -> bool:
    """Whether a word is a range of releases. Names of boards hold numbers too, but no dot and no sign."""
    return word[0] in "<>=*." or ("." in word and word[0].isdigit())


def _range(row: Row) -> tuple[str, dotted_versions.Range | None]:
    match row.relation:
        case Relation.ENDS | Relation.RELEASED:
            _day(row.range, "range")
            return "", None
        case Relation.STEP:
            other, _, count = row.range.rpartition(" ")
            if not count.isdecimal():
                raise errors.InputError(f"range {row.range!r}: expected a number of releases")
            return other, None
        case Relation.BREAKS:
            return "", None
        case _:
            other, _, versions = row.range.partition(" ")
            if other not in VERSIONED or not versions:
                expected = ", ".join(VERSIONED)
                raise errors.InputError(
                    f"range {row.range!r}: expected one of {expected}, then versions"
                )
            return other, dotted_versions.parse_range(versions)


def _day(text: str, what: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise errors.InputError(
            f"{what} {text!r}: expected a day such as 2026-08-21, in quotes"
        ) from None


def _contradiction(first: Entry, second: Entry, why: str) -> errors.InputError:
    return errors.InputError(
        f"{first.place} says `{first.row}` and {second.place} says `{second.row}`: {why};"
        " remove one of them, or give the right one with --rows"
    )
