"""Whether the pods of the GPU stack on a node would start there again while our taint stands on it.

Given the pods. The DaemonSet controller creates no pod that does not tolerate a taint, and the operator's own tolerate
`nvidia.com/gpu` and nothing else by default. All of them tolerate a cordon. Never changes an object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.kubetypes.core import nodes, pods
from dovetail.schedule.node import node_fit

FENCE: Final = "dovetail.dev/stack-upgrade"  # key of the taint of a node that is upgraded
_TAINT: Final = nodes.Taint(key=FENCE, effect="NoSchedule")


def kept_away(on_node: Iterable[pods.Pod]) -> bool:
    """Whether the taint would keep a part of the GPU stack away once its pod has ended."""
    return any(
        gpu_nodes.component_of(pod.metadata.labels) is not None
        and not node_fit.tolerated(_TAINT, pod.spec.tolerations)
        for pod in on_node
    )
