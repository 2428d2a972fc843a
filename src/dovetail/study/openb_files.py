"""Reads the openb trace (Alibaba, cluster-trace-gpu-v2023) and the inputs of FGD's published runs.

Given a folder and the names of a trace and a seed. Seeds 42 to 51 of the 17 published traces get the published order of
arrivals and of nodes; any other gets an order of our own, drawn from the seed. Reads files, never writes.
"""

from __future__ import annotations

import csv
import gzip
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.model import pod_mix
from dovetail.study import workload

TRACES: Final = "DOVETAIL_TRACES"
SOURCE: Final = "the GitHub repository alibaba/clusterdata, folder cluster-trace-gpu-v2023"
FILES: Final = {
    "nodes": "openb_nodes.csv.gz",
    "pods": "openb_pods.csv.gz",
    "runs": "fgd_runs.csv.gz",
    "arrivals": "fgd_arrival_sequences.csv.gz",
    "node orders": "fgd_node_tiebreak_order.csv.gz",
}
DEMAND_OF_CAPACITY: Final = 1.3  # arrivals of a run ask for this much of all GPUs
MAX_SEED: Final = 2**63 - 1


def folder(given: str | None) -> Path:
    """Where traces are: as given, as the environment says, or in `shared/traces` beside the checkout."""
    named = given or os.environ.get(TRACES)
    if named:
        return Path(named)
    return Path(__file__).resolve().parents[4] / "shared" / "traces"


def read(traces: Path, *, trace: str, seed: int) -> workload.Workload:
    """The workload of one run."""
    _require_files(traces)
    nodes = _gpu_nodes(traces)
    pods = _pods(traces, trace)
    if seed < 0 or seed > MAX_SEED:
        raise errors.InputError(f"seed {seed}: expected a number from 0 to {MAX_SEED}")

    published = _published_order(traces, trace=trace, seed=seed)
    if published is None:
        arrivals, node_order = _own_order(pods, nodes, seed=seed)
    else:
        arrivals, node_order = published
        _require_orders(traces, arrivals, node_order, pods=len(pods), nodes=len(nodes))
    return workload.Workload(
        name=trace,
        seed=seed,
        nodes=tuple(nodes[number] for number in node_order),
        arrivals=tuple(pods[number] for number in arrivals),
        mix=pod_mix.mix_of(pods),
        has_published_order=published is not None,
    )


def trace_names(traces: Path) -> list[str]:
    """Every list of pods in the folder."""
    _require_files(traces)
    return sorted({row.get("trace", "") for row in _rows(traces, "pods")})


def published_runs(traces: Path) -> list[tuple[str, int]]:
    """Trace and seed of every published run, in the order of the file."""
    _require_files(traces)
    return [(row["trace"], int(row["seed"])) for row in _rows(traces, "runs")]


def _require_files(traces: Path) -> None:
    missing = [name for name in FILES.values() if not (traces / name).is_file()]
    if missing:
        raise errors.NotFound(
            f"{traces}: no {', '.join(missing)} there; pods and nodes of openb come from {SOURCE}; "
            f"name the folder that holds these files with --traces DIR or {TRACES}"
        )


def _rows(traces: Path, what: str, *, trace: str | None = None) -> Iterator[dict[str, str]]:
    """All rows of a file, or those whose first column names the trace: the pods are 200,000 rows, most of others."""
    path = traces / FILES[what]
    csv.field_size_limit(1 << 24)  # an order of arrivals is one long field
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as text:
            lines = csv.reader(text)
            columns = next(lines, [])
            for fields in lines:
                if trace is None or fields[:1] == [trace]:
                    yield dict(zip(columns, fields, strict=False))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise errors.InputError(f"{path}: cannot be read as gzipped CSV: {error}") from error


def _gpu_nodes(traces: Path) -> list[workload.Node]:
    """Nodes with GPUs in the order of their names; the published runs leave out the others."""
    nodes = []
    for row in _rows(traces, "nodes"):
        with _Row(traces, "nodes", row):
            node = workload.Node(
                name=row["sn"],
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                gpus=int(row["gpu"]),
                model=row["model"],
            )
        if node.gpus > 0:
            nodes.append(node)
    if not nodes:
        raise errors.InputError(f"{traces / FILES['nodes']}: no node with GPUs in it")
    return sorted(nodes, key=lambda node: node.name)


