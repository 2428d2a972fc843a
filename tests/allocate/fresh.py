"""Compares our answers with those the oracle gives now, world by world."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from tests.allocate import agreeing, checker_pools, recorded
from tests.support.oracle import Oracle

Tree = dict[str, Any]
BATCH = 50
PARTS = (
    "nodes",
    "deviceClasses",
    "resourceSlices",
    "allocatedClaims",
    "inUse",
    "claims",
    "deviceTaintRules",
)


def compared(given: Iterable[Tree], oracle: Oracle) -> agreeing.Tally:
    """What came of all the worlds."""
    tally = agreeing.tally()
    asked = recorded.Asked(oracle)
    for batch in _batches(given):
        answers = oracle.ask_many(question(world) for world in batch)
        for world, answer in zip(batch, answers, strict=True):
            assert "failure" not in answer, (world["id"], answer)
            agreeing.compare(
                world, believed(world, answer["answers"]), into=tally, matches=asked.matches
            )
    return tally


def question(world: Tree) -> Tree:
    """The world as the oracle takes it."""
    return {
        "op": "allocate",
        "timeoutSeconds": 1,
        **{part: world[part] for part in PARTS if part in world},
    }


def believed(world: Tree, answers: dict[str, Tree]) -> dict[str, Tree]:
    """Upstream's answers; where it may have missed something, a valid allocation of ours is accepted too."""
    may_miss = any(
        trait(world)
        for trait in (
            has_admin_access,
            has_overdrawn_counters,
            agreeing.takes_all_under_a_constraint,
        )
    )
    return {
        name: {**one, "completeSearch": "feasible"}
        if may_miss and one["outcome"] != "timeout"
        else one
        for name, one in answers.items()
    }


def has_admin_access(world: Tree) -> bool:
    """Upstream lets admin access hide devices and charge counters."""
    return any((request.get("exactly") or {}).get("adminAccess") for request in _requests(world))


def has_overdrawn_counters(world: Tree) -> bool:
    """Upstream refuses devices that draw on any set of a pool in which some set is overdrawn."""
    use = checker_pools.use_of(world)
    for node in world["nodes"]:
        for pool in checker_pools.pools(world, node):
            left = dict(pool.counters)
            for place in pool.everywhere:
                if use.holds(place.key):
                    for counter, value in checker_pools.consumption(place.device):
                        left[counter] -= value
            if any(value < 0 for value in left.values()):
                return True
    return False


def _requests(world: Tree) -> Iterator[Tree]:
    for claim in world["claims"]:
        yield from claim["spec"]["devices"].get("requests") or ()


def _batches(given: Iterable[Tree]) -> Iterator[list[Tree]]:
    left = iter(given)
    while batch := list(itertools.islice(left, BATCH)):
        yield batch
