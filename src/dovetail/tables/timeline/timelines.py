"""Puts together what happened: from events and objects, each thing once, pods of one workload together, newest first.

Given the objects of a cluster. What two sources say about the same pod is one thing; events, which know more, count
before objects. Ids stay the same from version to version while the sources stay. Linear in events and objects, but for
one sort.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes import object_set
from dovetail.tables import membership, text
from dovetail.tables.timeline import event_happenings, object_happenings, timeline_entries

TOGETHER: Final = datetime.timedelta(
    minutes=2
)  # pods of one workload that start within are one entry
# What happens to pods one by one, and is shown for their workload.
_OF_PODS: Final = frozenset(
    {
        timeline_entries.STARTED,
        timeline_entries.EVICTED,
        timeline_entries.MOVED,
        timeline_entries.WAITING,
        timeline_entries.ENDED,
        timeline_entries.FAILED,
    }
)

Happening = timeline_entries.Happening
TimelineEntry = timeline_entries.TimelineEntry


def timeline_of(
    objects: object_set.ObjectSet, memberships: membership.Memberships
) -> tuple[TimelineEntry, ...]:
    """All that is known to have happened, newest first."""
    by_key: dict[tuple[str, ...], Happening] = {}
    for happening in event_happenings.happenings(objects, memberships):
        known = by_key.get(happening.key)
        if known is None or known.time < happening.time:
            by_key[happening.key] = happening
    for happening in object_happenings.happenings(objects, memberships):
        by_key.setdefault(happening.key, happening)
    entries = list(_entries(by_key.values()))
    entries.sort(key=lambda entry: (entry.time, entry.id), reverse=True)
    return tuple(entries)


def counts_since(entries: Sequence[TimelineEntry], since: datetime.datetime) -> Counter[str]:
    """How many entries of each kind there are since then; the entries are newest first."""
    counts: Counter[str] = Counter()
    for entry in entries:
        if entry.time < since:
            break
        counts[entry.kind] += 1
    return counts


def _entries(happenings: Iterable[Happening]) -> Iterable[TimelineEntry]:
    groups: dict[tuple[str, ...], list[Happening]] = {}
    for happening in happenings:
        if happening.kind in _OF_PODS and happening.work:
            group = (
                happening.kind,
                happening.subject.namespace,
                happening.work,
                happening.rule,
                happening.beneficiary,
            )
            groups.setdefault(group, []).append(happening)
        else:
            yield _entry(happening.key, [happening])
    for key, members in groups.items():
        members.sort(key=lambda each: (each.time, each.subject))
        for together in _runs(members):
            yield _entry(key, together)


def _runs(members: Sequence[Happening]) -> Iterable[list[Happening]]:
    """Those that happened within a short time of the first."""
    run: list[Happening] = []
    for member in members:
        if run and member.time - run[0].time > TOGETHER:
            yield run
            run = []
        run.append(member)
    if run:
        yield run


def _entry(key: tuple[str, ...], members: Sequence[Happening]) -> TimelineEntry:
    first = members[0]
    nodes = list(dict.fromkeys(each.node for each in members if each.node))
    is_of_pods = first.kind in _OF_PODS and first.subject.kind == "Pod"
    subject, detail = first.subject, first.detail
    if len(members) > 1:
        subject = timeline_entries.subject_of_work(first.subject.namespace, first.work)
        where = f" on {text.counted(len(nodes), 'node')}" if nodes else ""
        counted = f"{text.counted(len(members), 'pod')}{where}"
        detail = f"{counted}: {detail}" if detail else counted
    return TimelineEntry(
        id=timeline_entries.stable_id(*key, timestamps.to_exact_text(first.time)),
        time=first.time,
        kind=first.kind,
        subject=subject,
        work=first.work,
        node=nodes[0] if len(nodes) == 1 else "",
        queue=first.queue,
        rule=first.rule,
        beneficiary=first.beneficiary,
        detail=detail,
        pods=len(members) if is_of_pods else 0,
    )
