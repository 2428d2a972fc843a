"""Decides what pods nominated for a node are kept once somebody else starts there: room for all, not certain devices.

Given the world as it will be, with everybody in; answers with devices for each who is nominated, at the price of those
before, or that somebody would go without. Never lets anybody start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dovetail.model import plan, pods
from dovetail.model.reasons import Reason
from dovetail.schedule.claims import Needs
from dovetail.schedule.gangs.jobs import Job
from dovetail.schedule.placement import Found, Search
from dovetail.schedule.queues import amounts
from dovetail.schedule.queues.amounts import Amounts
from dovetail.schedule.queues.tariff import Tariff
from dovetail.world.world import World


class Guard(Protocol):
    """Whoever has a say in where a pod may be placed now."""

    def allows(self, job: Job, pod: pods.Pod, found: Found) -> bool:
        """Whether the place may be taken: nobody loses what was promised."""

    def kept_for(self, job: Job, node: str) -> Reason:
        """For whom a node is kept that the job may not take."""

    def stands(self, job: Job) -> bool:
        """Whether nobody lost what was promised, once others yielded to a job, moved, or stayed after all."""


class Nominated(Protocol):
    """A pod that is kept room on a node."""

    @property
    def pod(self) -> pods.Pod:
        """As it would be placed."""

    @property
    def found(self) -> Found:
        """What it is kept."""

    @property
    def needs(self) -> Needs:
        """What it asks for."""


def exchanged(
    world: World, search: Search, *, tariff: Tariff, nominated: Mapping[str, Nominated]
) -> dict[str, Found] | None:
    """What each is kept instead, on the same node; None if somebody finds nothing there. Leaves them there."""
    for one in nominated.values():
        world.forget(one.pod)
    kept: dict[str, Found] = {}
    for id_, one in nominated.items():
        other = search.find(one.pod, one.needs, within={one.found.node})
        if isinstance(other, plan.Refusal) or _price(other, one.pod, tariff) != _price(one.found, one.pod, tariff):
            return None
        world.assume(one.pod, other.node, other.taken(one.pod))
        kept[id_] = other
    return kept


def _price(found: Found, pod: pods.Pod, tariff: Tariff) -> Amounts:
    return amounts.total(tariff.of_claim(key, one) for key, one in found.taken(pod).items())
