"""How long `stack check` takes on a saved cluster: the whole command, from its start to its end.

`python -m bench stack [--nodes N] [--pods N]` writes a cluster of three kinds of GPU nodes and five images to a file of
objects, runs the command several times as a process, and prints seconds by the clock and of processor. Writes
bench/results/stack.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.answer.stack import fleets

RESULTS: Final = Path(__file__).resolve().parent / "results" / "stack.json"
RUNS: Final = 5
GOAL_SECONDS: Final = 5.0
BOARDS: Final = (fleets.H100, fleets.V100, fleets.A100)
IMAGES: Final = (
    "team/train:2.11.0-cuda12.8",
    "nvidia/pytorch:25.12-py3",
    "vllm/vllm-openai:v0.29.0-cu129",
    "nvidia/cuda:13.2.0-base-ubuntu24.04",
    "team/own:latest",
)
TARGET: Final = "driver=595.91.07,kubernetes=1.35,containerd=2.2.1,operator=26.3.3"
PROGRAM: Final = "import sys; from dovetail.cli.main import main; sys.exit(main())"


def main(arguments: list[str]) -> int:
    """Measures, prints and stores."""
    parser = argparse.ArgumentParser(prog="python -m bench stack", description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=5_000)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.json"
        file.write_text(json.dumps(cluster_of(chosen.nodes, chosen.pods)))
        runs = [_run(file) for _ in range(RUNS)]
    wall = sorted(each[0] for each in runs)
    processor = sorted(each[1] for each in runs)
    result = {
        "nodes": chosen.nodes,
        "pods": chosen.pods,
        "runs": RUNS,
        "secondsMedian": round(wall[RUNS // 2], 2),
        "processorSecondsMedian": round(processor[RUNS // 2], 2),
        "goalSeconds": GOAL_SECONDS,
    }
    print(json.dumps(result))
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return 0


def cluster_of(nodes: int, pods: int) -> dict[str, Any]:
    """The objects as one list."""
    items = [
        fleets.node(f"pool{index % 3}-{index}", BOARDS[index % 3], driver="570.211.01")
        for index in range(nodes)
    ]
    items += [
        fleets.pod(
            f"pod-{index}",
            IMAGES[index % len(IMAGES)],
            items[index % nodes]["metadata"]["name"],
            owner=("Job", f"job-{index // 4}"),
        )
        for index in range(pods)
    ]
    items.append(fleets.policy("25.10.1", "570.211.01"))
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _run(file: Path) -> tuple[float, float]:
    words = ["stack", "check", "--to", TARGET, "--snapshot", str(file), "-o", "json"]
    began, before = time.monotonic(), os.times()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.DEVNULL, check=False
    )
    after = os.times()
    if done.returncode not in (0, 1):
        raise SystemExit(f"stack check ended with {done.returncode}")
    used = after.children_user - before.children_user
    used += after.children_system - before.children_system
    return time.monotonic() - began, used
