"""Brings a node to another driver by the GPU Operator: its ClusterPolicy or NVIDIADriver, and its own upgrade library.

The lever is the version of the object. Because the operator would roll it out to every node in an order of its own,
every node it governs gets the skip label first; a node loses it when its turn comes, and the library does the work.
Where the policy has autoUpgrade off there is no library: the driver's pod is deleted instead, and the DaemonSet, which
is OnDelete, starts the new one. Never sets a state of the library but in two cases: one retry of a failure that the
library would not leave by itself, and a node that waits for an upgrade although it has the target already, whose pods
the library would evict for nothing. Never touches a cordon.
"""

from __future__ import annotations

from typing import Final

from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.upgrade.adapters import (
    adapter,
    driver_pods,
    operator_labels,
    operator_levers,
    operator_readiness,
    operator_states,
)
from dovetail.upgrade.adapters.adapter import Applied, NodePatch, ObjectPatch, PodDelete, Working
from dovetail.upgrade.adapters.node_facts import NodeFacts, StackPod
from dovetail.upgrade.adapters.operator_labels import State
from dovetail.upgrade.adapters.operator_levers import Lever

NAME: Final = "gpu-operator"


class OperatorAdapter:
    """The GPU Operator's driver on one node."""

    @property
    def name(self) -> str:
        """As statuses and metrics show it."""
        return NAME

    def governs(self, facts: NodeFacts, target: adapter.Target) -> bool:
        """Whether the operator installs the driver of this node."""
        return bool(target.driver) and operator_levers.lever_of(facts) is not None

    def reversible(
        self, facts: NodeFacts, target: adapter.Target
    ) -> adapter.Reversible | adapter.ForwardOnly:
        """Reversible where the object names the driver that the node has now."""
        lever = operator_levers.lever_of(facts)
        if lever is not None and lever.version:
            return adapter.Reversible()
        return adapter.ForwardOnly("no object of the operator names the driver that is there now")

    def unready(self, facts: NodeFacts, target: adapter.Target) -> tuple[adapter.Problem, ...]:
        """Marks of other upgrades, labels left behind, and what the lever puts at risk."""
        lever = operator_levers.lever_of(facts)
        if lever is None:
            return ()
        return operator_readiness.problems(facts, lever, target.driver)

    def apply(self, facts: NodeFacts, target: adapter.Target) -> adapter.Outcome:
        """Skip labels, version, then the library's states one after the other."""
        lever = operator_levers.lever_of(facts)
        if lever is None:
            return adapter.ApplyFailed(
                reason=f"the operator installs no driver on {facts.name} any more",
                next_step="look at the operator's objects: kubectl get clusterpolicies,nvidiadrivers",
            )
        if not driver_pods.is_version(lever.version, target.driver):
            return _asked(lever, target.driver)
        if lever.policy.auto_upgrade:
            return _by_library(facts, lever, target.driver)
        return _by_restart(facts, target.driver)


def _asked(lever: Lever, target: str) -> Working:
    """First the skip labels, and only when all are seen the version: a crash in between leaves nodes skipped."""
    if not lever.policy.auto_upgrade:
        return _version_asked(lever, target)
    unskipped = [node for node in lever.governed if not operator_labels.is_skipped(node)]
    if not unskipped:
        return _version_asked(lever, target)
    patches = tuple(
        NodePatch(
            node=node.metadata.name,
            labels={operator_labels.SKIP: "true"},
            annotations={operator_labels.OUR_SKIP: target},
            why="the operator must not start it before its turn",
        )
        for node in unskipped
    )
    return Working(
        writes=patches,
        waiting_for=f"the skip label on {len(unskipped)} of {len(lever.governed)} nodes of {lever.title},"
        " before its version changes",
    )


def _version_asked(lever: Lever, target: str) -> Working:
    patch = ObjectPatch(
        kind=lever.kind,
        name=lever.name,
        patch=lever.patch_to(target),
        why=f"the driver goes from {lever.version} to {target}",
    )
    return Working(writes=(patch,), waiting_for=f"{lever.title} to name driver {target}")


def _by_library(facts: NodeFacts, lever: Lever, target: str) -> adapter.Outcome:
    driver = driver_pods.driver_pod(facts)
    state = operator_labels.state_of(facts.node)
    has_target = driver is not None and driver.is_ready and driver_pods.runs(driver, target)
    if operator_labels.is_skipped(facts.node):
        return _unskipped(facts, target, has_target=has_target and state == State.REQUIRED)
    if state in (State.DONE, State.UNKNOWN) and has_target:
        return _released(facts, lever, target) or _finished(facts, driver, target)
    if state in (State.DONE, State.UNKNOWN):
        return _unnoticed(facts, target)
    return operator_states.outcome(facts, lever, target, state, driver)


