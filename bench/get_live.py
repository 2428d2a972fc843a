"""What reading commands cost on running clusters of three sizes: `.venv/bin/python -m bench.get_live [--quick]`.

An embedded cluster, and a real kube-apiserver of the newest pinned Kubernetes: nodes with 8 GPUs each, two pods with a
GPU on every node, and a pod that waits. Every command is a process of its own; figures are seconds on the clock and
processor seconds of that process, from the run that took the least of the processor. What the server spends is not in
them. Puts its rows into bench/results/get.json beside those of `bench.get`. Never asserts.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench import embedded, get, live_cluster
from dovetail.kubetypes import registry

SIZES: Final = (26, 500, 2_000)
ROUNDS: Final = 3
NAMESPACE: Final = "default"
SCHEDULER: Final = "dovetail"  # whose pods `queue` shows on a real cluster
COMMANDS: Final = {
    "get pods -A": ("get", "pods", "-A"),
    "get nodes": ("get", "nodes"),
    "get gpus": ("get", "gpus"),
    "queue": ("queue",),
    "why": ("why", "big", "-n", NAMESPACE),
    "what-if": ("what-if", "--add", "2xh100"),
}
ANSWERS: Final = (0, 1)  # `why` ends with 1 where the pod waits
BIG: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "big", "namespace": NAMESPACE},
    "spec": {
        "schedulerName": SCHEDULER,
        "containers": [
            {"name": "main", "image": "python", "resources": {"requests": {"cpu": "9999"}}}
        ],
    },
}


class Measure(NamedTuple):
    """One run."""

    cpu_seconds: float
    wall_seconds: float


Rows = dict[str, dict[str, Measure]]  # by command and source, by size


def main(arguments: Sequence[str]) -> int:
    """Prints the table and stores it."""
    sizes = SIZES[:1] if "--quick" in arguments else SIZES
    rows: Rows = {}
    for size in sizes:
        print(f"{size} nodes ...", file=sys.stderr)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            _on_embedded(Path(name), size, rows)
            asyncio.run(_on_real(Path(name) / "real", size, rows))
    _show(rows, sizes)
    if len(sizes) == len(SIZES):
        _store(rows)
    return 0


def _on_embedded(place: Path, size: int, rows: Rows) -> None:
    state, fleet, workload = place / "state", place / "fleet.yaml", place / "pods.yaml"
    pool = f"{{name: h100, count: {size}, gpu: H100-SXM5-80GB}}"
    fleet.write_text(f"name: fleet\npools: [{pool}]\n", encoding="utf-8")
    documents = [get.workload(size), msgspec.json.encode(BIG).decode()]
    workload.write_text("\n---\n".join(documents), encoding="utf-8")
    embedded.run(state, "up", "--fresh", "--detach", "--no-dashboard", "--fleet", str(fleet))
    try:
        embedded.run(state, "apply", "-f", str(workload))
        _settle(state, size * get.PODS_PER_NODE)
        _measure_all({"DOVETAIL_STATE": str(state)}, "embedded", size, rows)
    finally:
        embedded.run(state, "down", "--purge")


def _settle(state: Path, pods: int) -> None:
    """Waits until every pod but the big one runs: commands are measured on a cluster at rest."""
    while embedded.output(state, "get", "pods", "-A").count("Running") < pods:
        time.sleep(1.0)


async def _on_real(place: Path, size: int, rows: Rows) -> None:
    place.mkdir()
    started = live_cluster.started(
        size, directory=place, say=lambda line: print(line, file=sys.stderr)
    )
    async with started as cluster:
        await cluster.crowd(get.PODS_PER_NODE, get.PODS_PER_NODE, scheduler=SCHEDULER)
        await cluster.create(registry.POD, [BIG])
        variables = {"KUBECONFIG": str(cluster.plane.kubeconfig)}
        await asyncio.to_thread(_measure_all, variables, "real", size, rows)


def _measure_all(variables: Mapping[str, str], source: str, size: int, rows: Rows) -> None:
    for name, command in COMMANDS.items():
        runs = [_measured(variables, command) for _ in range(ROUNDS)]
        rows.setdefault(f"{name}, {source}", {})[str(size)] = min(runs)


def _measured(variables: Mapping[str, str], command: Sequence[str]) -> Measure:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [*embedded.PROGRAM, *command],
        env={**kept, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in ANSWERS or not done.stdout:
        sys.exit(f"dovetail {' '.join(command)}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measure(cpu, wall)


def _show(rows: Rows, sizes: Sequence[int]) -> None:
    headers = [f"{size:,} nodes, processor / wall, s" for size in sizes]
    print(f"| command | from | {' | '.join(headers)} |")
    print(f"|---|---|{'---|' * len(sizes)}")
    for name, by_size in rows.items():
        command, source = name.split(", ")
        measures = [by_size[str(size)] for size in sizes]
        cells = [f"{each.cpu_seconds:.2f} / {each.wall_seconds:.2f}" for each in measures]
        print(f"| `{command}` | {source} | {' | '.join(cells)} |")


def _store(rows: Rows) -> None:
    stored = msgspec.json.decode(get.RESULTS.read_bytes())
    for name, by_size in rows.items():
        cpu = {size: round(each.cpu_seconds, 2) for size, each in by_size.items()}
        wall = {size: round(each.wall_seconds, 2) for size, each in by_size.items()}
        stored["rows"][name] = cpu
        stored.setdefault("wall", {})[name] = wall
    get.RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
