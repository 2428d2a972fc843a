"""Proposes changes of queues: another queue for the workload, a larger limit or quota for its own, preemptible work.

Given a case. Numbers are those that the engine decided with. Never tries a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dovetail.answer.replica import patches
from dovetail.answer.why.fixes import edits, nearest, workload_keys
from dovetail.answer.why.fixes.proposals import (
    Candidate,
    Case,
    Intent,
    Ladder,
    ObjectChange,
    single,
)
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.answer.why.why_answer import Who
from dovetail.kubetypes.custom import queues
from dovetail.model import pod_requests, workload_annotations
from dovetail.model.queue import queue_access
from dovetail.model.reasons import ReasonCode
from dovetail.quantity import quantity
from dovetail.schedule.queue import amounts, queue_numbers
from dovetail.schedule.queue.pricing import Pricing
from dovetail.world import events

MOST_QUEUES: Final = 6
MOST_STEPS: Final = 1024  # amounts between what a queue has and what is wanted of it
_GIB: Final = 2**30
_QUEUE_CODES: Final = (
    ReasonCode.QUEUE_LIMIT,
    ReasonCode.QUEUE_QUOTA,
    ReasonCode.QUEUE_SHARE,
    ReasonCode.QUEUE_BEHIND,
    ReasonCode.QUEUE_UNUSABLE,
)
_BY_QUOTA: Final = (ReasonCode.QUEUE_QUOTA, ReasonCode.QUEUE_SHARE, ReasonCode.QUEUE_BEHIND)
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"  # the server labels every namespace so
_KEYS: Final = (
    workload_annotations.QUEUE,
    workload_annotations.KUEUE_QUEUE,
    workload_annotations.KAI_QUEUE,
)


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about queues."""
    if not case.has(*_QUEUE_CODES):
        return
    if case.has(ReasonCode.QUEUE_QUOTA):
        yield _preemptible(case)
    yield from _other_queues(case)
    if case.has(ReasonCode.QUEUE_UNUSABLE):
        yield from _admitted(case)
    for queue in _own_queues(case):
        if case.has(ReasonCode.QUEUE_LIMIT):
            yield from _raised(case, queue, "limit")
        if case.has(*_BY_QUOTA):
            yield from _raised(case, queue, "quota")


def _preemptible(case: Case) -> Ladder:
    """Work that may be evicted is not bound to the quota; a pod that nothing makes again has to accept its end."""
    allow = workload_keys.changed(case, workload_annotations.PREEMPTIBLE, "true")
    end = workload_keys.changed(case, workload_annotations.WHEN_EVICTED, "end")
    allows = f"{workload_annotations.PREEMPTIBLE}: true"
    ends = f"{workload_annotations.WHEN_EVICTED}: end"
    choices = ((allows, allow), (ends, end), (f"{allows}, {ends}", (*allow, *end)))
    rungs = [
        Candidate(f"allow its eviction ({text})", change, Intent.ALLOWED)
        for text, change in choices
    ]
    return Ladder(("preemptible",), tuple(rungs))


def _own_queues(case: Case) -> list[queues.Queue]:
    """The queue of the workload and those above it."""
    by_name = case.replica.world.queues
    lineage: list[queues.Queue] = []
    name = _queue_name(case)
    while name in by_name and len(lineage) < len(by_name):
        lineage.append(by_name[name])
        name = by_name[name].spec.parent
    return lineage


def _queue_name(case: Case) -> str:
    """The queue that the engine charges the workload to, or the one that it names in vain.

    A workload may use an alias, or name none: then its namespace decides.
    """
    world = case.replica.world
    labels, named = _queue_labels(case)
    access = queue_access.QueueAccess(world.queues, world.namespaces)
    resolved = access.resolve(labels, case.pod.metadata.namespace, named=named)
    return resolved.queue or resolved.requested_queue or _written(case)


def _queue_labels(case: Case) -> tuple[Mapping[str, str], str]:
    """The labels that choose the queue, and the queue that the owner of a gang names."""
    gang = case.replica.world.gangs.of(events.pod_id(case.pod))
    if gang is None:
        return case.pod.metadata.labels, ""
    definition = case.replica.world.gangs.definition(gang.gang)
    return definition.labels, definition.queue


def _written(case: Case) -> str:
    gang = case.replica.world.gangs.of(events.pod_id(case.pod))
    if gang is not None:
        definition = case.replica.world.gangs.definition(gang.gang)
        labels = list(definition.labels.values())
        if definition.queue or labels:
            return definition.queue or labels[0]
    values = [workload_keys.value_of(case, key) for key in _KEYS]
    return next((value for value in values if value), "")


# Another queue


def _other_queues(case: Case) -> Iterator[Ladder]:
    by_name = case.replica.world.queues
    written, own = _written(case), _queue_name(case)
    parents = {queue.spec.parent for queue in by_name.values()}
    leaves = [name for name in sorted(by_name) if name not in parents and name != own]
    near = nearest.names(written, leaves) if own not in by_name else []
    ordered = [*near, *(name for name in leaves if name not in near)]
    key = next(
        (key for key in _KEYS if workload_keys.value_of(case, key)), workload_annotations.QUEUE
    )
    rungs = [
        Candidate(
            f"queue {written or 'none'} -> {name}",
            workload_keys.changed(case, key, name, section=workload_keys.LABELS),
            Intent.CORRECTED if name in near else Intent.REPLACED,
        )
        for name in ordered[:MOST_QUEUES]
    ]
    yield Ladder(("queue",), tuple(rungs))


