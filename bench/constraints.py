"""What ties between pods cost a decision: the same pods with and without them, at several cluster sizes.

In one process, no API server: `decide` alone, a cycle of 200 pods on a cluster that runs four pods a node. Ratios are
to plain pods in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from dovetail.kubetypes import codec
from dovetail.schedule import decide
from dovetail.world.events import Changed
from dovetail.world.world import World

SIZES: Final = (500, 2_000, 8_000)
PODS: Final = 200
ROUNDS: Final = 3
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
Tree = dict[str, Any]


def ties(
    _: object, sizes: tuple[int, ...] = SIZES, pods: int = PODS, rounds: int = ROUNDS
) -> dict[str, Tree]:
    """By number of nodes and kind of tie: milliseconds a pod, and how many times those of plain pods."""
    rows: dict[str, Tree] = {}
    for size in sizes:
        world = _cluster(size)
        times = {
            name: _median(world, make, pods=pods, rounds=rounds) for name, make in KINDS.items()
        }
        for name, one in times.items():
            figures = {
                "ms_per_pod": round(one * 1e3 / pods, 4),
                "times_plain": round(one / times["plain"], 1),
            }
            rows[f"{size} nodes, {name}"] = figures
    return rows


def _median(world: World, make: Callable[[int], Tree], *, pods: int, rounds: int) -> float:
    """Seconds for one cycle; the first one, in which memories are made, is not counted."""
    made = [codec.decode(_pod(f"new-{number}", **make(number))).struct for number in range(pods)]
    for pod in made:
        world.apply(Changed(pod))  # type: ignore[arg-type]
    among = [pod.metadata.uid for pod in made]
    found = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        plan = decide.decide(world, among=among)
        found.append(time.perf_counter() - began)
        assert len(plan.placements) == pods, plan.refusals[:1]
    for pod in made:
        gone = codec.decode(_pod(pod.metadata.name, phase="Succeeded")).struct
        world.apply(Changed(gone))  # type: ignore[arg-type]
    return statistics.median(found[1:])


def _cluster(size: int) -> World:
    world = World()
    for tree in _objects(size):
        world.apply(Changed(codec.decode(tree).struct))  # type: ignore[arg-type]
    return world


def _objects(size: int) -> Iterator[Tree]:
    room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    for number in range(size):
        name = f"n{number:05d}"
        labels = {HOST: name, ZONE: f"z{number % 10}"}
        metadata = {"name": name, "labels": labels}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "status": {"allocatable": room},
        }
        for place in range(4):
            yield _pod(f"old-{number}-{place}", app=f"app-{number % 50}", node=name)


def _pod(
    name: str, *, app: str = "web", node: str = "", phase: str = "Pending", **spec: Any
) -> Tree:
    container = {
        "name": "main",
        "image": "x",
        "resources": {"requests": {"cpu": "1"}},
        "ports": spec.pop("ports", []),
    }
    metadata = {"name": name, "namespace": "bench", "uid": f"uid-{name}", "labels": {"app": app}}
    body = {"containers": [container], "nodeName": node, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": body,
        "status": {"phase": phase},
    }


def _required(side: str, key: str, app: str) -> Tree:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _spread(key: str, how: str) -> Tree:
    selector = {"matchLabels": {"app": "web"}}
    rule = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": how, "labelSelector": selector}
    return {"topologySpreadConstraints": [rule]}


KINDS: Final[dict[str, Callable[[int], Tree]]] = {
    "plain": lambda _: {},
    "near a zone's pods": lambda _: _required("podAffinity", ZONE, "app-7"),
    "one a host": lambda _: _required("podAntiAffinity", HOST, "web"),
    "spread over zones": lambda _: _spread(ZONE, "DoNotSchedule"),
    "rather spread over hosts": lambda _: _spread(HOST, "ScheduleAnyway"),
    "a host port": lambda number: {
        "ports": [{"containerPort": 80, "hostPort": 8000 + number % 50}]
    },
}
