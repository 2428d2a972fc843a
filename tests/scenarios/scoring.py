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


def score(verdicts: Iterable[Judged], *, changes: bool) -> Score:
    """Policy matches among those where something changes, or where nothing does."""
    asked = [verdict for verdict in verdicts if verdict.changes is changes]
    return Score(sum(verdict.matches() for verdict in asked), len(asked))


def placement(verdicts: Iterable[Judged]) -> Score:
    """Forced nodes as expected, among those that compare nodes."""
    asked = [verdict for verdict in verdicts if verdict.compares_nodes]
    return Score(sum(verdict.matches(comparing.PLACEMENT) for verdict in asked), len(asked))


def report(verdicts: list[Judged]) -> list[str]:
    """A row per area, then every deviation."""
    lines = [f"{'area':22}{'changing':>18}{'no change':>18}{'placement':>18}"]
    for area in [*sorted({verdict.area for verdict in verdicts}), "all"]:
        part = [verdict for verdict in verdicts if area in (verdict.area, "all")]
        scores = (score(part, changes=True), score(part, changes=False), placement(part))
        lines.append(f"{area:22}" + "".join(f"{item!s:>18}" for item in scores))
    lines.append(f"rules broken in {sum(bool(verdict.broken) for verdict in verdicts)} scenarios")
    return lines


def deviations(verdicts: Iterable[Judged]) -> list[str]:
    """Every scenario that deviates, with what does."""
    lines: list[str] = []
    for verdict in verdicts:
        if verdict.deviations or verdict.broken:
            lines += ["", f"{verdict.id} {list(verdict.tags)}"]
            lines += [f"  {deviation}" for deviation in verdict.deviations]
            lines += [f"  BROKEN {text}" for text in verdict.broken]
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
    result = [
        item
        for item in judged(path)
        if options.only in f"{item.id} {item.area} {' '.join(item.tags)}"
    ]
    print("\n".join(report(result) + ([] if options.brief else deviations(result))))


if __name__ == "__main__":
    main()