def _pods(traces: Path, trace: str) -> list[pod_mix.Shape]:
    """The pods of a trace in the order of their names."""
    pods = []
    for row in _rows(traces, "pods", trace=trace):
        with _Row(traces, "pods", row):
            pods.append((row["name"], _shape(row)))
    if not pods:
        raise errors.NotFound(
            f'no trace "{trace}" in openb; there are: {", ".join(trace_names(traces))}'
        )
    return [shape for _, shape in sorted(pods)]


def _shape(row: dict[str, str]) -> pod_mix.Shape:
    shape = pod_mix.Shape(
        cpu_milli=int(row["cpu_milli"]),
        gpu_milli=int(row["gpu_milli"]),
        gpus=int(row["num_gpu"]),
        models=tuple(model for model in row["gpu_spec"].split("|") if model),
        memory_mib=int(row["memory_mib"]),
    )
    if min(shape.cpu_milli, shape.gpu_milli, shape.gpus, shape.memory_mib) < 0:
        raise ValueError("no figure may be negative")
    if shape.gpu_milli > pod_mix.MILLI or (shape.gpus > 1 and shape.gpu_milli < pod_mix.MILLI):
        raise ValueError("a pod asks for a part of one GPU, or for whole ones")
    if (shape.gpus == 0) != (shape.gpu_milli == 0):
        raise ValueError("num_gpu and gpu_milli are both 0 or neither is")
    return shape


def _published_order(traces: Path, *, trace: str, seed: int) -> tuple[list[int], list[int]] | None:
    """Which pods arrive and which node wins a tie, in this order, as the published runs had it."""
    run = next(
        (row for row in _rows(traces, "runs") if (row["trace"], row["seed"]) == (trace, str(seed))),
        None,
    )
    if run is None:
        return None
    with _Row(traces, "arrivals", run):
        arrivals = next(
            row["pod_indices"]
            for row in _rows(traces, "arrivals")
            if (row["seq_id"], row["seed"]) == (run["seq_id"], run["seed"])
        )
        node_order = next(
            row["node_indices"]
            for row in _rows(traces, "node orders")
            if (row["trace"], row["seed"]) == (trace, run["seed"])
        )
        taken = arrivals.split()[: int(run["n_arrivals"])]
        return [int(number) for number in taken], [int(number) for number in node_order.split()]


def _require_orders(
    traces: Path, arrivals: list[int], node_order: list[int], *, pods: int, nodes: int
) -> None:
    if any(not 0 <= number < pods for number in arrivals):
        raise errors.InputError(
            f"{traces / FILES['arrivals']}: names a pod beyond the {pods} of the trace"
        )
    if sorted(node_order) != list(range(nodes)):
        raise errors.InputError(
            f"{traces / FILES['node orders']}: expected each of the {nodes} nodes with GPUs once"
        )


def _own_order(
    pods: list[pod_mix.Shape], nodes: list[workload.Node], *, seed: int
) -> tuple[list[int], list[int]]:
    """The published procedure with Python's generator: all pods shuffled, then drawn again until 130 % is asked for."""
    draw = random.Random(seed)  # noqa: S311 - an order of arrivals, no secret
    limit = DEMAND_OF_CAPACITY * pod_mix.MILLI * sum(node.gpus for node in nodes)
    order = list(range(len(pods)))
    draw.shuffle(order)

    arrivals = []
    asked = 0
    for number in order:
        if asked + pods[number].total_gpu_milli > limit:
            break
        arrivals.append(number)
        asked += pods[number].total_gpu_milli
    while asked and len(arrivals) >= len(pods):
        number = draw.randrange(len(pods))
        if asked + pods[number].total_gpu_milli > limit:
            break
        arrivals.append(number)
        asked += pods[number].total_gpu_milli

    node_order = list(range(len(nodes)))
    draw.shuffle(node_order)
    return arrivals, node_order


class _Row:
    """Names the file when a row lacks a column or holds no number."""

    def __init__(self, traces: Path, what: str, row: dict[str, str]) -> None:
        self._place = f"{traces / FILES[what]}: row {dict(row)}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None and issubclass(kind, (KeyError, ValueError, StopIteration)):
            raise errors.InputError(f"{self._place[:300]}: cannot be used: {error!r}")
