"""The object by which the GPU Operator is given the driver of a node, the nodes it governs, and its free slots.

Given the facts of a node. The count of slots is that of NVIDIA's upgrade library, which counts a failed node as one
in progress and a node that another party cordoned as unavailable. Never writes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dovetail.answer.stack import node_stack
from dovetail.kubetypes import gpu_stack_kinds, registry
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import gpu_operator
from dovetail.upgrade.adapters import node_facts, operator_labels
from dovetail.upgrade.adapters.node_facts import NodeFacts
from dovetail.upgrade.adapters.operator_labels import State

_NO_POLICY: Final = gpu_operator.UpgradePolicy()
# In these, the library counts a node as unavailable, and neither as one of all nor as one in progress.
_UNCOUNTED: Final = (State.MAINTENANCE, State.AFTER_MAINTENANCE)


class Lever(NamedTuple):
    """A ClusterPolicy or NVIDIADriver that names the driver of a node."""

    kind: registry.Kind
    name: str
    version: str
    policy: gpu_operator.UpgradePolicy
    governed: tuple[nodes.Node, ...]

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.kind.name} {self.name}"

    def patch_to(self, version: str) -> dict[str, Any]:
        """The merge patch that asks for another driver."""
        if self.kind is gpu_stack_kinds.CLUSTER_POLICY:
            return {"spec": {"driver": {"version": version}}}
        return {"spec": {"version": version}}


class Slots(NamedTuple):
    """How many nodes the library may start now, and what takes the others."""

    free: int
    in_progress: tuple[str, ...]
    failed: tuple[str, ...]  # among those in progress
    unavailable: tuple[str, ...]  # cordoned or not ready
    most_parallel: int
    most_unavailable: int

    @property
    def reason(self) -> str:
        """Why there is no free slot, with numbers and names."""
        parts = []
        if self.most_parallel and len(self.in_progress) >= self.most_parallel:
            parts.append(
                f"{len(self.in_progress)} of at most {self.most_parallel} in progress"
                f" (maxParallelUpgrades): {_listed(self.in_progress)}"
            )
        if self.failed:
            parts.append(f"upgrade-failed counts as in progress: {_listed(self.failed)}")
        if len(self.unavailable) >= self.most_unavailable:
            parts.append(
                f"{len(self.unavailable)} of at most {self.most_unavailable} cordoned or not ready"
                f" (maxUnavailable): {_listed(self.unavailable)}"
            )
        return "; ".join(parts) or "none is free"


def lever_of(facts: NodeFacts) -> Lever | None:
    """The lever of a node; None where the operator installs no driver there, or objects contradict each other."""
    if not facts.stack.driver_desired.is_present:
        return None
    policy = facts.platform.policy
    uses_objects = policy is None or bool(policy.spec.driver.use_nvidia_driver_crd)
    if uses_objects and facts.platform.drivers:
        return _driver_lever(facts, policy)
    if policy is None:
        return None
    driver = policy.spec.driver
    return Lever(
        gpu_stack_kinds.CLUSTER_POLICY,
        policy.metadata.name,
        driver.version,
        driver.upgrade_policy or _NO_POLICY,
        tuple(node for node in facts.fleet if _takes_operator_driver(node)),
    )


def slots(lever: Lever) -> Slots:
    """The slots of the library for the nodes of a lever."""
    every = {node.metadata.name: operator_labels.state_of(node) for node in lever.governed}
    states = {name: state for name, state in every.items() if state not in _UNCOUNTED}
    total = len(states)
    in_progress = tuple(
        sorted(name for name, state in states.items() if state not in operator_labels.IDLE_STATES)
    )
    required = sum(state == State.REQUIRED for state in states.values())
    about_to_cordon = sum(state == State.CORDON for state in states.values())
    unavailable = tuple(sorted(node.metadata.name for node in lever.governed if _is_out(node)))

    most_parallel = lever.policy.max_parallel_upgrades
    most_unavailable = scaled(lever.policy.max_unavailable, total)
    free = required if most_parallel == 0 else most_parallel - len(in_progress)
    free = min(free, most_unavailable)
    taken = len(unavailable) + about_to_cordon
    if taken >= most_unavailable:
        free = 0
    elif most_unavailable < total:
        free = min(free, most_unavailable - taken)
    return Slots(
        free=max(free, 0),
        in_progress=in_progress,
        failed=tuple(name for name in in_progress if states[name] == State.FAILED),
        unavailable=unavailable,
        most_parallel=most_parallel,
        most_unavailable=most_unavailable,
    )


def scaled(limit: int | str, total: int) -> int:
    """A number or a percentage of nodes, rounded up as the library does; all nodes where it is neither."""
    text = str(limit)
    if text.endswith("%") and text[:-1].isdecimal():
        return -(-int(text[:-1]) * total // 100)
    return int(text) if text.isdecimal() else total


def _driver_lever(facts: NodeFacts, policy: gpu_operator.ClusterPolicy | None) -> Lever | None:
    driver = node_stack.owner_of(facts.node.metadata.labels, facts.platform)
    if driver is None:
        return None
    inherited = policy.spec.driver.upgrade_policy if policy is not None else None
    return Lever(
        gpu_stack_kinds.NVIDIA_DRIVER,
        driver.metadata.name,
        driver.spec.version,
        driver.spec.upgrade_policy or inherited or _NO_POLICY,
        tuple(
            node
            for node in facts.fleet
            if node_stack.owner_of(node.metadata.labels, facts.platform) is driver
        ),
    )


def _takes_operator_driver(node: nodes.Node) -> bool:
    wanted = node.metadata.labels.get(node_stack.DEPLOY_DRIVER, "true")
    return wanted not in ("false", node_stack.PRE_INSTALLED)


def _is_out(node: nodes.Node) -> bool:
    return node.spec.unschedulable or not node_facts.is_ready(node)


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
