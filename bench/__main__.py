"""Runs every benchmark, prints a table each, and writes bench/results/<name>.json."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench import (
    allocation,
    batch,
    capacity,
    constraints,
    dashboard,
    dashboard_answers,
    dashboard_pages,
    exporter,
    fleet_memory,
    history,
    live,
    live_variants,
    node_agent,
    objects,
    openb,
    partitions,
    right_size,
    selectors,
    tenures,
    turns,
    what_if,
)
from tests.support import oracle as upstream

RESULTS = Path(__file__).resolve().parent / "results"
BENCHES: dict[str, Callable[[upstream.Oracle], dict[str, Any]]] = {
    "cel-varied": selectors.varied,
    "cel-projection": selectors.projected,
    "cel-columns": selectors.by_columns,
    "decode": objects.decoding,
    "validate": objects.validation,
    "allocation-proofs": allocation.proofs,
    "allocation-mig": allocation.mig,
    "allocation-nodes": allocation.nodes,
    "mig-starvation": partitions.starvation,
    "world-memory": fleet_memory.sizes,
    "ties": constraints.ties,
}


def main(names: list[str]) -> int:
    """The named benchmarks, or all of them and the live one last. Those below take options."""
    if names[:1] == ["live"]:
        return live.main(names[1:])
    if names[:1] == ["history"]:
        return history.main(names[1:])
    if names[:1] == ["batch"]:
        return batch.main(names[1:])
    if names[:1] == ["turns"]:
        return turns.main(names[1:])
    if names[:1] == ["tenures"]:
        return tenures.main(names[1:])
    if names[:1] == ["capacity"]:
        return capacity.main(names[1:])
    if names[:1] == ["what-if"]:
        return what_if.main(names[1:])
    if names[:1] == ["right-size"]:
        return right_size.main(names[1:])
    if names[:1] == ["dashboard"]:
        return dashboard.main(names[1:])
    if names[:1] == ["dashboard-answers"]:
        return dashboard_answers.main(names[1:])
    if names[:1] == ["dashboard-pages"]:
        return dashboard_pages.main(names[1:])
    if names[:1] == ["exporter"]:
        return exporter.main(names[1:])
    if names[:1] == ["openb"]:
        return openb.main(names[1:])
    if names == ["node-agent"]:
        return node_agent.main()
    if names == ["live-variants"]:
        return live_variants.main()
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        known = [
            *BENCHES,
            "batch",
            "turns",
            "tenures",
            "live",
            "live-variants",
            "node-agent",
            "openb",
            "right-size",
            "exporter",
            "dashboard",
            "dashboard-answers",
            "dashboard-pages",
        ]
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    with upstream.start() as oracle:
        for name in names or BENCHES:
            print(f"{name}: measuring beside Go ...", file=sys.stderr)
            rows = BENCHES[name](oracle)
            _show(name, rows)
            _store(name, rows)
    if names:
        return 0
    return max(batch.main([]), live.main([]))


def _show(name: str, rows: dict[str, Any]) -> None:
    print(f"\n{name}")
    for label, row in rows.items():
        figures = "  ".join(f"{key} {value}" for key, value in row.items())
        print(f"  {label}\n      {figures}")


def _store(name: str, rows: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    found = {
        "benchmark": name,
        "peer": "Kubernetes v1.37.1, one thread",
        "python": platform.python_version(),
        "machine": "2 cores, shared; read ratios, not rates",
        "rows": rows,
    }
    (RESULTS / f"{name}.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
