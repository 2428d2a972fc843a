"""`GET /overview`: the cluster on one screen: GPUs by type, pods and work, the last hour, and what needs attention.

How many free GPUs the work cannot use takes the engine longer than all the rest: `GET /unusable` computes it, and the
overview repeats what was computed last.

All GPUs are counted, also those that hidden work holds; pods, work and what happened are those that the user may see.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import intents
from dovetail.model import node_pools
from dovetail.tables.fleet import fleet_memory
from dovetail.tables.items import pod_items
from dovetail.tables.overview import attention, type_numbers
from dovetail.tables.timeline import stored_events, timeline_entries, timelines
from dovetail.tables.work import work_items
from dovetail.web import asked, endpoints
from dovetail.web.api import (
    fleet_resource,
    hidden_names,
    read_kinds,
    rights,
    shared_results,
    timeline_resource,
)

MOST_RECENT: Final = 10
HOUR: Final = datetime.timedelta(hours=1)
DAY: Final = datetime.timedelta(days=1)
MOST_NODES: Final = 4_000  # of more, how much is unusable takes too long to compute
ENDED_STATUSES: Final = ("Succeeded", "Failed")
ANNOTATION_IGNORED: Final = "AnnotationIgnored"  # live/report/annotation_events


class PodNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that have a node, and pods that wait for one."""

    running: int
    waiting: int


class WorkNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Gangs, jobs and single pods."""

    running: int
    waiting: int
    starting: int


class LastHour(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What happened to work, as the timeline counts it."""

    started: int
    evicted: int
    moved: int
    promised: int
    ended: int
    failed: int


class UnusableOfType(msgspec.Struct, frozen=True, kw_only=True):
    """The free GPUs of a type that the observed mix of work cannot use, in silicon."""

    type: str
    unusable: float


class Unusable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The free GPUs that the observed mix of work cannot use. No types where computing it takes too long."""

    as_of: datetime.datetime
    version: int
    types: tuple[UnusableOfType, ...]


class Overview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster on one screen."""

    as_of: datetime.datetime
    version: int
    types: tuple[type_numbers.TypeNumbers, ...]
    pods: PodNumbers
    work: WorkNumbers
    last_hour: LastHour
    recent: tuple[timeline_entries.TimelineEntry, ...]
    attention: tuple[attention.Attention, ...]


def answer(question: asked.Asked, params: endpoints.Nothing) -> Overview:
    """The overview."""
    pods = [pod for pod in shared_results.pods(question) if rights.sees(question, pod.namespace)]
    work = [
        item
        for item in shared_results.decided_work(question)
        if rights.sees(question, item.namespace)
    ]
    entries = timeline_resource.visible(question)
    now = question.view.now
    return Overview(
        as_of=now,
        version=question.version,
        types=_types(question),
        pods=_pod_numbers(pods),
        work=_work_numbers(work),
        last_hour=_last_hour(timelines.counts_since(entries, now - HOUR)),
        recent=tuple(entries[:MOST_RECENT]),
        attention=hidden_names.of(question).without(
            attention.notes(_sources(question, work, entries))
        ),
    )


def unusable(question: asked.Asked, params: endpoints.Nothing) -> Unusable:
    """The free GPUs that work cannot use. Asks the engine."""
    by_type: dict[str, float] = {}
    if question.view.objects.count(registry.NODE.name) <= MOST_NODES:
        by_type = shared_results.unusable_by_type(question)
    types = [
        UnusableOfType(type=product, unusable=amount) for product, amount in sorted(by_type.items())
    ]
    return Unusable(as_of=question.view.now, version=question.version, types=tuple(types))


def _types(question: asked.Asked) -> tuple[type_numbers.TypeNumbers, ...]:
    whole = shared_results.fleet(question)
    unusable = shared_results.last_unusable_by_type(question)
    waiting = type_numbers.waiting_by_type(shared_results.demand(question), whole)
    return type_numbers.numbers(whole, unusable=unusable, waiting=waiting)


