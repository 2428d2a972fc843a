"""What the events of a cluster say happened: starts, evictions, moves, waiting, ends, failures, nodes.

Given the events, and the pods as far as they still exist. Only events that are about a life of work or of a node count;
the others are passed over. Never reads anything else.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import api_events, pods
from dovetail.tables import membership
from dovetail.tables.timeline import eviction_messages, stored_events, timeline_entries

SCHEDULED: Final = "Scheduled"
FAILED_SCHEDULING: Final = "FailedScheduling"
# Evictions by Kubernetes itself: node taints, device taints, pressure on a node.
OTHER_EVICTIONS: Final = frozenset(
    {"TaintManagerEviction", "DeviceTaintManagerEviction", "Evicted", "EvictionByEvictionAPI"}
)
_PREEMPTED: Final = "Preempted by"  # how kube-scheduler begins
JOB_ENDED: Final = frozenset({"Completed"})
JOB_FAILED: Final = frozenset({"BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy"})
NODE_REASONS: Final = frozenset(
    {
        "NodeReady",
        "NodeNotReady",
        "NodeSchedulable",
        "NodeNotSchedulable",
        "Rebooted",
        "RegisteredNode",
        "RemovingNode",
    }
)
GIVEN_TWICE: Final = "DeviceGivenTwice"
# The Job controller adds five letters to its name, and before these an index where it has one.
_POD_OF_JOB: Final = re.compile(r"(?P<name>(?P<indexed>.+?)(?:-[0-9]+)?)-[a-z0-9]{5}")
_NODE: Final = re.compile(r" to (?P<node>[^\s]+)$")

Happening = timeline_entries.Happening


def happenings(
    objects: object_set.ObjectSet, memberships: membership.Memberships
) -> Iterator[Happening]:
    """All of them, in no order."""
    for event in stored_events.events_of(objects):
        time = stored_events.time_of(event)
        if time is None:
            continue
        if event.regarding.kind == registry.POD.name:
            yield from _of_pod(event, time, objects, memberships)
        else:
            yield from _of_other(event, time)


def _of_pod(
    event: api_events.Event,
    time: datetime.datetime,
    objects: object_set.ObjectSet,
    memberships: membership.Memberships,
) -> Iterator[Happening]:
    about = event.regarding
    key = object_set.Key(registry.POD.name, about.namespace, about.name)
    stored = objects.get(key)
    pod = stored.struct if stored is not None else None
    is_same = isinstance(pod, pods.Pod) and about.uid in ("", pod.metadata.uid)
    work, queue = _work_of_gone(about, objects), ""
    if isinstance(pod, pods.Pod) and is_same:
        work, queue = memberships.workload_of(pod), memberships.of(pod).queue
    subject = timeline_entries.Subject(kind=about.kind, namespace=about.namespace, name=about.name)

    def happening(kind: str, **more: str) -> Happening:
        identity = about.uid or f"{about.namespace}/{about.name}"
        return Happening(
            key=(kind, identity),
            time=time,
            kind=kind,
            subject=subject,
            work=work,
            queue=queue,
            **more,
        )

    eviction = eviction_messages.read(event.note)
    if event.reason == SCHEDULED:
        match = _NODE.search(event.note)
        yield happening(timeline_entries.STARTED, node=match["node"] if match else "")
    elif event.reason == FAILED_SCHEDULING:
        yield happening(timeline_entries.WAITING, detail=event.note)
    elif eviction is not None and event.reason in eviction_messages.RULES:
        yield happening(
            timeline_entries.MOVED if eviction.is_move else timeline_entries.EVICTED,
            rule=eviction.rule,
            beneficiary=eviction.beneficiary,
            detail=eviction.detail,
            node=eviction.node,
        )
    elif event.reason in OTHER_EVICTIONS or event.note.startswith(_PREEMPTED):
        yield happening(timeline_entries.EVICTED, rule=event.reason, detail=event.note)


def _work_of_gone(about: api_events.ObjectReference, objects: object_set.ObjectSet) -> str:
    """The work of a pod that may be gone: a Job that is there and names its pods so, else the pod itself."""
    match = _POD_OF_JOB.fullmatch(about.name)
    for name in match.group("name", "indexed") if match else ():
        key = object_set.Key(registry.JOB.unique_name, about.namespace, name or "")
        if name and objects.get(key) is not None:
            return f"job/{name}"
    return f"pod/{about.name}"


def _of_other(event: api_events.Event, time: datetime.datetime) -> Iterator[Happening]:
    about = event.regarding
    subject = timeline_entries.Subject(kind=about.kind, namespace=about.namespace, name=about.name)
    identity = about.uid or f"{about.namespace}/{about.name}"
    if about.kind == registry.NODE.name and event.reason in NODE_REASONS:
        key = (timeline_entries.NODE, about.name, event.reason, timestamps.to_text(time))
        yield Happening(
            key=key,
            time=time,
            kind=timeline_entries.NODE,
            subject=timeline_entries.Subject(kind=about.kind, name=about.name),
            node=about.name,
            detail=event.note or event.reason,
        )
        return
    kind = ""
    if about.kind == registry.JOB.name and event.reason in JOB_ENDED:
        kind = timeline_entries.ENDED
    elif (
        about.kind == registry.JOB.name and event.reason in JOB_FAILED
    ) or event.reason == GIVEN_TWICE:
        kind = timeline_entries.FAILED
    if kind:
        is_job = about.kind == registry.JOB.name
        yield Happening(
            key=(kind, identity),
            time=time,
            kind=kind,
            subject=subject,
            work=f"job/{about.name}" if is_job else "",
            detail=event.note,
        )
