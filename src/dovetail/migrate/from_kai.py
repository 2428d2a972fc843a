"""Converts KAI Scheduler's queues and topologies; the fields of a PodGroup become advice for its workload.

Given objects of scheduling.run.ai and kai.scheduler as trees; returns queues and topologies, and the fate of every
field. KAI counts cpu in millicores and memory in megabytes, and -1 means unlimited. Never reads a cluster.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from dovetail.kubetypes.custom import queues
from dovetail.migrate import field_notes, queue_names, queue_shares, topology_levels
from dovetail.migrate.field_notes import Conversion, Fate, Note, Source, Tree, mapping
from dovetail.model import gangs, workload_annotations
from dovetail.quantity import durations, quantity

QUEUES: Final = ("scheduling.run.ai", "Queue")
GROUPS: Final = ("scheduling.run.ai", "PodGroup")
TOPOLOGIES: Final = ("kai.scheduler", "Topology")
PROJECTS: Final = "kai.resources"  # projects and departments, which KAI turns into queues
NODE_POOL: Final = "kai.scheduler/node-pool"
NOT_CONVERTED: Final = {
    "SchedulingShard": "one scheduler serves all nodes; its configuration file holds these settings",
    "Config": "settings of KAI's operator; Dovetail's chart has its own values",
    "BindRequest": "internal to KAI: it passes bindings to its binder",
    "Project": "KAI turns it into a Queue, which is converted instead",
    "Department": "KAI turns it into a Queue, which is converted instead",
    "NodePool": "one scheduler serves all nodes; pools are read from node labels",
}
DEFAULT_PRIORITY: Final = 100  # what KAI assumes if a queue sets none
RESOURCES: Final = {"gpu": "", "cpu": "m", "memory": "M"}  # unit by resource
DISPLAY_NAME: Final = "dovetail.dev/display-name"
MOST: Final = 10**15  # larger than any cluster
# KAI preempts only work below this priority. None of its objects says so, so the scheduler has to be configured.
PREEMPTIBLE_BELOW: Final = 100
NO_EVICTION: Final = Note(
    object="the scheduler's configuration",
    field="",
    fate=Fate.ADDED,
    to=f"queues.preemptibleBelow: {PREEMPTIBLE_BELOW}",
    why=f"set it: KAI never preempts work of priority {PREEMPTIBLE_BELOW} and above; here it may, unless configured",
)
RUNTIMES: Final = {
    "preemptMinRuntime": "preemptMinRuntimeSeconds",
    "reclaimMinRuntime": "reclaimMinRuntimeSeconds",
}
PREEMPTIBILITY: Final = ("preemptibility",)
# Fields of a PodGroup, and the label or annotation that the workload or its pods carry instead.
WISHES: Final = {
    ("minMember",): (workload_annotations.MIN, ""),
    ("minSubGroup",): (workload_annotations.MIN, "every group counts with its own minimum"),
    ("queue",): (gangs.QUEUE_LABEL, ""),
    ("priorityClassName",): ("spec.priorityClassName of its pods", ""),
    PREEMPTIBILITY: (workload_annotations.PREEMPTIBLE, ""),
    ("topologyConstraint", "topology"): (workload_annotations.TOPOLOGY, ""),
    ("topologyConstraint", "requiredTopologyLevel"): (workload_annotations.TOPOLOGY_REQUIRED, ""),
    ("topologyConstraint", "preferredTopologyLevel"): (workload_annotations.TOPOLOGY_PREFERRED, ""),
    ("preemptionDelay",): (workload_annotations.MAY_EVICT_AFTER, ""),
    ("stalenessGracePeriod",): (workload_annotations.STALE_GRACE, ""),
}
NO_WISH: Final = {
    "markUnschedulable": "pending pods always report why",
    "schedulingBackoff": "pending work is retried whenever something changes",
    "parallelism": "read from the owner",
    "completions": "read from the owner",
    "backoffLimit": "read from the owner",
    "subGroups": f"groups come from the owner, or from the label {gangs.GROUP_LABEL}",
}


def convert(trees: Sequence[Tree]) -> Conversion:
    """Our objects, and the fate of every field of theirs."""
    sources, duplicates = field_notes.sources(trees)
    by_kind: dict[tuple[str, str], list[Source]] = defaultdict(list)
    for source in sources:
        by_kind[source.group, source.kind].append(source)

    objects = _queues(by_kind[QUEUES])
    topology_names = queue_names.Names()
    for source in by_kind[TOPOLOGIES]:
        objects.append(topology_levels.topology(source, topology_names))
    for source in by_kind[GROUPS]:
        _advise_workload(source)
    for source in sources:
        if (source.group, source.kind) not in (QUEUES, TOPOLOGIES, GROUPS):
            field_notes.drop_whole(
                source, NOT_CONVERTED, groups=(QUEUES[0], TOPOLOGIES[0], PROJECTS)
            )

    notes = [note for source in (*duplicates, *sources) for note in source.notes()]
    if by_kind[QUEUES]:
        notes.append(NO_EVICTION)
    return Conversion(tuple(objects), tuple(notes))


def _queues(sources: list[Source]) -> list[Tree]:
    """Every queue; weights get one scale, so that they compare."""
    names = queue_names.Names()
    names_of = {source.name: names.of(source.name, otherwise="queue") for source in sources}
    parents = {source.text("spec", "parentQueue") for source in sources}
    scale = queue_shares.scale_of(weight for source in sources for weight in _weights(source))
    return [
        _queue(source, names_of, is_leaf=source.name not in parents, scale=scale)
        for source in sources
    ]


def _queue(source: Source, names_of: dict[str, str], *, is_leaf: bool, scale: int) -> Tree:
    name = names_of[source.name]
    metadata = field_notes.metadata_of(source, name, kind="Queue")
    if source.has("metadata", "labels", NODE_POOL):
        why = "one scheduler serves all nodes: limit the queue by gpu/product.* or give its pods node selectors"
        source.approximated("metadata", "labels", NODE_POOL, to="a label without effect", why=why)
    if isinstance(display_name := source.at("spec", "displayName"), str):
        metadata.setdefault("annotations", {})[DISPLAY_NAME] = display_name
        source.carried("spec", "displayName", to=f"the annotation {DISPLAY_NAME}")

    spec: Tree = {}
    if parent := source.text("spec", "parentQueue"):
        spec["parent"] = names_of.get(parent, parent)
        source.carried("spec", "parentQueue", to="spec.parent")
    spec["priority"] = _priority(source)
    if resources := _resources(source, scale):
        spec["resources"] = resources
    if is_leaf:
        # KAI does not check a pod's namespace. The note is on the name, because no field stands for it.
        spec["namespaceSelector"] = {}
        why = "KAI lets every namespace use a queue, and so does this; narrow the selector if it should not"
        source.approximated(
            "metadata", "name", to=f"Queue {name}, namespaceSelector: {{}}", why=why
        )
    if name != source.name:
        spec["aliases"] = [source.name]
    for theirs, ours in RUNTIMES.items():
        seconds = _seconds(source, theirs, ours)
        if seconds is not None:
            spec[ours] = seconds

    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": metadata,
        "spec": spec,
    }


def _priority(source: Source) -> int:
    value = source.at("spec", "priority")
    if type(value) is not int or abs(value) > 10**9:
        return DEFAULT_PRIORITY
    source.carried("spec", "priority", to="spec.priority")
    return value


def _resources(source: Source, scale: int) -> Tree:
    """Quota, limit and weight per resource. KAI reads an absent resource as zero; here it is unlimited."""
    resources: Tree = {}
    for resource, unit in RESOURCES.items():
        path = ("spec", "resources", resource)
        if not mapping(source.at(*path)):
            continue
        quota = _quota(source, path, unit)
        limit = _limit(source, path, unit, quota)
        if limit is not None and limit < quota:
            quota = limit
            why = "KAI never lets the queue use more than its limit, so the quota cannot exceed it"
            source.approximated(
                *path, "quota", to=f"spec.resources.{resource}.quota = {quota}", why=why
            )

        share: Tree = {"quota": queue_shares.shown(quota)}
        if limit is not None:
            share["limit"] = queue_shares.shown(limit)
        share["weight"] = _weight(source, path, scale)
        source.dropped(*path, "lendingLimit", why=queue_shares.ALL_IS_LENT)
        resources[resource] = share
    return resources


def _quota(source: Source, path: field_notes.Path, unit: str) -> quantity.Quantity:
    value = _number(source.at(*path, "quota"))
    if value is None:
        return quantity.ZERO
    to = f"spec.resources.{path[-1]}.quota"
    if value < 0:
        source.carried(*path, "quota", to=f"{to} = {queues.UNLIMITED}: unlimited")
        return queues.UNLIMITED
    source.carried(*path, "quota", to=to)
    return _amount(value, unit)


def _limit(
    source: Source, path: field_notes.Path, unit: str, quota: quantity.Quantity
) -> quantity.Quantity | None:
    value = _number(source.at(*path, "limit"))
    to = f"spec.resources.{path[-1]}.limit"
    if value is not None and value < 0:
        source.carried(*path, "limit", to="no limit")
        return None
    if not value:
        why = "KAI lets the queue use none of it; here it may use its quota"
        source.approximated(*path, "limit", to=f"{to} = {quota}", why=why)
        return quota
    source.carried(*path, "limit", to=to)
    return _amount(value, unit)


def _weight(source: Source, path: field_notes.Path, scale: int) -> int:
    value = _number(source.at(*path, "overQuotaWeight"))
    if value is None or value < 0:
        return 0  # as KAI reads an absent weight: nothing beyond the quota
    weight = min(round(value * scale), queue_shares.MAX_WEIGHT)
    to = f"spec.resources.{path[-1]}.weight = {weight}"
    if scale == 1:
        source.carried(*path, "overQuotaWeight", to=to)
    else:
        why = queue_shares.IN_THOUSANDTHS
        source.approximated(*path, "overQuotaWeight", to=to, why=why)
    return weight


def _weights(source: Source) -> list[quantity.Quantity]:
    weights = []
    for resource in RESOURCES:
        weight = _number(source.at("spec", "resources", resource, "overQuotaWeight"))
        if weight is not None and weight >= 0:
            weights.append(_amount(weight, ""))
    return weights


def _seconds(source: Source, theirs: str, ours: str) -> int | None:
    value = source.at("spec", theirs)
    if value is None:
        return None
    seconds = durations.seconds(str(value))
    if seconds is None:
        source.dropped("spec", theirs, why="not a duration")
    else:
        source.carried("spec", theirs, to=f"spec.{ours} = {seconds}")
    return seconds


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and abs(value) < MOST else None


def _amount(value: float, unit: str) -> quantity.Quantity:
    """The value in a unit, rounded to thousandths of it."""
    thousandths = round(value * 1000)
    factor = {"": 10**6, "m": 10**3, "M": 10**12}[unit]
    return quantity.Quantity(thousandths * factor, exponent=-3 if unit != "M" else 0)


def _advise_workload(source: Source) -> None:
    """A PodGroup becomes no object: it is read while KAI's definition is there. Notes which annotations replace it."""
    source.approximated(
        "metadata",
        "name",
        to="the workload itself",
        why="it is read while KAI's definition is installed; without it, owners and annotations count",
    )
    for path, (word, why) in WISHES.items():
        if source.has("spec", *path):
            advice = why or "not written for you: put it on the workload"
            source.approximated(
                "spec", *path, to=f"{word}: {_annotation_value(source, path)}", why=advice
            )
    for field, why in NO_WISH.items():
        source.dropped("spec", field, why=why)
    for field in ("labels", "annotations", "namespace"):
        source.dropped("metadata", field, why="the workload has its own")


def _annotation_value(source: Source, path: tuple[str, ...]) -> Any:
    """The value as our annotation writes it."""
    value = source.at("spec", *path)
    if path != PREEMPTIBILITY:
        return value
    return {"preemptible": "true", "non-preemptible": "false"}.get(str(value), value)
