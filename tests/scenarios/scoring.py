"""How far what we decide agrees with scenarios that have a known answer, by area; those where nothing changes apart.

    python -m tests.scenarios.scoring [FILE] [--only TEXT] [--brief]

prints the table and every deviation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dovetail.replay import json_lines
from dovetail.replay.scenarios import run_scenario, scenario_format
from tests.scenarios import comparing
from tests.support import shared

PUBLIC = "scenarios/kai_public.jsonl.gz"
NO_CHANGE = "no_change"


class Judged(NamedTuple):
    """One scenario, and what was found about it."""

    id: str
    area: str
    tags: tuple[str, ...]
    compares_nodes: bool
    deviations: list[comparing.Deviation]
    broken: list[str]

    @property
    def changes(self) -> bool:
        """Whether something should happen in it."""
        return NO_CHANGE not in self.tags

    def matches(self, kind: str = comparing.POLICY) -> bool:
        """Whether nothing of a kind deviates."""
        return comparing.is_match(self.deviations, kind)


def judged(path: Path) -> Iterator[Judged]:
    """Every scenario of a file, put to the engine and compared."""
    for place, line in json_lines.numbered(str(path)):
        document: dict[str, Any] = msgspec.json.decode(line)
        scenario = scenario_format.read(line, place=place)
        outcome = run_scenario.run(scenario)
        yield Judged(
            scenario.id,
            scenario.area,
            scenario.tags,
            comparing.PLACEMENT in document["compare"],
            comparing.compare(document, scenario, outcome),
            comparing.broken(scenario, outcome),
        )


class Score(NamedTuple):
    """How many of how many."""

    matched: int
    total: int

    def __str__(self) -> str:
        share = f"{100 * self.matched / self.total:5.1f} %" if self.total else "      -"
        return f"{self.matched:4}/{self.total:<4}{share}"


def score(found: Iterable[Judged], *, changes: bool) -> Score:
    """Policy matches among those where something changes, or where nothing does."""
    asked = [one for one in found if one.changes is changes]
    return Score(sum(one.matches() for one in asked), len(asked))


def placement(found: Iterable[Judged]) -> Score:
    """Forced nodes as expected, among those that compare nodes."""
    asked = [one for one in found if one.compares_nodes]
    return Score(sum(one.matches(comparing.PLACEMENT) for one in asked), len(asked))


def report(found: list[Judged]) -> list[str]:
    """A row per area, then every deviation."""
    lines = [f"{'area':22}{'changing':>18}{'no change':>18}{'placement':>18}"]
    for area in [*sorted({one.area for one in found}), "all"]:
        part = [one for one in found if area in (one.area, "all")]
        scores = (score(part, changes=True), score(part, changes=False), placement(part))
        lines.append(f"{area:22}" + "".join(f"{one!s:>18}" for one in scores))
    lines.append(f"rules broken in {sum(bool(one.broken) for one in found)} scenarios")
    return lines


def deviations(found: Iterable[Judged]) -> list[str]:
    """Every scenario that deviates, with what does."""
    lines: list[str] = []
    for one in found:
        if one.deviations or one.broken:
            lines += ["", f"{one.id} {list(one.tags)}"]
            lines += [f"  {deviation}" for deviation in one.deviations]
            lines += [f"  BROKEN {text}" for text in one.broken]
    return lines


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?")
    parser.add_argument(
        "--only", default="", help="scenarios whose id, area or tags hold this text"
    )
    parser.add_argument("--brief", action="store_true", help="the table alone")
    options = parser.parse_args()
    path = Path(options.file) if options.file else shared.data(PUBLIC)
    found = [
        one for one in judged(path) if options.only in f"{one.id} {one.area} {' '.join(one.tags)}"
    ]
    print("\n".join(report(found) + ([] if options.brief else deviations(found))))


if __name__ == "__main__":
    main()
