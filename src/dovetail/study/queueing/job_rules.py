"""The queue policies that studies compare, by name: which waiting job is next, what it may use, whom it may evict.

Each is plain functions over a view of the cluster; the same run carries all of them out, with the same placement. Like
the systems they are named after in these decisions only. Never starts or evicts a job itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.study.queueing import job_list

ENGINE: Final = "dovetail"
TIRESIAS_GPU_SECONDS: Final = 3 * 3600  # of service, after which a job counts as long

Rank = tuple[float, ...]


class Waiting(NamedTuple):
    """A job that waits, and what a policy may know about it."""

    job: job_list.Job
    predicted_seconds: int
    served_gpu_seconds: int  # before it was interrupted


class Running(NamedTuple):
    """A job that runs."""

    job: job_list.Job
    since: int
    served_gpu_seconds: int  # before its present start
    expected_end: int
    nodes: tuple[int, ...]


class View:
    """What the policies see of the cluster. GPUs of queues: in use, of their quota, demanded, and their fair share."""

    def __init__(self, quotas: Mapping[str, int], weights: Mapping[str, int], gpus: int) -> None:
        self.now = 0
        self.gpus = gpus
        self.quotas = dict(quotas)
        self.weights = dict(weights)
        self.used = dict.fromkeys(quotas, 0)
        self.demand = dict.fromkeys(quotas, 0)  # of waiting and running jobs
        self.running: dict[str, Running] = {}

    def fair_shares(self) -> dict[str, float]:
        """What each queue may count on: its demand up to its quota, and beyond that by weight."""
        shares = {queue: min(self.demand[queue], self.quotas[queue]) for queue in self.quotas}
        left = float(self.gpus - sum(shares.values()))
        result: dict[str, float] = dict(shares)
        hungry = [queue for queue in self.quotas if self.demand[queue] > result[queue]]
        while hungry and left > 1e-6:
            total_weight = sum(self.weights[queue] or 1 for queue in hungry)
            portion = left / total_weight
            for queue in hungry:
                extra = portion * (self.weights[queue] or 1)
                extra = min(extra, self.demand[queue] - result[queue])
                result[queue] += extra
                left -= extra
            hungry = [queue for queue in hungry if self.demand[queue] - result[queue] > 1e-6]
        return result


class Rule(NamedTuple):
    """One policy."""

    job_rank: Callable[[Waiting], Rank]  # lowest first; fixed while the job waits
    about: str
    queue_rank: Callable[[str, View], float] = lambda queue, view: 0.0
    may_start: Callable[[Waiting, View], bool] = lambda waiting, view: True
    victims: Callable[[Waiting, View], Iterable[Running]] | None = None  # first to go first
    is_strict: bool = False  # a job without room holds up all behind it
    reserves: bool = False  # later jobs start only if the first one is not delayed by it


def named(name: str) -> Rule:
    """The rule of this name."""
    rule = RULES.get(name)
    if rule is None:
        known = ", ".join((*RULES, ENGINE))
        raise errors.NotFound(f'no policy "{name}" for a list of jobs; there are: {known}')
    return rule


# Order


def _first_come(waiting: Waiting) -> Rank:
    return -waiting.job.priority, waiting.job.submit_seconds


def _shortest(waiting: Waiting) -> Rank:
    return -waiting.job.priority, waiting.job.duration_seconds, waiting.job.submit_seconds


def _smallest_predicted(waiting: Waiting) -> Rank:
    service = waiting.predicted_seconds * waiting.job.gpus
    return -waiting.job.priority, service, waiting.job.submit_seconds


def _least_served(waiting: Waiting) -> Rank:
    level = waiting.served_gpu_seconds >= TIRESIAS_GPU_SECONDS
    return float(level), waiting.job.submit_seconds


def _use_of_quota(queue: str, view: View) -> float:
    return view.used[queue] / max(view.quotas[queue], 1e-9)


# Limits


def _within_quota(waiting: Waiting, view: View) -> bool:
    queue = waiting.job.queue
    return view.used[queue] + waiting.job.gpus <= view.quotas[queue]


# Victims


def _of_borrowers(waiting: Waiting, view: View) -> Iterable[Running]:
    """Like Kueue's reclaim within a cohort: inside its quota, a job evicts the latest of queues above theirs."""
    if not _within_quota(waiting, view):
        return ()
    return _above(view, waiting.job, view.quotas)


def _above_fair_share(waiting: Waiting, view: View) -> Iterable[Running]:
    """Like KAI's reclaim: up to its fair share, a job evicts the latest of queues above theirs."""
    queue = waiting.job.queue
    shares = view.fair_shares()
    if view.used[queue] + waiting.job.gpus > shares[queue]:
        return ()
    return _above(view, waiting.job, shares)


def _above(view: View, job: job_list.Job, limits: Mapping[str, float]) -> Iterable[Running]:
    surplus = {queue: view.used[queue] - limits[queue] for queue in view.used if queue != job.queue}
    lent = sum(gpus for gpus in surplus.values() if gpus > 0)
    free = view.gpus - sum(view.used.values())
    if lent <= 0 or lent + free < job.gpus:
        return  # whichever jobs leave, this one has no room
    latest_first = sorted(
        (running for running in view.running.values() if surplus.get(running.job.queue, 0) > 0),
        key=lambda running: (running.job.priority, -running.since, running.job.name),
    )
    for running in latest_first:
        # A queue is not driven below its limit.
        if surplus[running.job.queue] >= running.job.gpus:
            surplus[running.job.queue] -= running.job.gpus
            yield running


def _longest_served(waiting: Waiting, view: View) -> Iterable[Running]:
    """Like Tiresias: a job with little service evicts those with much."""
    if waiting.served_gpu_seconds >= TIRESIAS_GPU_SECONDS:
        return ()
    served = (
        (running.served_gpu_seconds + (view.now - running.since) * running.job.gpus, running)
        for running in view.running.values()
    )
    long = [entry for entry in served if entry[0] >= TIRESIAS_GPU_SECONDS]
    long.sort(key=lambda entry: (-entry[1].job.submit_seconds, entry[1].job.name))
    return (running for _, running in long)


RULES: Final = {
    "fifo": Rule(_first_come, "the first job without room holds up the others", is_strict=True),
    "pooled": Rule(_first_come, "first come, and any later job that has room; no quotas"),
    "backfill": Rule(
        _first_come, "as pooled, but no job delays the predicted start of the first", reserves=True
    ),
    "sjf": Rule(_shortest, "the shortest first, by the true duration (an oracle)"),
    "qssf": Rule(_smallest_predicted, "the smallest predicted GPU time first"),
    "tiresias": Rule(
        _least_served, "jobs with little service so far evict longer ones", victims=_longest_served
    ),
    "fair-share": Rule(
        _first_come, "the queue that uses least of its quota", queue_rank=_use_of_quota
    ),
    "partitions": Rule(_first_come, "no queue above its quota", may_start=_within_quota),
    "kueue": Rule(
        _first_come, "borrowing; jobs inside their quota evict borrowers", victims=_of_borrowers
    ),
    "kai": Rule(
        _first_come,
        "the queue that uses least of its quota; reclaim up to the fair share",
        queue_rank=_use_of_quota,
        victims=_above_fair_share,
    ),
}
