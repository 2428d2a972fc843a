"""What `dovetail exporter` costs at 10,000 GPUs: `.venv/bin/python -m bench exporter [nodes]`.

Nodes with eight H100s and every MIG candidate, a claim and a pod for each GPU, 100 queues. The text is served by the
exporter's own HTTP server and read over loopback. Figures: objects rendered a second, bytes of a scrape, seconds of the
first scrape, of one after a hundred changes, of one after none, and memory. Never asserts.
"""

from __future__ import annotations

import asyncio
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from dovetail.boot import http_server
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.resource import claims, slices
from dovetail.sim.fleet import device_publisher, fleet_spec, machines
from dovetail.telemetry import object_metrics

RESULTS: Final = Path(__file__).resolve().parent / "results"
NODES: Final = 1250
GPUS: Final = 8
CHANGES: Final = 100
ROUNDS: Final = 5
AT: Final = "2026-01-01T00:00:00Z"


def main(arguments: list[str]) -> int:
    """Prints the table and writes bench/results/exporter.json."""
    nodes = int(arguments[0]) if arguments else NODES
    rows = {
        "whole GPUs": asyncio.run(measured(nodes, has_partitions=False)),
        "with --partitions": asyncio.run(measured(nodes, has_partitions=True)),
    }
    for label, row in rows.items():
        print(label)
        for name, value in row.items():
            print(f"    {name:32} {value}")
    tree = {
        "benchmark": "exporter",
        "nodes": nodes,
        "gpus": nodes * GPUS,
        "python": platform.python_version(),
        "machine": "2 cores, shared",
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(tree), indent=2)
    (RESULTS / "exporter.json").write_bytes(text + b"\n")
    return 0


async def measured(nodes: int, *, has_partitions: bool) -> dict[str, Any]:
    """One exporter, fed and scraped."""
    metrics = object_metrics.ObjectMetrics(has_partitions=has_partitions)
    (pool,) = [pool for pool in fleet_spec.sample().pools if pool.name == "h100"]
    fleet = msgspec.structs.replace(
        fleet_spec.sample(),
        name="big",
        pools=(msgspec.structs.replace(pool, count=nodes, mig=True),),
    )
    rendering = 0.0
    objects = 0
    names: list[str] = []
    for machine in machines.machines_of(fleet):
        names.append(machine.name)
        for tree in device_publisher.slices_of(machine, fleet):
            slice_ = codec.decode_struct(slices.ResourceSlice, codec.encode_tree(tree))
            began = time.perf_counter()
            metrics.changed(registry.SLICE, slice_)
            rendering += time.perf_counter() - began
            objects += 1
    others = [(registry.CLAIM, claim(name, gpu)) for name in names for gpu in range(GPUS)]
    others += [(registry.POD, pod(name, gpu)) for name in names for gpu in range(GPUS)]
    others += [(registry.QUEUE, queue(number)) for number in range(100)]
    began = time.perf_counter()
    for kind, item in others:
        metrics.changed(kind, item)
    rendering += time.perf_counter() - began
    objects += len(others)

    server = http_server.Server(
        metrics=metrics.text, ready=dict, alive=lambda: True, configuration={}
    )
    async with server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/metrics"
        first, size = await scraped(session, url)
        changed: list[float] = []
        unchanged: list[float] = []
        for number in range(ROUNDS):
            for gpu in range(CHANGES):
                name = names[(number * CHANGES + gpu) % len(names)]
                metrics.changed(registry.CLAIM, claim(name, gpu % GPUS))
            changed.append((await scraped(session, url))[0])
            unchanged.append((await scraped(session, url))[0])
    return {
        "objects": objects,
        "objects rendered a second": round(objects / rendering),
        "MiB of a scrape": round(size / 2**20, 1),
        "first scrape, seconds": round(first, 3),
        "after 100 changes, seconds": round(sorted(changed)[ROUNDS // 2], 3),
        "unchanged, seconds": round(sorted(unchanged)[ROUNDS // 2], 3),
        "memory, MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


async def scraped(session: aiohttp.ClientSession, url: str) -> tuple[float, int]:
    """Seconds and bytes of one scrape."""
    began = time.perf_counter()
    async with session.get(url) as answer:
        body = await answer.read()
    return time.perf_counter() - began, len(body)


def claim(node: str, gpu: int) -> Any:
    """A claim that has one GPU and one consumer."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": f"gpu-{gpu}"}
    tree = {
        "metadata": {"name": f"{node}-{gpu}-gpu", "namespace": "train", "creationTimestamp": AT},
        "status": {
            "allocation": {"devices": {"results": [result]}, "allocationTimestamp": AT},
            "reservedFor": [{"resource": "pods", "name": f"{node}-{gpu}", "uid": f"{node}-{gpu}"}],
        },
    }
    return codec.decode_struct(claims.ResourceClaim, msgspec.json.encode(tree))


def pod(node: str, gpu: int) -> Any:
    """A pod of a gang of eight."""
    metadata = {
        "name": f"{node}-{gpu}",
        "namespace": "train",
        "uid": f"{node}-{gpu}",
        "creationTimestamp": AT,
        "labels": {"dovetail.dev/gang": node, "dovetail.dev/gang-min": "8"},
    }
    tree = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
    return codec.decode_struct(pods.Pod, msgspec.json.encode(tree))


def queue(number: int) -> Any:
    """A queue with numbers."""
    share = {"charged": "100", "requested": "120", "fairShare": "100"}
    tree = {
        "metadata": {"name": f"q{number}"},
        "spec": {"resources": {"gpu": {"quota": "100"}}},
        "status": {"resources": {"gpu": share}, "running": 100},
    }
    return codec.decode_struct(queues.Queue, msgspec.json.encode(tree))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
