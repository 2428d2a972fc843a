"""Pods a second on a real control plane: our scheduler beside kube-scheduler and beside the bare writes.

`python -m bench live` runs every size and fill, three interleaved rounds each, then start-up and memory in a crowded
cluster, and keeps all of it in results/live.json. `--quick` is a small one that keeps nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench import live_cluster, live_contenders, live_report, live_run
from dovetail.devcluster import go_build, kube_binaries

RESULT = Path(__file__).resolve().parent / "results" / "live.json"
WARM_UP_PODS = 50


class Plan(NamedTuple):
    """What is measured."""

    sizes: tuple[int, ...] = (500, 2000)
    fills: tuple[int, ...] = (0, 50, 99)
    most_pods: int = 1000
    rounds: int = 3
    contenders: tuple[str, ...] = tuple(live_contenders.COMMANDS)
    crowd_nodes: int = 2000  # 0: start-up is not measured
    crowd_pods_per_node: int = 10
    crowd_gpu_pods_per_node: int = 4
    patience_seconds: float = live_contenders.PATIENCE_SECONDS


FULL = Plan()
QUICK = Plan(
    sizes=(50,), fills=(0, 99), most_pods=100, rounds=1, crowd_nodes=20, patience_seconds=0.0
)


def main(arguments: list[str]) -> int:
    """Measures and prints. 1 where a real part is missing."""
    plan, output = _chosen(arguments)
    try:
        parts = kube_binaries.binaries(say=say)
    except (kube_binaries.PartsMissing, go_build.BuildFailed) as problem:
        say(str(problem))
        return 1
    report = live_report.Report(version=parts.version, rounds=plan.rounds)
    asyncio.run(_measure(plan, report, output))
    print(report.text())
    return 0


async def _measure(plan: Plan, report: live_report.Report, output: Path | None) -> None:
    for nodes in plan.sizes:
        with tempfile.TemporaryDirectory(
            prefix="dovetail-bench-", ignore_cleanup_errors=True
        ) as scratch:
            async with live_cluster.started(nodes, directory=Path(scratch), say=say) as cluster:
                await _contest(plan, cluster, live_contenders.BARE, WARM_UP_PODS)
                for fill in plan.fills:
                    await cluster.fill(fill)
                    await _row(plan, cluster, live_report.Row(nodes, fill), report)
                    report.store(output)
    if plan.crowd_nodes:
        with tempfile.TemporaryDirectory(
            prefix="dovetail-bench-", ignore_cleanup_errors=True
        ) as scratch:
            async with live_cluster.started(
                plan.crowd_nodes, directory=Path(scratch), say=say
            ) as cluster:
                await _start_up(plan, cluster, report)
        report.store(output)


async def _row(
    plan: Plan, cluster: live_cluster.Cluster, row: live_report.Row, report: live_report.Report
) -> None:
    """All rounds of one size and fill, contender after contender in each."""
    count = min(plan.most_pods, len(cluster.free))
    for number in range(plan.rounds):
        for name in plan.contenders:
            run = await _contest(plan, cluster, name, count)
            report.add(row, name, run)
            say(f"{row}, round {number + 1}: {name} {_shown(run)}")


async def _start_up(plan: Plan, cluster: live_cluster.Cluster, report: live_report.Report) -> None:
    """How long each takes from its start to the first binding where much is there already, and its memory then."""
    pods = plan.crowd_nodes * plan.crowd_pods_per_node
    say(f"making {pods} bound pods")
    await cluster.crowd(plan.crowd_pods_per_node, plan.crowd_gpu_pods_per_node)
    report.crowd = (plan.crowd_nodes, pods)
    for number in range(plan.rounds):
        for name in plan.contenders:
            if name != live_contenders.BARE:
                run = await _contest(plan, cluster, name, 1)
                report.add_start(name, run)
                seconds, memory = run.first_binding_seconds, run.resident_mib
                say(
                    f"start, round {number + 1}: {name} {seconds:.1f} s to the first binding, {memory:.0f} MiB"
                )


async def _contest(
    plan: Plan, cluster: live_cluster.Cluster, name: str, count: int
) -> live_run.Run:
    return await live_contenders.contest(
        cluster, name, count, patience_seconds=plan.patience_seconds
    )


def _shown(run: live_run.Run) -> str:
    spent = run.cpu_milliseconds_per_pod
    return (
        f"{run.pods_per_second:.0f} pods/s, {spent[live_run.CONTENDER]:.1f} ms of its own time a pod, "
        f"{spent[kube_binaries.APISERVER]:.1f} of the API server, others {run.others_share:.0%}"
    )


def _chosen(arguments: list[str]) -> tuple[Plan, Path | None]:
    """The plan, and the file for it. Only the full plan is kept without being asked."""
    parser = argparse.ArgumentParser(prog="python -m bench live", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50 nodes, 100 pods, one round")
    parser.add_argument("--nodes", type=int, nargs="+", help="sizes")
    parser.add_argument(
        "--fill", type=int, nargs="+", choices=range(100), metavar="PERCENT", help="GPUs in use"
    )
    parser.add_argument("--pods", type=int, help="pods in a run, if so many fit")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--contenders", nargs="+", choices=list(live_contenders.COMMANDS))
    parser.add_argument("--no-start-up", action="store_true", help="leave out start-up and memory")
    parser.add_argument("--output", type=Path, help="where to keep the result")
    chosen = parser.parse_args(arguments)
    plan = QUICK if chosen.quick else FULL
    changes = {
        "sizes": tuple(chosen.nodes) if chosen.nodes else None,
        "fills": tuple(sorted(chosen.fill)) if chosen.fill else None,
        "most_pods": chosen.pods,
        "rounds": chosen.rounds,
        "contenders": tuple(chosen.contenders) if chosen.contenders else None,
        "crowd_nodes": 0 if chosen.no_start_up else None,
    }
    plan = plan._replace(**{name: value for name, value in changes.items() if value is not None})
    return plan, chosen.output or (RESULT if plan == FULL else None)


def say(text: str) -> None:
    """Progress, beside the results."""
    print(text, file=sys.stderr, flush=True)
