"""The marks of NVIDIA's GPU Operator on nodes: upgrade states, the skip label, deploy labels and their pauses.

Given a node. The names are those of the operator 26.7 and its upgrade library. Never decides what to do about them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from dovetail.answer.stack import node_stack
from dovetail.answer.why.evidence.gpu_platform import gpu_nodes
from dovetail.kubetypes.core import nodes

STATE: Final = node_stack.UPGRADE_STATE
SKIP: Final = "nvidia.com/gpu-driver-upgrade.skip"
PAUSED_FOR_DRIVER: Final = "paused-for-driver-upgrade"
PAUSED_FOR_MIG: Final = "paused-for-mig-change"
VALIDATOR_APP: Final = "nvidia-operator-validator"
DEPLOY_VALIDATOR: Final = f"{gpu_nodes.DEPLOY}operator-validator"
# Without these the operator finds no driver image for the node.
DISCOVERY_LABELS: Final = (
    "feature.node.kubernetes.io/kernel-version.full",
    "feature.node.kubernetes.io/system-os_release.ID",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID",
)
OUR_SKIP: Final = "dovetail.dev/driver-skip"  # annotation: we set the skip label, for this target
RETRIED: Final = (
    "dovetail.dev/driver-retried"  # annotation: a failed upgrade to this target was repeated once
)


class State(StrEnum):
    """Where the upgrade library has a node."""

    UNKNOWN = ""
    DONE = "upgrade-done"
    REQUIRED = "upgrade-required"
    CORDON = "cordon-required"
    WAIT_FOR_JOBS = "wait-for-jobs-required"
    POD_DELETION = "pod-deletion-required"
    DRAIN = "drain-required"
    MAINTENANCE = "node-maintenance-required"
    AFTER_MAINTENANCE = "post-maintenance-required"
    POD_RESTART = "pod-restart-required"
    VALIDATION = "validation-required"
    UNCORDON = "uncordon-required"
    FAILED = "upgrade-failed"


IDLE_STATES: Final = (State.UNKNOWN, State.DONE, State.REQUIRED)


def state_of(node: nodes.Node) -> State | str:
    """The state of a node; the text itself where this library has no such state."""
    text = node.metadata.labels.get(STATE, "")
    return State(text) if text in set(State) else text


def is_skipped(node: nodes.Node) -> bool:
    """Whether the library leaves the node in upgrade-required."""
    return node.metadata.labels.get(SKIP) == "true"


def is_skipped_by_us(node: nodes.Node) -> bool:
    """Whether an upgrade of ours set the skip label."""
    return is_skipped(node) and OUR_SKIP in node.metadata.annotations


def paused(node: nodes.Node, value: str) -> tuple[str, ...]:
    """The deploy labels that are paused for this reason, sorted."""
    labels = node.metadata.labels
    return tuple(
        sorted(
            key
            for key, held in labels.items()
            if key.startswith(gpu_nodes.DEPLOY) and held == value
        )
    )
