"""Whether the pods that an installer ends on a node may start there again while the node is fenced.

Given pods of DaemonSets. The fence is a taint, and the DaemonSet controller creates no pod that does not tolerate it:
the operator's own tolerate `nvidia.com/gpu` and nothing else unless it is told to. Never changes an object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dovetail.kubetypes.core import nodes
from dovetail.schedule.node import node_fit
from dovetail.upgrade.adapters.adapter import Problem
from dovetail.upgrade.adapters.node_facts import StackPod

FENCE: Final = "dovetail.dev/stack-upgrade"  # key of the taint of a node that is upgraded
_TAINT: Final = nodes.Taint(key=FENCE, effect="NoSchedule")


def problems(node: str, pods: Iterable[StackPod]) -> tuple[Problem, ...]:
    """The first pod that would not come back."""
    kept_away = [each for each in pods if not node_fit.tolerated(_TAINT, each.pod.spec.tolerations)]
    if not kept_away:
        return ()
    return (
        Problem(
            code="FenceNotTolerated",
            message=f"{kept_away[0].id} does not tolerate the taint {FENCE} and would not start again on"
            f" the fenced node {node}",
            next_step=f"add {{key: {FENCE}, operator: Exists}} to daemonsets.tolerations of the GPU"
            " Operator while driver.upgradePolicy.autoUpgrade is off: new templates look like an"
            " upgrade to it",
        ),
    )
