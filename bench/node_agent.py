"""What the node agent costs a node, beside NVIDIA's DRA driver: `.venv/bin/python -m bench node-agent`.

Both run at the same time, each on fake hardware of eight H100s with dynamic MIG, 26 devices a GPU, against one real API
server. Figures: start to published slices, memory, processor time of an idle minute, preparing one claim after another
and all MIG devices at once. The fake GPUs answer at once, so NVML's own time is in none of them. Never asserts.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.devcluster import control_plane
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import agent_node, claims, dra_driver, dra_node
from tests.support import cluster

RESULTS: Final = Path(__file__).resolve().parent / "results"
GPUS: Final = 8
STARTS: Final = 3
CLAIMS: Final = 100
IDLE_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 10.0  # after the slices are out, before memory is read
PLACES: Final = range(7)  # where a 1g.10gb may start on an H100
MEBIBYTE: Final = 1024 * 1024
# As the Helm chart sets them. Both get them; NVIDIA's driver is in Go and allocates little with glibc.
ENVIRONMENT: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_TOP_PAD_": "0",
}
OURS, NVIDIA = "dovetail node-agent", "NVIDIA's driver v0.5.0"

Start = Callable[[Hardware, control_plane.ControlPlane, str], dra_node.DraNode]
Figures = dict[str, float]


def main() -> int:
    """Prints the table and writes bench/results/node-agent.json."""
    os.environ.update(ENVIRONMENT)
    rows = measured()
    names = list(rows[OURS])
    print("| | " + " | ".join(rows) + " |")
    print("|---|---:|---:|")
    for name in names:
        print(f"| {name} | " + " | ".join(str(row[name]) for row in rows.values()) + " |")
    tree = {
        "benchmark": "node-agent",
        "peer": NVIDIA,
        "python": platform.python_version(),
        "machine": "2 cores, shared; both at the same time: read ratios",
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(tree), indent=2)
    (RESULTS / "node-agent.json").write_bytes(text + b"\n")
    return 0


def measured() -> dict[str, dict[str, Any]]:
    """A row of figures for each of the two."""
    with contextlib.ExitStack() as open_, tempfile.TemporaryDirectory(prefix="gpus-") as scratch:
        open_.callback(cluster.stop_all)
        plane = cluster.control_plane()
        starts: dict[str, list[float]] = {OURS: [], NVIDIA: []}
        nodes: dict[str, dra_node.DraNode] = {}
        for round_, (name, start) in itertools.product(range(STARTS), CONTENDERS.items()):
            hardware = Hardware.create(Path(scratch) / f"{round_}-{len(name)}", gpus=GPUS)
            began = time.perf_counter()
            node = start(hardware, plane, f"bench-{uuid.uuid4().hex[:6]}")
            starts[name].append(time.perf_counter() - began)
            if round_ == STARTS - 1:
                nodes[name] = node
                open_.callback(node.stop)
            else:
                node.stop()

        time.sleep(SETTLE_SECONDS)
        rows: dict[str, dict[str, Any]] = {
            name: {
                "devices": len(node.devices()),
                "startSeconds": round(statistics.median(starts[name]), 2),
                "idleMebibytes": round(resident_bytes(node.pid) / MEBIBYTE, 1),
            }
            for name, node in nodes.items()
        }
        for name, percent in idle_percent(nodes).items():
            rows[name]["idlePercentOfACore"] = percent
        for name, figures in one_after_another(nodes).items():
            rows[name] |= figures
        for name, node in nodes.items():
            rows[name] |= at_once(node)
            rows[name]["busyMebibytes"] = round(resident_bytes(node.pid) / MEBIBYTE, 1)
        return rows


def start_ours(
    hardware: Hardware, plane: control_plane.ControlPlane, name: str
) -> dra_node.DraNode:
    """The node agent, once its slices are complete."""
    return agent_node.AgentNode(hardware, plane, name, mig="dynamic")


def start_nvidia(
    hardware: Hardware, plane: control_plane.ControlPlane, name: str
) -> dra_node.DraNode:
    """NVIDIA's driver with dynamic MIG. It refuses health checks beside that; the agent always has them."""
    gates = {dra_driver.DYNAMIC_MIG: True}
    return dra_driver.DraOracle(hardware, plane, name, feature_gates=gates)


