"""Converts Kueue's objects: ClusterQueues and Cohorts become a tree of queues, LocalQueues their aliases.

Given objects of kueue.x-k8s.io (v1beta1, v1beta2) as trees; returns queues, topologies and priority classes, and the
fate of every field. Kueue admits against sums of quota; here the free devices decide too, so fields that only steer
admission have no counterpart. Never reads a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.migrate import field_notes, kueue_quotas, queue_names, queue_shares, topology_levels
from dovetail.migrate.field_notes import Conversion, Fate, Note, Source, Tree
from dovetail.quantity import quantity

GROUP: Final = "kueue.x-k8s.io"
KINDS: Final = (
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
    "ResourceFlavor",
    "WorkloadPriorityClass",
    "Topology",
)
STOPPED: Final = ("Hold", "HoldAndDrain")
MAX_PRIORITY: Final = (
    1_000_000_000  # of a PriorityClass that users may create: scheduling.k8s.io/v1
)
MAX_ALIASES: Final = 256  # of a Queue
RESERVED: Final = "system-"  # prefix of Kubernetes' own PriorityClasses
NO_CHECKS: Final = "no outside check runs before work starts"
NOT_CONVERTED: Final = {
    "AdmissionCheck": NO_CHECKS,
    "ProvisioningRequestConfig": "Dovetail does not request nodes",
    "MultiKueueConfig": "Dovetail schedules one cluster",
    "MultiKueueCluster": "Dovetail schedules one cluster",
    "Workload": "Kueue creates one for each job; Dovetail reads the jobs themselves",
}
# Fields of a ClusterQueue without a counterpart, and why they need none.
WITHOUT_MATCH: Final = {
    "admissionChecks": NO_CHECKS,
    "admissionChecksStrategy": NO_CHECKS,
    "flavorFungibility": "devices are chosen by what they cost others, not flavor by flavor",
    "admissionScope": "past usage counts for all queues alike, as the scheduler is configured",
    "concurrentAdmissionPolicy": "running work moves only where that lets other work start",
    "excludeResourcePrefixes": "a queue has no bound on resources it does not name: leave them out",
}
FLAVOR_WITHOUT_MATCH: Final = {
    "tolerations": "Kueue adds them to pods: write the tolerations into the pods",
    "nodeTaints": "taints are read from the nodes",
    "topologyName": "workloads name their topology (dovetail.dev/topology), or only its level",
    "resourceWeights": "the dominant share weighs all resources alike",
}
PREEMPTION: Final = {  # field -> value -> fate, and the counterpart or the reason
    "reclaimWithinCohort": {
        "Any": (Fate.CARRIED, "always so: quota is reclaimed from queues above their share"),
        "LowerPriority": (
            Fate.APPROXIMATED,
            "quota is reclaimed regardless of the priority of the work that holds it",
        ),
        "Never": (
            Fate.DROPPED,
            "quota that is needed is always reclaimed; reclaimMinRuntimeSeconds delays it",
        ),
    },
    "withinClusterQueue": {
        "LowerPriority": (Fate.CARRIED, "always so within a queue"),
        "LowerOrNewerEqualPriority": (
            Fate.APPROXIMATED,
            "only work of lower priority is preempted, not newer work of equal priority",
        ),
        "Never": (
            Fate.DROPPED,
            "work is preempted by higher priority unless it says dovetail.dev/preemptible: false",
        ),
    },
}


class Group(msgspec.Struct):
    """A queue being assembled from a ClusterQueue, a Cohort, or a cohort that exists only by reference."""

    name: str
    parent: str  # a cohort's name, or empty
    shares: dict[str, queue_shares.Share]
    source: Source | None = None
    selector: Any = None
    aliases: list[str] = []
    own_name: str = ""


def convert(trees: Sequence[Tree]) -> Conversion:
    """Our objects, and the fate of every field of theirs."""
    return _Kueue(*field_notes.sources(trees)).converted()


class _Kueue:
    """One conversion: the sources by kind, and the notes on what was added."""

    def __init__(self, sources: list[Source], duplicates: list[Source]) -> None:
        self._sources = sources
        self._duplicates = duplicates
        self._additions: list[Note] = []
        self._by_kind: dict[str, list[Source]] = defaultdict(list)  # "" for kinds not converted
        for source in sources:
            is_converted = source.group == GROUP and source.kind in KINDS
            self._by_kind[source.kind if is_converted else ""].append(source)

        self._products = kueue_quotas.products_of(self._by_kind["ResourceFlavor"])
        weights = map(_weight, (*self._by_kind["Cohort"], *self._by_kind["ClusterQueue"]))
        self._scale = queue_shares.scale_of(weight for weight in weights if weight is not None)

    def converted(self) -> Conversion:
        """All objects, parents before children."""
        objects = self._queues()

        topology_names = queue_names.Names()
        for source in self._by_kind["Topology"]:
            objects.append(topology_levels.topology(source, topology_names))
        objects += map(_priority_class, self._by_kind["WorkloadPriorityClass"])

        for source in self._by_kind["ResourceFlavor"]:
            _flavor(source)
        for source in self._by_kind[""]:
            field_notes.drop_whole(source, NOT_CONVERTED, groups=(GROUP,))

        sources = (*self._duplicates, *self._sources)
        notes = [note for source in sources for note in source.notes()]
        return Conversion(tuple(objects), (*notes, *self._additions))

    def _queues(self) -> list[Tree]:
        cluster_queues = self._by_kind["ClusterQueue"]
        queues = {source.name: self._cluster_queue(source) for source in cluster_queues}
        cohorts = self._cohorts(queues)

        # In this order: cohorts sum up the products that were closed, and drop what a member lacks only then.
        self._close_unlisted_products(queues)
        _add_up(cohorts, queues)
        self._drop_partial_resources(cohorts, queues)
        for source in self._by_kind["LocalQueue"]:
            _local_queue(source, queues)

        # Queues first, so that they keep the names that their users know.
        names = queue_names.Names()
        for group in queues.values():
            group.own_name = names.of(group.name, otherwise="queue")
        for group in cohorts.values():
            group.own_name = names.of(group.name, otherwise="cohort")

        ordered = (*_parents_first(cohorts), *queues.values())
        return [self._queue(group, cohorts) for group in ordered]

    def _cluster_queue(self, source: Source) -> Group:
        cohort = _parent(source, "cohortName", "cohort")
        quotas = kueue_quotas.Quotas(source, self._products, may_borrow=bool(cohort))
        group = Group(source.name, cohort, quotas.shares(), source)

        self._note_weight(source)
        _selector(source, group)
        _strategy(source)
        _preemption(source)
        for field, why in WITHOUT_MATCH.items():
            source.dropped("spec", field, why=why)
        return group

    def _cohorts(self, queues: Mapping[str, Group]) -> dict[str, Group]:
        """Cohorts by name, including those that exist only by reference."""
        cohorts: dict[str, Group] = {}
        for source in self._by_kind["Cohort"]:
            parent = _parent(source, "parentName", "parent")
            quotas = kueue_quotas.Quotas(source, self._products, may_borrow=True)
            cohorts[source.name] = Group(source.name, parent, quotas.shares(), source)
            self._note_weight(source)

        references = [(queue.parent, f"ClusterQueue {queue.name}") for queue in queues.values()]
        references += [(cohort.parent, f"Cohort {cohort.name}") for cohort in cohorts.values()]
        for name, member in references:
            if name and name not in cohorts:
                cohorts[name] = Group(name, "", {})
                why = f"{member} names it and no Cohort describes it: its quota is the sum of its members' quotas"
                self._note_addition(f"Cohort {name}", f"Queue {name}", why)
        return cohorts

    def _close_unlisted_products(self, queues: Mapping[str, Group]) -> None:
        """Sets a limit of 0 on every GPU product whose flavor a ClusterQueue does not list.

        Kueue allows the listed flavors only; a queue of ours has no bound on resources it does not name.
        """
        products_by_queue = {name: _products(group) for name, group in queues.items()}
        all_products = frozenset().union(*products_by_queue.values())
        for name, products in products_by_queue.items():
            if not products:
                continue  # its quota covers all products
            for product in sorted(all_products - products):
                queues[name].shares[product] = queue_shares.Share(limit=quantity.ZERO)
                self._note_addition(
                    f"ClusterQueue {name}", f"{product}: limit 0", "it does not list that flavor"
                )

    def _drop_partial_resources(
        self, cohorts: Mapping[str, Group], queues: Mapping[str, Group]
    ) -> None:
        """Drops from each cohort the resources that some member does not count.

        That member's usage would count against the members that do. Children first: what a cohort drops, its parent
        has to drop too.
        """
        groups = (*queues.values(), *cohorts.values())
        for cohort in reversed(_parents_first(cohorts)):
            members = [group for group in groups if group.parent == cohort.name]
            common = set(cohort.shares).intersection(*(member.shares for member in members))
            for name in sorted(cohort.shares.keys() - common):
                del cohort.shares[name]
                why = "not all its members have a quota of it, so they have no common bound"
                self._note_addition(f"Cohort {cohort.name}", f"no {name}", why)

    def _note_addition(self, subject: str, to: str, why: str) -> None:
        self._additions.append(Note(object=subject, field="", fate=Fate.ADDED, to=to, why=why))

    def _note_weight(self, source: Source) -> None:
        path = ("spec", "fairSharing", "weight")
        weight = _weight(source)
        if weight is None:
            if source.has(*path):
                source.dropped(*path, why="not a quantity, or below zero")
            return
        to = f"spec.resources.*.weight = {queue_shares.weight_of(weight, self._scale)}"
        if self._scale == 1:
            source.carried(*path, to=to)
        else:
            source.approximated(*path, to=to, why=queue_shares.IN_THOUSANDTHS)

    def _queue(self, group: Group, cohorts: Mapping[str, Group]) -> Tree:
        metadata: Tree = {"name": group.own_name}
        source_weight = None
        if group.source is not None:
            metadata = field_notes.metadata_of(group.source, group.own_name, kind="Queue")
            source_weight = _weight(group.source)
        weight = queue_shares.weight_of(source_weight, self._scale)

        spec: Tree = {}
        if group.parent:
            spec["parent"] = cohorts[group.parent].own_name
        if group.shares:
            spec["resources"] = {
                name: share.tree(weight) for name, share in sorted(group.shares.items())
            }
        if group.selector is not None:
            spec["namespaceSelector"] = group.selector
        if group.aliases:
            spec["aliases"] = group.aliases

        return {
            "apiVersion": "dovetail.dev/v1alpha1",
            "kind": "Queue",
            "metadata": metadata,
            "spec": spec,
        }


def _add_up(cohorts: Mapping[str, Group], queues: Mapping[str, Group]) -> None:
    """Adds the members' quotas to all cohorts above them; the sum is the limit of a top-level cohort."""
    # The own quotas are read before any is added: a cohort's sum must not be added to its parents again.
    own_quotas = [
        (group.parent, name, share.quota)
        for group in (*queues.values(), *cohorts.values())
        for name, share in group.shares.items()
    ]
    for parent, name, amount in own_quotas:
        for ancestor in _lineage(parent, cohorts):
            ancestor.shares.setdefault(name, queue_shares.Share()).add(amount)

    roots = [cohort for cohort in cohorts.values() if not cohort.parent]
    for root in roots:
        for share in root.shares.values():
            share.limit = share.quota


