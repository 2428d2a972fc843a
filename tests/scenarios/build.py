"""Small scenarios for tests: one queue, a node or two, jobs of a few pods; each part can be given instead."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.replay.scenarios import scenario_format

Tree = dict[str, Any]


def document(*jobs: Tree, mode: str = "single", **more: Any) -> Tree:
    """A scenario as it is written."""
    run = {"mode": mode, "actions": list(scenario_format.Action), **more.pop("run", {})}
    return {
        "schema": "scenario/1",
        "id": "small",
        "run": run,
        "nodes": [node("n0")],
        "queues": [queue("q0")],
        "jobs": list(jobs),
        **more,
    }


def scenario(*jobs: Tree, **more: Any) -> scenario_format.Scenario:
    """The same, read."""
    return read(document(*jobs, **more))


def read(tree: Tree) -> scenario_format.Scenario:
    return scenario_format.read(msgspec.json.encode(tree), place="small.jsonl: line 1")


def node(
    name: str, *, gpus: int = 2, memory_mib: int = 100, mig: str = "none", **more: Any
) -> Tree:
    amounts = {
        "cpu": 100,
        "memory": 1_000_000,
        "pods": 110,
        "nvidia.com/gpu": gpus,
        **more.pop("allocatable", {}),
    }
    gpu = {"count": gpus, "memory_mib": memory_mib, "mig": mig}
    return {"name": name, "labels": {}, "allocatable": amounts, "gpu": gpu, **more}


def queue(name: str, **more: Any) -> Tree:
    return {"name": name, "parent": None, "quota": {"gpu": 2, "cpu": None, "memory": None}, **more}


def job(name: str, *pods: Tree, **more: Any) -> Tree:
    """A job in the one queue whose pods are named after it."""
    named = [{"name": f"{name}-{number}", **pod} for number, pod in enumerate(pods)]
    return {"name": name, "queue": "q0", "priority": 50, "age_s": 60, "pods": named, **more}


def waiting(**request: Any) -> Tree:
    return {"state": "pending", "request": {"cpu": 1, "memory": 1000, "gpu": 0, **request}}


def running(
    node: str = "n0", *, devices: tuple[str, ...] = (), state: str = "running", **request: Any
) -> Tree:
    return {**waiting(**request), "state": state, "node": node, "devices": list(devices)}
