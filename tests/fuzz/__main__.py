"""Runs the comparison until it is stopped: `python -m tests.fuzz [--what cel] [--seed 7] [--count 20000 | endless]`."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.fuzz import (
    cel,
    constraints,
    doors,
    findings,
    objects,
    preemption,
    quantities,
    validation,
    versions,
    worlds,
)
from tests.support import oracle

SUBJECTS: Final[dict[str, Any]] = {
    "cel": cel,
    "quantity": quantities,
    "semver": versions,
    "validation": validation,
    "worlds": worlds,
    "constraints": constraints,
    "preemption": preemption,
    "objects": objects,
    "doors": doors,
}
ALONE: Final = frozenset({"objects", "doors"})  # subjects that upstream is not asked about
BATCH: Final = 200
RESULTS: Final = findings.ROOT / "bench" / "results" / "fuzz.json"


def main(arguments: list[str] | None = None) -> int:
    """0 when nothing differed, 1 when something did."""
    namespace = _parsed(arguments)
    if (
        namespace.what == "doors" and namespace.count is not None
    ):  # in child processes with bounds, and its own record
        recording = ["--record"] if namespace.record else []
        return doors.main(
            ["--seed", str(namespace.seed), "--count", str(namespace.count), *recording]
        )
    names = tuple(SUBJECTS) if namespace.what == "all" else (namespace.what,)
    tallies = {name: findings.Tally(name) for name in names}
    print(
        f"comparing {', '.join(names)} with upstream from seed {namespace.seed}; stop with Ctrl-C",
        file=sys.stderr,
    )
    seeds: list[int] = []
    asking = contextlib.nullcontext() if ALONE.issuperset(names) else oracle.start()
    with contextlib.suppress(KeyboardInterrupt), asking as upstream:
        _run(upstream, tallies, namespace, seeds)
    print(file=sys.stderr)
    _report(tallies)
    if namespace.record and seeds:
        _record(tallies, seeds)
    return 1 if any(tally.disagreements for tally in tallies.values()) else 0


def _run(
    upstream: oracle.Oracle | None,
    tallies: dict[str, findings.Tally],
    wanted: argparse.Namespace,
    seeds: list[int],
) -> None:
    """Round after round, each with a seed of its own, so that any round can be repeated alone."""
    started, done = time.monotonic(), 0
    for seed in _seeds(wanted.seed, wanted.count):
        for name, tally in tallies.items():
            subject = SUBJECTS[name]
            subject.run(upstream, subject.cases(random.Random(seed), BATCH), tally=tally, seed=seed)
        seeds.append(seed)
        done += BATCH
        _progress(tallies, done, time.monotonic() - started)


def _seeds(first: int, count: int | None) -> Iterator[int]:
    seed = first
    while count is None or (seed - first) * BATCH < count:
        yield seed
        seed += 1


def _progress(tallies: dict[str, findings.Tally], done: int, seconds: float) -> None:
    parts = [
        f"{name} {tally.counts[findings.AGREE]} agree, {tally.disagreements} differ"
        for name, tally in tallies.items()
    ]
    line = f"{done} cases each, {done / seconds:.0f}/s: {'; '.join(parts)}"
    end = "" if sys.stderr.isatty() else "\n"
    print(f"\r{line}" if sys.stderr.isatty() else line, end=end, file=sys.stderr, flush=True)


def _report(tallies: dict[str, findings.Tally]) -> None:
    for name, tally in tallies.items():
        for kind, count in tally.counts.most_common():
            print(f"{name:<12}{kind:<32}{count:>9}")
        if tally.findings:
            print(f"{name}: {len(tally.findings)} minimal cases in {tally.path}")


def _record(tallies: dict[str, findings.Tally], seeds: list[int]) -> None:
    """A summary without dates: the same run writes the same file."""
    summary = {
        "upstream": findings.upstream_version(),
        "seeds": {
            "first": seeds[0],
            "last": seeds[-1],
            "cases_per_seed": BATCH,
            "devices_per_expression": cel.DEVICES_EACH,
        },
        "counts": {name: dict(sorted(tally.counts.items())) for name, tally in tallies.items()},
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    print(
        f"recorded in {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS}"
    )


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--what", choices=(*SUBJECTS, "all"), default="all")
    parser.add_argument("--seed", type=int, default=1, help="the first round's seed")
    parser.add_argument(
        "--count", type=_count, default=None, help="cases of each subject, or endless (the default)"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help=f"write a summary to {RESULTS.relative_to(findings.ROOT)}",
    )
    return parser.parse_args(arguments)


def _count(text: str) -> int | None:
    return None if text == "endless" else int(text)


if __name__ == "__main__":
    sys.exit(main())