def _products(group: Group) -> frozenset[str]:
    """The GPU products that a queue has shares of."""
    return frozenset(name for name in group.shares if name.startswith(kueue_quotas.PRODUCT))


def _parent(source: Source, field: str, older_field: str) -> str:
    """The parent cohort; v1beta1 has it in another field."""
    if not source.has("spec", field):
        field = older_field
    parent = source.text("spec", field)
    if parent:
        source.carried("spec", field, to="spec.parent")
    return parent


def _lineage(name: str, cohorts: Mapping[str, Group]) -> Iterator[Group]:
    """A cohort and its ancestors; a cycle is walked once."""
    visited: set[str] = set()
    while name in cohorts and name not in visited:
        visited.add(name)
        yield cohorts[name]
        name = cohorts[name].parent


def _parents_first(cohorts: Mapping[str, Group]) -> list[Group]:
    depth = {name: sum(1 for _ in _lineage(name, cohorts)) for name in cohorts}
    return sorted(cohorts.values(), key=lambda cohort: (depth[cohort.name], cohort.name))


def _weight(source: Source) -> quantity.Quantity | None:
    return queue_shares.read(source.at("spec", "fairSharing", "weight"))


def _selector(source: Source, group: Group) -> None:
    """Which namespaces may use the queue: none if it is stopped, because a queue has no switch."""
    stop = source.at("spec", "stopPolicy")
    if stop in STOPPED:
        why = "the queue is stopped: no namespace may use a queue without a selector; add it to open the queue"
        source.approximated("spec", "namespaceSelector", to="left out", why=why)
        why = "a queue has no stop switch"
        if stop == "HoldAndDrain":
            why = "running work is not evicted"
        source.approximated("spec", "stopPolicy", to="no namespaceSelector", why=why)
        return

    if source.has("spec", "namespaceSelector"):
        group.selector = source.at("spec", "namespaceSelector")
        source.carried("spec", "namespaceSelector", to="spec.namespaceSelector")
    source.carried("spec", "stopPolicy", to="not needed: queues take work")


