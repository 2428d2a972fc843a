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
    mig,
    node_agent,
    node_agent_metrics,
    objects,
    openb,
    partitions,
    philly,
    right_size,
    rollout,
    scale,
    selectors,
    stack,
    tenures,
    turns,
    upgrade_reads,
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
# These take options of their own.
WITH_OPTIONS: dict[str, Callable[[list[str]], int]] = {
    "live": live.main,
    "history": history.main,
    "batch": batch.main,
    "turns": turns.main,
    "upgrade-reads": upgrade_reads.main,
    "scale": scale.main,
    "tenures": tenures.main,
    "capacity": capacity.main,
    "what-if": what_if.main,
    "stack": stack.main,
    "right-size": right_size.main,
    "rollout": rollout.main,
    "dashboard": dashboard.main,
    "dashboard-answers": dashboard_answers.main,
    "dashboard-pages": dashboard_pages.main,
    "exporter": exporter.main,
    "openb": openb.main,
    "mig": mig.main,
    "philly": philly.main,
}
ON_A_NODE: dict[str, Callable[[], int]] = {
    "node-agent": node_agent.main,
    "node-agent-metrics": node_agent_metrics.main,
}


def main(names: list[str]) -> int:
    """The named benchmarks, or all of them and the live one last."""
    if names and names[0] in WITH_OPTIONS:
        return WITH_OPTIONS[names[0]](names[1:])
    if len(names) == 1 and names[0] in ON_A_NODE:
        return ON_A_NODE[names[0]]()
    if names == ["live-variants"]:
        return live_variants.main()
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        known = [*BENCHES, *WITH_OPTIONS, *ON_A_NODE, "live-variants"]
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
