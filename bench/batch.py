"""How long a decision with queues and gangs takes: five kinds of cases at 500, 2,000 and 10,000 nodes of 8 GPUs.

`python -m bench batch` measures `decide` alone, without an API server, every case and size in a process of its own, and
keeps all of it in results/batch.json. Options pick cases and sizes; then nothing is kept unless --output says where.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench import batch_cases, batch_live, batch_run
from bench.batch_worlds import Devices

RESULT = Path(__file__).resolve().parent / "results" / "batch.json"
SIZES = (500, 2_000, 10_000)
LIMIT_SECONDS = 600
Rows = dict[str, dict[str, Any]]


class Plan(NamedTuple):
    """What is measured."""

    cases: tuple[str, ...] = tuple(batch_cases.CASES)
    sizes: tuple[int, ...] = SIZES
    devices: tuple[Devices, ...] = tuple(Devices)
    limit_seconds: float = LIMIT_SECONDS


def main(arguments: list[str]) -> int:
    """Measures and prints; 1 where a case did not end as it should."""
    chosen = _parser().parse_args(arguments)
    plan = Plan(
        tuple(chosen.cases or batch_cases.CASES),
        tuple(chosen.nodes or SIZES),
        tuple(map(Devices, chosen.devices or Devices)),
        chosen.limit,
    )
    if chosen.profile is not None:
        return _profile(plan, chosen.profile)
    if chosen.live is not None:
        return _live(chosen.live, chosen.pods, chosen.output)
    output = chosen.output or (RESULT if plan == Plan() else None)
    rows: Rows = {}
    for label, row in _measured(plan):
        rows[label] = row
        _say(f"{label}: {_shown(row)}")
        if output is not None:
            _store(output, rows)
    print(text(rows))
    return int(any("wrong" in row for row in rows.values()))


def _measured(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    for devices in plan.devices:
        for case in plan.cases:
            before: float | None = None
            for nodes in plan.sizes:
                row = {
                    "case": case,
                    "nodes": nodes,
                    "devices": str(devices),
                    **_run(case, nodes, devices, plan),
                }
                seconds = row.get("firstSeconds")
                if before and seconds:
                    row["timesSizeBefore"] = round(seconds / before, 2)
                before = seconds
                yield f"{case}, {nodes} nodes, {devices}", row


def _run(case: str, nodes: int, devices: Devices, plan: Plan) -> dict[str, Any]:
    """In a process of its own: memory and memories are its alone."""
    command = [sys.executable, "-m", batch_run.__name__, case, str(nodes), str(devices)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=plan.limit_seconds
        )
    except subprocess.TimeoutExpired:
        return {"wrong": f"no answer within {plan.limit_seconds:.0f} s"}
    if done.returncode:
        return {"wrong": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def _live(nodes: int, pods: int | None, output: Path | None) -> int:
    """The same through a real API server, kept beside the other figures."""
    rows = asyncio.run(batch_live.measured(nodes, pods=pods, say=_say))
    for label, row in rows.items():
        print(f"{label}: {_shown(row)}")
    if output is not None or pods is None:
        batch_live.store(output or RESULT, rows)
    return 0


def _profile(plan: Plan, directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    for devices in plan.devices:
        for case in plan.cases:
            for nodes in plan.sizes:
                file = directory / f"{case}-{nodes}-{devices}.txt"
                batch_run.profiled(
                    case, nodes, devices, output=file, limit_seconds=plan.limit_seconds
                )
                _say(str(file))
    return 0


def text(rows: Rows) -> str:
    """The figures as Markdown tables, one for each way GPUs are asked for."""
    lines = []
    for devices in dict.fromkeys(row["devices"] for row in rows.values()):
        mine = [row for row in rows.values() if row["devices"] == devices]
        sizes = sorted({row["nodes"] for row in mine})
        lines += [f"GPUs as {devices}; seconds first / again, times the size before", ""]
        lines += [
            "| case | "
            + " | ".join(f"{size:,} nodes" for size in sizes)
            + " | KAI's example, 500 nodes |"
        ]
        lines += ["|---" * (len(sizes) + 2) + "|"]
        for case in dict.fromkeys(row["case"] for row in mine):
            cells = [
                _cell(row)
                for row in sorted(mine, key=lambda row: row["nodes"])
                if row["case"] == case
            ]
            kai = batch_cases.CASES[case].kai_seconds
            beside = f"{kai:.0f} s" if kai is not None else "-"
            lines.append(
                f"| {batch_cases.CASES[case].title} | " + " | ".join(cells) + f" | {beside} |"
            )
        lines.append("")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    if "firstSeconds" not in row:
        return str(row["wrong"])
    growth = f", {row['timesSizeBefore']}x" if "timesSizeBefore" in row else ""
    mark = " (not as expected)" if "wrong" in row else ""
    return f"{row['firstSeconds']:.3g} / {row['againSeconds']:.3g}{growth}{mark}"


def _shown(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{key} {value}" for key, value in row.items() if key not in ("case", "nodes", "devices")
    )


def _store(output: Path, rows: Rows) -> None:
    found = {
        "benchmark": "batch",
        "peer": "none in this run; KAI's own example figures, API included, other machines, are in the documentation",
        "python": platform.python_version(),
        "machine": "2 cores, shared; read ratios, not rates",
        "rows": rows,
    }
    if output.exists() and (live := msgspec.json.decode(output.read_bytes()).get("live")):
        found["live"] = live
    output.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench batch", description=__doc__)
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=list(batch_cases.CASES),
        metavar="CASE",
        help="which questions",
    )
    parser.add_argument("--nodes", type=int, nargs="+", help="sizes, small to large")
    parser.add_argument(
        "--devices", nargs="+", choices=[str(one) for one in Devices], help="how GPUs are asked for"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, help="seconds for one case at one size"
    )
    parser.add_argument("--profile", type=Path, help="write profiles into this directory instead")
    parser.add_argument(
        "--live", type=int, metavar="NODES", help="a fill and a gang through a real API server"
    )
    parser.add_argument(
        "--pods", type=int, help="with --live: so many pods at most; then nothing is kept"
    )
    parser.add_argument("--output", type=Path, help="where to keep the result")
    return parser
