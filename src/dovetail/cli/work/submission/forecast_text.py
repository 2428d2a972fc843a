"""The plan of `dovetail run` in words: what is asked for, where it would start, who yields, or why it waits.

Given the request and the forecast. Returns lines. Never prints.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final

from dovetail.answer import when
from dovetail.ask.submission import job_manifest, submission_forecast
from dovetail.kubetypes import object_set
from dovetail.model import plan
from dovetail.tables import text
from dovetail.tables.work import start_times

MOST_PODS: Final = 16  # that are listed one by one
MOST_DEVICES: Final = 8  # of a pod that are named
MOST_YIELDING: Final = 8


def lines_of(
    request: job_manifest.RunRequest,
    forecast: submission_forecast.Forecast | None,
    *,
    now: datetime.datetime,
) -> list[str]:
    """The summary, line by line. Without a forecast, what is asked for."""
    lines = [_asked_for(request)]
    return lines if forecast is None else [*lines, *_outcome(request, forecast, now)]


def _asked_for(request: job_manifest.RunRequest) -> str:
    words = [f"job {request.namespace}/{request.name}: {text.counted(request.nodes, 'pod')}"]
    if request.devices.words:
        each = " each" if request.nodes > 1 else ""
        words.append(f"with {request.devices.words}{each}")
    facts = [" ".join(words)]
    facts += [f"queue {request.queue}"] if request.queue else []
    facts += [f"priority {request.priority_class}"] if request.priority_class else []
    facts.append(f"at most {request.time}" if request.time else "no time limit (--time sets one)")
    return ", ".join(facts)


def _outcome(
    request: job_manifest.RunRequest,
    forecast: submission_forecast.Forecast,
    now: datetime.datetime,
) -> Iterator[str]:
    if len(forecast.starts) == request.nodes:
        yield "starts now:"
        yield from _starts(forecast.starts)
        return
    if forecast.nominated:
        yield "starts once others have made room:"
        yield from _starts(forecast.nominated)
        yield from _yielding(forecast.evictions)
        return
    if forecast.starts:
        yield f"{len(forecast.starts)} of {text.counted(request.nodes, 'pod')} start now:"
        yield from _starts(forecast.starts)
    yield f"waits: {forecast.cause or forecast.reason or 'the engine gives no reason'}"
    yield from _yielding(forecast.evictions)
    if forecast.expected is not None:
        yield _expectation(forecast.expected, forecast.reason, now)
    kept = f" -n {request.namespace}" if request.namespace != object_set.DEFAULT_NAMESPACE else ""
    yield f"once submitted: dovetail why job/{request.name}{kept}"


def _starts(starts: tuple[submission_forecast.Start, ...]) -> Iterator[str]:
    rows = []
    for start in starts[:MOST_PODS]:
        devices = list(start.devices[:MOST_DEVICES])
        if len(start.devices) > MOST_DEVICES:
            devices.append(f"and {len(start.devices) - MOST_DEVICES} more")
        rows.append([f"  {start.pod}", start.node, ", ".join(devices)])
    if rows:
        yield from text.aligned(rows)
    if len(starts) > MOST_PODS:
        yield f"  and {text.counted(len(starts) - MOST_PODS, 'pod')} more"


def _yielding(evictions: tuple[plan.Eviction, ...]) -> Iterator[str]:
    if not evictions:
        return
    yield f"{text.counted(len(evictions), 'pod')} would yield:"
    for eviction in evictions[:MOST_YIELDING]:
        moves = f", moves to {eviction.moves_to}" if eviction.moves_to else ""
        detail = f": {eviction.detail}" if eviction.detail else ""
        yield f"  {eviction.pod} ({eviction.rule}{moves}){detail}"
    if len(evictions) > MOST_YIELDING:
        yield f"  and {len(evictions) - MOST_YIELDING} more"


def _expectation(expected: when.Expectation, reason: str, now: datetime.datetime) -> str:
    why = expected.why.replace(reason, "").rstrip(": ") if reason else expected.why
    why = why.removeprefix("unbounded: ")
    if expected.start is None:
        return f"start: not known{why and ': '}{why}"
    start = start_times.clock_time(expected.start, now)
    latest = start_times.clock_time(expected.latest, now)
    in_time = start_times.until(expected.start, now)
    return f"start: {start} (in {in_time}), at the latest {latest}{why and ', '}{why}"
