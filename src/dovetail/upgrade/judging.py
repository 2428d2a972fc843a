"""Asks adapters and validations about a node, and puts their answers into the machine's words.

Given the objects of a cluster and the checks of a validation. A node's parts are brought one after the other; the first
that is not there yet decides. Never writes, never waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.model import node_annotations
from dovetail.upgrade import read_facts
from dovetail.upgrade.adapters import adapter, adapter_choice, driver_pods, node_facts
from dovetail.upgrade.adapters.node_facts import NodeFacts
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
from dovetail.upgrade.validation import validation_facts, validation_verdict
from dovetail.upgrade.validation.validation_checks import Checks, Subject

# Parts of a spec by the field of a target that brings them.
_FIELDS: Final[Mapping[str, str]] = {
    "driver": "driver",
    "draDriver": "dra_driver",
    stack_upgrades.MIG_CONFIG: "mig_config",
}
_UNKNOWN: Final = "the node is not known to have GPUs"


def judges_of(objects: object_set.ObjectSet, checks: Checks) -> Judges:
    """The judges of one reading of the cluster."""
    fleet = node_facts.read(objects)

    def readiness(node: str, versions: Versions) -> Readiness:
        facts = fleet.of(node)
        return _readiness(facts, versions) if facts is not None else Readiness("", blocker=_UNKNOWN)

    def installing(node: str, versions: Versions, seconds: int) -> Judgement:
        facts = fleet.of(node, applying_seconds=seconds)
        if facts is None:
            return Ongoing(_UNKNOWN)
        judgement = _installing(facts, versions)
        is_done = isinstance(judgement, Passed)
        return _rehearsal_asked(objects, checks, node, versions) if is_done else judgement

    def validity(node: str, versions: Versions) -> Judgement:
        return _validity(objects, checks, node, versions)

    return Judges(readiness, installing, validity)


def _rehearsal_asked(
    objects: object_set.ObjectSet, checks: Checks, node: str, versions: Versions
) -> Judgement:
    """Passed once the node agent is asked whether it could prepare a claim, where the checks want to know."""
    stored = objects.get(object_set.Key(registry.NODE.unique_name, "", node))
    is_wanted = any(check.check is Subject.PREPARE for check in checks.checks)
    if stored is None or not is_wanted:
        return Passed()
    target = " ".join(f"{part}={version}" for part, version in sorted(versions.items()))
    # Another pool generation is another installation: what was answered before it counts no more.
    generation = validation_facts.pool_state(objects, node).generation
    request = f"{target} generation={generation}"
    if stored.struct.metadata.annotations.get(node_annotations.REHEARSE) == request:
        return Passed()
    why = "asks the node agent whether it could prepare a claim"
    patch = adapter.NodePatch(node=node, annotations={node_annotations.REHEARSE: request}, why=why)
    return Ongoing(why, (patch,))


def _validity(
    objects: object_set.ObjectSet, checks: Checks, node: str, versions: Versions
) -> Judgement:
    """What the validation says. How long it may take is the machine's to judge."""
    facts = validation_facts.of_node(objects, node)
    stored = objects.get(object_set.Key(registry.NODE.unique_name, "", node))
    if facts is None or stored is None:
        return Ongoing(_UNKNOWN)
    baseline = validation_facts.baseline_of(stored.struct.metadata.annotations)
    verdict = validation_verdict.validate(
        checks,
        facts,
        baseline=baseline,
        target=versions,
        waited_seconds=0,
        geometry=_geometry(objects, node, versions.get(stack_upgrades.MIG_CONFIG, "")),
    )
    match verdict:
        case validation_verdict.Valid():
            return Passed()
        case validation_verdict.NotYet(missing):
            return Ongoing("; ".join(map(str, missing)))
        case validation_verdict.Invalid(reasons):
            return Rejected("; ".join(map(str, reasons)))
        case _:
            assert_never(verdict)


def _geometry(objects: object_set.ObjectSet, node: str, config: str) -> Mapping[str, int] | None:
    """The partitions of a configuration, as the upgrade that brings it states them.

    None for one that no upgrade brings: a node that goes back is to be what it was.
    """
    if not config:
        return None
    for upgrade in read_facts.upgrades_of(objects):
        for each in upgrade.spec.mig.nodes if upgrade.spec.mig is not None else ():
            if (each.node, each.config) == (node, config):
                return each.partitions
    return None


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
        previous=_previous(facts, versions),
    )


def _previous(facts: NodeFacts, versions: Versions) -> Versions:
    """The driver that is there now. A slice cannot spell leading zeros, which the tag of an image has."""
    loaded, desired = facts.stack.driver_loaded, facts.stack.driver_desired
    if "driver" not in versions or not loaded.is_known:
        return {}
    is_same = driver_pods.is_version(loaded.value, desired.value)
    return {"driver": desired.value if is_same else loaded.value}


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
