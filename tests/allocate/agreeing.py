"""What it means to agree with a recorded or fresh answer of upstream, node by node, as the conformance data defines it.

Given a world and upstream's answers; runs ours and lists disagreements. Exceptions are rules with a reason, counted.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import msgspec

from dovetail.quantity import quantity
from dovetail.replay import allocation_worlds
from tests.allocate import checker
from tests.allocate.checker import Verdict

Tree = dict[str, Any]

FOUND_MORE = "upstream's search misses an allocation that exists"
RUN_TIME_ERROR = "a selector that errors on a device does not match it (our rule); upstream aborts"
ALL_AND_CONSTRAINT = (
    "all devices under a constraint: whether upstream refuses or aborts hangs on its search order"
)
NO_ANSWER = "upstream gave up; compared with the complete search"


class Disagreement(NamedTuple):
    """Names the world and node; shows both answers and what is wrong with ours."""

    world: Any
    node: str
    ours: str
    theirs: str
    why: str


class Tally(NamedTuple):
    """What came of many worlds."""

    outcomes: Counter[str]
    exceptions: Counter[str]
    disagreements: list[Disagreement]

    def report(self, what: str) -> str:
        """Everything, for the test's output."""
        lines = [f"{what}: {dict(sorted(self.outcomes.items()))}"]
        lines += [
            f"  exception: {times} x {reason}" for reason, times in sorted(self.exceptions.items())
        ]
        lines += [
            f"  {disagreement.world} on {disagreement.node}: ours {disagreement.ours}, "
            f"theirs {disagreement.theirs}: {disagreement.why}"
            for disagreement in self.disagreements
        ]
        return "\n".join(lines)


def tally() -> Tally:
    """Nothing yet."""
    return Tally(Counter(), Counter(), [])


def ours(world: Tree, *, list_attributes: bool = False) -> dict[str, Tree]:
    """Our answers by node, through the same door as a file of worlds; what goes in must not be changed by it."""
    asked = allocation_worlds.question(
        msgspec.json.decode(json.dumps(world).encode(), type=allocation_worlds.World)
    )
    before = _written(asked)
    result = {
        row["node"]: row
        for row in allocation_worlds.answers(asked, list_attributes=list_attributes)
    }
    assert _written(asked) == before, "an allocation changed its input"
    return result


def _written(asked: allocation_worlds.Question) -> bytes:
    """All that allocation can reach."""
    pools = [pool for view in asked.views.values() for pool in view.pools]
    devices = [[pool.devices.device(index) for index in range(len(pool.devices))] for pool in pools]
    sets = [pool.devices.counter_sets for pool in pools]
    used = [(hex(pool.used), pool.shared, pool.counters_left, pool.extra_taints) for pool in pools]
    return msgspec.json.encode(
        [devices, sets, used, asked.claims, asked.classes], enc_hook=quantity.encode_hook
    )


def compare(
    world: Tree,
    answers: dict[str, Tree],
    *,
    into: Tally,
    matches: Verdict,
    list_attributes: bool = False,
) -> None:
    """Judges our answer on every node of one world against upstream's."""
    nodes = {node["metadata"]["name"]: node for node in world["nodes"]}
    mine = ours(world, list_attributes=list_attributes)
    assert set(mine) == set(nodes)
    for name, theirs in answers.items():
        answer = mine[name]
        outcome = answer["outcome"]
        into.outcomes[f"{outcome}/{theirs['outcome']}"] += 1
        why = _difference(
            answer, theirs, into=into, is_all_constrained=takes_all_under_a_constraint(world)
        )
        if outcome == "allocated":
            broken = checker.violations(
                world, nodes[name], results=answer["results"], matches=matches
            )
            why = "; ".join(f"rule {rule}: {text}" for rule, text in broken) or why
        elif not answer["reasons"]:
            why = why or "refused without a reason"
        if why:
            into.disagreements.append(
                Disagreement(world.get("id"), name, outcome, theirs["outcome"], why)
            )


def _difference(answer: Tree, theirs: Tree, *, into: Tally, is_all_constrained: bool) -> str:
    """Why the two do not agree, or nothing."""
    mine, other, search = answer["outcome"], theirs["outcome"], theirs.get("completeSearch")
    if mine == "undecided":
        return "no verdict"
    if other == "timeout":
        into.exceptions[NO_ANSWER] += 1
        other = {"feasible": "allocated", "infeasible": "none"}.get(search or "", mine)
    if mine == other:
        return ""
    if mine == "allocated" and search == "feasible":
        into.exceptions[FOUND_MORE] += 1
        return ""
    if {mine, other} == {"none", "error"} and is_all_constrained:
        into.exceptions[ALL_AND_CONSTRAINT] += 1
        return ""
    if other == "error" and "CEL runtime error" in (
        theirs.get("error") or theirs.get("message") or ""
    ):
        into.exceptions[RUN_TIME_ERROR] += 1
        return ""
    return "feasibility differs" if "allocated" in (mine, other) else "another kind of refusal"


def takes_all_under_a_constraint(world: Tree) -> bool:
    """Whether some claim asks for all devices of a kind and has constraints."""
    for claim in world["claims"]:
        devices = claim["spec"].get("devices") or {}
        modes = [
            option.get("allocationMode")
            for request in devices.get("requests") or ()
            for option in options(request)
        ]
        if devices.get("constraints") and "All" in modes:
            return True
    return False


def options(request: Tree) -> list[Tree]:
    """What may serve a request."""
    return [request["exactly"]] if request.get("exactly") else request.get("firstAvailable") or []