def _admitted(case: Case) -> Iterator[Ladder]:
    """The queue is opened to the namespace, or the namespace gets the labels that the queue asks for."""
    queue = case.replica.world.queues.get(_queue_name(case))
    namespace = case.replica.world.namespaces.get(case.pod.metadata.namespace)
    if queue is None or namespace is None:
        return
    name, own = namespace.metadata.name, queue.metadata.name
    selector = queue.spec.namespace_selector
    if selector is None:
        opened = {"matchLabels": {_NAMESPACE_NAME: name}}
        edit = edits.setting(("spec", "namespaceSelector"), opened)
        change = ObjectChange(patches.ref_of(queue), edit)
        title, who = f"queue {own}: admit namespace {name}", Who.QUEUE_ADMIN
    else:
        missing = {
            key: value
            for key, value in sorted(selector.match_labels.items())
            if namespace.metadata.labels.get(key) != value
        }
        if _NAMESPACE_NAME in missing:
            yield from _admitted_by_name(queue, name, [*missing])
            return
        labels = [edits.setting(("metadata", "labels", key), missing[key]) for key in missing]
        change = ObjectChange(patches.ref_of(namespace), edits.in_turn(*labels))
        written = ", ".join(f"{key}={value}" for key, value in missing.items())
        title, who = f"label namespace {name} {written}, for queue {own}", Who.CLUSTER_ADMIN
    yield single(("admitted", own), Candidate(title, (change,), Intent.ALLOWED, who))


def _admitted_by_name(queue: queues.Queue, name: str, missing: list[str]) -> Iterator[Ladder]:
    """The server owns the label with a namespace's name: the queue has to accept another value of it."""
    selector = queue.spec.namespace_selector
    if selector is None or missing != [_NAMESPACE_NAME]:
        return
    expression = {
        "key": _NAMESPACE_NAME,
        "operator": "In",
        "values": [selector.match_labels[_NAMESPACE_NAME], name],
    }

    def opened(tree: Tree) -> Tree:
        spec = dict(tree["spec"])
        written = dict(spec["namespaceSelector"])
        labels = {key: value for key, value in written["matchLabels"].items() if key not in missing}
        written["matchLabels"] = labels
        written["matchExpressions"] = [*written.get("matchExpressions", ()), expression]
        return tree | {"spec": spec | {"namespaceSelector": written}}

    own = queue.metadata.name
    change = ObjectChange(patches.ref_of(queue), opened)
    title = f"queue {own}: admit namespace {name}, too"
    yield single(("admitted", own), Candidate(title, (change,), Intent.ALLOWED, Who.QUEUE_ADMIN))


# More for the queue


def _raised(case: Case, queue: queues.Queue, field: str) -> Iterator[Ladder]:
    name = queue.metadata.name
    numbers = case.queues.get(name)
    if numbers is None:
        return
    needs = _needs(case, queue)
    for resource, share in sorted(queue.spec.resources.items()):
        current = share.limit if field == "limit" else share.quota
        if current is None and field == "limit":
            continue
        status = numbers.resources.get(resource) or numbers.resources.get(
            amounts.canonical_name(resource)
        )
        if status is None or not quantity.is_quantity(status.requested):
            continue
        before = quantity.ZERO if current is None else current
        # What is requested leaves out work that its queue may not use anyway, and so this gang.
        with_gang = quantity.parse(status.charged or "0").add(needs.get(resource, quantity.ZERO))
        wanted = max(quantity.parse(status.requested), with_gang)
        path: Path = ("spec", "resources", resource, field)
        rungs = [
            Candidate(
                f"queue {name}: {field} of {resource} {before} -> {amount}",
                (ObjectChange(patches.ref_of(queue), edits.setting(path, amount)),),
                Intent.RAISED,
                Who.QUEUE_ADMIN,
            )
            for amount in _amounts(resource, before, wanted)
        ]
        yield Ladder((field, name, resource), tuple(rungs), is_monotone=True)


def _needs(case: Case, queue: queues.Queue) -> dict[str, quantity.Quantity]:
    """What the waiting pods of the gang may cost the queue at most, by the names that the queue uses."""
    names = list(queue.spec.resources)
    pricing = Pricing(case.replica.world, case.replica.policy.batch, names)
    total = amounts.total(pricing.waiting(pod).most for pod in case.gang)
    needs: dict[str, quantity.Quantity] = {}
    for name in names:
        canonical = amounts.canonical_name(name)
        written = queue_numbers.text(canonical, total.get(canonical, 0))
        needs[name] = quantity.parse(written)
    return needs


def _amounts(resource: str, before: quantity.Quantity, wanted: quantity.Quantity) -> list[str]:
    """Amounts above one, up to the other, in the units people use."""
    unit = _GIB if resource == pod_requests.MEMORY else 1
    low, high = before.value() // unit, -(-wanted.value() // unit)
    step = max(1, (high - low) // MOST_STEPS)
    numbers = [*range(low + 1, high, step), high] if high > low else []
    suffix = "Gi" if unit == _GIB else ""
    return [f"{number}{suffix}" for number in dict.fromkeys(numbers)]
