"""Derives gangs from KAI's PodGroups (scheduling.run.ai), which pods name in the annotation pod-group-name.

Given a PodGroup; its subgroups become the groups of the gang, in the same tree. A group that needs no more than one pod
and has no subgroups is loose: its pods start one by one. The queue is KAI's, so that a queue of ours needs its name or
an alias of it. Never reads a pod, never raises on odd numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.workloads import owners
from dovetail.model import gangs, workload_annotations
from dovetail.model.gangs import Gang, Group
from dovetail.quantity import durations

MOST_SUBGROUPS: Final = 1_000  # the number is user input
_PREEMPTIBLE: Final = {"preemptible": True, "non-preemptible": False}


def gang_of(owner: owners.KaiPodGroup) -> Gang:
    """The gang of a PodGroup."""
    spec = owner.spec
    annotated = workload_annotations.labels_and_annotations(owner.metadata)
    options = workload_annotations.read(annotated)
    groups, problems = _groups(spec)
    topology = _topology(spec.topology_constraint)
    is_loose = not spec.sub_groups and topology is None and (spec.min_member or 0) <= 1
    if spec.priority_class_name:
        problems.append("spec.priorityClassName is ignored: the priority of the pods counts")

    gang = Gang(
        metadata=meta.ObjectMeta(
            namespace=owner.metadata.namespace,
            name=f"{gangs.KAI_GROUP}/{owner.metadata.name}",
            creation_timestamp=owner.metadata.creation_timestamp,
        ),
        groups=groups,
        min_groups=_min_groups(spec, groups),
        topology=topology,
        is_preemptible=_PREEMPTIBLE.get(spec.preemptibility),
        may_evict_after=durations.seconds(spec.preemption_delay or "") or 0,
        stale_grace=workload_annotations.kai_grace_seconds(spec.staleness_grace_period or ""),
        is_loose=is_loose,
    )
    gang = gangs.with_options(gang, options)
    labels = {workload_annotations.KAI_QUEUE: spec.queue} if spec.queue else gang.labels
    all_problems = tuple(dict.fromkeys((*problems, *gang.problems)))
    return msgspec.structs.replace(gang, labels=labels, problems=all_problems)


def _groups(spec: owners.KaiPodGroupSpec) -> tuple[tuple[Group, ...], list[str]]:
    """The groups below the root, and what is wrong with the subgroups."""
    if not spec.sub_groups:
        fewest = max(0, spec.min_member if spec.min_member is not None else 1)
        return (Group(name=gangs.DEFAULT_GROUP, min=fewest),), []

    listed = spec.sub_groups[:MOST_SUBGROUPS]
    reachable = _reachable(listed)
    children = Counter(subgroup.parent for subgroup in reachable)
    groups = tuple(_group(subgroup, children[subgroup.name]) for subgroup in reachable)
    problems: list[str] = []
    if len(reachable) < len(spec.sub_groups):
        left_out = len(spec.sub_groups) - len(reachable)
        problems.append(
            f"spec.subGroups: {left_out} are ignored: each needs a name of its own and a parent "
            f"that leads to the root, and at most {MOST_SUBGROUPS} are read"
        )
    return groups or (gangs.LONE_GROUP,), problems


def _reachable(listed: Sequence[owners.KaiSubGroup]) -> list[owners.KaiSubGroup]:
    """The subgroups from which parents lead to the root, parents first; of equal names the first."""
    by_parent: dict[str, list[owners.KaiSubGroup]] = {}
    for subgroup in listed:
        by_parent.setdefault(subgroup.parent or "", []).append(subgroup)

    reached: dict[str, owners.KaiSubGroup] = {}
    waiting = [*by_parent.get("", ())]
    while waiting:
        subgroup = waiting.pop(0)
        if not subgroup.name or subgroup.name in reached:
            continue
        reached[subgroup.name] = subgroup
        waiting += by_parent.get(subgroup.name, ())
    return [*reached.values()]


def _group(subgroup: owners.KaiSubGroup, children: int) -> Group:
    stated = subgroup.min_sub_group if children else subgroup.min_member
    every = children or 1  # of a leaf: one pod
    fewest = every if stated is None else max(0, stated)
    return Group(
        name=subgroup.name,
        parent=subgroup.parent or None,
        holds_groups=bool(children),
        min=min(fewest, children) if children else fewest,
        topology=_topology(subgroup.topology_constraint),
    )


def _min_groups(spec: owners.KaiPodGroupSpec, groups: Sequence[Group]) -> int:
    """How many of its groups the root needs: all, unless it states fewer."""
    at_root = sum(group.parent is None for group in groups)
    stated = spec.min_sub_group if spec.sub_groups else None
    return at_root if stated is None else min(at_root, max(0, stated))


def _topology(
    constraint: owners.KaiTopologyConstraint | None,
) -> workload_annotations.TopologyRequest | None:
    if constraint is None:
        return None
    required = constraint.required_topology_level or None
    preferred = constraint.preferred_topology_level or None
    if required is None and preferred is None:
        return None
    return workload_annotations.TopologyRequest(
        topology=constraint.topology, required=required, preferred=preferred
    )
