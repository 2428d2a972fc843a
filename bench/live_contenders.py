"""Who takes part in the live benchmark and how each is started: our scheduler, kube-scheduler, the bare writes.

All three are processes of their own with the admin's kubeconfig, without leader election, and with client limits that
do not bind. They get the same pods, which name the same scheduler. Never two at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bench import live_cluster, live_run
from dovetail.devcluster import free_ports, kube_flags

OURS: Final = "ours"
KUBE_SCHEDULER: Final = "kube_scheduler"
BARE: Final = "bare_writes"
CLIENT_QPS: Final = (
    5000  # kube-scheduler's limit, which it never reaches; ours and the bare writes have none
)
IN_FLIGHT: Final = 64  # ours: the default; the bare writes: the same
PATIENCE_SECONDS: Final = 15.0  # with others who use the machine, before each run

Command = Callable[[live_cluster.Cluster, int], list[str]]


async def contest(
    cluster: live_cluster.Cluster,
    name: str,
    count: int,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> live_run.Run:
    """One run of one contender over so many pods, from nothing to nothing."""
    await cluster.make_work(count)
    try:
        command = COMMANDS[name](cluster, count)
        await live_run.quiet(cluster, patience_seconds)
        return await live_run.run(cluster, command, count=count, log=cluster.plane.log_of(name))
    finally:
        await cluster.clear_work()


def _ours(cluster: live_cluster.Cluster, _: int) -> list[str]:
    configuration = cluster.plane.directory / "dovetail.json"
    settings = {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "SchedulerConfiguration",
        "schedulerNames": [live_cluster.SCHEDULER_NAME],
        "leaderElection": {"enabled": False},
        "serving": {"port": 0},
        "clientConnection": {"concurrency": IN_FLIGHT},
        "writes": {"inFlightPods": IN_FLIGHT},
    }
    configuration.write_bytes(msgspec.json.encode(settings))
    program = Path(sys.executable).parent / "dovetail"
    words = ["--kubeconfig", cluster.plane.kubeconfig, "--config", configuration]
    return [str(program), "scheduler", *map(str, words)]


def _kube_scheduler(cluster: live_cluster.Cluster, _: int) -> list[str]:
    plane = cluster.plane
    configuration = plane.directory / "kube-scheduler.json"
    profile = kube_flags.scheduler_configuration(
        live_cluster.SCHEDULER_NAME, plane.kubeconfig, qps=CLIENT_QPS, burst=CLIENT_QPS
    )
    configuration.write_bytes(msgspec.json.encode(profile))
    return plane.layout.scheduler_command(
        configuration, port=free_ports.reserve(), kubeconfig=plane.kubeconfig
    )


def bare(cluster: live_cluster.Cluster, count: int) -> list[str]:
    """The bare writes, with the devices that are free."""
    devices = cluster.plane.directory / "devices.json"
    devices.write_bytes(msgspec.json.encode(cluster.free[:count]))
    words = [
        "--kubeconfig",
        cluster.plane.kubeconfig,
        "--devices",
        devices,
        "--in-flight",
        IN_FLIGHT,
    ]
    return [sys.executable, "-m", "bench.live_bare", *map(str, words)]


COMMANDS: Final[dict[str, Command]] = {OURS: _ours, KUBE_SCHEDULER: _kube_scheduler, BARE: bare}
