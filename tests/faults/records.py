"""What a run leaves behind: every revision of every object in the order the store gave them, and who wrote it.

Plain data, written to and read from gzip'ed JSON lines, so that a run can be judged again later. Never judges.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Tree = dict[str, Any]


class Revision(NamedTuple):
    """One write to the store. Numbers are unique and ascend over all kinds: the store has one line of history."""

    number: int  # the object's resourceVersion
    seconds: float  # when the recorder saw it
    kind: str  # plural, as in paths
    key: str  # namespace/name, or name
    object: Tree  # what was stored; for a deletion what was there before
    is_deleted: bool = False
    writer: str = ""  # the user, "" where unknown


class History(NamedTuple):
    """A whole run. One with gaps proves nothing."""

    revisions: tuple[Revision, ...]
    ended: float
    gaps: tuple[str, ...] = ()


def save(history: History, path: Path) -> None:
    """One line per revision after a head line."""
    head = {"ended": history.ended, "gaps": list(history.gaps)}
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for line in (head, *(revision._asdict() for revision in history.revisions)):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def load(path: Path) -> History:
    """The history that `save` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head = json.loads(file.readline())
        revisions = tuple(Revision(**json.loads(line)) for line in file)
    return History(revisions, head["ended"], tuple(head["gaps"]))


def with_writers(revisions: Iterable[Revision], writers: dict[int, str]) -> tuple[Revision, ...]:
    """The same revisions, signed."""
    return tuple(
        revision._replace(writer=writers.get(revision.number, revision.writer))
        for revision in revisions
    )
