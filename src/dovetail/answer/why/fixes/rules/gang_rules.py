"""Proposes changes of what a gang asks for as a whole: how many pods it needs to start, and where they are together.

Given a case. Never tries a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.replica import patches
from dovetail.answer.why.fixes import edits, workload_keys
from dovetail.answer.why.fixes.proposals import (
    Candidate,
    Case,
    Change,
    Intent,
    Ladder,
    ObjectChange,
)
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.custom import topologies
from dovetail.model import gangs, workload_annotations
from dovetail.model.reasons import ReasonCode
from dovetail.world import events

MOST_MINIMA: Final = 256
_MINIMA: Final = (
    workload_annotations.MIN,
    workload_annotations.KAI_MIN,
    workload_annotations.KAI_MIN_OTHERS,
)
_TOPOLOGY: Final = (  # the key that requires a level, and the one that prefers it
    (workload_annotations.TOPOLOGY_REQUIRED, workload_annotations.TOPOLOGY_PREFERRED),
    (workload_annotations.KUEUE_REQUIRED, workload_annotations.KUEUE_PREFERRED),
    (workload_annotations.KAI_REQUIRED, workload_annotations.KAI_PREFERRED),
)
# Nothing that less of the gang would change.
_OWN: Final = frozenset({ReasonCode.GATED, ReasonCode.CLAIM_MISSING, ReasonCode.CLAIM_NOT_MADE})


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about the gang."""
    yield from _topology(case)
    if not all(reason.code in _OWN for reason in case.reasons):
        yield from _minimum(case)


# Together


def _topology(case: Case) -> Iterator[Ladder]:
    for required, preferred in _TOPOLOGY:
        level = workload_keys.value_of(case, required)
        if level is None:
            continue
        rungs = [
            Candidate(
                f"require topology level {wider} instead of {level}",
                workload_keys.changed(case, required, wider),
                Intent.LOWERED,
            )
            for wider in _wider_levels(case, level)
        ]
        softer: list[Change] = []
        if workload_keys.value_of(case, preferred) is None:
            softer += workload_keys.changed(case, preferred, level)
        softer += workload_keys.changed(case, required, None)
        rungs.append(
            Candidate(
                f"prefer instead of require topology level {level}", tuple(softer), Intent.ALLOWED
            )
        )
        yield Ladder(("topology", required), tuple(rungs))


def _wider_levels(case: Case, level: str) -> list[str]:
    """The levels above one, the nearest first, spelled as it is: by alias or by label."""
    for topology in case.replica.world.topologies.values():
        levels = topology.spec.levels
        for place, own in enumerate(levels):
            if level in (own.node_label, own.alias):
                is_alias = level == own.alias
                return [_spelled(wider, is_alias=is_alias) for wider in reversed(levels[:place])]
    return []


def _spelled(level: topologies.Level, *, is_alias: bool) -> str:
    return level.alias if is_alias and level.alias else level.node_label


# How many


def _minimum(case: Case) -> Iterator[Ladder]:
    member = case.replica.world.gangs.of(events.pod_id(case.pod))
    if member is None or not gangs.is_shared(member.gang):
        return
    definition = case.replica.world.gangs.definition(member.gang)
    if definition.is_loose:
        return
    group = next((own for own in definition.groups if own.name == member.group), None)
    minimum = group.min if group is not None else 0
    if minimum < 2:
        return
    source = gangs.source_of(member.gang)
    fewer = range(minimum - 1, max(minimum - 1 - MOST_MINIMA, 0), -1)
    rungs = [
        Candidate(f"gang minimum: {minimum} -> {count} pods", change, Intent.LOWERED)
        for count in fewer
        if (change := _with_minimum(case, source, member.gang, count))
    ]
    yield Ladder(("gang minimum", member.group), tuple(rungs), is_monotone=True)


def _with_minimum(case: Case, source: str, key: gangs.GangKey, count: int) -> tuple[Change, ...]:
    if source == gangs.KAI_GROUP:
        return _kai_minimum(case, key, count)
    if source in gangs.GROUPS:
        return ()  # the policy of a native group cannot be changed
    written = next((own for own in _MINIMA if workload_keys.value_of(case, own) is not None), None)
    section = workload_keys.LABELS if source == "gang" else workload_keys.ANNOTATIONS
    return workload_keys.changed(
        case, written or workload_annotations.MIN, str(count), section=section
    )


def _kai_minimum(case: Case, key: gangs.GangKey, count: int) -> tuple[Change, ...]:
    name = key[1].partition("/")[2]
    stored = case.replica.get(object_set.Key(registry.KAI_POD_GROUP.unique_name, key[0], name))
    if stored is None or any(owner.controller for owner in stored.struct.metadata.owner_references):
        return ()  # KAI's pod grouper would write its own number again
    return (
        ObjectChange(patches.ref_of(stored.struct), edits.setting(("spec", "minMember"), count)),
    )