def _strategy(source: Source) -> None:
    match source.at("spec", "queueingStrategy"):
        case None:
            return
        case "BestEffortFIFO":
            source.carried("spec", "queueingStrategy", to="always so: work that fits starts")
        case _:
            why = "work that fits may start ahead of older work that does not; reservations prevent starvation"
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
        why = "work beyond its quota reclaims only up to its fair share"
        source.dropped("spec", "preemption", "borrowWithinCohort", why=why)


def _local_queue(source: Source, queues: Mapping[str, Group]) -> None:
    group = queues.get(source.text("spec", "clusterQueue"))
    if group is None:
        source.dropped(why="its ClusterQueue is not among the objects given")
        return

    if source.at("spec", "stopPolicy") in STOPPED:
        why = "work that names it waits until the alias is added"
        source.approximated("spec", "stopPolicy", to="no alias", why=why)
        to = "left out: it is stopped"
    else:
        source.carried("spec", "stopPolicy", to="not needed: aliases take work")
        if len(group.aliases) >= MAX_ALIASES:
            why = f"a queue has {MAX_ALIASES} aliases at most: label its namespace dovetail.dev/queue instead"
            source.dropped(why=why)
            return
        alias = f"{source.namespace or 'default'}/{source.name}"
        group.aliases.append(alias)
        to = f"Queue of {group.name}: spec.aliases has {alias}"

    for path in (("metadata", "name"), ("metadata", "namespace"), ("spec", "clusterQueue")):
        source.carried(*path, to=to)
    source.dropped("spec", "fairSharing", why="an alias has no share; make it a queue instead")
    source.dropped("spec", "wallTimePolicy", why="time used up does not close a queue")
    source.dropped("metadata", "labels", why="an alias has none")
    source.dropped("metadata", "annotations", why="an alias has none")


