"""MIG slices that come and go: how many requests each placement serves, and which profile starves. A loss system.

Ours is the allocator itself on a World of one node; first fit and best fit work on masks of the same GPUs and see the
same arrivals and lives. Requests that do not fit are gone.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from typing import Any

import msgspec

from dovetail.allocate.allocator import Allocated, allocate
from dovetail.gpus import catalogue
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.sim.fleet import device_publisher, fleet_spec, machines
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World

PROFILES = {
    "1g.10gb": 1,
    "1g.20gb": 1,
    "2g.20gb": 2,
    "3g.40gb": 3,
    "4g.40gb": 4,
    "7g.80gb": 7,
}  # compute slices
MIXES = {
    "uniform": (1, 1, 1, 1, 1, 1),
    "small": (45, 10, 20, 15, 5, 5),
    "large": (10, 5, 15, 30, 20, 20),
}
LOAD = 1.0
LIVES = 60
GPUS = 8
NODES = 4


def starvation(_: object) -> dict[str, Any]:
    """Accepted compute slices and acceptance per profile, for each mix, over the same arrivals."""
    rows = {}
    for mix, weights in MIXES.items():
        places: dict[str, _Ours | _Masks] = {
            "ours": _Ours(),
            "first fit": _Masks(is_best_fit=False),
            "best fit": _Masks(is_best_fit=True),
        }
        for name, place in places.items():
            rows[f"{mix}, load {LOAD}: {name}"] = _run(place, weights)
    return rows


def _run(place: _Ours | _Masks, weights: tuple[int, ...]) -> dict[str, Any]:
    chance = random.Random(7)
    names = list(PROFILES)
    mean = sum(w * PROFILES[n] for w, n in zip(weights, names, strict=True)) / sum(weights)
    rate = LOAD * NODES * GPUS * 7 / mean  # arrivals per mean life
    now, number = 0.0, 0
    ends: list[tuple[float, int]] = []
    asked: Counter[str] = Counter()
    served: Counter[str] = Counter()
    while now < LIVES:
        now += chance.expovariate(rate)
        profile = chance.choices(names, weights)[0]
        life = chance.expovariate(1.0)
        while ends and ends[0][0] <= now:
            place.give(heapq.heappop(ends)[1])
        number += 1
        is_counted = now > LIVES / 10
        asked[profile] += is_counted
        if place.take(number, profile):
            served[profile] += is_counted
            heapq.heappush(ends, (now + life, number))
    slices = sum(served[n] * c for n, c in PROFILES.items()) / sum(
        asked[n] * c for n, c in PROFILES.items()
    )
    return {
        "requests": asked.total(),
        "acceptedComputeSlicesPercent": round(100 * slices, 1),
        "acceptedPercentByProfile": {
            n: round(100 * served[n] / max(1, asked[n]), 1) for n in names
        },
    }


class _Masks:
    """GPUs as masks of memory slices; the fullest GPU first where asked for, else the first."""

    def __init__(self, *, is_best_fit: bool) -> None:
        self.is_best_fit = is_best_fit
        self.masks = [0] * (NODES * GPUS)
        self.held: dict[int, tuple[int, int]] = {}
        gpu = catalogue.by_name("H100-SXM5-80GB")
        assert gpu is not None
        self.places: dict[str, list[tuple[int, int]]] = {}
        for profile, placement in catalogue.placements(gpu):
            name = profile.name.value
            if name in PROFILES:
                mask = ((1 << placement.size) - 1) << placement.start
                self.places.setdefault(name, []).append((placement.start, mask))

    def take(self, number: int, profile: str) -> bool:
        """Whether the request was served."""
        fitting = [
            (gpu, start, mask)
            for gpu, used in enumerate(self.masks)
            for start, mask in self.places[profile]
            if not used & mask
        ]
        if not fitting:
            return False
        gpu, _, mask = min(fitting, key=self.rank)
        self.masks[gpu] |= mask
        self.held[number] = (gpu, mask)
        return True

    def give(self, number: int) -> None:
        """A request ended."""
        gpu, mask = self.held.pop(number)
        self.masks[gpu] &= ~mask

    def rank(self, place: tuple[int, int, int]) -> tuple[int, ...]:
        """Lowest first."""
        return (-self.masks[place[0]].bit_count() if self.is_best_fit else 0, *place[:2])


class _Ours:
    """The allocator on nodes of a World: the cheapest answer of any node, of equal ones the first."""

    def __init__(self) -> None:
        (pool,) = [pool for pool in fleet_spec.sample().pools if pool.name == "h100"]
        changed = msgspec.structs.replace(pool, count=NODES, mig=True)
        self.fleet = msgspec.structs.replace(fleet_spec.sample(), name="mig", pools=(changed,))
        self.world = World()
        self.nodes = [machine.name for machine in machines.machines_of(self.fleet)]
        for machine in machines.machines_of(self.fleet):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}}
            for tree in (node, *device_publisher.slices_of(machine, self.fleet)):
                found = codec.decode(tree).struct
                assert isinstance(found, nodes.Node | slices.ResourceSlice)
                self.world.apply(Changed(found))
        known = [codec.decode(tree).struct for tree in device_publisher.device_classes()]
        self.classes = {
            one.metadata.name: one for one in known if isinstance(one, device_classes.DeviceClass)
        }
        self.held: dict[int, claims.ResourceClaim] = {}

    def take(self, number: int, profile: str) -> bool:
        """Whether the request was served."""
        claim = _claim(number, profile)
        best: Allocated | None = None
        for name in self.nodes:
            found = allocate(self.world.view(name), [claim], self.classes)
            if isinstance(found, Allocated) and (best is None or found.milli_gpu < best.milli_gpu):
                best = found
        if best is None:
            return False
        status = msgspec.structs.replace(claim.status, allocation=best.results[0])
        self.held[number] = msgspec.structs.replace(claim, status=status)
        self.world.apply(Changed(self.held[number]))
        return True

    def give(self, number: int) -> None:
        """A request ended."""
        self.world.apply(Deleted(self.held.pop(number)))


def _claim(number: int, profile: str) -> claims.ResourceClaim:
    expression = f'device.attributes["gpu.nvidia.com"].profile == "{profile}"'
    exactly = {
        "deviceClassName": "mig.nvidia.com",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    found = codec.decode(tree).struct
    assert isinstance(found, claims.ResourceClaim)
    return found
