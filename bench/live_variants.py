"""An experiment: which form of the three writes costs the API server least. Decides what our scheduler sends.

Runs the bare writes in every form, with more and fewer under way, with and without events, interleaved.
`python -m bench live-variants`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench import live_cluster, live_contenders, live_forms, live_run
from dovetail.devcluster import go_build, kube_binaries

RESULT = Path(__file__).resolve().parent / "results" / "live-variants.json"
NODES = 500
PODS = 800
ROUNDS = 3
PARTS = (
    kube_binaries.APISERVER,
    kube_binaries.ETCD,
    kube_binaries.CONTROLLER_MANAGER,
    live_run.CONTENDER,
)


class Variant(NamedTuple):
    """The bare writes, differently."""

    form: str = live_forms.OURS
    in_flight: int = 64
    with_events: bool = False

    def __str__(self) -> str:
        return f"{self.form}, {self.in_flight} under way{', events' if self.with_events else ''}"


VARIANTS = (
    *(Variant(form) for form in (live_forms.OURS, *live_forms.FORMS)),
    *(Variant(in_flight=count) for count in (8, 16, 32, 128)),
    Variant(with_events=True),
)


def main(rounds: int = ROUNDS) -> int:
    """Measures, prints the cheapest first, and keeps it. 1 where a real part is missing."""
    try:
        parts = kube_binaries.binaries(say=_say)
    except (kube_binaries.PartsMissing, go_build.BuildFailed) as problem:
        _say(str(problem))
        return 1
    rows = asyncio.run(_measured(parts.version, rounds))
    for name, row in sorted(rows.items(), key=lambda item: float(item[1]["cpuToOurs"])):
        print(
            f"{name:34s} {row['podsPerSecond']:6.0f} pods/s  {row['toOurs']:.2f} of ours  "
            f"CPU {row['cpuMillisecondsPerPod']['all']:.1f} ms a pod, {row['cpuToOurs']:.2f} of ours"
        )
    return 0


async def _measured(version: str, rounds: int) -> dict[str, Any]:
    """Medians of every variant, and ratios to what our scheduler sends. Kept after each round."""
    found: dict[Variant, list[live_run.Run]] = {variant: [] for variant in VARIANTS}
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(
        prefix="dovetail-bench-", ignore_cleanup_errors=True
    ) as scratch:
        async with live_cluster.started(NODES, directory=Path(scratch), say=_say) as cluster:
            await bare(cluster, PODS, Variant())  # warms the servers up
            for number in range(rounds):
                order = list(VARIANTS)
                random.Random(number).shuffle(
                    order
                )  # the servers' memory grows meanwhile: no contender is always last
                for variant in order:
                    run = await bare(cluster, PODS, variant)
                    found[variant].append(run)
                    _say(
                        f"{number + 1}: {variant}: {run.pods_per_second:.0f} pods/s, others {run.others_share:.0%}"
                    )
                rows = {
                    str(variant): _row(runs, found[Variant()]) for variant, runs in found.items()
                }
                _store(version, number + 1, rows)
    return rows


def _store(version: str, rounds: int, rows: dict[str, Any]) -> None:
    found = {
        "benchmark": "live-variants",
        "kubernetes": version,
        "size": f"{NODES} nodes, {PODS} pods a run",
        "rounds": rounds,
        "rows": rows,
    }
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


async def bare(cluster: live_cluster.Cluster, count: int, variant: Variant) -> live_run.Run:
    """One run of the bare writes."""
    await cluster.make_work(count)
    try:
        command = live_contenders.bare(cluster, count)
        command += ["--form", variant.form, "--in-flight", str(variant.in_flight)]
        command += ["--events"] if variant.with_events else []
        await live_run.quiet(cluster, live_contenders.PATIENCE_SECONDS)
        return await live_run.run(cluster, command, count=count, log=cluster.plane.log_of("bare"))
    finally:
        await cluster.clear_work()


def _row(runs: list[live_run.Run], usual: list[live_run.Run]) -> dict[str, Any]:
    pairs = list(zip(runs, usual, strict=True))
    spent = {
        name: round(statistics.median(run.cpu_milliseconds_per_pod[name] for run in runs), 2)
        for name in PARTS
    }
    return {
        "podsPerSecond": round(statistics.median(run.pods_per_second for run in runs), 1),
        "toOurs": round(
            statistics.median(run.pods_per_second / other.pods_per_second for run, other in pairs),
            2,
        ),
        "cpuToOurs": round(statistics.median(_cpu(run) / _cpu(other) for run, other in pairs), 2),
        "cpuMillisecondsPerPod": {**spent, "all": round(statistics.median(map(_cpu, runs)), 2)},
        "allPodsPerSecond": [round(run.pods_per_second, 1) for run in runs],
        "allCpu": [round(_cpu(run), 2) for run in runs],
        "othersShare": [round(run.others_share, 2) for run in runs],
    }


def _cpu(run: live_run.Run) -> float:
    """All that a pod costs, milliseconds."""
    return sum(run.cpu_milliseconds_per_pod[name] for name in PARTS)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
