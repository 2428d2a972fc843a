"""`GET /timeline`: what happened, newest first: starts, evictions with rule and beneficiary, promises, nodes, queues.

Entries about work of namespaces that the user may not see are left out; other entries do not name such work. Where the
user may not list events, an entry says what objects show, and is left out where only an event does.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final

import msgspec

from dovetail import timestamps
from dovetail.kubetypes import registry
from dovetail.quantity import durations
from dovetail.tables.timeline import timeline_entries
from dovetail.web import asked, endpoints, problems
from dovetail.web.api import hidden_names, item_filters, read_kinds, rights, shared_results

EVENTS_OF_NODES: Final = "default"  # the namespace of events about objects without one


class TimelineParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries. Times are RFC 3339, or a duration before now such as 1h."""

    since: str = ""
    until: str = ""
    kind: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    work: str = ""
    text: str = ""


def answer(
    question: asked.Asked, params: TimelineParams
) -> endpoints.Page[timeline_entries.TimelineEntry]:
    """The entries that are asked for and that the user may see."""
    now = question.view.now
    since, until = _time(params.since, now, "since"), _time(params.until, now, "until")
    items = [
        entry
        for entry in visible(question)
        if (since is None or entry.time >= since)
        and (until is None or entry.time <= until)
        and item_filters.is_one_of(entry.kind, params.kind)
        and item_filters.is_one_of(entry.subject.namespace, params.namespace)
        and _is_of_work(entry, params.work)
        and item_filters.has_text(params.text, _texts(entry))
    ]
    return endpoints.Page(items=items)


def visible(question: asked.Asked) -> list[timeline_entries.TimelineEntry]:
    """All entries that the user may see, without names that they may not."""
    hidden = hidden_names.of(question)
    entries = shared_results.timeline(question)
    if question.may.sees_everything:
        return list(entries)
    shown = [entry for entry in entries if _sees_events(question, entry)]
    if len(shown) < len(entries):
        without_events = shared_results.timeline_of_objects(question)
        shown += [entry for entry in without_events if not _sees_events(question, entry)]
        shown.sort(key=lambda entry: (entry.time, entry.id), reverse=True)
    return [hidden.without(entry) for entry in shown if _may_see(question, entry)]


def _sees_events(question: asked.Asked, entry: timeline_entries.TimelineEntry) -> bool:
    namespace = entry.subject.namespace or EVENTS_OF_NODES
    return question.may.lists(registry.EVENT.unique_name, namespace)


def _may_see(question: asked.Asked, entry: timeline_entries.TimelineEntry) -> bool:
    """Whether the user may list what the entry is about and what it was read from."""
    namespace = entry.subject.namespace
    match entry.kind:
        case timeline_entries.QUEUE:
            return rights.lists(question, registry.QUEUE)
        case timeline_entries.PROMISED | timeline_entries.PROMISE_MOVED:
            return rights.sees_kind(question, registry.INTENT, namespace)
        case _ if not namespace:
            return rights.lists(question, registry.NODE)
        case _ if entry.subject.kind == registry.CLAIM.name:
            return rights.sees_kind(question, registry.CLAIM, namespace)
        case _:
            return rights.sees(question, namespace)


def _is_of_work(entry: timeline_entries.TimelineEntry, work: str) -> bool:
    """Whether the entry is about the work, by its name with or without kind and namespace, or happened for it."""
    if not work:
        return True
    full_name = f"{entry.subject.namespace}/{entry.work}"
    names = (entry.work, entry.work.partition("/")[2], full_name, entry.beneficiary)
    return work in names or work == entry.subject.name


def _texts(entry: timeline_entries.TimelineEntry) -> Iterable[str]:
    subject = entry.subject
    return (
        f"{subject.namespace}/{subject.name}",
        entry.work,
        entry.node,
        entry.queue,
        entry.rule,
        entry.beneficiary,
        entry.detail,
    )


def _time(written: str, now: datetime.datetime, field: str) -> datetime.datetime | None:
    if not written:
        return None
    moment = timestamps.parse_or_none(written)
    seconds = durations.seconds(written) if moment is None else None
    if moment is None and seconds is None:
        raise problems.bad_request(
            f'"{written}": expected a time such as {timestamps.to_text(now)}, or a duration such as 1h',
            field=field,
        )
    return moment if moment is not None else durations.earlier(now, seconds or 0)


ENDPOINTS = (
    endpoints.Endpoint(
        "/timeline",
        TimelineParams,
        endpoints.Page[timeline_entries.TimelineEntry],
        answer,
        summary="What happened, newest first",
        reads=(
            *read_kinds.WORK,
            read_kinds.NODES,
            read_kinds.SLICES,
            read_kinds.CLAIMS,
            read_kinds.INTENTS,
            read_kinds.EVENTS,
        ),
        is_quick=True,
    ),
)
