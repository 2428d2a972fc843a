"""Whether answers delay live decisions: `.venv/bin/python -m bench.answering [--nodes N] [--pods N]`.

Starts an embedded cluster and creates pods with one GPU each, one after the other, while nothing else happens, while
another process only computes, and while commands ask without a pause. Prints for each the milliseconds from the
creation of a pod to its node, as a client sees them. Rounds of the three alternate, so that a busy machine is busy for
all of them. Never asserts.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench import embedded
from dovetail.ask import api_session
from dovetail.boot import cluster_choice
from dovetail.kube.http import transport

ROUNDS: Final = 5
POLL_SECONDS: Final = 0.002
PODS: Final = "/api/v1/namespaces/default/pods"
SPIN: Final = "while True: sum(range(10_000))"
QUESTIONS: Final = (
    ("why", "too-large"),
    ("when",),
    ("queue",),
    ("what-if", "--add", "2xh100"),
    ("capacity", "--gpus", "8"),
)
TOO_LARGE: Final = """
apiVersion: v1
kind: Pod
metadata: {name: too-large, namespace: default}
spec:
  schedulerName: dovetail
  containers: [{name: main, image: work, resources: {limits: {nvidia.com/gpu: "64"}}}]
"""
QUIET, COMPUTING, ASKING = MODES = ("nothing else", "a process computes", "commands ask")


def main(arguments: Sequence[str]) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=26)
    parser.add_argument("--pods", type=int, default=40, help="of one round")
    asked = parser.parse_args(arguments)
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    answers = 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        fleet, state = place / "fleet.yaml", place / "state"
        pool = f"{{name: h100, count: {asked.nodes}, gpu: H100-SXM5-80GB}}"
        fleet.write_text(f"name: bench\npools: [{pool}]\n", encoding="utf-8")
        waiting = place / "waiting.yaml"
        waiting.write_text(TOO_LARGE, encoding="utf-8")
        embedded.run(state, "up", "--fresh", "--detach", "--fleet", str(fleet))
        try:
            embedded.run(state, "apply", "-f", str(waiting))
            choice = cluster_choice.choose(cluster_choice.Options(state=str(state)))
            for _, mode in itertools.product(range(ROUNDS), MODES):
                with beside(mode, state) as count:
                    times[mode] += api_session.run(
                        choice, lambda over: bound_pods(over, asked.pods)
                    )
                answers += count[0]
        finally:
            embedded.run(state, "down", "--purge")
    show(asked.nodes, times, answers)
    return 0


def show(nodes: int, times: dict[str, list[float]], answers: int) -> None:
    """The table, in Markdown."""
    print(f"{nodes:,} nodes, {answers} answers while {len(times[ASKING])} pods were decided")
    print("| beside | pods | p50, ms | p95, ms | max, ms |")
    print("|---|---|---|---|---|")
    for mode, seconds in times.items():
        ordered = sorted(each * 1000 for each in seconds)
        tail = ordered[int(len(ordered) * 0.95)]
        middle = statistics.median(ordered)
        print(f"| {mode} | {len(ordered)} | {middle:.0f} | {tail:.0f} | {ordered[-1]:.0f} |")


@contextmanager
def beside(mode: str, state: Path) -> Iterator[list[int]]:
    """Keeps one more process busy meanwhile; what it yields holds the number of answers in the end."""
    count = [0]
    if mode == QUIET:
        yield count
        return
    if mode == COMPUTING:
        process = subprocess.Popen([sys.executable, "-c", SPIN], start_new_session=True)
    else:
        log = state.parent / "asked"
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.answering", "--asker", str(log)],
            env=os.environ | {"DOVETAIL_STATE": str(state)},
            cwd=embedded.ROOT,
            start_new_session=True,
        )
        while not log.exists():  # until the first answer
            time.sleep(POLL_SECONDS)
    try:
        yield count
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with the command that it runs
        process.wait()
        if mode == ASKING and log.exists():
            count[0] = len(log.read_text(encoding="utf-8").splitlines())
            log.unlink()


def ask_without_end(log: Path) -> None:
    """Runs one question after the other; a line for each that was answered."""
    for question in itertools.cycle(QUESTIONS):
        subprocess.run([*embedded.PROGRAM, *question], capture_output=True, check=False)
        with log.open("a", encoding="utf-8") as lines:
            lines.write(f"{' '.join(question)}\n")


async def bound_pods(over: transport.Transport, number: int) -> list[float]:
    """Seconds from the creation of each pod to its node; it is deleted before the next one comes."""
    seconds = []
    for index in range(number):
        name = f"measured-{index}"
        began = time.perf_counter()
        await over.request("POST", PODS, body=json.dumps(pod(name)).encode())
        while not (await read(over, name)).get("spec", {}).get("nodeName"):
            await asyncio.sleep(POLL_SECONDS)
        seconds.append(time.perf_counter() - began)
        await over.request("DELETE", f"{PODS}/{name}", params={"gracePeriodSeconds": "0"})
        while "spec" in await read(over, name):
            await asyncio.sleep(POLL_SECONDS)
    return seconds


async def read(over: transport.Transport, name: str) -> dict[str, Any]:
    """The pod, or what the server says instead."""
    answer = await over.request("GET", f"{PODS}/{name}")
    tree: dict[str, Any] = json.loads(answer.body)
    return tree


def pod(name: str) -> dict[str, Any]:
    """A pod with one GPU."""
    container = {"name": "main", "image": "work", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "dovetail", "containers": [container]},
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--asker"]:
        ask_without_end(Path(sys.argv[2]))
    sys.exit(main(sys.argv[1:]))
