"""Decides whether pods nominated for a node keep their capacity when another pod starts there.

A nomination guarantees room on the node, not certain devices. Given the World as it will be, with the new pod in;
returns other devices for each nominated pod, at the price of the devices it had, or nothing if one of them would go
without. Never starts a pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dovetail.kubetypes.core import pods
from dovetail.model import plan
from dovetail.model.reasons import Reason
from dovetail.schedule.gang.jobs import Job
from dovetail.schedule.node.find_node import NodePlacement, NodeSearch
from dovetail.schedule.node.pod_claims import PodClaims
from dovetail.schedule.queue import amounts
from dovetail.schedule.queue.amounts import Amounts
from dovetail.schedule.queue.pricing import Pricing
from dovetail.world.world import World


class Guard(Protocol):
    """Protects promises while other pods are placed."""

    def allows(self, job: Job, pod: pods.Pod, choice: NodePlacement) -> bool:
        """Whether a pod may start there without breaking a promise."""

    def kept_for(self, job: Job, node: str) -> Reason:
        """Which promises keep the job from the node."""

    def still_holds(self, job: Job) -> bool:
        """Whether every promise still holds after pods were evicted or moved for the job, or restored."""


class Nominated(Protocol):
    """A pod with capacity kept for it on a node."""

    @property
    def pod(self) -> pods.Pod:
        """As it would be placed."""

    @property
    def choice(self) -> NodePlacement:
        """The node and devices kept for it."""

    @property
    def needs(self) -> PodClaims:
        """Its claims."""


def exchanged(
    world: World, search: NodeSearch, *, pricing: Pricing, nominated: Mapping[str, Nominated]
) -> dict[str, NodePlacement] | None:
    """By pod, what is kept for it instead on the same node; None if one of them no longer fits.

    Assumes the pods there.
    """
    # All of them leave first: each may need the very devices that another one has.
    for nomination in nominated.values():
        world.forget(nomination.pod)

    choices: dict[str, NodePlacement] = {}
    for pod_id, nomination in nominated.items():
        pod, before = nomination.pod, nomination.choice
        choice = search.find(pod, nomination.needs, within={before.node})
        if isinstance(choice, plan.Refusal):
            return None
        # The queue was charged, and checked against its bounds, for what the pod had before.
        if _price(choice, pod, pricing) != _price(before, pod, pricing):
            return None
        world.assume(pod, choice.node, choice.allocations_to_assume(pod))
        choices[pod_id] = choice
    return choices


def _price(choice: NodePlacement, pod: pods.Pod, pricing: Pricing) -> Amounts:
    allocations = choice.allocations_to_assume(pod)
    return amounts.total(
        pricing.cost_of_claim(key, allocation) for key, allocation in allocations.items()
    )
