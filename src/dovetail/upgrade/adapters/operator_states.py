"""What a state of NVIDIA's upgrade library means for one node: what it waits for, or why it failed.

The library publishes a state and no reason. The reason is worked out from what the library itself looked at: the
driver's pod, the validator's, the pods that use GPUs, and its slots. Never treats upgrade-failed as final: the library
leaves it by itself when the driver's pod turns ready.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes.core import nodes
from dovetail.model import node_pools
from dovetail.upgrade.adapters import driver_pods, operator_labels, operator_levers
from dovetail.upgrade.adapters.adapter import ApplyFailed, NodePatch, Outcome, Working
from dovetail.upgrade.adapters.node_facts import NodeFacts, StackPod
from dovetail.upgrade.adapters.operator_labels import State
from dovetail.upgrade.adapters.operator_levers import Lever

VALIDATION_SECONDS: Final = 600  # of k8s-operator-libs
_MISSING_VALIDATOR_SECONDS: Final = VALIDATION_SECONDS  # ours: the library waits forever

_WAITS: Final = {
    State.CORDON: "the operator to cordon the node",
    State.POD_DELETION: "the operator to evict pods that request GPUs",
    State.DRAIN: "the operator to drain the node",
    State.MAINTENANCE: "a maintenance operator, by a NodeMaintenance object",
    State.AFTER_MAINTENANCE: "the operator to go on after the maintenance",
    State.UNCORDON: "the operator to uncordon the node",
}


def outcome(
    facts: NodeFacts, lever: Lever, target: str, state: State | str, driver: StackPod | None
) -> Outcome:
    """The outcome while the library has the node in a state other than done."""
    if state == State.REQUIRED:
        return _queued(facts, lever)
    if state == State.FAILED:
        return _failed(facts, target, driver)
    if not facts.is_ready:
        return Working(
            waiting_for=f"node {facts.name} to be Ready again: it is {_not_ready(facts.node)}"
            f" in state {state}"
        )
    if state == State.WAIT_FOR_JOBS:
        return Working(waiting_for=_jobs(lever))
    if state == State.POD_RESTART:
        return _restarting(facts, target, driver)
    if state == State.VALIDATION:
        waiting = unvalidated(facts)
        return waiting or Working(waiting_for="the operator to see that the validator is ready")
    known = _WAITS.get(state) if isinstance(state, State) else None
    return Working(waiting_for=known or f"the operator, which has the node in state {state}")


def unready_driver(facts: NodeFacts, driver: StackPod) -> Outcome:
    """A driver pod of the right version that is not ready."""
    problem = driver_pods.problem_of(driver)
    if driver_pods.is_failing(driver):
        return ApplyFailed(
            reason=f"driver pod {driver.id} restarts again and again: {problem}",
            next_step=f"kubectl logs -n {driver.pod.metadata.namespace} {driver.pod.metadata.name}"
            " --all-containers --previous",
            may_recover=True,
        )
    if not facts.is_ready:
        return Working(waiting_for=f"node {facts.name} to be Ready again: {_not_ready(facts.node)}")
    return Working(waiting_for=f"driver pod {driver.id} to be ready: {problem}")


def unvalidated(facts: NodeFacts) -> Outcome | None:
    """What the validator still lacks; None when it is ready."""
    validators = facts.pods_labelled("app", operator_labels.VALIDATOR_APP)
    for validator in validators:
        if not validator.is_ready:
            return Working(
                waiting_for=f"validator {validator.id}, at most {VALIDATION_SECONDS} s:"
                f" {driver_pods.problem_of(validator)}"
            )
    if validators:
        return None
    deploys = facts.labels.get(operator_labels.DEPLOY_VALIDATOR, "")
    is_paused = deploys in (operator_labels.PAUSED_FOR_DRIVER, operator_labels.PAUSED_FOR_MIG)
    cannot_come = deploys == "false" or is_paused
    if not cannot_come and facts.applying_seconds < _MISSING_VALIDATOR_SECONDS:
        return Working(waiting_for=f"a validator pod on {facts.name}; there is none yet")
    why = (
        f"its label {operator_labels.DEPLOY_VALIDATOR} is {deploys}"
        if cannot_come
        else f"none came in {facts.applying_seconds} s"
    )
    return ApplyFailed(
        reason=f"node {facts.name} has no validator pod, and the operator waits for one forever: {why}",
        next_step=f"kubectl label node {facts.name} --overwrite {operator_labels.DEPLOY_VALIDATOR}=true",
        may_recover=True,
    )


def _queued(facts: NodeFacts, lever: Lever) -> Outcome:
    slots = operator_levers.slots(lever)
    if slots.free or facts.node.spec.unschedulable:  # with no slot, a cordoned node starts
        return Working(waiting_for="the operator to start the node")
    return Working(waiting_for=f"a slot of the operator's upgrade controller: {slots.reason}")


def _jobs(lever: Lever) -> str:
    awaited = lever.policy.wait_for_completion
    if awaited is None or not awaited.pod_selector:
        return "the operator to go on; it waits for no jobs"
    limit = f"{awaited.timeout_seconds} s at most" if awaited.timeout_seconds else "without a limit"
    return f"the operator, which awaits the end of pods with {awaited.pod_selector}, {limit}"


def _restarting(facts: NodeFacts, target: str, driver: StackPod | None) -> Outcome:
    if driver is None:
        return Working(waiting_for=f"a driver pod on {facts.name}; the DaemonSet has started none")
    if driver.is_going:
        return Working(waiting_for=f"the end of driver pod {driver.id}")
    if not driver_pods.runs(driver, target):
        return Working(waiting_for=f"the operator to delete driver pod {driver.id}")
    if not driver.is_ready:
        return unready_driver(facts, driver)
    return Working(waiting_for="the operator to see that the driver is ready")


def _failed(facts: NodeFacts, target: str, driver: StackPod | None) -> Outcome:
    """The cause, from what is still there. The driver's pod decides whether the library can leave the state."""
    if driver is not None and driver_pods.runs(driver, target):
        if driver.is_ready:
            return Working(waiting_for="the operator to take the node out of upgrade-failed")
        problem = driver_pods.problem_of(driver)
        return ApplyFailed(
            reason=f"upgrade-failed: driver pod {driver.id} is not ready: {problem}",
            next_step=f"kubectl logs -n {driver.pod.metadata.namespace} {driver.pod.metadata.name}"
            " --all-containers --previous; the operator goes on when the pod is ready",
            may_recover=True,
        )
    holders = gpu_pods(facts)
    if holders:
        return ApplyFailed(
            reason=f"upgrade-failed: the operator could not evict {len(holders)} pods that request GPUs:"
            f" {', '.join(each.id for each in holders[:3])}",
            next_step="end these pods, then: kubectl label node"
            f" {facts.name} --overwrite {operator_labels.STATE}={State.REQUIRED}",
        )
    if facts.annotations.get(operator_labels.RETRIED) != target:
        return _retried(facts, target)
    return ApplyFailed(
        reason="upgrade-failed a second time before the driver's pod was replaced; no pod on the"
        " node requests a GPU, so the drain of other pods failed",
        next_step="read the operator's log about this node: it is the only place with the cause",
    )


def _retried(facts: NodeFacts, target: str) -> Working:
    """The old driver's pod never becomes the new one, so the library would stay in upgrade-failed forever."""
    patch = NodePatch(
        node=facts.name,
        labels={operator_labels.STATE: State.REQUIRED.value},
        annotations={operator_labels.RETRIED: target},
        why="the eviction failed, no pod requests a GPU any more, and the operator does not retry",
    )
    return Working(writes=(patch,), waiting_for="the operator to try the node once more")


def gpu_pods(facts: NodeFacts) -> list[StackPod]:
    """The pods that the library would evict: those with GPUs in the resources of a container."""
    return [each for each in facts.pods if _requests_gpu(each)]


def _requests_gpu(stack_pod: StackPod) -> bool:
    for container in stack_pod.pod.spec.containers:
        resources = container.resources
        if any(map(node_pools.is_gpu_resource, [*resources.requests, *resources.limits])):
            return True
    return False


def _not_ready(node: nodes.Node) -> str:
    for condition in node.status.conditions:
        if condition.type == "Ready":
            return f"NotReady ({condition.reason or condition.status})"
    return "NotReady"
