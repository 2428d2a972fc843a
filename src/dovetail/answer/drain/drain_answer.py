"""The shape of the prediction of a drain: the fate of each pod, what blocks, who holds GPUs. Plain data.

Pods stand in the order of the drain. The same input gives the same document.
"""

from __future__ import annotations

import msgspec

EVICT = "evict"
DELETE = "delete"
SKIP = "skip"
REFUSE = "refuse"


class PodFate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the drain does with a pod."""

    pod: str
    action: str  # evict, delete, skip, refuse
    owner: str = ""
    phase: str = ""
    filter: str = ""  # which of kubectl's filters keeps the pod
    message: str = ""  # kubectl's own words
    gpus: float = 0
    grace_seconds: int | None = None
    budget: str = ""
    waits: str = ""  # what the eviction waits for
    notes: tuple[str, ...] = ()


class Blocker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What keeps the drain from finishing, and what to do about it."""

    code: str
    pods: tuple[str, ...]
    message: str
    next: str


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that holds GPUs of the node without requesting any."""

    pod: str
    signs: tuple[str, ...]
    is_certain: bool
    leaves: bool


class Prediction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A drain of one node."""

    node: str
    can_drain: bool
    is_cordoned: bool
    gpus: int
    pods: tuple[PodFate, ...]
    blockers: tuple[Blocker, ...]
    warnings: tuple[str, ...]
    holders: tuple[Holder, ...]
    unknown: tuple[str, ...]  # what could not be decided
    server: str = ""  # who judged evictions besides us: empty, or `dry run`
