"""What the answers behind the dashboard's pages cost on a large cluster: processor seconds and bytes.

`python -m bench dashboard-answers` builds clusters of nodes with eight GPUs each, nineteen of twenty nodes full, and
two and a half pods for every node. `first` is an answer of a process that answered nothing before; `change` is the same
answer after one pod started, as the server computes it for the next version. The replica that the engine is asked about
is built before, and not counted. No server, no network: the functions that a server calls, each on its own.
"""

from __future__ import annotations

import argparse
import gzip
import platform
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from bench import what_if
from dovetail.answer.replica.replica import Replica
from dovetail.ask import cluster_view
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from dovetail.web import api, asked

T = TypeVar("T")

SIZES: Final = (500, 2000)
CPU_PODS: Final = 2  # so many nodes share a pod that uses no GPU
RESULT: Final = Path(__file__).resolve().parent / "results" / "dashboard-answers.json"
WHY: Final = {"namespace": "default", "kind": "pod", "name": "wait-0"}
# `bench capacity` and `bench what-if` measure the others.
PATHS: Final = (
    "/overview",
    "/fleet",
    "/nodes/{name}",
    "/queues",
    "/workloads",
    "/pods",
    "/claims",
    "/devices",
    "/timeline",
    "/why/{namespace}/{kind}/{name}",
)


class Frame:
    """One version, as a server keeps it. The replica is there already."""

    def __init__(self, objects: object_set.ObjectSet, version: int, replica: Replica) -> None:
        self.view = cluster_view.View(objects, what_if.NOW, objects.cluster, True)
        self.version = version
        self.policy = policy.DEFAULT
        self._replica = replica
        self._memos: dict[Hashable, Any] = {}

    def replica(self) -> Replica:
        """The copy that questions are asked about."""
        return self._replica

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made before at this version."""
        if key not in self._memos:
            self._memos[key] = make()
        value: T = self._memos[key]
        return value


def main(arguments: list[str]) -> int:
    """Measures, prints and stores."""
    parser = argparse.ArgumentParser(prog="python -m bench dashboard-answers", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of nodes")
    chosen = parser.parse_args(arguments)
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for size in chosen.sizes:
        for path, figures in _measured(size).items():
            rows.setdefault(path, {})[str(size)] = figures
            shown = "  ".join(f"{name} {value:>10g}" for name, value in figures.items())
            print(f"{size:5} nodes  {path:32}  {shown}", flush=True)
    if tuple(chosen.sizes) == SIZES:
        _store(rows)
    return 0


def _measured(size: int) -> dict[str, dict[str, float]]:
    trees = what_if.cluster_of(size)
    nodes = [tree["metadata"]["name"] for tree in trees if tree["kind"] == "Node"]
    trees += [_cpu_pod(number, node) for number, node in enumerate(nodes[::CPU_PODS])]
    stored = [codec.decode(tree) for tree in trees]
    empty_node = nodes[19]
    started = [codec.decode(tree) for tree in what_if.running("new", empty_node, 0, 1)]
    before, after = object_set.of("", stored), object_set.of("", [*stored, *started])
    replica_before, replica_after = (
        Replica(objects, policy.DEFAULT, what_if.NOW) for objects in (before, after)
    )
    figures = {}
    for path in PATHS:
        # What is remembered from version to version is remembered by the name of the cluster.
        name = f"bench {size} {path}"
        figures[path] = _first(Frame(_named(before, name), 1, replica_before), path)
        seconds, _ = _timed(Frame(_named(after, name), 2, replica_after), path)
        figures[path]["change"] = seconds
    return figures


def _named(objects: object_set.ObjectSet, name: str) -> object_set.ObjectSet:
    return object_set.ObjectSet(name, objects.revision, objects.by_kind)


def _first(frame: Frame, path: str) -> dict[str, float]:
    seconds, answer = _timed(frame, path)
    began = time.process_time()
    document = msgspec.json.encode(answer)
    encoding = time.process_time() - began
    return {
        "first": seconds,
        "encode": round(encoding, 4),
        "bytes": len(document),
        "gzip": len(gzip.compress(document, 5)),
    }


def _timed(frame: Frame, path: str) -> tuple[float, Any]:
    endpoint = next(each for each in api.ENDPOINTS if each.path == path)
    question = asked.Asked(frame, asked.EVERYTHING)
    node = next(iter(frame.view.objects.listed("Node"))).struct.metadata.name
    given = {"/nodes/{name}": {"name": node}, "/why/{namespace}/{kind}/{name}": WHY}
    params = endpoint.params(**given.get(path, {}))
    began = time.process_time()
    answer = endpoint.answer(question, params)
    return round(time.process_time() - began, 3), answer


def _cpu_pod(number: int, node: str) -> what_if.Tree:
    pod = what_if.pod(f"cpu-{number}", number)
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running", "startTime": "2026-05-31T22:00:00Z"}
    return pod


def _store(rows: dict[str, Any]) -> None:
    stored = {
        "benchmark": "dashboard-answers",
        "peer": "none",
        "python": platform.python_version(),
        "machine": "2 cores, shared; read growth, not seconds",
        "rows": rows,
    }
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
