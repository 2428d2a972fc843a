"""The engine against a second reading of the rules: on public scenarios it understands, and on many drawn at random.

Drawn are clusters of one node, or of several where every pod asks for one GPU at most, so that no choice between nodes
or devices matters; the second reading takes them for one node.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from dovetail.replay import json_lines
from dovetail.replay.scenarios import run_scenario, scenario_format
from tests.scenarios import comparing, scoring, second_reading
from tests.support import shared

Document = dict[str, Any]
Tally = dict[tuple[str, str], Counter[str]]
ALL = ["allocate", "consolidation", "reclaim", "preempt", "stale_gang_eviction"]
RUNS = {
    "allocate": {"mode": "single", "actions": ["allocate"]},
    "reclaim": {"mode": "single", "actions": ["reclaim"]},
    "preempt": {"mode": "single", "actions": ["preempt"]},
    "stale": {"mode": "single", "actions": ["stale_gang_eviction"]},
    "all": {"mode": "single", "actions": ALL},
    "cycles": {"mode": "cycles", "actions": ALL},
}


# Drawing


def drawn(seed: int, run: Document) -> Document:
    """A small cluster: queues in one or two trees, jobs that hold most of it, and others that wait."""
    chance = random.Random(seed)
    sizes = [chance.randint(2, 6)] if seed % 2 else [chance.randint(1, 3) for _ in range(2)]
    queues = [*queues_of(chance, sum(sizes))]
    leaves = [queue["name"] for queue in queues if queue["parent"] is not None]
    free = list(sizes)
    count, most = chance.randint(4, 8), 3 if seed % 2 else 1
    jobs = [
        job(chance, place, free, leaves, most=most, runs=place < count // 2)
        for place in range(count)
    ]
    ages = chance.sample(range(60, 600, 60), count)
    jobs = [one | {"age_s": age} for one, age in zip(jobs, ages, strict=True)]
    return {
        "schema": "scenario/1",
        "id": f"drawn {seed}",
        "run": {"cycles_until": 2, "cycles_stable": 0, **run},
        "settings": {"stale_grace_s": chance.choice((0, 60))},
        "topologies": [],
        "nodes": [node(f"n{number}", size) for number, size in enumerate(sizes)],
        "queues": queues,
        "jobs": jobs,
    }


def node(name: str, gpus: int) -> Document:
    room = {"cpu": 1000, "memory": 10**12, "pods": 110, "nvidia.com/gpu": gpus}
    return {
        "name": name,
        "labels": {},
        "allocatable": room,
        "gpu": {"count": gpus, "memory_mib": 100, "mig": "none"},
    }


def queues_of(chance: random.Random, gpus: int) -> list[Document]:
    result = []
    for tree in range(chance.choice((1, 1, 2))):
        is_free = chance.random() < 0.6
        result.append(
            queue(
                chance, f"d{tree}", None, tree, quota=None if is_free else chance.randint(0, gpus)
            )
        )
        for leaf in range(chance.randint(1, 3)):
            quota = chance.choice((0, 1, 1, 2, 2, 3, None))
            result.append(queue(chance, f"d{tree}-{leaf}", f"d{tree}", leaf, quota=quota))
    return result


def queue(
    chance: random.Random, name: str, parent: str | None, age: int, *, quota: int | None
) -> Document:
    limit = chance.choice((None, None, None, 2, 4))
    cpu = chance.choice((None, None, None, None, 0, 2))
    return {
        "name": name,
        "parent": parent,
        "priority": chance.choice((100, 100, 100, 101)),
        "creation_order": age,
        "quota": {"gpu": quota, "cpu": cpu, "memory": None},
        "limit": {
            "gpu": None if limit is None or quota is None else max(limit, quota),
            "cpu": None,
            "memory": None,
        },
        "over_quota_weight": {"gpu": chance.choice((0, 1, 1, 2)), "cpu": 1, "memory": 1},
        "reclaim_min_runtime_s": chance.choice((0, 0, 0, 0, 0, 0, 30, 90)),
        "preempt_min_runtime_s": chance.choice((0, 0, 0, 0, 0, 0, 30, 90)),
    }


def job(
    chance: random.Random, number: int, free: list[int], leaves: list[str], *, most: int, runs: bool
) -> Document:
    """One that runs as a whole, or waits as a whole, so that no half of it can be made to yield."""
    priority = chance.choice((50, 50, 75) if runs else (50, 75, 100, 125))
    count, gpus = chance.choice((1, 1, 2, 3)), chance.randint(0, most) or chance.randint(0, most)
    names = ["ga", "gb"] if count > 1 and chance.random() < 0.3 else ["default"]
    least = 1 if len(names) > 1 else chance.choice((1, count))
    state = chance.choice(("running",) * 8 + ("bound", "terminating", "terminating_stuck"))
    seats = seated(chance, free, gpus, count) if runs else None
    pods = [
        {
            "name": f"j{number}-{place}",
            "group": names[place % len(names)],
            "request": {"cpu": 1, "memory": 1000, "gpu": gpus},
            "state": state if seats else "pending",
            **({"node": f"n{seats[place]}"} if seats else {}),
        }
        for place in range(count)
    ]
    return {
        "name": f"j{number}",
        "queue": chance.choice(leaves),
        "priority": priority,
        "preemptible": priority < 100 if chance.random() < 0.8 else chance.random() < 0.5,
        "started_s_ago": 60 if seats else None,
        "may_evict_after_s": chance.choice((0,) * 8 + (100, 1000)),
        "after_eviction": chance.choice(("requeued",) * 5 + ("stays_terminating",)),
        "min_groups": len(names),
        "groups": [{"name": name, "parent": None, "kind": "pods", "min": least} for name in names],
        "pods": pods,
    }


def seated(chance: random.Random, free: list[int], gpus: int, count: int) -> list[int] | None:
    """Nodes with room for all pods of a job, which they take."""
    left, result = list(free), []
    for _ in range(count):
        able = [place for place, room in enumerate(left) if room >= gpus]
        if not able:
            return None
        result.append(chance.choice(able))
        left[result[-1]] -= gpus
    free[:] = left
    return result


# Comparing


def tally(document: Document, states: dict[str, str]) -> Tally:
    """Pods by state, of every job and group."""
    counts: Tally = {}
    for item in document["jobs"]:
        for pod in item["pods"]:
            counts.setdefault((item["name"], pod["group"]), Counter())[states[pod["name"]]] += 1
    return counts


def as_one_node(document: Document) -> Document:
    together = node("n0", sum(item["gpu"]["count"] for item in document["nodes"]))
    return document | {"nodes": [together]}


def deviation(document: Document) -> str:
    """What the engine and the second reading say, where they differ, or a rule that always holds and was broken."""
    scenario = scenario_format.read(json.dumps(document).encode(), place=document["id"])
    outcome = run_scenario.run(scenario)
    engine = tally(document, {name: str(one.state) for name, one in outcome.end.pods.items()})
    second = tally(document, second_reading.states(as_one_node(document)))
    differs = {
        key: (dict(engine[key]), dict(second[key])) for key in engine if engine[key] != second[key]
    }
    broken = comparing.broken(scenario, outcome)
    return f"{document['id']}: {differs} {broken}" if differs or broken else ""


@pytest.mark.parametrize("run", RUNS)
def test_random_clusters_are_decided_as_the_second_reading_says(run: str) -> None:
    assert not [text for seed in range(30) if (text := deviation(drawn(seed, RUNS[run])))]


@pytest.mark.slow
@pytest.mark.parametrize("run", ["reclaim", "preempt", "cycles"])
def test_more_random_clusters_are_decided_as_the_second_reading_says(run: str) -> None:
    assert not [text for seed in range(30, 110) if (text := deviation(drawn(seed, RUNS[run])))]


def test_drawn_clusters_are_worth_deciding() -> None:
    """In many of them something happens, and of every kind."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        scenario = scenario_format.read(json.dumps(drawn(seed, RUNS["all"])).encode(), place="")
        for word, much in run_scenario.run(scenario).per_cycle[0]._asdict().items():
            seen[word] += bool(much)
    assert min(seen["binds"], seen["evictions"], seen["nominations"]) >= 10, seen


def test_the_second_reading_agrees_with_public_scenarios() -> None:
    asked = 0
    for _, line in json_lines.numbered(str(shared.data(scoring.PUBLIC))):
        document = json.loads(line)
        if not second_reading.is_understood(document) or len(document["jobs"]) > 30:
            continue
        asked += 1
        counts = tally(document, second_reading.states(document))
        for name, expected in document["expect"]["jobs"].items():
            if name in document["expect"].get("unchecked_jobs", ()) or not expected.get(
                "complete", True
            ):
                continue
            count = sum(
                (one for (owner, _), one in counts.items() if owner == name), Counter[str]()
            )
            assert dict(count) == expected["states"], (document["id"], name)
    assert asked > 100
