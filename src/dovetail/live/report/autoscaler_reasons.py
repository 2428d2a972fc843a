"""Chooses the reason of a pending pod's condition, by which autoscalers decide whether a new node would help.

Given refusals that are about to be reported. Most reasons follow from the refusal; for the others the engine simulates
more nodes. That costs milliseconds, so only a few new simulations run per second and the rest wait. Never writes.
"""

from __future__ import annotations

import logging
from typing import Final

from dovetail.answer import scale_up
from dovetail.kubetypes.core import pods
from dovetail.model import condition_reasons, plan, policy
from dovetail.ports import clock as clocks
from dovetail.world.world import World

LOG = logging.getLogger("dovetail.report")
SIMULATIONS_PER_SECOND: Final = 10


class AutoscalerReasons:
    """Simulates more nodes for the pending pods of one World."""

    def __init__(
        self,
        world: World,
        policy_: policy.Policy,
        clock: clocks.Clock,
        *,
        scales_from_zero: bool = True,
    ) -> None:
        self._growth = scale_up.ScaleUp(world, policy_)
        self._clock = clock
        self._scales_from_zero = scales_from_zero
        self._second = 0
        self._asked = 0  # simulations in that second

    def reason_of(self, pod: pods.Pod, refusal: plan.Refusal) -> str | None:
        """The reason of the pod's condition; None where this second's simulations are used up."""
        reason = condition_reasons.reason_for(pod, refusal)
        if reason is not None:
            return reason
        if not self._growth.is_answered(pod) and not self._may_ask():
            return None

        try:
            answer = self._growth.would_help(pod, self._clock.now())
        except Exception:  # a bug here must not keep the owner from learning why the pod waits
            LOG.exception(
                "report.scale_up.failed: whether a node would help is unknown",
                extra={"pod": pod.metadata.name},
            )
            return condition_reasons.UNSCHEDULABLE

        is_unseen_ruled_out = answer is scale_up.Help.UNSEEN and not self._scales_from_zero
        if answer is scale_up.Help.NEVER or is_unseen_ruled_out:
            return condition_reasons.NO_NODE_FITS
        return condition_reasons.UNSCHEDULABLE

    def _may_ask(self) -> bool:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._asked = second, 0
        self._asked += 1
        return self._asked <= SIMULATIONS_PER_SECOND
