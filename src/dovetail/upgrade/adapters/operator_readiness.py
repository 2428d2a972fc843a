"""What stands against a driver upgrade by the GPU Operator on a node, read before it is fenced.

Given the facts and the lever. Blockers would end in a wait without a reason, or stop other nodes; dangers of the lever
are stated and do not block. Never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.upgrade.adapters import (
    driver_pods,
    operator_labels,
    operator_levers,
)
from dovetail.upgrade.adapters.adapter import Problem
from dovetail.upgrade.adapters.node_facts import NodeFacts
from dovetail.upgrade.adapters.operator_labels import State
from dovetail.upgrade.adapters.operator_levers import Lever


def problems(facts: NodeFacts, lever: Lever, target: str) -> tuple[Problem, ...]:
    """Blockers first."""
    every = [problem for check in _CHECKS for problem in check(facts, lever, target)]
    return tuple(sorted(every, key=lambda problem: not problem.blocks))


def _node(facts: NodeFacts, lever: Lever, target: str) -> Iterator[Problem]:
    if not facts.is_ready:
        yield Problem(
            code="NodeNotReady",
            message=f"node {facts.name} is not Ready; the operator counts it against maxUnavailable",
            next_step=f"kubectl describe node {facts.name}",
        )
    missing = [key for key in operator_labels.DISCOVERY_LABELS if key not in facts.labels]
    if missing:
        yield Problem(
            code="NoDiscoveryLabels",
            message=f"node {facts.name} lacks {len(missing)} labels of node feature discovery"
            f" ({missing[0]}): the operator finds no driver image for it",
            next_step="look at the pods of node-feature-discovery",
        )


def _marks(facts: NodeFacts, lever: Lever, target: str) -> Iterator[Problem]:
    node = facts.node
    state = operator_labels.state_of(node)
    if operator_labels.is_skipped(node) and not operator_labels.is_skipped_by_us(node):
        yield Problem(
            code="SkippedByAnother",
            message=f"node {facts.name} has the label {operator_labels.SKIP}, which no upgrade of ours set",
            next_step=f"kubectl label node {facts.name} {operator_labels.SKIP}-, or leave the node out",
        )
    if state not in operator_labels.IDLE_STATES:
        yield Problem(
            code="UpgradeRunning",
            message=f"the operator's upgrade controller has node {facts.name} in state {state}",
            next_step="let it end, or repair the node first",
        )
    left = operator_labels.paused(node, operator_labels.PAUSED_FOR_DRIVER)
    if left and state in (State.UNKNOWN, State.DONE):
        yield Problem(
            code="OperandsPaused",
            message=f"{len(left)} operands of node {facts.name} stayed paused after an earlier driver"
            f" upgrade ({', '.join(left)}): it looks empty, and is broken",
            next_step=f"kubectl label node {facts.name} --overwrite "
            + " ".join(f"{key}=true" for key in left),
            blocks=False,
        )


def _driver(facts: NodeFacts, lever: Lever, target: str) -> Iterator[Problem]:
    driver = driver_pods.driver_pod(facts)
    if driver is not None and not driver_pods.driver_version(driver):
        yield Problem(
            code="DriverImageWithoutVersion",
            message=f"the image of driver pod {driver.id} names no version: its upgrade could not be seen",
            next_step="use an image with a tag such as 595.91.07-ubuntu24.04",
        )
    if (
        driver is not None
        and operator_labels.is_skipped_by_us(facts.node)
        and driver_pods.runs(driver, target)
    ):
        yield Problem(
            code="DriverChangedBeforeItsTurn",
            message=f"driver pod {driver.id} restarted and has driver {target} already: skip labels do"
            " not keep a restart from taking the new template",
            next_step="validate the node first; its work was not drained",
            blocks=False,
        )
    without = [
        node.metadata.name
        for node in lever.governed
        if (Component.DRIVER, node.metadata.name) not in facts.platform.on_nodes
    ]
    if without and lever.policy.auto_upgrade:
        yield Problem(
            code="DriverPodMissing",
            message=f"{len(without)} of {len(lever.governed)} nodes of {lever.title} have no driver pod"
            f" ({', '.join(without[:3])}): the operator's upgrade controller stops for every node",
            next_step=f"kubectl describe node {without[0]}; look for what keeps the DaemonSet's pod away",
        )


def _policy(facts: NodeFacts, lever: Lever, target: str) -> Iterator[Problem]:
    if facts.platform.clusters and facts.platform.policies:
        yield Problem(
            code="TwoStacks",
            message="a GPUCluster and a ClusterPolicy exist, and the operator reconciles neither",
            next_step="delete the one that is not used",
        )
    if not lever.policy.auto_upgrade:
        yield Problem(
            code="AutoUpgradeOff",
            message=f"{lever.title} has autoUpgrade off: driver pods are replaced by deleting them, and"
            " on a node that is not empty the driver manager evicts pods by itself",
            next_step="nothing: nodes are drained first",
            blocks=False,
        )
        return
    awaited = lever.policy.wait_for_completion
    if awaited is not None and awaited.pod_selector and not awaited.timeout_seconds:
        yield Problem(
            code="WaitsWithoutLimit",
            message=f"{lever.title} awaits the end of pods with {awaited.pod_selector} without a limit",
            next_step="set upgradePolicy.waitForCompletion.timeoutSeconds",
            blocks=False,
        )
    others = len(lever.governed) - 1
    if others:
        yield Problem(
            code="RestartTakesTarget",
            message=f"from the change of {lever.title} until its turn, a driver pod that restarts on one"
            f" of {others} other nodes installs {target} there, skip label or not",
            next_step="keep the time between waves short; do not reboot nodes meanwhile",
            blocks=False,
        )


def _slots(facts: NodeFacts, lever: Lever, target: str) -> Iterator[Problem]:
    if not lever.policy.auto_upgrade or facts.node.spec.unschedulable:
        return
    slots = operator_levers.slots(lever)
    if slots.failed and slots.most_parallel and len(slots.failed) >= slots.most_parallel:
        yield Problem(
            code="FailedNodesHoldSlots",
            message=f"{len(slots.failed)} nodes in upgrade-failed hold all"
            f" {slots.most_parallel} slots of the operator: {', '.join(slots.failed[:3])}",
            next_step=f"repair {slots.failed[0]}, or raise upgradePolicy.maxParallelUpgrades of {lever.title}",
        )
    if len(slots.unavailable) >= slots.most_unavailable:
        yield Problem(
            code="NoNodeMayBeUnavailable",
            message=f"{len(slots.unavailable)} nodes are cordoned or not ready, and {lever.title} allows"
            f" {slots.most_unavailable}: {', '.join(slots.unavailable[:3])}",
            next_step="uncordon or repair them, or raise upgradePolicy.maxUnavailable",
        )


_CHECKS: Final[tuple[Callable[[NodeFacts, Lever, str], Iterator[Problem]], ...]] = (
    _node,
    _marks,
    _driver,
    _policy,
    _slots,
)
