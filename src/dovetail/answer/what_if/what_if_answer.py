"""The shape of the answer of `what-if`: the changes, the cluster before and after, and the difference. Plain data.

Amounts of GPUs are numbers of GPUs with at most three decimals; times are RFC 3339 in UTC, null where work does not
start within the horizon. Lists are sorted, so that the same input gives the same document.
"""

from __future__ import annotations

import msgspec


class StatedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change as it was given, and what is assumed about it."""

    change: str
    assumption: str


class GpuType(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of one type."""

    nodes: int
    total: float
    used: float
    free: float
    cordoned: float  # unused, on nodes that take no new pods


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What waits once everything that can start now has started."""

    jobs: int
    pods: int
    gpus: float


class QueueNumbers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The GPUs of a queue; quota and limit as written, null where the queue sets none."""

    quota: str | None = None
    limit: str | None = None
    weight: int = 1
    charged: float = 0
    requested: float = 0
    fair_share: float = 0
    running: int = 0  # gangs
    pending: int = 0


class State(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster once everything that can start now has started."""

    nodes: int
    gpus: dict[str, GpuType]
    waiting_jobs: int  # before anything starts
    starting_jobs: int  # of those, now
    starting_by_horizon: int  # of those, within the horizon
    waiting: Waiting
    evictions: int
    stranded_gpus: float
    queues: dict[str, QueueNumbers]
    cost_per_hour: float | None = None
    unpriced_types: tuple[str, ...] = ()
    computed_until: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Work that starts now: how much of it, and where."""

    work: str
    pods: int
    gpus: float
    nodes: dict[str, int]  # pods by node


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the given files."""

    work: str
    pods: int
    gpus: float
    start: str | None
    nodes: dict[str, int]


class Shifted(msgspec.Struct, frozen=True, kw_only=True):
    """Work that starts at another time; null: not within the horizon."""

    work: str
    before: str | None
    after: str | None
    seconds: int | None  # earlier by so many, or later; null where one start is not known


class Evicted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that yields: by which rule, for whom, and where it goes on, if it does at once."""

    pod: str
    work: str
    rule: str
    beneficiary: str | None
    node: str  # where it runs afterwards; empty while it waits
    is_lost: bool  # no controller creates it again


class Moved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that runs on both sides, on different nodes."""

    pod: str
    work: str
    before: str
    after: str


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that runs as things are and does not run with the changes."""

    pod: str
    work: str
    node: str
    why: str  # ends, is lost, waits


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the changes do."""

    starts: tuple[Job, ...] = ()  # now, only with the changes
    no_longer_starts: tuple[Job, ...] = ()  # now, only without them
    earlier: tuple[Shifted, ...] = ()
    later: tuple[Shifted, ...] = ()
    evicted: tuple[Evicted, ...] = ()  # only with the changes
    spared: tuple[Evicted, ...] = ()  # only without them
    moved: tuple[Moved, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    new_work: tuple[NewJob, ...] = ()
    nodes: int = 0
    total_gpus: float = 0
    free_gpus: float = 0
    waiting_jobs: int = 0
    waiting_pods: int = 0
    waiting_gpus: float = 0
    stranded_gpus: float = 0
    cost_per_hour: float | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer."""

    now: str
    horizon_seconds: int
    changes: tuple[StatedChange, ...]
    before: State
    after: State
    difference: Difference
