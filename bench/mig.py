"""MIG slices that come and go: what each placement rule serves, with and without moves, beside repacking.

`python -m bench mig [--gpus 30,100] [--loads 1.0] [--mixes uniform,small] [--seeds 1-6]`. Means over seeds go to
bench/results/mig.json. Simulated, on masks of memory slices; a test shows that `lex` chooses what the engine chooses.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from dovetail.study.partitions import slice_arrivals, slice_run

RESULTS = Path(__file__).resolve().parent / "results" / "mig.json"
CONTENDERS = (  # policy, slices that may move per refusal
    ("first-fit", 0),
    ("best-fit", 0),
    ("lex", 0),
    ("first-fit", 1),
    ("best-fit", 1),
    ("lex", 1),
    ("lex", 2),
    ("lex", 4),
    ("repack", 0),
)


class Row(msgspec.Struct):
    """Means over seeds; percent of what was requested. `standard_error` is that of accepted_slices_pct."""

    gpus: int
    mix: str
    load: float
    policy: str
    moves: int
    accepted_slices_pct: float
    standard_error: float
    accepted_pct: dict[str, float]
    moves_per_100_served: float | None
    moves_per_refusal: float | None
    requests: int


class Report(msgspec.Struct):
    """What was measured, and when."""

    date: str
    command: str
    seeds: list[int]
    rows: list[Row]


def main(arguments: Sequence[str]) -> int:
    """Runs every contender on the same requests, prints a table, and stores it."""
    parser = argparse.ArgumentParser(prog="python -m bench mig")
    parser.add_argument("--gpus", default="30,100")
    parser.add_argument("--loads", default="1.0")
    parser.add_argument("--mixes", default=",".join(slice_arrivals.NAMES))
    parser.add_argument("--seeds", default="1-6", help="a seed or a range")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    seeds = list(range(int(first), int(last or first) + 1))
    rows: list[Row] = []
    with ProcessPoolExecutor(max_workers=2) as workers:
        for gpus in map(int, options.gpus.split(",")):
            for mix in options.mixes.split(","):
                for load in map(float, options.loads.split(",")):
                    rows += _rows(workers, seeds, gpus=gpus, mix=mix, load=load)
    command = " ".join(["python -m bench mig", *arguments])
    report = Report(datetime.date.today().isoformat(), command, seeds, rows)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    _judge(rows)
    return 0


def _rows(
    workers: ProcessPoolExecutor, seeds: Sequence[int], *, gpus: int, mix: str, load: float
) -> list[Row]:
    rows = []
    print(f"\n{gpus} GPUs, {mix}, load {load}, {len(seeds)} seeds", flush=True)
    for policy, moves in CONTENDERS:
        settings = [
            slice_run.SliceSetting(
                gpus=gpus, mix=mix, load=load, policy=policy, moves=moves, seed=seed
            )
            for seed in seeds
        ]
        results = list(workers.map(slice_run.run, settings))
        rows.append(_row(settings[0], results))
        _show(rows[-1])
    return rows


def _row(setting: slice_run.SliceSetting, results: Sequence[slice_run.SliceResult]) -> Row:
    accepted = [result.accepted_slices_pct for result in results]
    spread = statistics.stdev(accepted) if len(accepted) > 1 else 0.0
    return Row(
        gpus=setting.gpus,
        mix=setting.mix,
        load=setting.load,
        policy=setting.policy,
        moves=setting.moves,
        accepted_slices_pct=round(statistics.fmean(accepted), 2),
        standard_error=round(spread / math.sqrt(len(accepted)), 2),
        accepted_pct={
            name: round(statistics.fmean(result.accepted_pct[name] for result in results), 1)
            for name in results[0].accepted_pct
        },
        moves_per_100_served=_mean([result.moves_per_100_served for result in results]),
        moves_per_refusal=_mean([result.moves_per_refusal for result in results]),
        requests=sum(result.requests for result in results),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 2) if known else None


def _show(row: Row) -> None:
    by_profile = "  ".join(f"{percent:5.1f}" for percent in row.accepted_pct.values())
    moves = "" if row.moves_per_refusal is None else f"{row.moves_per_100_served:6.2f} moves/100"
    print(
        f"{row.policy:<10} {row.moves} {row.accepted_slices_pct:6.2f}"
        f" ±{row.standard_error:.2f}  {by_profile} {moves}",
        flush=True,
    )


def _judge(rows: Sequence[Row]) -> None:
    """The profiles that LEX without moves serves least well beside best fit; losses included."""
    by_key = {(row.gpus, row.mix, row.load, row.policy, row.moves): row for row in rows}
    print("\nlex without moves beside best fit: slices, worst profile", file=sys.stderr)
    for (gpus, mix, load, policy, moves), row in by_key.items():
        if (policy, moves) != ("lex", 0):
            continue
        best_fit = by_key[gpus, mix, load, "best-fit", 0]
        gain = row.accepted_slices_pct - best_fit.accepted_slices_pct
        differences = {
            name: percent - best_fit.accepted_pct[name]
            for name, percent in row.accepted_pct.items()
        }
        worst = min(differences, key=lambda name: differences[name])
        print(
            f"{gpus} {mix} {load}: {gain:+.2f}, {worst} {differences[worst]:+.1f}", file=sys.stderr
        )
