"""What the objects of a cluster say happened, by their times and conditions: events expire, objects stay.

Given pods, intents, nodes, slices and queues. Never reads events.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final, Protocol

from dovetail import timestamps
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.custom import intents, queues
from dovetail.kubetypes.resource import slices
from dovetail.model.queue import queue_status
from dovetail.tables import device_table, membership
from dovetail.tables.fleet import node_states
from dovetail.tables.timeline import eviction_messages, timeline_entries

SCHEDULED: Final = "PodScheduled"
DISRUPTION_TARGET: Final = "DisruptionTarget"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
SUCCEEDED: Final = "Succeeded"
# A condition that turned so soon after a node came belongs to its coming.
JOINING: Final = datetime.timedelta(minutes=2)

Happening = timeline_entries.Happening


class _Maker(Protocol):
    """Makes a happening of one pod."""

    def __call__(self, kind: str, time: datetime.datetime, **more: str) -> Happening: ...


def happenings(
    objects: object_set.ObjectSet, memberships: membership.Memberships
) -> Iterator[Happening]:
    """All of them, in no order."""
    for stored in objects.listed(registry.POD.name):
        if isinstance(stored.struct, pods.Pod):
            yield from _of_pod(stored.struct, memberships)
    for stored in objects.listed(registry.INTENT.unique_name):
        intent = codec.typed(stored, intents.Intent)
        if intent is not None:
            yield from _of_intent(intent)
    for stored in objects.listed(registry.NODE.name):
        if isinstance(stored.struct, nodes.Node):
            yield from _of_node(stored.struct)
    for stored in objects.listed(registry.SLICE.name):
        if isinstance(stored.struct, slices.ResourceSlice):
            yield from _of_slice(stored.struct)
    for stored in objects.listed(registry.QUEUE.unique_name):
        if isinstance(stored.struct, queues.Queue):
            yield from _of_queue(stored.struct)


def _of_pod(pod: pods.Pod, memberships: membership.Memberships) -> Iterator[Happening]:
    metadata = pod.metadata
    subject = timeline_entries.Subject(
        kind=registry.POD.name, namespace=metadata.namespace, name=metadata.name
    )
    work, queue = memberships.workload_of(pod), memberships.of(pod).queue

    def happening(kind: str, time: datetime.datetime, **more: str) -> Happening:
        return Happening(
            key=(kind, metadata.uid or f"{metadata.namespace}/{metadata.name}"),
            time=time,
            kind=kind,
            subject=subject,
            work=work,
            queue=queue,
            **more,
        )

    conditions = {each.type: each for each in pod.status.conditions}
    scheduled = conditions.get(SCHEDULED)
    scheduled_at = timestamps.parse_or_none(scheduled.last_transition_time) if scheduled else None
    node = pod.spec.node_name or ""
    if node:
        started = timestamps.parse_or_none(pod.status.start_time) or scheduled_at
        if started is not None:
            yield happening(timeline_entries.STARTED, started, node=node)
    elif scheduled is not None and scheduled.status == "False" and scheduled_at is not None:
        yield happening(timeline_entries.WAITING, scheduled_at, detail=scheduled.message)

    disruption = conditions.get(DISRUPTION_TARGET)
    if disruption is not None and disruption.status == "True":
        yield from _eviction(disruption, happening)
    if pod.status.phase in pods.TERMINAL_PHASES and (ended := _ended_at(pod)) is not None:
        is_good = pod.status.phase == SUCCEEDED
        kind = timeline_entries.ENDED if is_good else timeline_entries.FAILED
        yield happening(kind, ended, node=node)


def _eviction(disruption: pods.PodCondition, happening: _Maker) -> Iterator[Happening]:
    time = timestamps.parse_or_none(disruption.last_transition_time)
    if time is None:
        return
    message = eviction_messages.read(disruption.message)
    if message is None:
        yield happening(
            timeline_entries.EVICTED, time, rule=disruption.reason, detail=disruption.message
        )
        return
    yield happening(
        timeline_entries.MOVED if message.is_move else timeline_entries.EVICTED,
        time,
        rule=message.rule,
        beneficiary=message.beneficiary,
        detail=message.detail,
        node=message.node,
    )


def _ended_at(pod: pods.Pod) -> datetime.datetime | None:
    """When its last condition turned: the kubelet turns Ready when the containers have ended."""
    written = [each.last_transition_time for each in pod.status.conditions]
    times = [time for time in map(timestamps.parse_or_none, written) if time is not None]
    return max(times, default=timestamps.parse_or_none(pod.status.start_time))


def _of_intent(intent: intents.Intent) -> Iterator[Happening]:
    """A promise that was made, or that moved."""
    promise = intent.spec.promise
    time = timestamps.parse_or_none(intent.metadata.creation_timestamp)
    if promise is None or time is None:
        return
    namespace, work = intent.metadata.namespace, intent.spec.gang
    has_moved = bool(promise.moved_from)
    kind = timeline_entries.PROMISE_MOVED if has_moved else timeline_entries.PROMISED
    if not has_moved and not promise.start:
        return
    yield Happening(
        key=(kind, namespace, work, str(intent.spec.attempt)),
        time=time,
        kind=kind,
        subject=timeline_entries.subject_of_work(namespace, work),
        work=work,
        node=", ".join(dict.fromkeys(seat.node for seat in promise.seats)),
        detail=_promise_detail(promise),
    )


def _promise_detail(promise: intents.Promise) -> str:
    cause = f": {promise.cause}" if promise.cause else ""
    if not promise.moved_from:
        return f"starts by {promise.start}{cause}"
    if not promise.start:
        return f"the start promised for {promise.moved_from} is not kept{cause}"
    return f"starts by {promise.start} instead of {promise.moved_from}{cause}"


def _of_node(node: nodes.Node) -> Iterator[Happening]:
    name = node.metadata.name
    subject = timeline_entries.Subject(kind=registry.NODE.name, name=name)

    def happening(what: str, time: datetime.datetime, detail: str) -> Happening:
        return Happening(
            key=(timeline_entries.NODE, name, what, timestamps.to_text(time)),
            time=time,
            kind=timeline_entries.NODE,
            subject=subject,
            node=name,
            detail=detail,
        )

    created = timestamps.parse_or_none(node.metadata.creation_timestamp)
    if created is not None:
        yield happening("joined", created, "joined the cluster")
    for condition in node.status.conditions:
        turned = timestamps.parse_or_none(condition.last_transition_time)
        if condition.type != node_states.READY_CONDITION or turned is None:
            continue
        is_ready = condition.status == "True"
        if is_ready and created is not None and turned - created < JOINING:
            continue
        reasons = ": ".join(filter(None, (condition.reason, condition.message)))
        yield happening(
            "NodeReady" if is_ready else "NodeNotReady",
            turned,
            "is ready" if is_ready else f"is not ready: {reasons}",
        )
    for taint in node.spec.taints:
        if (added := timestamps.parse_or_none(taint.time_added)) is not None:
            is_cordon = taint.key == UNSCHEDULABLE
            detail = "was cordoned" if is_cordon else f"was tainted: {taint.key}:{taint.effect}"
            yield happening(f"taint {taint.key}", added, detail)


def _of_slice(published: slices.ResourceSlice) -> Iterator[Happening]:
    """Devices that were tainted: several at once are one happening."""
    devices_by_taint: dict[tuple[str, str, str], list[str]] = {}
    for device in published.spec.devices:
        node = device.node_name or published.spec.node_name or ""
        for taint in device.taints:
            key = (node, taint.time_added or "", device_table.taint_text(taint))
            devices_by_taint.setdefault(key, []).append(device.name)
    for (node, added, taint_text), names in devices_by_taint.items():
        time = timestamps.parse_or_none(added)
        if time is not None:
            listed = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            yield Happening(
                key=(timeline_entries.NODE, node, taint_text, added),
                time=time,
                kind=timeline_entries.NODE,
                subject=timeline_entries.Subject(kind=registry.NODE.name, name=node),
                node=node,
                detail=f"{listed} tainted: {taint_text}",
            )


def _of_queue(queue: queues.Queue) -> Iterator[Happening]:
    name = queue.metadata.name
    subject = timeline_entries.Subject(kind=registry.QUEUE.name, name=name)

    def happening(what: str, time: datetime.datetime, detail: str) -> Happening:
        return Happening(
            key=(timeline_entries.QUEUE, name, what, timestamps.to_text(time)),
            time=time,
            kind=timeline_entries.QUEUE,
            subject=subject,
            queue=name,
            detail=detail,
        )

    created = timestamps.parse_or_none(queue.metadata.creation_timestamp)
    if created is not None:
        yield happening("created", created, "was created")
    for condition in queue.status.conditions:
        turned = timestamps.parse_or_none(condition.last_transition_time)
        if condition.type != queue_status.READY or turned is None:
            continue
        is_ready = condition.status == "True"
        if is_ready and created is not None and turned - created < JOINING:
            continue
        words = "takes work" if is_ready else f"is not ready: {condition.message}"
        yield happening(condition.status, turned, words)
