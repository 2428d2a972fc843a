"""How fast the dashboard's pages are in a real browser: first paint, interaction, and updates seen after a decision.

`python -m bench dashboard-pages` serves a snapshot of 2,000 nodes with 16,000 GPUs and opens its map in Chromium. Then
it starts embedded clusters, applies pods, and notes how long after the scheduler's decision (the time in its Event) an
open page names the node. Needs Chromium. Never asserts; goals and the load of the machine stand beside the figures.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
from playwright import sync_api

from bench import what_if
from tests.web.browser import browsing, dashboard_server, embedded_cluster

RESULT: Final = Path(__file__).resolve().parent / "results" / "dashboard-pages.json"
NODES: Final = 2_000
ROUNDS: Final = 7
LARGE: Final = f"name: large\npools: [{{name: h100, count: {NODES}, gpu: H100-SXM5-80GB}}]\n"
GOALS_MS: Final = {
    "first contentful paint": 1000,
    "map drawn": 1000,
    "pointer to tip": 100,
    "arrow key to tip": 100,
    "choice of colours to legend": 100,
    "zoom to drawn map": 100,
    "text of search to matches": 100,
    "decision to row, 26 nodes": 1000,
    "decision to row, 2,000 nodes": 1000,
}

ACTIONS: Final = Path(__file__).resolve().with_name("dashboard_actions.js")
INTERACTIONS: Final = (
    "pointer to tip",
    "arrow key to tip",
    "choice of colours to legend",
    "zoom to drawn map",
    "text of search to matches",
)


def main(arguments: list[str]) -> int:
    """Measures, prints and writes the result."""
    parser = argparse.ArgumentParser(prog="python -m bench dashboard-pages", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args(arguments).rounds
    load_before = os.getloadavg()[0]
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name, browsing.browser() as opened:
        folder = Path(name)
        figures |= snapshot_figures(opened, folder, rounds)
        fleet = folder / "large.yaml"
        fleet.write_text(LARGE, encoding="utf-8")
        sizes = {"26 nodes": (), "2,000 nodes": ("--fleet", str(fleet))}
        for size, options in sizes.items():
            with embedded_cluster.started(folder / size.partition(" ")[0], *options) as cluster:
                figures[f"decision to row, {size}"] = updates(opened, cluster, rounds)
    rows = [row(name, values) for name, values in figures.items()]
    result = {
        "load_before": round(load_before, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "rows": rows,
    }
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    print(
        f"load {result['load_before']} before, {result['load_after']} after, on {os.cpu_count()} cores"
    )
    for line in rows:
        print(
            f"{line['name']:32} {line['median_ms']:8} ms  most {line['most_ms']:8}  goal {line['goal_ms']}"
        )
    return 0


def row(name: str, values: list[float]) -> dict[str, Any]:
    """One figure beside its goal."""
    return {
        "name": name,
        "goal_ms": GOALS_MS.get(name),
        "median_ms": round(statistics.median(values), 1),
        "most_ms": round(max(values), 1),
        "each_ms": [round(value, 1) for value in values],
    }


def snapshot_figures(opened: sync_api.Browser, folder: Path, rounds: int) -> dict[str, list[float]]:
    """The map of a large fleet."""
    dump = folder / "fleet.json"
    listed = {"apiVersion": "v1", "kind": "List", "items": what_if.cluster_of(NODES)}
    dump.write_bytes(msgspec.json.encode(listed))
    with (
        dashboard_server.started(folder, "--snapshot", str(dump)) as server,
        browsing.visit(opened, server.link) as reader,
    ):
        figures = {"map drawn, first of all": paints(reader, 1)["map drawn"]}
        figures |= paints(reader, rounds)
        return figures | interactions(reader.page, rounds)


def paints(reader: browsing.Visit, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the navigation; every round is a new page of a signed-in reader."""
    entries = {
        "first contentful paint": "performance.getEntriesByName('first-contentful-paint')[0]?.startTime",
        "map drawn": "performance.getEntriesByName('dovetail:fleet-drawn')[0]?.startTime",
    }
    figures: dict[str, list[float]] = {name: [] for name in entries}
    for _ in range(rounds):
        page = reader.open("/fleet", reader.watched_page())
        for name, entry in entries.items():
            time = browsing.until(page, functools.partial(page.evaluate, entry), name)
            figures[name].append(float(time))
        page.close()
    reader.open("/fleet")
    return figures


def interactions(page: sync_api.Page, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from an input until the next frame after the page shows its effect."""
    page.evaluate(ACTIONS.read_text(encoding="utf-8"))
    act = "([name, round]) => window.bench[name](round)"
    figures = {}
    for name in INTERACTIONS:
        page.evaluate(act, [name, rounds])  # once unmeasured
        figures[name] = [float(page.evaluate(act, [name, number])) for number in range(rounds)]
    return figures


def updates(
    opened: sync_api.Browser, cluster: embedded_cluster.Cluster, rounds: int
) -> list[float]:
    """Milliseconds from the scheduler's decision until an open page of workloads names the node."""
    figures = []
    with browsing.visit(opened, cluster.link()) as reader:
        page = reader.open("/workloads?text=watched")
        page.evaluate(ACTIONS.read_text(encoding="utf-8"))
        for number in range(rounds):
            name = f"watched-{number}"
            page.evaluate("(name) => window.watchFor(name)", name)
            cluster.apply(*embedded_cluster.one_gpu(name))
            seen = browsing.until(page, functools.partial(page.evaluate, "window.seenAt"), name)
            decided = browsing.until(page, functools.partial(_started_at, page, name), "the Event")
            moment = datetime.datetime.fromisoformat(decided)
            figures.append(seen - moment.timestamp() * 1000)
    return figures


def _started_at(page: sync_api.Page, name: str) -> str | None:
    time: str | None = page.evaluate("(name) => window.startedAt(name)", name)
    return time