def _unskipped(facts: NodeFacts, target: str, *, has_target: bool) -> adapter.Outcome:
    if not operator_labels.is_skipped_by_us(facts.node):
        return adapter.ApplyFailed(
            reason=f"node {facts.name} has the label {operator_labels.SKIP}, which this upgrade did not set",
            next_step=f"kubectl label node {facts.name} {operator_labels.SKIP}-, if the node may be upgraded",
            may_recover=True,
        )
    labels: dict[str, str | None] = {operator_labels.SKIP: None}
    if has_target:  # one patch: between two, the library would begin
        labels[operator_labels.STATE] = State.DONE.value
    patch = NodePatch(
        node=facts.name,
        labels=labels,
        annotations={operator_labels.OUR_SKIP: None, operator_labels.RETRIED: None},
        why=f"it has driver {target} already" if has_target else "it is this node's turn",
    )
    return Working(
        writes=(patch,), waiting_for="the operator to see that the node is skipped no more"
    )


def _released(facts: NodeFacts, lever: Lever, target: str) -> Working | None:
    """Other nodes that have the target, and that the way back of one node made skip the library once more."""
    held = [
        node.metadata.name
        for node in lever.governed
        if operator_labels.is_skipped_by_us(node)
        and operator_labels.state_of(node) in operator_labels.IDLE_STATES
        and _shows(facts, node.metadata.name, target)
    ]
    if not held:
        return None
    patches = tuple(
        NodePatch(
            node=name,
            labels={operator_labels.SKIP: None, operator_labels.STATE: State.DONE.value},
            annotations={operator_labels.OUR_SKIP: None},
            why=f"it has driver {target} already",
        )
        for name in held
    )
    return Working(writes=patches, waiting_for=f"the release of {len(held)} nodes with {target}")


def _shows(facts: NodeFacts, node: str, target: str) -> bool:
    """Whether the driver's pod of another node installs the target."""
    running = facts.platform.on_nodes.get((Component.DRIVER, node))
    return running is not None and driver_pods.is_version(running.version.value, target)


def _unnoticed(facts: NodeFacts, target: str) -> Working:
    if not _has_template(facts, target):
        return Working(
            waiting_for=f"the operator to write driver {target} into its DaemonSet, which still has"
            f" {facts.stack.driver_template}"
        )
    if driver_pods.driver_pod(facts) is None:
        return Working(waiting_for=f"a driver pod on {facts.name}; the DaemonSet has started none")
    return Working(
        waiting_for=f"the operator's upgrade controller to mark the node for driver {target}; it looks at"
        " least every 2 minutes"
    )


def _has_template(facts: NodeFacts, target: str) -> bool:
    """Whether the DaemonSet would start the target. One that was not read is not doubted."""
    template = facts.stack.driver_template
    return not template.is_present or driver_pods.is_version(template.value, target)


def _finished(facts: NodeFacts, driver: StackPod | None, target: str) -> adapter.Outcome:
    """Done for the library. Operands that stay paused would leave a node that looks empty, not broken."""
    left = operator_labels.paused(facts.node, operator_labels.PAUSED_FOR_DRIVER)
    if left:
        patch = NodePatch(
            node=facts.name,
            labels=dict.fromkeys(left, "true"),
            why=f"the driver is ready, but {len(left)} operands are still paused for its upgrade",
        )
        return Working(writes=(patch,), waiting_for=f"{len(left)} paused operands to resume")
    if not facts.is_ready:
        return Working(waiting_for=f"node {facts.name} to be Ready again")
    assert driver is not None
    return Applied(evidence=f"pod {driver.id} is ready with driver {target}")


def _by_restart(facts: NodeFacts, target: str) -> adapter.Outcome:
    """autoUpgrade is off: the library is silent, and the driver pod is replaced by deleting it."""
    driver = driver_pods.driver_pod(facts)
    if driver is None or not _has_template(facts, target):
        return _unnoticed(facts, target)
    if driver.is_going:
        return Working(waiting_for=f"the end of driver pod {driver.id}")
    if not driver_pods.runs(driver, target):
        metadata = driver.pod.metadata
        deletion = PodDelete(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            why=f"autoUpgrade is off: the DaemonSet starts driver {target} when the pod is gone",
        )
        return Working(writes=(deletion,), waiting_for=f"a driver pod with driver {target}")
    if not driver.is_ready:
        return operator_states.unready_driver(facts, driver)
    unvalidated = operator_states.unvalidated(facts)
    return unvalidated if unvalidated is not None else _finished(facts, driver, target)
