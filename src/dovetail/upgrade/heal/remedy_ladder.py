"""Which remedy a GPU's faults call for: the driver's own word first, else the table of faults. The ladder of remedies.

Given the taints of a GPU. The table is the node agent's (`node/health/policy_table`): there is no second one. Every
advice of the table is a rung of the ladder or the business of a person. Never acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from dovetail.kubetypes import node_selectors
from dovetail.node.health import device_taints, policy_table
from dovetail.node.health.policy_table import Advice, Effect, HealthPolicy

DRIVER_WORD: Final = "recovery-"  # how the faults begin that are the driver's own request
XID_KEY: Final = f"{device_taints.NVIDIA_DOMAIN}/xid"
_DOMAINS: Final = (f"{device_taints.NVIDIA_DOMAIN}/", f"{device_taints.OUR_DOMAIN}/")
BLOCKING: Final = frozenset({Effect.NO_SCHEDULE.value, Effect.NO_EXECUTE.value})


class Rung(StrEnum):
    """The remedies, gentlest first."""

    RESTART_APP = "restart-app"
    RESET_GPU = "reset-gpu"  # the pods on that GPU leave
    DRAIN_AND_RESET = "drain-and-reset"  # all pods with GPUs of the node leave
    REBOOT = "reboot"  # all pods of the node leave
    REPLACE = "replace"


LADDER: Final = tuple(Rung)


class Person(msgspec.Struct, frozen=True, gc=False):
    """No remedy of ours: what a person should look at."""

    advice: str


class Nothing(msgspec.Struct, frozen=True, gc=False):
    """The fault needs no remedy."""


Remedy = Rung | Person | Nothing


class SeenFault(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A fault as a taint of a device shows it. Times are Unix seconds."""

    name: str
    effect: str
    since: float

    @property
    def is_blocking(self) -> bool:
        """Whether it keeps new work away."""
        return self.effect in BLOCKING

    @property
    def is_of_driver(self) -> bool:
        """Whether the driver itself asks for a remedy."""
        return self.name.startswith(DRIVER_WORD)


class Diagnosis(msgspec.Struct, frozen=True, gc=False):
    """The fault that decides about a GPU, and its remedy."""

    fault: SeenFault
    remedy: Remedy

    @property
    def rung(self) -> Rung | None:
        """The rung, where the remedy is one."""
        return self.remedy if isinstance(self.remedy, Rung) else None


def fault_of(taint: node_selectors.DeviceTaint, *, since: float) -> SeenFault | None:
    """The fault that a taint stands for; None for a taint of other writers."""
    if taint.key == XID_KEY:
        return SeenFault(name=f"xid-{taint.value}", effect=taint.effect, since=since)
    for domain in _DOMAINS:
        name = taint.key.removeprefix(domain)
        if name != taint.key and _is_known(name):
            return SeenFault(name=name, effect=taint.effect, since=since)
    return None


def remedy_of(advice: Advice) -> Remedy:
    """What an advice of the table means on the ladder."""
    match advice:
        case Advice.IGNORE:
            return Nothing()
        case Advice.RESTART_APP:
            return Rung.RESTART_APP
        case Advice.RESET_GPU:
            return Rung.RESET_GPU
        case Advice.DRAIN_P2P:
            return Rung.DRAIN_AND_RESET
        case Advice.REBOOT_NODE:
            return Rung.REBOOT
        case Advice.REPLACE:
            return Rung.REPLACE
        case Advice.RECOVER_FABRIC | Advice.CHECK_MECHANICS | Advice.CONTACT_SUPPORT:
            return Person(advice.value)
    assert_never(advice)


def diagnosis(faults: Iterable[SeenFault], table: HealthPolicy) -> Diagnosis | None:
    """The fault that decides: the driver's word if there is one, else the highest rung. None without faults."""
    seen = sorted(faults, key=lambda fault: (fault.since, fault.name))
    spoken = [fault for fault in seen if fault.is_of_driver]
    judged = [
        Diagnosis(fault, remedy_of(table.rule(fault.name).advice)) for fault in spoken or seen
    ]
    return max(judged, key=_weight) if judged else None


def height(rung: Rung) -> int:
    """How far up the ladder."""
    return LADDER.index(rung)


def next_rung(rung: Rung) -> Rung:
    """The next remedy up; the last one stays."""
    return LADDER[min(height(rung) + 1, len(LADDER) - 1)]


def escalated(base: Rung, earlier: Sequence[Rung], *, tries: int) -> Rung:
    """The remedy after those tried within the window: never below them, one rung up after `tries` of it.

    Restarting an application never leads to a reset: an application can repeat its own error forever.
    """
    if base is Rung.RESTART_APP:
        return base
    serious = [rung for rung in earlier if rung is not Rung.RESTART_APP]
    highest = max([base, *serious], key=height)
    return next_rung(highest) if serious.count(highest) >= tries else highest


def _weight(each: Diagnosis) -> tuple[int, int]:
    match each.remedy:
        case Rung():
            rank = 2 + height(each.remedy)
        case Person():
            rank = 1
        case Nothing():
            rank = 0
    # Of two faults the one that keeps work away: the other never moves a pod.
    return int(each.fault.is_blocking), rank


def _is_known(name: str) -> bool:
    return name in policy_table.DEFAULTS