def _flavor(source: Source) -> None:
    """A flavor becomes no object; the selectors and tolerations it adds belong in the pods."""
    no_object = "a flavor becomes no object"
    source.approximated("metadata", "name", to="part of the queues' sums", why=no_object)

    why = "Kueue adds it to pods as node selector: write the selectors into the pods"
    for label in field_notes.mapping(source.at("spec", "nodeLabels")):
        path = ("spec", "nodeLabels", label)
        if label == kueue_quotas.PRODUCT_LABEL:
            source.approximated(*path, to="gpu/product.* of the queues with the flavor", why=why)
        else:
            source.dropped(*path, why=why)

    for field, why in FLAVOR_WITHOUT_MATCH.items():
        source.dropped("spec", field, why=why)
    source.dropped("metadata", "labels", why=no_object)
    source.dropped("metadata", "annotations", why=no_object)


def _priority_class(source: Source) -> Tree:
    """A PriorityClass of the same name, because the priority of the pods is what counts here."""
    priority_class: Tree = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    name = source.name.removeprefix(RESERVED)
    why = f"Kubernetes keeps names that begin with {RESERVED} for itself"
    priority_class["metadata"] = field_notes.metadata_of(
        source, name, kind="PriorityClass", renamed=why
    )
    value = source.at("value")
    priority_class["value"] = min(value, MAX_PRIORITY) if isinstance(value, int) else 0
    why = "pods name it in priorityClassName; the label kueue.x-k8s.io/priority-class is not read"
    if isinstance(value, int):
        source.approximated(
            "value", to=f"PriorityClass {name}: value = {priority_class['value']}", why=why
        )
    if source.has("description"):
        priority_class["description"] = str(source.at("description"))
        source.carried("description", to=f"PriorityClass {name}: description")
    return priority_class
