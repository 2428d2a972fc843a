"""The shape of the plan of a roll-out: waves, work that moves, waits or never fits, promises, blockers. Plain data.

GPU-hours have at most two decimals; times are RFC 3339 in UTC, null where work does not start within the horizon.
Lists are sorted, so that the same input gives the same document.
"""

from __future__ import annotations

import msgspec


class Moved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Work that a wave displaces."""

    work: str
    pods: int
    gpus: float
    before: tuple[str, ...]  # nodes
    after: tuple[str, ...]  # nodes; empty where it does not start again
    start: str | None
    waits_seconds: int | None
    lost_seconds: int  # work that is done again
    fate: str  # moves, waits, never, lost
    why: str = ""


class Wave(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that are out of service together."""

    number: int
    is_canary: bool
    start: str
    end: str
    late_end: str
    units: tuple[str, ...]
    nodes: tuple[str, ...]
    gpus: int
    work: tuple[Moved, ...]
    lost_gpu_hours: float


class Slip(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Waiting work that starts later because of the roll-out."""

    work: str
    gpus: float
    before: str
    after: str | None
    seconds: int | None
    is_promised: bool


class Blocker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What keeps the roll-out from finishing, and what to do about it."""

    code: str
    nodes: tuple[str, ...]
    subjects: tuple[str, ...]
    message: str
    next: str


class Loss(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an order of the nodes loses, in GPU-hours."""

    order: str
    total: float
    thrown_away: float
    displaced_waits: float
    delayed_starts: float
    displaced: int  # times that work lost its nodes
    end: str
    cost: float | None = None
    unpriced: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The plan."""

    now: str
    to: dict[str, str]
    can_finish: bool
    nodes: int
    skipped: tuple[str, ...]  # nodes that are there already
    max_unavailable: int
    node_seconds: dict[str, int]
    durations_from: str
    start: str
    end: str
    late_end: str
    waves: tuple[Wave, ...]
    slips: tuple[Slip, ...]
    blockers: tuple[Blocker, ...]
    chosen: Loss
    compared: tuple[Loss, ...]
    saved_percent: float | None  # of the GPU-hours that the order by name loses
    assumptions: tuple[str, ...]
