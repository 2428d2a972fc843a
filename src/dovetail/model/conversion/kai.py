"""KAI Scheduler's objects into ours: queues and topologies; what a PodGroup says is told as what a workload may say.

Given objects of scheduling.run.ai and kai.scheduler as trees; answers queues and topologies, and what became of each
field. KAI counts cpu in thousandths, memory in millions of bytes, and means no bound by -1. Never reads a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dovetail.model import durations, gangs, quantity, queues, wishes
from dovetail.model.conversion import levels, names, notes, shares
from dovetail.model.conversion.notes import Conversion, Fate, Note, Source, Tree, mapping

QUEUES: Final = ("scheduling.run.ai", "Queue")
GROUPS: Final = ("scheduling.run.ai", "PodGroup")
TOPOLOGIES: Final = ("kai.scheduler", "Topology")
PROJECTS: Final = "kai.resources"  # projects and departments, of which KAI makes queues
NODE_POOL: Final = "kai.scheduler/node-pool"
NOT_CONVERTED: Final = {
    "SchedulingShard": "one scheduler decides for all nodes; what is set here stands in its configuration file",
    "Config": "the operator's; an installation of ours has values of its own",
    "BindRequest": "KAI's own way to its binder",
    "Project": "KAI makes a Queue of it, and that is what is converted",
    "Department": "KAI makes a Queue of it, and that is what is converted",
    "NodePool": "one scheduler decides for all nodes; pools are read off their labels",
}
DEFAULT_PRIORITY: Final = 100  # what KAI takes where a queue says none
RESOURCES: Final = {"gpu": "", "cpu": "m", "memory": "M"}  # in GPUs, thousandths of a core, millions of bytes
DISPLAY_NAME: Final = "dovetail.dev/display-name"
MOST: Final = 10**15  # beyond any cluster
# KAI makes only work of a lower priority yield; no object of its says so, so it has to be said to the scheduler.
PREEMPTIBLE_BELOW: Final = 100
NO_EVICTION: Final = Note(
    object="the scheduler's configuration",
    field="",
    fate=Fate.ADDED,
    to=f"queues.preemptibleBelow: {PREEMPTIBLE_BELOW}",
    why=f"set it: KAI never makes work of priority {PREEMPTIBLE_BELOW} and above yield; here it may, unless told",
)
RUNTIMES: Final = {
    "preemptMinRuntime": "preemptMinRuntimeSeconds",
    "reclaimMinRuntime": "reclaimMinRuntimeSeconds",
}
PREEMPTIBILITY: Final = ("preemptibility",)
# What a PodGroup says, and what a workload says instead, as a label or annotation of it or of its pods.
WISHES: Final = {
    ("minMember",): (wishes.MIN, ""),
    ("minSubGroup",): (wishes.MIN, "groups are counted by their own minimum"),
    ("queue",): (gangs.QUEUE_LABEL, ""),
    ("priorityClassName",): ("spec.priorityClassName of its pods", ""),
    PREEMPTIBILITY: (wishes.PREEMPTIBLE, ""),
    ("topologyConstraint", "topology"): (wishes.TOPOLOGY, ""),
    ("topologyConstraint", "requiredTopologyLevel"): (wishes.TOPOLOGY_REQUIRED, ""),
    ("topologyConstraint", "preferredTopologyLevel"): (wishes.TOPOLOGY_PREFERRED, ""),
    ("preemptionDelay",): (wishes.MAY_EVICT_AFTER, ""),
    ("stalenessGracePeriod",): (wishes.STALE_GRACE, ""),
}
NO_WISH: Final = {
    "markUnschedulable": "pods that wait always say why",
    "schedulingBackoff": "work that waits is asked about whenever something changes",
    "parallelism": "read off the owner",
    "completions": "read off the owner",
    "backoffLimit": "read off the owner",
    "subGroups": f"groups come from the owner, or from the label {gangs.GROUP_LABEL}",
}


def convert(trees: Sequence[Tree]) -> Conversion:
    """Our objects, and what became of theirs."""
    sources, early = notes.sources(trees)
    known = [one for one in sources if (one.group, one.kind) == QUEUES]
    parents = {str(one.at("spec", "parentQueue") or "") for one in known}
    free = names.Names()
    own = {one.name: free.of(one.name, otherwise="queue") for one in known}
    scale = shares.scale_of(weight for one in known for weight in _weights(one))
    made = [_queue(one, own, is_leaf=one.name not in parents, scale=scale) for one in known]
    spare = names.Names()
    made += [levels.topology(one, spare) for one in sources if (one.group, one.kind) == TOPOLOGIES]
    for one in sources:
        if (one.group, one.kind) == GROUPS:
            _pod_group(one)
        elif (one.group, one.kind) not in (QUEUES, TOPOLOGIES):
            is_theirs = one.group in (QUEUES[0], TOPOLOGIES[0], PROJECTS)
            why = NOT_CONVERTED.get(one.kind, "") if is_theirs else ""
            one.dropped(why=why or f"objects of {one.group or 'the core group'}, kind {one.kind}, are not converted")
    told = [note for one in (*early, *sources) for note in one.finished()]
    return Conversion(tuple(made), (*told, *([NO_EVICTION] if known else [])))


def _queue(source: Source, own: dict[str, str], *, is_leaf: bool, scale: int) -> Tree:
    name = own[source.name]
    metadata = notes.metadata_of(source, name, kind="Queue")
    if source.has("metadata", "labels", NODE_POOL):
        why = "one scheduler decides for all nodes: bound the queue by gpu/product.* or give its pods node selectors"
        source.approximated("metadata", "labels", NODE_POOL, to="a label without effect", why=why)
    if isinstance(shown := source.at("spec", "displayName"), str):
        metadata.setdefault("annotations", {})[DISPLAY_NAME] = shown
        source.carried("spec", "displayName", to=f"the annotation {DISPLAY_NAME}")
    spec: Tree = {}
    if parent := str(source.at("spec", "parentQueue") or ""):
        spec["parent"] = own.get(parent, parent)
        source.carried("spec", "parentQueue", to="spec.parent")
    spec["priority"] = _priority(source)
    if found := _resources(source, scale):
        spec["resources"] = found
    if is_leaf:
        # KAI asks nobody where a pod lives. Said as a note on the name, because no field says it.
        spec["namespaceSelector"] = {}
        why = "KAI lets every namespace use a queue, and so does this; narrow it to who should"
        source.approximated("metadata", "name", to=f"Queue {name}, namespaceSelector: {{}}", why=why)
    if name != source.name:
        spec["aliases"] = [source.name]
    for theirs, ours in RUNTIMES.items():
        seconds = _seconds(source, theirs, ours)
        if seconds is not None:
            spec[ours] = seconds
    return {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue", "metadata": metadata, "spec": spec}


def _priority(source: Source) -> int:
    value = source.at("spec", "priority")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 10**9:
        source.carried("spec", "priority", to="spec.priority")
        return value
    return DEFAULT_PRIORITY


def _resources(source: Source, scale: int) -> Tree:
    """What the queue is due. What KAI does not name it takes for nothing at all; here it is free to the queue."""
    made: Tree = {}
    for resource, unit in RESOURCES.items():
        path = ("spec", "resources", resource)
        if not mapping(source.at(*path)):
            continue
        share: Tree = {}
        quota = _quota(source, path, unit)
        limit = _limit(source, path, unit, quota)
        if limit is not None and limit < quota:
            quota = limit
            why = "KAI never lets the queue use more than its limit, so it can be sure of no more"
            source.approximated(*path, "quota", to=f"spec.resources.{resource}.quota = {quota}", why=why)
        share["quota"] = shares.shown(quota)
        if limit is not None:
            share["limit"] = shares.shown(limit)
        share["weight"] = _weight(source, path, scale)
        if source.has(*path, "lendingLimit"):
            source.dropped(
                *path, "lendingLimit", why="quota that is not used is lent, and taken back when it is needed"
            )
        made[resource] = share
    return made


def _quota(source: Source, path: notes.Path, unit: str) -> quantity.Quantity:
    value = _number(source.at(*path, "quota"))
    if value is None:
        return quantity.ZERO
    to = f"spec.resources.{path[-1]}.quota"
    if value < 0:
        source.carried(*path, "quota", to=f"{to} = {queues.UNLIMITED}: without a bound")
        return queues.UNLIMITED
    source.carried(*path, "quota", to=to)
    return _amount(value, unit)


def _limit(source: Source, path: notes.Path, unit: str, quota: quantity.Quantity) -> quantity.Quantity | None:
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


def _weight(source: Source, path: notes.Path, scale: int) -> int:
    value = _number(source.at(*path, "overQuotaWeight"))
    if value is None or value < 0:
        return 0  # as KAI reads an absent weight: nothing beyond the quota
    written = min(round(value * scale), shares.MAX_WEIGHT)
    to = f"spec.resources.{path[-1]}.weight = {written}"
    if scale == 1:
        source.carried(*path, "overQuotaWeight", to=to)
    else:
        why = "weights are whole numbers: all are counted in thousandths"
        source.approximated(*path, "overQuotaWeight", to=to, why=why)
    return written


def _weights(source: Source) -> list[quantity.Quantity]:
    found = [_number(source.at("spec", "resources", one, "overQuotaWeight")) for one in RESOURCES]
    return [_amount(one, "") for one in found if one is not None and one >= 0]


def _seconds(source: Source, theirs: str, ours: str) -> int | None:
    value = source.at("spec", theirs)
    if value is None:
        return None
    seconds = durations.seconds(str(value))
    if seconds is None:
        source.dropped("spec", theirs, why="not a length of time")
    else:
        source.carried("spec", theirs, to=f"spec.{ours} = {seconds}")
    return seconds


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if abs(value) < MOST else None


def _amount(value: float, unit: str) -> quantity.Quantity:
    """So many of a unit, to the thousandth."""
    thousandths = round(value * 1000)
    factor = {"": 10**6, "m": 10**3, "M": 10**12}[unit]
    return quantity.Quantity(thousandths * factor, exponent=-3 if unit != "M" else 0)


def _pod_group(source: Source) -> None:
    """Nothing is made of it: its owner, labels and annotations say it, so each field is told with its word."""
    source.approximated(
        "metadata", "name", to="the workload itself", why="gangs are read off owners, labels and annotations"
    )
    for path, (word, why) in WISHES.items():
        if source.has("spec", *path):
            told = why or "not written for you: put it on the workload"
            source.approximated("spec", *path, to=f"{word}: {_said(source, path)}", why=told)
    for field, why in NO_WISH.items():
        if source.has("spec", field):
            source.dropped("spec", field, why=why)
    for field in ("labels", "annotations", "namespace"):
        if source.has("metadata", field):
            source.dropped("metadata", field, why="the workload has its own")


def _said(source: Source, path: tuple[str, ...]) -> Any:
    """The value as an annotation of ours writes it."""
    value = source.at("spec", *path)
    return (
        {"preemptible": "true", "non-preemptible": "false"}.get(str(value), value) if path == PREEMPTIBILITY else value
    )
