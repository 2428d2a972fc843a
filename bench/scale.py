"""How the engine behaves as the cluster grows: jobs arrive and end on 1,000, 10,000 and 100,000 GPUs.

`python -m bench scale` runs each size in a process of its own, by default with as many jobs as GPUs, and prints events
per second, percentiles of the time of one decision, memory, and how they grow from size to size. A run with the default
sizes is kept in results/scale.json; --output keeps another.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from bench import scale_run
from bench.scale_run import Settings

RESULT = Path(__file__).resolve().parent / "results" / "scale.json"
SIZES = (1_000, 10_000, 100_000)
Row = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Measures and prints; 1 where a run did not end as it should."""
    chosen = _parser().parse_args(arguments)
    rows: list[Row] = []
    for gpus in chosen.gpus or SIZES:
        settings = Settings(
            gpus=gpus,
            jobs=chosen.jobs or round(gpus * chosen.jobs_per_gpu),
            load=chosen.load,
            seed=chosen.seed,
            limit_seconds=chosen.limit,
        )
        row = measured(settings)
        rows.append(row)
        print(f"{gpus:,} GPUs: {msgspec.json.encode(row).decode()}", file=sys.stderr, flush=True)
        output = chosen.output or (RESULT if not chosen.gpus else None)
        if output is not None:
            _store(output, rows, chosen)
    print(text(rows))
    return int(any("wrong" in row for row in rows))


def measured(settings: Settings) -> Row:
    """One size, in a process of its own: memory is its alone."""
    argument = msgspec.json.encode(settings).decode()
    command = [sys.executable, "-m", scale_run.__name__, argument]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {
            "gpus": settings.gpus,
            "wrong": (done.stderr.strip().splitlines() or ["no message"])[-1],
        }
    row: Row = msgspec.json.decode(done.stdout)
    return row


def text(rows: list[Row]) -> str:
    """The figures as a Markdown table, each with how many times that of the size before it is."""
    lines = [
        "| GPUs | jobs | running | events/s | decision ms p50 / p95 / p99 / max | peak MiB | times the size before:"
        " p50, p99, memory |",
        "|---" * 7 + "|",
    ]
    before: Row | None = None
    for row in rows:
        if "latencyMs" not in row:
            lines.append(f"| {row['gpus']:,} | {row['wrong']} |" + " |" * 5)
            continue
        latency = row["latencyMs"]
        milliseconds = " / ".join(f"{latency[name]:.3g}" for name in ("p50", "p95", "p99", "max"))
        lines.append(
            f"| {row['gpus']:,} | {row['jobs']:,} | {row['running']:,} | {row['eventsPerSecond']:,.0f} "
            f"| {milliseconds} | {row['peakMiB']:,} | {_growth(row, before)} |"
        )
        before = row
    return "\n".join(lines)


def _growth(row: Row, before: Row | None) -> str:
    if before is None:
        return "-"
    ratios = [
        row["latencyMs"]["p50"] / before["latencyMs"]["p50"],
        row["latencyMs"]["p99"] / before["latencyMs"]["p99"],
        row["peakMiB"] / before["peakMiB"],
    ]
    return ", ".join(f"{ratio:.1f}x" for ratio in ratios)


def _store(output: Path, rows: list[Row], chosen: argparse.Namespace) -> None:
    kept = {
        "benchmark": "scale",
        "peer": "none",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, shared; load average {os.getloadavg()[0]:.1f} at the end; "
        "processor time of one process, never time by the clock",
        "load": chosen.load,
        "seed": chosen.seed,
        "rows": {f"{row['gpus']} GPUs": row for row in rows},
    }
    output.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", help="sizes, small to large; 8 GPUs a node")
    parser.add_argument(
        "--jobs-per-gpu", type=float, default=1.0, help="how many jobs arrive, by GPUs"
    )
    parser.add_argument("--jobs", type=int, help="how many jobs arrive, whatever the size")
    parser.add_argument("--load", type=float, default=0.8, help="part of the GPUs that is in use")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals, sizes and runtimes")
    parser.add_argument(
        "--limit", type=float, default=600.0, help="seconds of the engine for one size"
    )
    parser.add_argument("--output", type=Path, help="where to keep the result")
    return parser
