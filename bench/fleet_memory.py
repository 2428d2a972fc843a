"""Memory of a World of MIG nodes: unique uuids, 8 GPUs a node, 26 candidates a GPU. Each size has its own process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.schedule.node import equivalence
from dovetail.sim.fleet import device_publisher, fleet_spec, machines
from dovetail.world.events import Changed
from dovetail.world.world import World

SIZES = (1_000, 10_000)


def sizes(_: object) -> dict[str, Any]:
    """What each size takes; there is no peer for this."""
    rows = {}
    for count in SIZES:
        done = subprocess.run(
            [sys.executable, "-m", "bench.fleet_memory", str(count)],
            capture_output=True,
            text=True,
            check=True,
        )
        rows[f"{count} nodes x 8 GPUs x 26 candidates"] = msgspec.json.decode(done.stdout)
    return rows


def load(count: int) -> dict[str, Any]:
    """A World of so many H100 nodes with every MIG candidate, and what it took."""
    before = _resident_mib()
    (pool,) = [pool for pool in fleet_spec.sample().pools if pool.name == "h100"]
    big = msgspec.structs.replace(
        fleet_spec.sample(),
        name="big",
        pools=(msgspec.structs.replace(pool, count=count, mig=True),),
    )
    world, seconds, devices = World(), 0.0, 0
    for machine in machines.machines_of(big):
        world.apply(Changed(_node(machine.name)))
        for tree in device_publisher.slices_of(machine, big):
            document = codec.encode_tree(tree)
            began = time.perf_counter()
            one = codec.decode_struct(slices.ResourceSlice, document)
            world.apply(Changed(one))
            seconds += time.perf_counter() - began
            devices += len(one.spec.devices)
    began = time.perf_counter()
    keys = equivalence.keys_for(world, equivalence.Reads(frozenset(), frozenset()))
    classes = len({keys.devices_key(world.view(name)) for name in world.nodes})
    return {
        "nodes": count,
        "devices": devices,
        "decodeAndApplySeconds": round(seconds, 1),
        "groupSeconds": round(time.perf_counter() - began, 1),
        "classes": classes,
        "residentMiB": round(_resident_mib()),
        "growthKiBPerNode": round((_resident_mib() - before) * 1024 / count, 1),
    }


def _node(name: str) -> nodes.Node:
    amounts = {"cpu": "112", "memory": "2Ti", "pods": "110"}
    tree = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": amounts},
    }
    found = codec.decode(tree).struct
    assert isinstance(found, nodes.Node)
    return found


def _resident_mib() -> float:
    """The most this program held; what its parent held before starting it does not count."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in the process status")


if __name__ == "__main__":
    print(msgspec.json.encode(load(int(sys.argv[1]))).decode())
