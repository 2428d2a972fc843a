"""The shape of the answer of `right-size`: what every family of work should use, why, and what that saves. Plain data.

Memory is in bytes, shares are millionths, times are RFC 3339 in UTC. What was not measured is null, never zero. Lists
are sorted, so that the same input gives the same document.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from dovetail.answer.replica import patches
from dovetail.answer.right_size.back_test import BackTest
from dovetail.answer.right_size.device_choices import Choice
from dovetail.answer.right_size.memory_need import Headroom


class Verdict(StrEnum):
    """What should be done about a family."""

    SHRINK = "shrink"
    GROW = "grow"  # programs ran out of memory
    KEEP = "keep"
    SETTING = "setting"  # measured memory is a setting of the program, not a need
    EXCLUDED = "excluded"  # no smaller device can serve such work
    UNKNOWN = "unknown"  # too little was measured


class Level(StrEnum):
    """How sure a recommendation is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Confidence(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much a recommendation rests on."""

    level: Level
    days: float
    runs: int
    runs_measured: int
    samples: int
    is_partial: bool = False
    missing: tuple[str, ...] = ()


class Needs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the work needs, as measured."""

    largest_memory_bytes: int
    memory_bytes: int  # with headroom
    headroom: Headroom
    out_of_memory: int
    busy_quantile: float | None = None
    busy_micro: int | None = None
    compute_micro: int | None = None
    bandwidth_micro: int | None = None
    bound_by: str = ""


class MoreFit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the engine says about the cluster as it is, and with the patches applied."""

    fit_before: int  # more pods of this shape
    fit_after: int
    pods: int  # of the work, now
    pods_start: int  # of those, with the patches
    waits: str = ""  # why not all of them, or not one more


class Recommendation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One family of work."""

    work: str  # kind/namespace/name
    verdict: Verdict
    product: str
    current: Choice
    recommended: Choice | None  # null: as it is
    why: str
    why_not_smaller: str
    confidence: Confidence
    needs: Needs | None
    gpu_hours_held: float
    gpu_hours_saved: float
    money_saved: float | None  # null: no price
    is_patchable: bool = False
    patches: tuple[patches.Patch, ...] = ()
    patch_note: str = ""
    what_if: MoreFit | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole answer."""

    start: str
    end: str
    work: tuple[Recommendation, ...]
    gpu_hours_held: float
    gpu_hours_saved: float
    money_saved: float | None
    unpriced: tuple[str, ...] = ()  # products
    is_partial: bool = False
    back_test: BackTest | None = None  # null: nothing was measured in both halves of the window
    notes: tuple[str, ...] = ()