CONTENDERS: Final[dict[str, Start]] = {OURS: start_ours, NVIDIA: start_nvidia}


def idle_percent(nodes: dict[str, dra_node.DraNode]) -> Figures:
    """Processor time of the same idle minute, in percent of a core."""
    before = {name: processor_seconds(node.pid) for name, node in nodes.items()}
    time.sleep(IDLE_SECONDS)
    used = {name: processor_seconds(node.pid) - before[name] for name, node in nodes.items()}
    return {name: round(100 * seconds / IDLE_SECONDS, 2) for name, seconds in used.items()}


def one_after_another(nodes: dict[str, dra_node.DraNode]) -> dict[str, Figures]:
    """Milliseconds to prepare and to unprepare a whole GPU and a MIG device, taking turns."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in nodes}
    kinds = {"Whole": "gpu-{gpu}", "Mig": "gpu-{gpu}-mig-1g10gb-19-0"}
    for index, (kind, pattern) in itertools.product(range(CLAIMS), kinds.items()):
        device = pattern.format(gpu=index % GPUS)
        for name, node in nodes.items():
            with allocated_claims(node, [device]) as (claim,):
                prepare, unprepare = timed(node, claim)
            times[name].setdefault(f"prepare{kind}", []).append(prepare)
            times[name].setdefault(f"unprepare{kind}", []).append(unprepare)
    return {
        name: {
            f"{kind}{rank}Milliseconds": round(1000 * quantile(seconds, share), 1)
            for kind, seconds in kinds_.items()
            for rank, share in (("P50", 50), ("P95", 95))
        }
        for name, kinds_ in times.items()
    }


def at_once(node: dra_node.DraNode) -> Figures:
    """Seconds until all MIG devices that the GPUs hold are prepared, each for a claim and call of its own."""
    devices = [
        f"gpu-{gpu}-mig-1g10gb-19-{place}" for gpu, place in itertools.product(range(GPUS), PLACES)
    ]
    with (
        allocated_claims(node, devices) as together,
        ThreadPoolExecutor(max_workers=len(devices)) as calls,
    ):
        began = time.perf_counter()
        answers = list(calls.map(node.prepare, together))
        seconds = time.perf_counter() - began
        failed = [answer.error for answer in answers if answer.error]
        began = time.perf_counter()
        failed += [error for error in calls.map(node.unprepare, together) if error]
        undone = time.perf_counter() - began
    # The claim's name comes first, the reason last.
    reasons = Counter(error.rpartition(": ")[2] for error in failed)
    for reason, count in reasons.most_common():
        print(f"{node.node} refused {count} calls: {reason}", file=sys.stderr)
    return {
        "claimsAtOnce": len(devices),
        "prepareAllSeconds": round(seconds, 2),
        "unprepareAllSeconds": round(undone, 2),
        "failed": len(failed),
    }


def timed(node: dra_node.DraNode, claim: dra_node.Tree) -> tuple[float, float]:
    """Seconds to prepare a claim and to unprepare it."""
    began = time.perf_counter()
    answer = node.prepare(claim)
    prepared = time.perf_counter()
    error = answer.error or node.unprepare(claim)
    if error:
        raise RuntimeError(f"{node.node}: {error}")
    return prepared - began, time.perf_counter() - prepared


@contextlib.contextmanager
def allocated_claims(node: dra_node.DraNode, devices: Sequence[str]) -> Iterator[list[Any]]:
    """A claim for each device, as a scheduler leaves it."""
    made = [claims.allocated(node.rest, node.node, [device]) for device in devices]
    yield made
    for claim in made:
        node.rest.delete("resourceclaims", claim["metadata"]["name"], "default")


def resident_bytes(pid: int) -> int:
    """The memory of a process, with what it shares with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    (kilobytes,) = [int(line.split()[1]) for line in lines if line.startswith("Rss:")]
    return kilobytes * 1024


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime


def quantile(values: Sequence[float], percent: int) -> float:
    """A percentile, by the nearest value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
