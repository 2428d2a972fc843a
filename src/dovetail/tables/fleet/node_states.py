"""The state of a node in one word, and the reason in a sentence.

Given a node. A taint that names a GPU resource marks nodes with GPUs and closes them to no GPU work, so it makes no
node tainted. Never decides a placement.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.schedule.node import node_fit

READY, CORDONED, NOT_READY, TAINTED = "ready", "cordoned", "notReady", "tainted"
READY_CONDITION: Final = "Ready"
_CLOSING: Final = ("NoSchedule", "NoExecute")
_REPEATED: Final = frozenset(  # these say what the condition Ready and the spec say already
    f"node.kubernetes.io/{name}" for name in ("unschedulable", "not-ready", "unreachable")
)


class NodeState(NamedTuple):
    """The state, and why it is not ready."""

    state: str
    reason: str = ""


def state_of(node: nodes.Node) -> NodeState:
    """The worst that is true of a node."""
    conditions = {condition.type: condition for condition in node.status.conditions}
    ready = conditions.get(READY_CONDITION)
    if ready is None or ready.status != "True":
        words = (
            [ready.reason, ready.message] if ready is not None else ["it has no condition Ready"]
        )
        return NodeState(NOT_READY, ": ".join(filter(None, words)))
    if node.spec.unschedulable:
        return NodeState(CORDONED, "cordoned: it takes no new pods")
    taints = [taint for taint in node.spec.taints if _is_notable(taint)]
    if taints:
        return NodeState(TAINTED, ", ".join(map(node_fit.taint_text, taints)))
    return NodeState(READY)


def _is_notable(taint: nodes.Taint) -> bool:
    is_usual = node_pools.is_gpu_resource(taint.key) or taint.key in _REPEATED
    return taint.effect in _CLOSING and not is_usual
