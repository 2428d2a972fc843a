"""What metrics add to the node agent's cost on a node: `.venv/bin/python -m bench node-agent-metrics`.

Two agents run at the same time, each on fake hardware of eight H100s with dynamic MIG and seven MIG devices in use by a
claim each, against one real API server: one without metrics, one with metrics that are scraped as Prometheus does.
Figures: memory and processor time of a minute without other work, size and time of a scrape. The fake GPUs answer at
once, so NVML's own time is in none of them. Never asserts.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import node_agent
from dovetail.devcluster import control_plane, free_ports
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import agent_node
from tests.support import cluster

SCRAPE_SECONDS: Final = 15.0
WITHOUT, WITH = "without metrics", f"metrics, scraped every {SCRAPE_SECONDS:.0f} s"


def main() -> int:
    """Prints the table and writes bench/results/node-agent-metrics.json."""
    os.environ.update(node_agent.ENVIRONMENT)
    rows = measured()
    for name, figures in rows.items():
        print(f"{name}: {figures}")
    tree = {
        "benchmark": "node-agent-metrics",
        "python": platform.python_version(),
        "machine": "2 cores, shared; both at the same time: read ratios",
        "load": [round(each, 1) for each in os.getloadavg()],
        "rows": rows,
    }
    node_agent.RESULTS.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(tree), indent=2)
    (node_agent.RESULTS / "node-agent-metrics.json").write_bytes(text + b"\n")
    return 0


def measured() -> dict[str, dict[str, Any]]:
    """A row of figures for each of the two."""
    with contextlib.ExitStack() as open_, tempfile.TemporaryDirectory(prefix="gpus-") as scratch:
        open_.callback(cluster.stop_all)
        plane = cluster.control_plane()
        port = free_ports.reserve()
        nodes = {
            WITHOUT: _node(plane, Path(scratch) / "without", []),
            WITH: _node(plane, Path(scratch) / "with", [f"--metrics=127.0.0.1:{port}"]),
        }
        for node in nodes.values():
            open_.callback(node.stop)
            devices = [f"gpu-0-mig-1g10gb-19-{place}" for place in node_agent.PLACES]
            claims = open_.enter_context(node_agent.allocated_claims(node, devices))
            errors = [node.prepare(claim).error for claim in claims]
            assert not any(errors), errors
        _scraped(port)
        time.sleep(node_agent.SETTLE_SECONDS)

        before = {name: node_agent.processor_seconds(node.pid) for name, node in nodes.items()}
        began = time.monotonic()
        scrapes: list[tuple[float, int]] = []
        for number in range(1, round(node_agent.IDLE_SECONDS / SCRAPE_SECONDS) + 1):
            time.sleep(max(0.0, began + number * SCRAPE_SECONDS - time.monotonic()))
            scrapes.append(_scraped(port))
        seconds = time.monotonic() - began
        rows: dict[str, dict[str, Any]] = {}
        for name, node in nodes.items():
            used = node_agent.processor_seconds(node.pid) - before[name]
            rows[name] = {
                "mebibytes": round(node_agent.resident_bytes(node.pid) / node_agent.MEBIBYTE, 1),
                "percentOfACore": round(100 * used / seconds, 2),
            }
        rows[WITH]["scrapeMilliseconds"] = round(statistics.median(each[0] for each in scrapes), 1)
        rows[WITH]["scrapeKilobytes"] = round(scrapes[-1][1] / 1000)
        return rows


def _node(
    plane: control_plane.ControlPlane, directory: Path, options: list[str]
) -> agent_node.AgentNode:
    hardware = Hardware.create(directory, gpus=node_agent.GPUS)
    name = f"bench-{uuid.uuid4().hex[:6]}"
    return agent_node.AgentNode(hardware, plane, name, mig="dynamic", options=options)


def _scraped(port: int) -> tuple[float, int]:
    """Milliseconds and bytes of one scrape."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        body = answer.read()
    return 1000 * (time.perf_counter() - began), len(body)
