"""Says when work ends, by what it states: its expected runtime, else its longest, else the longest its queue allows.

Given the gangs and queues of one decision, and the time. What runs for longer than it stated ends any moment now, and
nobody is sure of it. Never ends anything.
"""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

from dovetail.model import durations, gangs, plan
from dovetail.schedule import order
from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.queues.accounts import Accounts

LATE_SECONDS: Final = 10  # after its hour, until the end of a pod is seen: nobody is late before that
OVERDUE_SECONDS: Final = 60  # what should have ended is expected to take so much more, or a part of what it took,
OVERDUE_PART: Final = 10  # over and over: a step is a tenth longer than all before it together

_SECOND: Final = datetime.timedelta(seconds=1)


class End(NamedTuple):
    """When a pod leaves its node."""

    at: datetime.datetime
    is_unsure: bool  # it should have ended before


class Runtimes:
    """What jobs state, in one decision."""

    def __init__(self, accounts: Accounts, now: plan.Instant) -> None:
        self._accounts = accounts
        self.now = now

    def expected(self, job: Job) -> int | None:
        """Seconds it says it takes."""
        return _first(job.gang.expected_runtime, job.gang.max_runtime, self.allowed(job))

    def longest(self, job: Job) -> int | None:
        """Seconds it takes at most, by what it says and what its queue allows."""
        return _first(self.enforced(job), job.gang.expected_runtime)

    def enforced(self, job: Job) -> int | None:
        """Seconds after which it is ended whatever it says: only such a time lets it run ahead of a promise.

        What a disruption budget keeps from being evicted ends by its pods' own deadline alone: the kubelet sees to it.
        """
        if not job.shield:
            return limit(job.gang, self.allowed(job))
        own = [pod.spec.active_deadline_seconds for pod in job.pods.values()]
        return max((one for one in own if one is not None), default=None) if None not in own else None

    def allowed(self, job: Job) -> int | None:
        """Seconds work of its queue may run: the first that is set from the queue upwards."""
        return allowed(self._accounts, job.queue)

    def end_of(
        self, job: Job, id_: str, *, is_late: bool = False, is_new: bool = False, is_ahead: bool = False
    ) -> End | None:
        """When a pod that runs, or starts now, ends; by the longest time it may take if it is to be late.

        For a promise that the pod runs ahead of (`is_ahead`) only the time counts after which it is ended.
        """
        seconds = self.enforced(job) if is_ahead else self.longest(job) if is_late else self.expected(job)
        if seconds is None:
            return None
        began = job.pods[id_].status.start_time
        is_new = is_new or began is None or not job.pods[id_].spec.node_name
        start = self.now if is_new else order.instant(began)
        if start is order.NEVER:
            start = self.now
        return ending(start, self.now, seconds=seconds, most=self.longest(job))


def ending(start: plan.Instant, now: plan.Instant, *, seconds: int, most: int | None) -> End:
    """When work that began then ends: by what it says; else, where that is over, by the most it may take."""
    end = durations.later(start, seconds)
    if end > now:
        return End(end, False)
    if durations.later(end, LATE_SECONDS) > now:
        return End(now, False)
    last = durations.later(start, most) if most is not None else now
    if last > now:
        return End(last, True)
    return End(_next_guess(start, now, end), True)


def _next_guess(start: plan.Instant, now: plan.Instant, end: plan.Instant) -> plan.Instant:
    """In steps that grow: what is promised by a guess stays until that is over, instead of moving with every look."""
    while durations.later(end, LATE_SECONDS) <= now and end < durations.LAST:
        end = durations.later(end, max(OVERDUE_SECONDS, (end - start) // _SECOND // OVERDUE_PART))
    return max(end, now)


def allowed(accounts: Accounts, queue: str) -> int | None:
    """Seconds that work of a queue may run: the first that is set from the queue upwards."""
    for account in accounts.by_name[queue].lineage():
        if account.queue is not None and account.queue.spec.max_runtime_seconds is not None:
            return durations.at_most(account.queue.spec.max_runtime_seconds)
    return None


def limit(gang: gangs.Gang, by_queue: int | None) -> int | None:
    """Seconds after which a gang has to end."""
    given = [seconds for seconds in (gang.max_runtime, by_queue) if seconds is not None]
    return min(given, default=None)


def _first(*choices: int | None) -> int | None:
    return next((one for one in choices if one is not None), None)
