"""Asks adapters and validations about a node, and puts their answers into the machine's words.

Given the facts of the fleet and a validation. A node's parts are brought one after the other; the first that is not
there yet decides. Never writes, never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, assert_never

from dovetail.upgrade.adapters import adapter, adapter_choice
from dovetail.upgrade.adapters.node_facts import FleetFacts, NodeFacts
from dovetail.upgrade.machine.cluster_facts import (
    Judgement,
    Judges,
    Manual,
    Ongoing,
    Passed,
    Readiness,
    Rejected,
    Versions,
)

Validate = Callable[[NodeFacts, adapter.Target], Judgement]
# Parts of a spec by the field of a target that brings them.
_FIELDS: Final[Mapping[str, str]] = {"driver": "driver", "draDriver": "dra_driver"}
_UNKNOWN: Final = "the node is not known to have GPUs"


def judges_of(fleet: FleetFacts, validate: Validate) -> Judges:
    """The judges of one reading of the cluster."""

    def readiness(node: str, versions: Versions) -> Readiness:
        facts = fleet.of(node)
        return _readiness(facts, versions) if facts is not None else Readiness("", blocker=_UNKNOWN)

    def installing(node: str, versions: Versions, seconds: int) -> Judgement:
        facts = fleet.of(node, applying_seconds=seconds)
        return _installing(facts, versions) if facts is not None else Ongoing(_UNKNOWN)

    def validity(node: str, versions: Versions) -> Judgement:
        facts = fleet.of(node)
        return validate(facts, target_of(versions)) if facts is not None else Ongoing(_UNKNOWN)

    return Judges(readiness, installing, validity)


def target_of(versions: Versions) -> adapter.Target:
    """The target of an adapter; parts that no adapter brings are left out."""
    fields = {_FIELDS[part]: version for part, version in versions.items() if part in _FIELDS}
    return adapter.Target(**fields)


def _readiness(facts: NodeFacts, versions: Versions) -> Readiness:
    unknown = sorted(part for part in versions if part not in _FIELDS)
    if unknown:
        return Readiness("", blocker=f"no adapter brings {', '.join(unknown)} to a node")
    steps = adapter_choice.steps_for(facts, target_of(versions))
    if isinstance(steps, adapter_choice.NoAdapter):
        return Readiness("", blocker=steps.reason)
    problems = [
        problem
        for step in steps
        for problem in step.adapter.unready(facts, step.target)
        if problem.blocks
    ]
    ways = [step.adapter.reversible(facts, step.target) for step in steps]
    one_way = [way.reason for way in ways if isinstance(way, adapter.ForwardOnly)]
    outcomes = [step.adapter.apply(facts, step.target) for step in steps]
    return Readiness(
        adapter=", ".join(dict.fromkeys(step.adapter.name for step in steps)),
        is_current=all(isinstance(outcome, adapter.Applied) for outcome in outcomes),
        blocker=f"{problems[0].message}; {problems[0].next_step}" if problems else "",
        forward_only=next(iter(one_way), ""),
    )


def _installing(facts: NodeFacts, versions: Versions) -> Judgement:
    steps = adapter_choice.steps_for(facts, target_of(versions))
    if isinstance(steps, adapter_choice.NoAdapter):
        return Ongoing(steps.reason)  # labels may be missing while a node restarts
    for step in steps:
        judgement = _judgement(step.adapter.apply(facts, step.target))
        if not isinstance(judgement, Passed):
            return judgement
    return Passed()


def _judgement(outcome: adapter.Outcome) -> Judgement:
    match outcome:
        case adapter.Applied():
            return Passed()
        case adapter.Working():
            return Ongoing(outcome.waiting_for, outcome.writes)
        case adapter.ApplyFailed():
            why = f"{outcome.reason}; {outcome.next_step}"
            return Ongoing(why) if outcome.may_recover else Rejected(why)
        case adapter.ByHand():
            return Manual(outcome.steps, outcome.done_when)
        case _:
            assert_never(outcome)
