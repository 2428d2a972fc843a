"""Puts the allocations of a window together by the work they belong to: all runs of a Deployment, a CronJob, a Job.

Given records. A pod is a run; pods whose controllers one object made are a family. Usage of a whole asset counts for
the allocation that held the asset alone. Says for how much of the time nothing was measured. Never judges.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.model.accounting import records
from dovetail.model.accounting.records import Form, Millis

TEMPLATE_HASH: Final = "pod-template-hash"  # the label of a Deployment's pods
_CRON_JOB_SUFFIX: Final = re.compile(r"-[0-9]{8,10}$")  # minutes since 1970


class FamilyKey(NamedTuple):
    """The work that runs belong to."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


class Held(NamedTuple):
    """An allocation within the window, and what was measured of it."""

    allocation: records.Allocation
    start: Millis
    end: Millis
    usage: tuple[records.Usage, ...]

    @property
    def milliseconds(self) -> int:
        """How long it was held."""
        return max(0, self.end - self.start)


class Run(NamedTuple):
    """One pod."""

    pod: str
    held: tuple[Held, ...]

    @property
    def most_at_once(self) -> int:
        """How many micro-GPUs the pod held at the same time, at most."""
        changes = [(each.start, each.allocation.micro_gpu) for each in self.held]
        changes += [(each.end, -each.allocation.micro_gpu) for each in self.held]
        now = most = 0
        for _, change in sorted(changes):  # ends before beginnings of the same time
            now += change
            most = max(most, now)
        return most


class Family(NamedTuple):
    """All runs of some work, and what is not known about them."""

    key: FamilyKey
    runs: tuple[Run, ...]
    out_of_memory: int
    gaps: tuple[records.Gap, ...]  # without samples, while something was held

    @property
    def held(self) -> list[Held]:
        """Every allocation."""
        return [each for run in self.runs for each in run.held]


def families(given: records.Records, start: Millis, end: Millis) -> list[Family]:
    """The families that held something in the window, by namespace and name."""
    usage = _usage_by_allocation(given)
    runs: dict[FamilyKey, dict[str, list[Held]]] = defaultdict(lambda: defaultdict(list))
    for allocation in given.allocations:
        first, last = _within(allocation.start, allocation.end, start, end)
        if first >= last:
            continue
        key = family_of(allocation.owner)
        samples = tuple(
            sample
            for sample in usage.get(allocation.allocation, ())
            if sample.start < last and sample.end > first
        )
        held = Held(allocation, first, last, samples)
        runs[key][allocation.owner.pod_uid or allocation.owner.pod].append(held)
    failures = Counter(
        family_of(event.owner) for event in given.out_of_memory if start <= event.at < end
    )
    gaps = [gap for gap in given.gaps if gap.source is records.GapSource.METRICS]
    return [_family(key, runs[key], failures[key], gaps) for key in sorted(runs)]


def family_of(owner: records.Owner) -> FamilyKey:
    """The work of a pod: the Deployment of a ReplicaSet and the CronJob of a Job are read off their names."""
    kind, name = owner.controller_kind, owner.controller
    if not name:
        return FamilyKey(owner.namespace, "Pod", owner.pod)
    suffix = f"-{owner.labels.get(TEMPLATE_HASH, '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        return FamilyKey(owner.namespace, "Deployment", name.removesuffix(suffix))
    if kind == "Job" and _CRON_JOB_SUFFIX.search(name):
        return FamilyKey(owner.namespace, "CronJob", _CRON_JOB_SUFFIX.sub("", name))
    return FamilyKey(owner.namespace, kind, name)


def _family(
    key: FamilyKey,
    runs: Mapping[str, list[Held]],
    failures: int,
    gaps: Sequence[records.Gap],
) -> Family:
    for own in runs.values():
        own.sort(key=lambda each: (each.start, each.allocation.allocation))
    held = [each for own in runs.values() for each in own]
    touching = tuple(gap for gap in gaps if any(_touches(gap, each) for each in held))
    ordered = sorted(runs.items(), key=lambda item: (item[1][0].start, item[0]))
    return Family(
        key,
        tuple(Run(own[0].allocation.owner.pod, tuple(own)) for _, own in ordered),
        failures,
        touching,
    )


def _usage_by_allocation(given: records.Records) -> dict[str, list[records.Usage]]:
    usage: dict[str, list[records.Usage]] = defaultdict(list)
    of_assets: dict[str, list[records.Usage]] = defaultdict(list)
    for sample in given.usage:
        if sample.allocation:
            usage[sample.allocation].append(sample)
        else:
            of_assets[sample.asset].append(sample)
    for allocation in given.allocations:
        # What was measured of a whole GPU is of the pod that held it alone.
        if allocation.form is not Form.WHOLE or allocation.allocation in usage:
            continue
        first, last = allocation.start, allocation.end
        own = [
            sample
            for sample in of_assets.get(allocation.asset, ())
            if sample.start >= first and (last is None or sample.end <= last)
        ]
        if own:
            usage[allocation.allocation] = own
    return usage


def _touches(gap: records.Gap, held: Held) -> bool:
    is_meant = gap.subject in ("", held.allocation.node, held.allocation.asset)
    return is_meant and gap.start < held.end and (gap.end is None or gap.end > held.start)


def _within(
    first: Millis, last: Millis | None, start: Millis, end: Millis
) -> tuple[Millis, Millis]:
    return max(first, start), end if last is None else min(last, end)
