"""What was broken on purpose: which fault, when, on which request. Counted, so that a run can say what it survived."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Injected(NamedTuple):
    """One fault."""

    seconds: float
    kind: str
    what: str  # the class of request, or the part that was hit
    target: str


class Log:
    """Faults in the order they happened."""

    def __init__(self) -> None:
        self.entries: list[Injected] = []

    def add(self, kind: str, what: str, target: str = "") -> None:
        """One more."""
        self.entries.append(Injected(time.time(), kind, what, target))

    def by_kind(self) -> Counter[str]:
        """How many of each kind."""
        return Counter(entry.kind for entry in self.entries)

    def by_class(self) -> Counter[str]:
        """How many on each class of request."""
        return Counter(entry.what for entry in self.entries)

    def save(self, path: Path) -> None:
        """One line each."""
        lines = (
            f"{entry.seconds:.3f} {entry.kind} {entry.what} {entry.target}\n"
            for entry in self.entries
        )
        path.write_text("".join(lines), encoding="utf-8")
