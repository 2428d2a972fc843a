"""Predicts when work ends: by its expected runtime, else its longest, else the longest its queue allows.

Given the gangs and queues of one decision, and the time. Work that has outrun its stated time gets a new guess,
which is marked as unsure. Never ends anything.
"""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

from dovetail.model import gangs, plan
from dovetail.quantity import durations
from dovetail.schedule import pod_order
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.queue.accounts import Accounts

LATE_SECONDS: Final = 10  # until the end of a pod is observed: a start within it is not late
OVERDUE_SECONDS: Final = 60  # what is overdue is given so much more, or a part of its runtime ...
OVERDUE_PART: Final = 10  # ... if that is longer: each guess is a tenth longer than all before it

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
        """Seconds it is expected to run."""
        return _first_known(job.gang.expected_runtime, job.gang.max_runtime, self.allowed(job))

    def longest(self, job: Job) -> int | None:
        """Seconds it runs at most, by what it states and what its queue allows."""
        return _first_known(self.enforced(job), job.gang.expected_runtime)

    def enforced(self, job: Job) -> int | None:
        """Seconds after which it is ended whatever it states: only this lets it run ahead of a promise.

        A job that a disruption budget protects is not evicted; it ends by its pods' own deadlines alone, which the
        kubelet enforces.
        """
        if not job.protected_by:
            return limit(job.gang, self.allowed(job))
        longest_deadline: int | None = None
        for pod in job.pods.values():
            deadline = pod.spec.active_deadline_seconds
            if deadline is None:
                return None
            longest_deadline = max(longest_deadline or deadline, deadline)
        return longest_deadline

    def allowed(self, job: Job) -> int | None:
        """Seconds that work of its queue may run."""
        return allowed(self._accounts, job.queue)

    def end_of(
        self,
        job: Job,
        pod_id: str,
        *,
        is_late: bool = False,
        is_new: bool = False,
        is_ahead: bool = False,
    ) -> End | None:
        """When a pod that runs, or starts now, ends; None where that is not known.

        By its expected runtime; with `is_late` by its longest; with `is_ahead`, for a promise that the pod runs ahead
        of, by the runtime that is enforced.
        """
        if is_ahead:
            seconds = self.enforced(job)
        elif is_late:
            seconds = self.longest(job)
        else:
            seconds = self.expected(job)
        if seconds is None:
            return None

        start = self.now
        pod = job.pods[pod_id]
        if not is_new and pod.status.start_time is not None and pod.spec.node_name:
            started = pod_order.instant(pod.status.start_time)
            start = self.now if started is pod_order.NEVER else started
        return ending(start, self.now, seconds=seconds, most=self.longest(job))


def ending(start: plan.Instant, now: plan.Instant, *, seconds: int, most: int | None) -> End:
    """When work that started then ends: after `seconds`; where that is over, after the most it may take."""
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
    """The next guess, in steps that grow: a promise that rests on it does not move with every decision."""
    while durations.later(end, LATE_SECONDS) <= now and end < durations.LAST:
        runtime_seconds = (end - start) // _SECOND
        end = durations.later(end, max(OVERDUE_SECONDS, runtime_seconds // OVERDUE_PART))
    return max(end, now)


def allowed(accounts: Accounts, queue: str) -> int | None:
    """Seconds that work of a queue may run: the first limit that is set, from the queue upwards."""
    for account in accounts.by_name[queue].lineage():
        if account.queue is not None and account.queue.spec.max_runtime_seconds is not None:
            return durations.at_most(account.queue.spec.max_runtime_seconds)
    return None


def limit(gang: gangs.Gang, by_queue: int | None) -> int | None:
    """Seconds after which a gang has to end."""
    limits = [seconds for seconds in (gang.max_runtime, by_queue) if seconds is not None]
    return min(limits, default=None)


def _first_known(*choices: int | None) -> int | None:
    return next((seconds for seconds in choices if seconds is not None), None)
