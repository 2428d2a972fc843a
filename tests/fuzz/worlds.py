"""Whole clusters: where the claims of a pod fit, node by node, and whether what they get is valid."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.allocate import agreeing, fresh, recorded
from tests.fuzz.findings import AGREE, Finding, Tally, unanswered
from tests.generators import clusters, worlds
from tests.support.oracle import Oracle

Tree = dict[str, Any]
_SHRINKING_STEPS = 400


def cases(rng: random.Random, count: int) -> list[Tree]:
    """Mostly rich clusters, some plain ones."""
    return [
        clusters.world(rng, number) if rng.random() < 0.8 else {"id": number, **worlds.world(rng)}
        for number in range(count)
    ]


def run(oracle: Oracle, batch: list[Tree], *, tally: Tally, seed: int) -> None:
    """Asks both sides about every node, counts and records what differs."""
    asked = recorded.Asked(oracle)
    for world, answer in zip(batch, oracle.ask_many(map(fresh.question, batch)), strict=True):
        if "failure" in answer:
            tally.counts[unanswered(answer["failure"])] += 1
            continue
        disagreement = _disagreement(world, answer, asked)
        tally.counts[AGREE if disagreement is None else disagreement.why] += 1
        if disagreement is not None and tally.wants(disagreement.why):
            small, least = _minimised(world, disagreement, oracle=oracle, asked=asked)
            shown = {"node": least.node, "outcome": least.ours}
            theirs = {"node": least.node, "outcome": least.theirs}
            tally.add(
                Finding(
                    what="worlds",
                    kind=disagreement.why,
                    seed=seed,
                    case=small,
                    ours=shown,
                    theirs=theirs,
                )
            )


def _disagreement(world: Tree, answer: Tree, asked: recorded.Asked) -> agreeing.Disagreement | None:
    tally = agreeing.tally()
    agreeing.compare(
        world, fresh.believed(world, answer["answers"]), into=tally, matches=asked.matches
    )
    return tally.disagreements[0] if tally.disagreements else None


def _minimised(
    world: Tree, disagreement: agreeing.Disagreement, *, oracle: Oracle, asked: recorded.Asked
) -> tuple[Tree, agreeing.Disagreement]:
    """The world without whatever the disagreement does not need."""
    steps, shrunk = _SHRINKING_STEPS, True
    while shrunk and steps > 0:
        shrunk = False
        for less in _smaller(world):
            steps -= 1
            answer = oracle.ask(fresh.question(less))
            still = None if "failure" in answer else _disagreement(less, answer, asked)
            if (
                still is not None
                and still.why.partition(":")[0] == disagreement.why.partition(":")[0]
            ):
                world, disagreement, shrunk = less, still, True
                break
            if steps <= 0:
                break
    return world, disagreement


def _smaller(world: Tree) -> Iterator[Tree]:
    """The world less one thing each, large things first."""
    for path in _removable(world):
        less = copy.deepcopy(world)
        holder: Any = less
        for step in path[:-1]:
            holder = holder[step]
        del holder[path[-1]]
        yield less


def _removable(world: Tree) -> Iterator[tuple[Any, ...]]:
    for part in ("nodes", "claims"):
        if len(world[part]) > 1:
            yield from ((part, at) for at in range(len(world[part])))
    for part in ("resourceSlices", "deviceTaintRules", "allocatedClaims"):
        yield from ((part, at) for at in range(len(world.get(part) or ())))
    for at, claim in enumerate(world["claims"]):
        devices = claim["spec"]["devices"]
        for part in ("requests", "constraints", "config"):
            yield from (
                ("claims", at, "spec", "devices", part, number)
                for number in range(len(devices.get(part) or ()))
            )
    for at, part in enumerate(world["resourceSlices"]):
        for number, device in enumerate(part["spec"].get("devices") or ()):
            yield ("resourceSlices", at, "spec", "devices", number)
            fields = [
                field
                for field in device
                if field not in ("name", "nodeName", "nodeSelector", "allNodes")
            ]
            yield from (
                ("resourceSlices", at, "spec", "devices", number, field) for field in fields
            )
    for part in ("devices", "shared"):
        yield from (
            ("inUse", part, at) for at in range(len((world.get("inUse") or {}).get(part) or ()))
        )