def _pod_numbers(pods: list[pod_items.PodItem]) -> PodNumbers:
    active = [pod for pod in pods if pod.status not in ENDED_STATUSES]
    running = sum(bool(pod.node) for pod in active)
    return PodNumbers(running=running, waiting=len(active) - running)


def _work_numbers(work: list[work_items.WorkItem]) -> WorkNumbers:
    states = [item.state for item in work]
    starting = states.count(work_items.STARTING)
    running = states.count(work_items.RUNNING) + states.count(work_items.ENDING)
    return WorkNumbers(running=running, waiting=len(states) - running - starting, starting=starting)


def _last_hour(counts: Mapping[str, int]) -> LastHour:
    fields = LastHour.__struct_fields__
    return LastHour(**{name: counts.get(name, 0) for name in fields})


def _sources(
    question: asked.Asked,
    work: list[work_items.WorkItem],
    entries: list[timeline_entries.TimelineEntry],
) -> attention.Sources:
    whole = shared_results.fleet(question)
    sees_nodes = rights.lists(question, registry.NODE)
    sees_slices = rights.lists(question, registry.SLICE)
    sees_queues = rights.lists(question, registry.QUEUE)
    claims = [
        item
        for item in shared_results.claims(question)
        if rights.sees_kind(question, registry.CLAIM, item.namespace)
    ]
    return attention.Sources(
        now=question.view.now,
        nodes=fleet_resource.shown_nodes(question, whole) if sees_nodes else (),
        missing=tuple(_missing_gpus(question, whole)) if sees_nodes and sees_slices else (),
        queues=shared_results.queues(question) if sees_queues else (),
        work=work,
        claims=claims,
        entries=entries,
        quarantined=_quarantined(question),
        ignored=tuple(_ignored(question)),
        unreadable=question.view.unreadable if question.may.sees_everything else (),
    )


def _missing_gpus(
    question: asked.Asked, whole: fleet_memory.FleetMap
) -> Iterator[attention.MissingGpus]:
    """Nodes whose labels count more GPUs than are published or counted."""
    shown = {node.name: len(node.gpus) for node in whole.nodes}
    for stored in question.view.objects.listed(registry.NODE.name):
        if not isinstance(stored.struct, nodes.Node):
            continue
        name = stored.struct.metadata.name
        expected = node_pools.pool_of(stored.struct).gpu_count
        if expected > shown.get(name, 0):
            yield attention.MissingGpus(name, expected, shown.get(name, 0))


def _quarantined(question: asked.Asked) -> int:
    devices = set()
    for stored in question.view.objects.listed(registry.INTENT.unique_name):
        intent = codec.typed(stored, intents.Intent)
        if not rights.sees_kind(question, registry.INTENT, stored.struct.metadata.namespace):
            continue
        if intent is not None and intent.spec.quarantine is not None:
            kept = intent.spec.quarantine.devices
            devices |= {(each.driver, each.pool, each.device) for each in kept}
    return len(devices)


def _ignored(question: asked.Asked) -> Iterator[str]:
    """Pods of the last day whose annotations the scheduler cannot read."""
    names = set()
    for event in stored_events.events_of(question.view.objects):
        if event.reason != ANNOTATION_IGNORED:
            continue
        time = stored_events.time_of(event)
        is_recent = time is not None and question.view.now - time < DAY
        if is_recent and rights.sees_kind(question, registry.EVENT, event.regarding.namespace):
            names.add(f"{event.regarding.namespace}/{event.regarding.name}")
    yield from sorted(names)


ENDPOINTS = (
    endpoints.Endpoint(
        "/overview",
        endpoints.Nothing,
        Overview,
        answer,
        summary="The cluster on one screen",
        reads=(*read_kinds.ENGINE, read_kinds.EVENTS),
        is_prepared=True,
    ),
    endpoints.Endpoint(
        "/unusable",
        endpoints.Nothing,
        Unusable,
        unusable,
        summary="Free GPUs that the observed mix of work cannot use, by type",
        reads=read_kinds.ENGINE,
    ),
)
