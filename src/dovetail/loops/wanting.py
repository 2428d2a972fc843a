"""Finds the reason of a waiting pod's condition: which pods an autoscaler should buy a node for, and which not.

Given refusals, when they are about to be told. Most reasons are read off the refusal; else the engine is asked whether
more nodes would help. Such a question costs milliseconds, so no more than a few new ones are asked in a second; the
others wait for their turn. Never writes.
"""

from __future__ import annotations

import logging
from typing import Final

from dovetail.answer import growth
from dovetail.model import plan, pods, policy, waitreasons
from dovetail.ports import clock as clocks
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.tell")
QUESTIONS_PER_SECOND: Final = 10


class Wanting:
    """Questions about one World."""

    def __init__(
        self, world: World, policy_: policy.Policy, clock: clocks.Clock, *, scales_from_zero: bool = True
    ) -> None:
        self._growth = growth.Growth(world, policy_)
        self._clock = clock
        self._scales_from_zero = scales_from_zero
        self._second = 0
        self._asked = 0  # in that second

    def reason_of(self, pod: pods.Pod, refusal: plan.Refusal) -> str | None:
        """The reason of the pod's condition; None where too much was asked in this second."""
        told = waitreasons.told(pod, refusal)
        if told is not None:
            return told
        if not self._growth.is_answered(pod) and not self._may_ask():
            return None
        try:
            answer = self._growth.would_help(pod, self._clock.now())
        except Exception:  # a fault in the question must not keep the owner from being told
            LOG.exception("whether a node would help is not known", extra={"pod": pod.metadata.name})
            return waitreasons.UNSCHEDULABLE
        if answer is growth.Help.NEVER or (answer is growth.Help.UNSEEN and not self._scales_from_zero):
            return waitreasons.NO_NODE_FITS
        return waitreasons.UNSCHEDULABLE

    def _may_ask(self) -> bool:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._asked = second, 0
        self._asked += 1
        return self._asked <= QUESTIONS_PER_SECOND
