"""How long commands on the embedded cluster take: `.venv/bin/python -m bench.embedded`.

Starts clusters in a temporary directory, runs every command several times as a process of its own, and prints the best
wall time with the processor seconds of that run. The processor time of the cluster's own process is not in them. Never
asserts; goals stand beside the figures.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROUNDS: Final = 5
NODES: Final = 2_000
ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAM: Final = (str(ROOT / ".venv/bin/dovetail"),)
LARGE: Final = f"name: large\npools: [{{name: h100, count: {NODES}, gpu: H100-SXM5-80GB}}]\n"


class Measure(NamedTuple):
    """One run: seconds on the clock, and of the processor in the command's process."""

    wall_seconds: float
    cpu_seconds: float


class Case(NamedTuple):
    """A row of the table."""

    name: str
    goal_seconds: float | None
    best: Measure


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        cases = [*sample_cases(place / "sample"), *large_cases(place)]
    print("| command | goal, s | wall, s | processor, s | |")
    print("|---|---|---|---|---|")
    for case in cases:
        print(row(case))


def row(case: Case) -> str:
    """A line of the table, in Markdown."""
    goal, verdict = "-", "measured"
    if case.goal_seconds is not None:
        goal = f"{case.goal_seconds:g}"
        verdict = "met" if case.best.wall_seconds < case.goal_seconds else "missed"
    wall, cpu = case.best
    return f"| {case.name} | {goal} | {wall:.2f} | {cpu:.2f} | {verdict} |"


def sample_cases(state: Path) -> list[Case]:
    """The sample fleet of 26 nodes and 50 pods."""
    run(state, "up", "--detach")
    run(state, "down")
    try:
        resumed = best_of(state, ["up", "--detach"], after=["down"])
        run(state, "up", "--detach")
        return [
            Case("`up`, resumed, to the picture", 2.0, resumed),
            Case("`up`, already running", None, best_of(state, ["up", "--detach"])),
            *commands(state, "26 nodes", goal_seconds=0.4),
        ]
    finally:
        run(state, "down", "--purge")


def large_cases(place: Path) -> list[Case]:
    """A fleet of many nodes."""
    fleet, state = place / "large.yaml", place / "large"
    fleet.write_text(LARGE, encoding="utf-8")
    try:
        started = measured(state, ["up", "--fresh", "--detach", "--fleet", str(fleet)])
        first = Case(f"`up --fresh`, {NODES:,} nodes (once)", None, started)
        return [first, *commands(state, f"{NODES:,} nodes", goal_seconds=0.6)]
    finally:
        run(state, "down", "--purge")


def commands(state: Path, size: str, *, goal_seconds: float) -> list[Case]:
    """What users type most."""
    file = str(ROOT / "examples/one-gpu.yaml")
    apply = best_of(state, ["apply", "-f", file], after=["delete", "-f", file])
    return [
        Case(f"`get pods -A`, {size}", goal_seconds, best_of(state, ["get", "pods", "-A"])),
        Case(f"`get gpus`, {size}", goal_seconds, best_of(state, ["get", "gpus"])),
        Case(f"`apply` of one file, {size}", 0.5, apply),
    ]


def best_of(state: Path, arguments: Sequence[str], *, after: Sequence[str] = ()) -> Measure:
    """The run with the least wall time; `after` is run after each, unmeasured."""
    runs = []
    for _ in range(ROUNDS):
        runs.append(measured(state, arguments))
        if after:
            run(state, *after)
    return min(runs)


def measured(state: Path, arguments: Sequence[str]) -> Measure:
    """One run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    run(state, *arguments)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Measure(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def run(state: Path, *arguments: str) -> None:
    """Runs a command; a failure ends the benchmark with what it said."""
    output(state, *arguments)


def output(state: Path, *arguments: str) -> str:
    """What a command writes to stdout; a failure ends the benchmark with what it said."""
    environment = os.environ | {"DOVETAIL_STATE": str(state)}
    environment.pop("KUBECONFIG", None)
    done = subprocess.run(
        [*PROGRAM, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"dovetail {' '.join(arguments)}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
