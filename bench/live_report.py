"""What the live benchmark found: all runs, their medians and ratios, as a file and as a table for people.

A ratio is the median over rounds of one contender's rate divided by another's in the same round, because a noisy
minute hits both. Never measures.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import dovetail
from bench import live_contenders, live_run
from dovetail.devcluster import kube_binaries

OURS, KUBE, BARE = live_contenders.OURS, live_contenders.KUBE_SCHEDULER, live_contenders.BARE
TITLES = {OURS: "ours", KUBE: "kube-scheduler", BARE: "bare writes"}
DISTURBED_SHARE = 0.1

Runs = dict[str, list[live_run.Run]]
Figure = Callable[[live_run.Run], float]


class Row(NamedTuple):
    """One size and fill."""

    nodes: int
    fill: int

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.fill} % full"


class Report:
    """Collects runs."""

    def __init__(self, *, version: str, rounds: int) -> None:
        self.version = version
        self.rounds = rounds
        self.rows: dict[Row, Runs] = {}
        self.starts: Runs = {}
        self.crowd = (0, 0)  # nodes and bound pods when starts are measured

    def add(self, row: Row, contender: str, run: live_run.Run) -> None:
        """One more run."""
        self.rows.setdefault(row, {}).setdefault(contender, []).append(run)

    def add_start(self, contender: str, run: live_run.Run) -> None:
        """One more start among many pods."""
        self.starts.setdefault(contender, []).append(run)

    def store(self, path: Path | None) -> None:
        """Keeps what is there so far."""
        if path is not None:
            path.write_bytes(
                msgspec.json.format(msgspec.json.encode(self.tree()), indent=2) + b"\n"
            )

    def tree(self) -> dict[str, Any]:
        """For the results file."""
        return {
            "benchmark": "live",
            "versions": {
                "kubernetes": self.version,
                "dovetail": dovetail.__version__,
                "python": platform.python_version(),
            },
            "machine": f"{os.cpu_count()} cores for everything; read ratios, not rates",
            "settings": {
                "rounds": self.rounds,
                "leaderElection": False,
                "kubeSchedulerClientLimits": f"{live_contenders.CLIENT_QPS} requests/s",
                "inFlightPods": live_contenders.IN_FLIGHT,
                "gpusPerNode": 8,
            },
            "sizes": [_size(row, runs) for row, runs in self.rows.items()],
            **{
                name: {
                    str(row): _figures(runs[name])
                    for row, runs in self.rows.items()
                    if name in runs
                }
                for name in TITLES
            },
            "ratios": {str(row): _ratios(runs) for row, runs in self.rows.items()},
            "startUp": {
                "nodes": self.crowd[0],
                "pods": self.crowd[1],
                **{name: _start_figures(runs) for name, runs in self.starts.items()},
            },
        }

    def text(self) -> str:
        """Tables for people."""
        parts = [
            f"pods/s on a real control plane, Kubernetes {self.version}, median of {self.rounds} interleaved"
        ]
        parts.append(_aligned([_HEAD, *(_cells(row, runs) for row, runs in self.rows.items())]))
        parts.append("\nCPU milliseconds a pod: the contender's own, and the API server's")
        parts.append(
            _aligned([_CPU_HEAD, *(_cpu_cells(row, runs) for row, runs in self.rows.items())])
        )
        parts += list(_growth(self.rows))
        if self.starts:
            parts.append(f"\nstart among {self.crowd[1]} bound pods on {self.crowd[0]} nodes")
            parts.append(
                _aligned(
                    [_START_HEAD, *(_start_cells(name, runs) for name, runs in self.starts.items())]
                )
            )
        if disturbed := _disturbed(self.rows):
            parts.append(
                f"note: others used more than {DISTURBED_SHARE:.0%} of the machine in {disturbed} runs"
            )
        return "\n".join(parts)


_HEAD = (
    "NODES",
    "FULL",
    "PODS",
    "OURS",
    "KUBE-SCHEDULER",
    "BARE",
    "OURS/KUBE-SCHEDULER",
    "OURS/BARE",
)
_CPU_HEAD = (
    "NODES",
    "FULL",
    "OURS",
    "KUBE-SCHEDULER",
    "BARE",
    "(API SERVER:) OURS",
    "KUBE-SCHEDULER",
    "BARE",
)
_START_HEAD = ("WHO", "FIRST BINDING S", "CPU S", "RESIDENT MIB", "PEAK MIB")


def _cells(row: Row, runs: Runs) -> tuple[str, ...]:
    rates = [_shown(runs, name, _rate, digits=0) for name in TITLES]
    ratios = [_shown_ratio(runs, name) for name in (KUBE, BARE)]
    return (f"{row.nodes}", f"{row.fill} %", f"{_pods(runs)}", *rates, *ratios)


def _cpu_cells(row: Row, runs: Runs) -> tuple[str, ...]:
    own = [_shown(runs, name, _own, digits=1) for name in TITLES]
    server = [_shown(runs, name, _server, digits=1) for name in TITLES]
    return (f"{row.nodes}", f"{row.fill} %", *own, *server)


def _start_cells(name: str, runs: list[live_run.Run]) -> tuple[str, ...]:
    figures = _start_figures(runs)
    return (
        TITLES[name],
        f"{figures['firstBindingSeconds']:.1f}",
        f"{figures['cpuSeconds']:.1f}",
        f"{figures['residentMiB']:.0f}",
        f"{figures['peakMiB']:.0f}",
    )


def _growth(rows: dict[Row, Runs]) -> Iterable[str]:
    """How cost grows with the cluster: the largest size beside the smallest, at each fill."""
    smallest, largest = min(row.nodes for row in rows), max(row.nodes for row in rows)
    if smallest == largest:
        return
    for fill in sorted({row.fill for row in rows}):
        small, large = rows.get(Row(smallest, fill)), rows.get(Row(largest, fill))
        if small is None or large is None:
            continue
        grown = [
            f"{TITLES[name]} {_median(large[name], _own) / max(_median(small[name], _own), 0.01):.1f}x"
            for name in TITLES
            if name in small and name in large
        ]
        yield f"own CPU a pod, {largest} nodes over {smallest}, {fill} % full: {', '.join(grown)}"


def _size(row: Row, runs: Runs) -> dict[str, Any]:
    return {"name": str(row), "nodes": row.nodes, "fillPercent": row.fill, "pods": _pods(runs)}


def _pods(runs: Runs) -> int:
    return next(iter(runs.values()))[0].pods


def _figures(runs: list[live_run.Run]) -> dict[str, Any]:
    names = runs[0].cpu_milliseconds_per_pod
    return {
        "podsPerSecond": round(_median(runs, _rate), 1),
        "cpuMillisecondsPerPod": {
            name: round(statistics.median(run.cpu_milliseconds_per_pod[name] for run in runs), 2)
            for name in names
        },
        "runs": [_rounded(run) for run in runs],
    }


def _start_figures(runs: list[live_run.Run]) -> dict[str, Any]:
    return {
        "firstBindingSeconds": round(_median(runs, lambda run: run.first_binding_seconds), 2),
        "cpuSeconds": round(_median(runs, lambda run: run.contender_cpu_seconds), 2),
        "residentMiB": round(_median(runs, lambda run: run.resident_mib)),
        "peakMiB": round(_median(runs, lambda run: run.peak_mib)),
        "allFirstBindingSeconds": [round(run.first_binding_seconds, 2) for run in runs],
    }


def _ratios(runs: Runs) -> dict[str, float]:
    found = {"oursToKubeScheduler": _ratio(runs, KUBE), "oursToBareWrites": _ratio(runs, BARE)}
    return {name: round(ratio, 2) for name, ratio in found.items() if ratio is not None}


def _ratio(runs: Runs, name: str) -> float | None:
    if OURS not in runs or name not in runs:
        return None
    return statistics.median(
        _rate(one) / _rate(other) for one, other in zip(runs[OURS], runs[name], strict=True)
    )


def _rate(run: live_run.Run) -> float:
    return run.pods_per_second


def _own(run: live_run.Run) -> float:
    return run.cpu_milliseconds_per_pod[live_run.CONTENDER]


def _server(run: live_run.Run) -> float:
    return run.cpu_milliseconds_per_pod[kube_binaries.APISERVER]


def _median(runs: list[live_run.Run], figure: Figure) -> float:
    return statistics.median(map(figure, runs))


def _shown(runs: Runs, name: str, figure: Figure, *, digits: int) -> str:
    return f"{_median(runs[name], figure):.{digits}f}" if name in runs else "-"


def _shown_ratio(runs: Runs, name: str) -> str:
    ratio = _ratio(runs, name)
    return "-" if ratio is None else f"{ratio:.2f}"


def _disturbed(rows: dict[Row, Runs]) -> int:
    every = [run for runs in rows.values() for own in runs.values() for run in own]
    return sum(run.others_share > DISTURBED_SHARE for run in every)


def _rounded(run: live_run.Run) -> dict[str, Any]:
    tree = msgspec.to_builtins(run)
    tree["cpuMillisecondsPerPod"] = {
        name: round(spent, 2) for name, spent in tree["cpuMillisecondsPerPod"].items()
    }
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in tree.items()
    }


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
