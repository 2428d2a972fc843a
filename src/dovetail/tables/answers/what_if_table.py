"""The answer of `what-if` for people: a sentence, the assumptions, numbers before and after, and short lists.

Given the answer; returns lines. Lists are cut after a few entries, and say how many are left. Never prints.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail import timestamps
from dovetail.answer.what_if import what_if_answer as answers
from dovetail.tables import text

HEADERS: Final = ("", "before", "after", "change")
SHOWN: Final = 8  # entries of a list
SHOWN_NODES: Final = 3
NOTHING: Final = "no work starts, stops, moves or yields because of it"


def lines(answer: answers.Answer, *, is_wide: bool = False) -> list[str]:
    """All of it; lists in full where it is wide."""
    most = None if is_wide else SHOWN
    listed = [line for title, entries in lists(answer) for line in _list(title, entries, most)]
    shown = [sentence(answer), ""]
    shown += [f"assumed: {change.assumption}" for change in answer.changes]
    shown += ["", *text.table(HEADERS, number_rows(answer))]
    if listed:
        shown += ["", *listed]
    else:
        shown += ["", NOTHING]
    return shown


def sentence(answer: answers.Answer) -> str:
    """The answer in one line: what starts now, with the changes and without."""
    before, after = answer.before, answer.after
    if not before.waiting_jobs and not after.waiting_jobs:
        return f"no jobs wait, today or with {_changes(answer)}"
    if not after.waiting_jobs:
        return f"no jobs would wait, {before.waiting_jobs} do today"
    would = f"{after.starting_jobs} of {text.counted(after.waiting_jobs, 'waiting job')} would start now"
    if not before.waiting_jobs:
        return f"{would}, none waits today"
    if before.waiting_jobs == after.waiting_jobs:
        return f"{would}, {before.starting_jobs} today"
    return f"{would}, {before.starting_jobs} of {before.waiting_jobs} today"


def _changes(answer: answers.Answer) -> str:
    return "the change" if len(answer.changes) == 1 else "the changes"


def number_rows(answer: answers.Answer) -> list[tuple[str, ...]]:
    """Numbers before and after: the cells under HEADERS."""
    before, after = answer.before, answer.after
    hours = _hours(answer.horizon_seconds)
    rows = [
        _row("nodes", before.nodes, after.nodes),
        *_gpu_rows(before, after),
        _row("jobs starting now", before.starting_jobs, after.starting_jobs),
        _row(f"jobs starting in {hours}", before.starting_by_horizon, after.starting_by_horizon),
        _row("jobs waiting then", before.waiting.jobs, after.waiting.jobs),
        _row("pods waiting", before.waiting.pods, after.waiting.pods),
        _row("GPUs waited for", before.waiting.gpus, after.waiting.gpus),
        _row("GPUs stranded", before.stranded_gpus, after.stranded_gpus),
        _row("evictions", before.evictions, after.evictions),
    ]
    for name in sorted(before.queues.keys() | after.queues.keys()):
        old = before.queues.get(name, answers.QueueNumbers())
        new = after.queues.get(name, answers.QueueNumbers())
        if old != new:
            rows.append(_row(f"queue {name}: GPUs used", old.charged, new.charged))
            rows.append(_row(f"queue {name}: fair share", old.fair_share, new.fair_share))
    if before.cost_per_hour is not None and after.cost_per_hour is not None:
        rows.append(_row("cost per hour", before.cost_per_hour, after.cost_per_hour, decimals=2))
        unpriced = sorted({*before.unpriced_types, *after.unpriced_types})
        if unpriced:
            rows.append((f"  without a price: {', '.join(unpriced)}", "", "", ""))
    return rows


def _gpu_rows(before: answers.State, after: answers.State) -> Iterable[tuple[str, ...]]:
    """Free and all GPUs of every type that the changes touch; of all types where they touch none."""
    none = answers.GpuType(nodes=0, total=0, used=0, free=0, cordoned=0)
    types = sorted(before.gpus.keys() | after.gpus.keys())
    touched = [name for name in types if before.gpus.get(name) != after.gpus.get(name)]
    for name in touched or types:
        old, new = before.gpus.get(name, none), after.gpus.get(name, none)
        if old.total != new.total:
            yield _row(f"{name}: GPUs", old.total, new.total)
        yield _row(f"{name}: free", old.free, new.free)


def _row(name: str, before: float, after: float, *, decimals: int = 3) -> tuple[str, ...]:
    change = after - before
    sign = "+" if change > 0 else ""
    shown = f"{sign}{_number(change, decimals)}" if change else ""
    return name, _number(before, decimals), _number(after, decimals), shown or "="


def _number(amount: float, decimals: int = 3) -> str:
    return f"{round(amount, decimals):g}" if abs(amount) < 1e6 else f"{amount:.0f}"


def _hours(seconds: int) -> str:
    now = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
    return text.age(now.isoformat(), now + datetime.timedelta(seconds=seconds))


def lists(answer: answers.Answer) -> list[tuple[str, list[str]]]:
    """What happens to which work: titles and their entries, empty lists left out."""
    difference = answer.difference
    started = {job.work for job in difference.starts}
    stopping = {job.work for job in difference.no_longer_starts}
    earlier = [entry for entry in difference.earlier if entry.work not in started]
    later = [entry for entry in difference.later if entry.work not in stopping]
    shown = [
        ("start now:", [_job(job) for job in difference.starts]),
        ("no longer start now:", [_job(job) for job in difference.no_longer_starts]),
        ("new work:", [_new(job, answer) for job in difference.new_work]),
        ("start earlier:", [_shifted(entry, answer) for entry in earlier]),
        ("start later:", [_shifted(entry, answer) for entry in later]),
        ("yield:", [_evicted(entry) for entry in difference.evicted]),
        ("no longer yield:", [_evicted(entry) for entry in difference.spared]),
        ("move:", [f"{pod.pod}: {pod.before} to {pod.after}" for pod in difference.moved]),
        ("no longer run:", [f"{pod.pod} on {pod.node}: {pod.why}" for pod in difference.stopped]),
    ]
    return [(title, entries) for title, entries in shown if entries]


def _list(title: str, entries: Sequence[str], most: int | None) -> Iterable[str]:
    yield title
    shown = entries[:most]
    yield from (f"  {entry}" for entry in shown)
    if len(entries) > len(shown):
        yield f"  ... and {len(entries) - len(shown)} more (-o wide)"


def _job(job: answers.Job) -> str:
    return f"{job.work}: {_size(job.pods, job.gpus)}{_on(job.nodes)}"


def _new(job: answers.NewJob, answer: answers.Answer) -> str:
    start = "now" if job.nodes else _when(job.start, answer)
    return f"{job.work}: {_size(job.pods, job.gpus)}, {start}{_on(job.nodes)}"


def _size(pods: int, gpus: float) -> str:
    return f"{text.counted(pods, 'pod')}, {_number(gpus)} {'GPU' if gpus == 1 else 'GPUs'}"


def _on(nodes: dict[str, int]) -> str:
    if not nodes:
        return ""
    names = list(nodes)
    more = "" if len(names) <= SHOWN_NODES else f" and {len(names) - SHOWN_NODES} more"
    return f" on {', '.join(names[:SHOWN_NODES])}{more}"


def _shifted(entry: answers.Shifted, answer: answers.Answer) -> str:
    return f"{entry.work}: {_when(entry.after, answer)} instead of {_when(entry.before, answer)}"


def _when(instant: str | None, answer: answers.Answer) -> str:
    if instant is None:
        return f"not within {_hours(answer.horizon_seconds)}"
    now = timestamps.parse(answer.now)
    start = timestamps.parse(instant)
    return "now" if start <= now else f"in {text.age(answer.now, start)}"


def _evicted(entry: answers.Evicted) -> str:
    reason = f" for {entry.beneficiary}" if entry.beneficiary else ""
    fate = (
        f", goes on at {entry.node}" if entry.node else ", is lost" if entry.is_lost else ", waits"
    )
    return f"{entry.pod}: {entry.rule}{reason}{fate}"
