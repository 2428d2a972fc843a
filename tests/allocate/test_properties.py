"""What holds for any cluster: nothing is given away twice, and neither order nor hashing nor memory changes answers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.allocate import agreeing, checker, checker_pools
from tests.generators import clusters

Tree = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
DOOR = [sys.executable, "-c", "import sys; from dovetail.cli.main import main; sys.exit(main())"]
OVER_ALLOCATION = {5, 7, 8}  # rules of the checker that need no selector
SEEDS = range(5)
WORLDS_PER_SEED = 25
PODS_PER_WORLD = 12


def worlds_of(seed: int) -> list[Tree]:
    rng = random.Random(seed)
    return [clusters.world(rng, number) for number in range(WORLDS_PER_SEED)]


def is_any(expression: str, place: checker_pools.Place) -> bool:
    return True


def feasible(world: Tree) -> dict[str, bool]:
    return {name: row["outcome"] == "allocated" for name, row in agreeing.ours(world).items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_pod_after_pod_nothing_is_given_away_twice(seed: int) -> None:
    rng = random.Random(seed)
    placed = 0
    for world in worlds_of(seed):
        names = {node["metadata"]["name"]: node for node in world["nodes"]}
        for _ in range(PODS_PER_WORLD):
            pod = {**world, "claims": clusters.world(rng)["claims"]}
            fitting = [
                (name, row)
                for name, row in agreeing.ours(pod).items()
                if row["outcome"] == "allocated"
            ]
            if not fitting:
                continue
            name, row = rng.choice(fitting)
            violations = checker.violations(
                pod, names[name], results=row["results"], matches=is_any
            )
            assert not [
                violation for violation in violations if violation.rule in OVER_ALLOCATION
            ], (
                world["id"],
                name,
                violations,
            )
            world["inUse"] = taken(world["inUse"], row["results"])
            placed += 1
    assert placed > WORLDS_PER_SEED


def taken(before: Tree, results: list[Tree]) -> Tree:
    """What is in use after these allocations as well."""
    held = json.loads(json.dumps(before))
    for allocation in results:
        for item in allocation["devices"].get("results") or ():
            path = f"{item['driver']}/{item['pool']}/{item['device']}"
            if item.get("adminAccess"):
                continue
            if "shareID" not in item:
                assert path not in held["devices"], path
                held["devices"].append(path)
                continue
            share = f"{path}/{item['shareID']}"
            held["shared"] += [share] if share not in held["shared"] else []
            for name, text in (item.get("consumedCapacity") or {}).items():
                amounts = held["capacity"].setdefault(path, {})
                total = checker_pools.amount(amounts.get(name, "0")) + checker_pools.amount(text)
                amounts[name] = f"{int(total * 1000)}m"
    return dict(held)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_claims_and_requests_does_not_change_feasibility(seed: int) -> None:
    rng = random.Random(seed)
    several = 0
    for world in worlds_of(seed):
        shuffled = json.loads(json.dumps(world))
        rng.shuffle(shuffled["claims"])
        for claim in shuffled["claims"]:
            rng.shuffle(claim["spec"]["devices"]["requests"])
        assert feasible(shuffled) == feasible(world), (seed, world["id"])
        several += shuffled["claims"] != world["claims"]
    assert several


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_objects_does_not_change_the_answer(seed: int) -> None:
    rng = random.Random(seed)
    for world in worlds_of(seed):
        shuffled = json.loads(json.dumps(world))
        for part in ("resourceSlices", "deviceClasses", "nodes"):
            rng.shuffle(shuffled[part])
        for part in ("devices", "shared"):
            rng.shuffle(shuffled["inUse"][part])
        ours, again = agreeing.ours(world), agreeing.ours(shuffled)
        assert again == ours, (seed, world["id"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_device_more_never_hurts(seed: int) -> None:
    """Freeing what is in use keeps what was feasible feasible."""
    for world in worlds_of(seed):
        freed = {**world, "inUse": {"devices": [], "shared": [], "capacity": {}}}
        before, after = feasible(world), feasible(freed)
        assert all(after[name] for name, fits in before.items() if fits), (seed, world["id"])


def test_answers_depend_on_neither_hashing_nor_what_was_asked_before(tmp_path: Path) -> None:
    trees = [world for seed in SEEDS for world in worlds_of(seed)]
    forth, back = tmp_path / "forth.jsonl", tmp_path / "back.jsonl"
    forth.write_text("".join(json.dumps(world) + "\n" for world in trees))
    back.write_text("".join(json.dumps(world) + "\n" for world in reversed(trees)))
    item, other = answers_of(forth, "1"), answers_of(back, "2")
    assert len(item) > len(trees)
    assert sorted(item) == sorted(other)


def answers_of(file: Path, hash_seed: str) -> list[str]:
    done = subprocess.run(
        [*DOOR, "allocate", "--worlds", str(file), "-o", "jsonl"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()
