"""Puts small scenarios to the engine and tells what became of them, for tests of single rules."""

from __future__ import annotations

from typing import Any

from dovetail.replay.scenarios import run_scenario, scenario_outcome
from tests.scenarios import build

RECLAIM = {"actions": ["reclaim"]}
PREEMPT = {"actions": ["preempt"]}
ALLOCATE = {"actions": ["allocate"]}
CONSOLIDATE = {"actions": ["consolidation"]}
STALE = {"actions": ["stale_gang_eviction"]}
NOTHING = {"gpu": 0, "cpu": None, "memory": None}


def answer(*jobs: build.Tree, **more: Any) -> scenario_outcome.ScenarioReport:
    scenario = build.scenario(*jobs, **more)
    return scenario_outcome.report(scenario, run_scenario.run(scenario))


def states(*jobs: build.Tree, **more: Any) -> dict[str, dict[str, int]]:
    """By job, pods by state at the end."""
    return {name: one.states for name, one in answer(*jobs, **more).jobs.items()}


def runs(**request: Any) -> build.Tree:
    return build.running(**request)


def group(name: str, least: int = 1, **more: Any) -> build.Tree:
    return {"name": name, "min": least, **more}
