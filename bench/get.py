"""What `dovetail get` costs at three sizes, by where the objects come from: `.venv/bin/python -m bench.get [--quick]`.

An embedded cluster, a snapshot of it, and the same objects as kubectl prints them, in JSON and in YAML. Every command
is a process of its own; figures are processor seconds of that process, the least of several runs, and how they grow
with the number of nodes. Writes bench/results/get.json. Never asserts.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import embedded

SIZES: Final = (26, 500, 2_000)
ROUNDS: Final = 3
PODS_PER_NODE: Final = 2
COMMANDS: Final = {
    "get gpus": ("get", "gpus"),
    "get gpus --summary": ("get", "gpus", "--summary"),
    "get nodes": ("get", "nodes"),
    "get pods -A": ("get", "pods", "-A"),
}
DUMPED: Final = "nodes,pods,slices,claims,classes,namespaces"
RESULTS: Final = Path(__file__).resolve().parent / "results" / "get.json"

Rows = dict[str, dict[str, float]]  # by command and source, by size


def main(arguments: Sequence[str]) -> int:
    """Prints the table and stores it."""
    sizes = SIZES[:1] if "--quick" in arguments else SIZES
    rows: Rows = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            _measure(Path(name), size, rows)
    _show(rows, sizes)
    if len(sizes) == len(SIZES):
        _store(rows)
    return 0


def _measure(place: Path, size: int, rows: Rows) -> None:
    state, fleet, pods = place / "state", place / "fleet.yaml", place / "pods.yaml"
    fleet.write_text(
        f"name: fleet\npools: [{{name: h100, count: {size}, gpu: H100-SXM5-80GB}}]\n",
        encoding="utf-8",
    )
    pods.write_text(workload(size), encoding="utf-8")
    print(f"{size} nodes ...", file=sys.stderr)
    embedded.run(state, "up", "--fresh", "--detach", "--fleet", str(fleet))
    try:
        embedded.run(state, "apply", "-f", str(pods))
        saved = place / "saved"
        embedded.run(state, "snapshot", "save", str(saved))
        dumps = {form: place / f"dump.{form}" for form in ("json", "yaml")}
        for form, path in dumps.items():
            path.write_text(embedded.output(state, "get", DUMPED, "-A", "-o", form), "utf-8")
        sources: dict[str, tuple[str, ...]] = {
            "embedded": (),
            "snapshot": ("--snapshot", str(saved)),
            **{form: ("--snapshot", str(path)) for form, path in dumps.items()},
        }
        for name, command in COMMANDS.items():
            for source, option in sources.items():
                seconds = _least_seconds(state, [*command, *option])
                rows.setdefault(f"{name}, {source}", {})[str(size)] = round(seconds, 2)
    finally:
        embedded.run(state, "down", "--purge")


def workload(size: int) -> str:
    """Two pods with a GPU each for every node."""
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {
            "spec": {
                "devices": {
                    "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
                }
            }
        },
    }
    pod_template = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {
            "containers": [
                {"name": "main", "image": "python", "resources": {"claims": [{"name": "gpu"}]}}
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        },
    }
    replicas = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train"},
        "spec": {
            "replicas": size * PODS_PER_NODE,
            "selector": {"matchLabels": {"app": "train"}},
            "template": pod_template,
        },
    }
    return "\n---\n".join(msgspec.json.encode(tree).decode() for tree in (template, replicas))


def _least_seconds(state: Path, arguments: Sequence[str]) -> float:
    return min(embedded.measured(state, arguments).cpu_seconds for _ in range(ROUNDS))


def _show(rows: Rows, sizes: Sequence[int]) -> None:
    print(f"| command | {' | '.join(f'{size:,} nodes, s' for size in sizes)} | growth |")
    print(f"|---|{'---|' * (len(sizes) + 1)}")
    for name, by_size in rows.items():
        figures = [by_size[str(size)] for size in sizes]
        growth = figures[-1] / figures[0]
        cells = " | ".join(f"{seconds:.2f}" for seconds in figures)
        print(f"| {name} | {cells} | {growth:.1f}x |")


def _store(rows: Rows) -> None:
    stored: dict[str, Any] = {
        "benchmark": "get",
        "peer": "none",
        "python": platform.python_version(),
        "machine": "2 cores, shared; read growth, not seconds",
        "rows": rows,
    }
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
