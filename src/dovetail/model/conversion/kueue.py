"""Kueue's objects into ours: ClusterQueues and Cohorts become a tree of queues, LocalQueues their aliases.

Given objects of kueue.x-k8s.io (v1beta1, v1beta2) as trees; answers queues, topologies and priority classes, and what
became of each field. Kueue admits against sums of quota; here the devices decide too, so what only steers admission has
no match. Never reads a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.model import quantity
from dovetail.model.conversion import kueue_quotas, levels, names, notes, shares
from dovetail.model.conversion.notes import Conversion, Fate, Note, Source, Tree

GROUP: Final = "kueue.x-k8s.io"
KINDS: Final = ("Cohort", "ClusterQueue", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass", "Topology")
STOPPED: Final = ("Hold", "HoldAndDrain")
MAX_PRIORITY: Final = 1_000_000_000  # of a PriorityClass that users may make: scheduling.k8s.io/v1
MAX_ALIASES: Final = 256  # of a Queue
RESERVED: Final = "system-"  # Kubernetes keeps names of PriorityClasses that begin so for itself
NO_CHECKS: Final = "nothing outside is asked before work starts"
NOT_CONVERTED: Final = {
    "AdmissionCheck": NO_CHECKS,
    "ProvisioningRequestConfig": "nodes are not asked for here",
    "MultiKueueConfig": "one cluster is scheduled",
    "MultiKueueCluster": "one cluster is scheduled",
    "Workload": "Kueue makes one for each job; the jobs themselves are read here",
}
# What ClusterQueues have that queues do not, and why nothing stands in for it.
WITHOUT_MATCH: Final = {
    "admissionChecks": NO_CHECKS,
    "admissionChecksStrategy": NO_CHECKS,
    "flavorFungibility": "devices are chosen by what they cost others, not flavor by flavor",
    "admissionScope": "past use counts for all queues alike, as the scheduler is configured",
    "concurrentAdmissionPolicy": "running work moves only where that lets other work start",
    "excludeResourcePrefixes": "what a queue does not name is free to it: leave it out of its resources",
}
PREEMPTION: Final = {  # field -> value -> fate, and what stands for it or why nothing does
    "reclaimWithinCohort": {
        "Any": (Fate.CARRIED, "always so: quota is taken back from whoever is above its share"),
        "LowerPriority": (Fate.APPROXIMATED, "quota is taken back whatever the priority of the work that holds it"),
        "Never": (Fate.DROPPED, "quota that is needed is always taken back; reclaimMinRuntimeSeconds delays it"),
    },
    "withinClusterQueue": {
        "LowerPriority": (Fate.CARRIED, "always so within a queue"),
        "LowerOrNewerEqualPriority": (Fate.APPROXIMATED, "only work of lower priority yields, not newer work of equal"),
        "Never": (Fate.DROPPED, "work yields to higher priority unless it says dovetail.dev/preemptible: false"),
    },
}


class Group(msgspec.Struct):
    """A queue in the making: of a ClusterQueue, of a Cohort, or of a cohort that only others name."""

    name: str
    parent: str  # a cohort's name, or none
    shares: dict[str, shares.Share]
    source: Source | None = None
    selector: Any = None
    aliases: list[str] = []
    own_name: str = ""


def convert(trees: Sequence[Tree]) -> Conversion:
    """Our objects, and what became of theirs."""
    return _Kueue(*notes.sources(trees)).converted()


class _Kueue:
    def __init__(self, sources: list[Source], early: list[Source]) -> None:
        self._sources = sources
        self._early = early
        self._made: list[Note] = []
        by_kind: dict[str, list[Source]] = defaultdict(list)
        for one in sources:
            by_kind[one.kind if one.group == GROUP and one.kind in KINDS else ""].append(one)
        self._by_kind = by_kind
        self._products = kueue_quotas.products_of(by_kind["ResourceFlavor"])
        weighed = (*by_kind["Cohort"], *by_kind["ClusterQueue"])
        self._scale = shares.scale_of(weight for one in weighed if (weight := _weight(one)) is not None)

    def converted(self) -> Conversion:
        """Everything, parents before children."""
        queues = {one.name: self._cluster_queue(one) for one in self._by_kind["ClusterQueue"]}
        cohorts = self._cohorts(queues)
        self._shut_others(queues)
        _add_up(cohorts, queues)
        self._leave_out(cohorts, queues)
        for one in self._by_kind["LocalQueue"]:
            _local_queue(one, queues)
        free = names.Names()
        for group in queues.values():  # first, so that they keep their names: people know them by these
            group.own_name = free.of(group.name, otherwise="queue")
        for group in cohorts.values():
            group.own_name = free.of(group.name, otherwise="cohort")
        made = [self._queue(one, cohorts) for one in (*_parents_first(cohorts), *queues.values())]
        spare = names.Names()
        made += [levels.topology(one, spare) for one in self._by_kind["Topology"]]
        made += [_priority_class(one) for one in self._by_kind["WorkloadPriorityClass"]]
        for one in self._by_kind["ResourceFlavor"]:
            _flavor(one)
        for one in self._by_kind[""]:
            why = NOT_CONVERTED.get(one.kind, "") if one.group == GROUP else ""
            one.dropped(why=why or f"objects of {one.group or 'the core group'}, kind {one.kind}, are not converted")
        told = [note for one in (*self._early, *self._sources) for note in one.finished()]
        return Conversion(tuple(made), (*told, *self._made))

    def _cluster_queue(self, source: Source) -> Group:
        field = "cohortName" if source.has("spec", "cohortName") else "cohort"
        cohort = str(source.at("spec", field) or "")
        if cohort:
            source.carried("spec", field, to="spec.parent")
        quotas = kueue_quotas.Quotas(source, self._products, may_borrow=bool(cohort))
        group = Group(source.name, cohort, quotas.shares(), source)
        self._tell_weight(source)
        _selector(source, group)
        _strategy(source)
        _preemption(source)
        for field, why in WITHOUT_MATCH.items():
            if source.has("spec", field):
                source.dropped("spec", field, why=why)
        return group

    def _cohorts(self, queues: Mapping[str, Group]) -> dict[str, Group]:
        """Cohorts by name, also those that others only name."""
        found: dict[str, Group] = {}
        for source in self._by_kind["Cohort"]:
            field = "parentName" if source.has("spec", "parentName") else "parent"
            parent = str(source.at("spec", field) or "")
            if parent:
                source.carried("spec", field, to="spec.parent")
            quotas = kueue_quotas.Quotas(source, self._products, may_borrow=True)
            found[source.name] = Group(source.name, parent, quotas.shares(), source)
            self._tell_weight(source)
        named = [(one.parent, f"ClusterQueue {one.name}") for one in queues.values()]
        for name, by in (*named, *[(one.parent, f"Cohort {one.name}") for one in found.values()]):
            if name and name not in found:
                found[name] = Group(name, "", {})
                why = f"{by} names it and no Cohort describes it: its members share what they are due together"
                self._note(f"Cohort {name}", f"Queue {name}", why)
        return found

    def _shut_others(self, queues: Mapping[str, Group]) -> None:
        """A ClusterQueue uses the flavors it lists and no others; here what is not named would be free to it."""
        known = {name for one in queues.values() for name in one.shares if name.startswith(kueue_quotas.PRODUCT)}
        for group in queues.values():
            if any(name.startswith(kueue_quotas.PRODUCT) for name in group.shares):
                for name in sorted(known - group.shares.keys()):
                    group.shares[name] = shares.Share(limit=quantity.ZERO)
                    self._note(f"ClusterQueue {group.name}", f"{name}: limit 0", "it does not list that flavor")

    def _leave_out(self, cohorts: Mapping[str, Group], queues: Mapping[str, Group]) -> None:
        """A cohort counts only what all its members count: the use of others would be held against those that do."""
        for cohort in reversed(_parents_first(cohorts)):
            members = [one for one in (*queues.values(), *cohorts.values()) if one.parent == cohort.name]
            for name in sorted(name for name in cohort.shares if any(name not in one.shares for one in members)):
                del cohort.shares[name]
                why = "not all its members have a quota of it, so it is not bounded for them together"
                self._note(f"Cohort {cohort.name}", f"no {name}", why)

    def _note(self, subject: str, to: str, why: str) -> None:
        self._made.append(Note(object=subject, field="", fate=Fate.ADDED, to=to, why=why))

    def _tell_weight(self, source: Source) -> None:
        path = ("spec", "fairSharing", "weight")
        weight = _weight(source)
        if weight is None:
            if source.has(*path):
                source.dropped(*path, why="not a quantity, or below zero")
            return
        to = f"spec.resources.*.weight = {shares.weight_of(weight, self._scale)}"
        if self._scale == 1:
            source.carried(*path, to=to)
        else:
            source.approximated(*path, to=to, why="weights are whole numbers: all are counted in thousandths")

    def _queue(self, group: Group, cohorts: Mapping[str, Group]) -> Tree:
        weight = shares.weight_of(_weight(group.source) if group.source is not None else None, self._scale)
        metadata: Tree = {"name": group.own_name}
        if group.source is not None:
            metadata = notes.metadata_of(group.source, group.own_name, kind="Queue")
        spec: Tree = {}
        if group.parent:
            spec["parent"] = cohorts[group.parent].own_name
        if group.shares:
            spec["resources"] = {name: one.tree(weight) for name, one in sorted(group.shares.items())}
        if group.selector is not None:
            spec["namespaceSelector"] = group.selector
        if group.aliases:
            spec["aliases"] = group.aliases
        return {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue", "metadata": metadata, "spec": spec}


def _add_up(cohorts: Mapping[str, Group], queues: Mapping[str, Group]) -> None:
    """Adds what members are due to all cohorts above them; a cohort at the top has no more than that."""
    due = [
        (group.parent, {name: one.quota for name, one in group.shares.items()})
        for group in (*queues.values(), *cohorts.values())
    ]
    for parent, amounts in due:
        for above in _lineage(parent, cohorts):
            for name, amount in amounts.items():
                above.shares.setdefault(name, shares.Share()).add(amount)
    for group in cohorts.values():
        if not group.parent:
            for share in group.shares.values():
                share.limit = share.quota


def _lineage(name: str, cohorts: Mapping[str, Group]) -> Iterator[Group]:
    """A cohort and all above it; a circle is walked once."""
    seen: set[str] = set()
    while name in cohorts and name not in seen:
        seen.add(name)
        yield cohorts[name]
        name = cohorts[name].parent


def _parents_first(cohorts: Mapping[str, Group]) -> list[Group]:
    depth = {name: sum(1 for _ in _lineage(name, cohorts)) for name in cohorts}
    return sorted(cohorts.values(), key=lambda one: (depth[one.name], one.name))


def _weight(source: Source) -> quantity.Quantity | None:
    return shares.read(source.at("spec", "fairSharing", "weight"))


def _selector(source: Source, group: Group) -> None:
    stop = source.at("spec", "stopPolicy")
    is_stopped = stop in STOPPED
    if source.has("spec", "namespaceSelector"):
        if is_stopped:
            why = "the queue is stopped, and without a selector nobody may use one; put it back to open it"
            source.approximated("spec", "namespaceSelector", to="left out", why=why)
        else:
            group.selector = source.at("spec", "namespaceSelector")
            source.carried("spec", "namespaceSelector", to="spec.namespaceSelector")
    if is_stopped:
        why = "work that runs is not ended" if stop == "HoldAndDrain" else "a queue has no switch of its own"
        source.approximated("spec", "stopPolicy", to="no namespaceSelector", why=why)
    elif stop is not None:
        source.carried("spec", "stopPolicy", to="nothing to say: queues take work")


def _strategy(source: Source) -> None:
    match source.at("spec", "queueingStrategy"):
        case None:
            return
        case "BestEffortFIFO":
            source.carried("spec", "queueingStrategy", to="always so: what fits starts")
        case _:
            why = "what fits may start ahead of older work that does not; reservations keep that from starving"
            source.approximated("spec", "queueingStrategy", to="the order of all queues", why=why)


def _preemption(source: Source) -> None:
    for field, meanings in PREEMPTION.items():
        value = source.at("spec", "preemption", field)
        if not isinstance(value, str) or value not in meanings:
            continue
        fate, text = meanings[value]
        path = ("spec", "preemption", field)
        if fate is Fate.CARRIED:
            source.carried(*path, to=text)
        elif fate is Fate.APPROXIMATED:
            source.approximated(*path, to="the rules of all queues", why=text)
        else:
            source.dropped(*path, why=text)
    if source.has("spec", "preemption", "borrowWithinCohort"):
        why = "work beyond its quota makes others yield only up to its fair share"
        source.dropped("spec", "preemption", "borrowWithinCohort", why=why)


def _local_queue(source: Source, queues: Mapping[str, Group]) -> None:
    group = queues.get(str(source.at("spec", "clusterQueue") or ""))
    if group is None:
        source.dropped(why="its ClusterQueue is not among the objects given")
        return
    alias = f"{source.namespace or 'default'}/{source.name}"
    is_stopped = source.at("spec", "stopPolicy") in STOPPED
    if is_stopped:
        why = "work that names it waits until the alias is added"
        source.approximated("spec", "stopPolicy", to="no alias", why=why)
    elif source.has("spec", "stopPolicy"):
        source.carried("spec", "stopPolicy", to="nothing to say: aliases take work")
    if not is_stopped and len(group.aliases) >= MAX_ALIASES:
        source.dropped(why=f"a queue has {MAX_ALIASES} aliases at most: label its namespace dovetail.dev/queue instead")
        return
    if not is_stopped:
        group.aliases.append(alias)
    to = "left out: it is stopped" if is_stopped else f"Queue of {group.name}: spec.aliases has {alias}"
    for path in (("metadata", "name"), ("metadata", "namespace"), ("spec", "clusterQueue")):
        if source.has(*path):
            source.carried(*path, to=to)
    for field, why in (
        ("fairSharing", "an alias has no share of its own; make a queue of it"),
        ("wallTimePolicy", "hours used up do not close a queue"),
    ):
        if source.has("spec", field):
            source.dropped("spec", field, why=why)
    for field in ("labels", "annotations"):
        if source.has("metadata", field):
            source.dropped("metadata", field, why="an alias has none")


def _flavor(source: Source) -> None:
    """Flavors are no objects here; what they do to pods has to stand in the pods."""
    source.approximated("metadata", "name", to="part of the queues' sums", why="flavors are no objects of their own")
    for label in notes.mapping(source.at("spec", "nodeLabels")):
        why = "Kueue adds it to pods as node selector: give pods the selectors they need themselves"
        if label == kueue_quotas.PRODUCT_LABEL:
            source.approximated("spec", "nodeLabels", label, to="gpu/product.* of the queues with the flavor", why=why)
        else:
            source.dropped("spec", "nodeLabels", label, why=why)
    for field, why in (
        ("tolerations", "Kueue adds them to pods; give pods what they need themselves"),
        ("nodeTaints", "taints of nodes are read off the nodes"),
        ("topologyName", "workloads name their topology (dovetail.dev/topology), or only its level"),
        ("resourceWeights", "the dominant share weighs all resources alike"),
    ):
        if source.has("spec", field):
            source.dropped("spec", field, why=why)
    for field in ("labels", "annotations"):
        if source.has("metadata", field):
            source.dropped("metadata", field, why="flavors are no objects of their own")


def _priority_class(source: Source) -> Tree:
    """A PriorityClass of the same name: here the priority of pods counts."""
    made: Tree = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    name = source.name.removeprefix(RESERVED)
    why = f"Kubernetes keeps names that begin with {RESERVED} for itself"
    made["metadata"] = notes.metadata_of(source, name, kind="PriorityClass", renamed=why)
    value = source.at("value")
    made["value"] = min(value, MAX_PRIORITY) if isinstance(value, int) else 0
    why = "pods name it in priorityClassName; the label kueue.x-k8s.io/priority-class is not read"
    if isinstance(value, int):
        source.approximated("value", to=f"PriorityClass {name}: value = {made['value']}", why=why)
    if source.has("description"):
        made["description"] = str(source.at("description"))
        source.carried("description", to=f"PriorityClass {name}: description")
    return made
