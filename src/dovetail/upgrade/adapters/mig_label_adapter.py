"""Changes the MIG geometry of a node by the label of NVIDIA's MIG manager, and frees a manager that hangs.

The manager pauses the GPU's other clients, waits 5 minutes for each, and on a time-out returns without a word and
without resuming them; it then waits for a change of the label that never comes. The repair makes two changes: a name
that no configuration has, which the manager refuses and so resumes its clients, and then the wanted one again. The
state label is removed together with every change, so that an old `success` never counts. Never drains: the executor
has emptied the node.
"""

from __future__ import annotations

from typing import Final

from dovetail.answer.stack import node_stack
from dovetail.answer.why.evidence.gpu_platform.gpu_nodes import Component
from dovetail.model import node_pools
from dovetail.upgrade.adapters import adapter, driver_pods, operator_labels
from dovetail.upgrade.adapters.adapter import Applied, ApplyFailed, NodePatch, Working
from dovetail.upgrade.adapters.node_facts import NodeFacts, StackPod

NAME: Final = "mig-label"
# How long a kubelet may take to show the manager a changed ConfigMap: its sync period, twice over.
CONFIG_MAP_SECONDS: Final = 120
CONFIG: Final = node_stack.MIG_CONFIG
STATE: Final = node_pools.MIG_STATE
UNKNOWN_CONFIG: Final = "dovetail-no-such-config"  # refused by the manager before it touches a GPU
# Annotation: a hanging change was repaired once; the configuration, and the seconds after which that was done.
REPAIRED: Final = "dovetail.dev/mig-repaired"
# The manager waits 300 s for each of 5 clients, and needs time for mode, geometry and services after that.
STUCK_SECONDS: Final = 5 * 300 + 300
# The operands that the manager pauses and awaits, in its order.
_CLIENT_APPS: Final = (
    "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery",
    "nvidia-dcgm-exporter",
    "nvidia-dcgm",
    "nvidia-nvsm",
)


class MigLabelAdapter:
    """NVIDIA's MIG manager on one node."""

    def __init__(self, *, stuck_seconds: int = STUCK_SECONDS) -> None:
        self._stuck_seconds = stuck_seconds

    @property
    def name(self) -> str:
        """As statuses and metrics show it."""
        return NAME

    def governs(self, facts: NodeFacts, target: adapter.Target) -> bool:
        """Whether a MIG manager looks after this node, of whatever version."""
        is_there = facts.stack.mig_manager.is_present or facts.pods_of(Component.MIG_MANAGER)
        return bool(target.mig_config) and bool(is_there)

    def reversible(
        self, facts: NodeFacts, target: adapter.Target
    ) -> adapter.Reversible | adapter.ForwardOnly:
        """Reversible where the label names what is there now. The devices' UUIDs change either way."""
        if facts.labels.get(CONFIG):
            return adapter.Reversible()
        return adapter.ForwardOnly(f"node {facts.name} has no label {CONFIG} to go back to")

    def unready(self, facts: NodeFacts, target: adapter.Target) -> tuple[adapter.Problem, ...]:
        """A change under way, clients that stayed paused, a manager that does not run."""
        problems = []
        left = operator_labels.paused(facts.node, operator_labels.PAUSED_FOR_MIG)
        state = facts.labels.get(STATE, "")
        if not facts.pods_of(Component.MIG_MANAGER):
            problems.append(
                adapter.Problem(
                    code="NoMigManager",
                    message=f"no pod of the MIG manager runs on node {facts.name}",
                    next_step=f"kubectl get node {facts.name} -L nvidia.com/gpu.deploy.mig-manager",
                )
            )
        if left:
            problems.append(
                adapter.Problem(
                    code="ClientsPaused",
                    message=f"{len(left)} clients of node {facts.name} are paused for a change to"
                    f" {facts.labels.get(CONFIG, '?')}, which is {state or 'without a state'}: if no change"
                    " is under way, the manager hangs and the node has no GPUs",
                    next_step="nothing: the change repairs it",
                    blocks=False,
                )
            )
        return tuple(problems)

    def apply(self, facts: NodeFacts, target: adapter.Target) -> adapter.Outcome:
        """Writes the label, waits for the state, repairs a manager that hangs."""
        config, state = facts.labels.get(CONFIG, ""), facts.labels.get(STATE, "")
        wanted = target.mig_config
        if config == UNKNOWN_CONFIG and state != "failed":
            return Working(
                waiting_for="the MIG manager to refuse a configuration that does not exist"
            )
        if config != wanted:
            return _asked(facts, wanted)
        if state == "success":
            return _resumed(facts, wanted)
        if state == "failed":
            return _failed(facts, wanted)
        if state == "pending" and _pending_seconds(facts, wanted) >= self._stuck_seconds:
            return _stuck(facts, wanted)
        if not facts.pods_of(Component.MIG_MANAGER):
            return Working(waiting_for=f"a pod of the MIG manager on {facts.name}; none runs")
        return Working(waiting_for=f"the MIG manager, which has {wanted} as {state or 'not begun'}")


def _asked(facts: NodeFacts, wanted: str) -> Working:
    was_repair = facts.labels.get(CONFIG) == UNKNOWN_CONFIG
    patch = NodePatch(
        node=facts.name,
        labels={CONFIG: wanted, STATE: None},
        annotations={} if was_repair else {REPAIRED: None},
        why="the manager refused the other name and is awake"
        if was_repair
        else "the geometry is to change",
    )
    return Working(writes=(patch,), waiting_for=f"the MIG manager to begin with {wanted}")


def _resumed(facts: NodeFacts, wanted: str) -> adapter.Outcome:
    left = operator_labels.paused(facts.node, operator_labels.PAUSED_FOR_MIG)
    if left:
        patch = NodePatch(
            node=facts.name,
            labels=dict.fromkeys(left, "true"),
            why=f"the geometry is there, but {len(left)} clients are still paused",
        )
        return Working(writes=(patch,), waiting_for=f"{len(left)} paused clients to resume")
    return Applied(evidence=f"{CONFIG}={wanted}, {STATE}=success")


def _failed(facts: NodeFacts, wanted: str) -> adapter.Outcome:
    """A failure counts once the manager has seen the configuration: a kubelet shows it a changed file late."""
    if _repaired_after(facts, wanted) is None:
        waiting = f"the MIG manager, which could not apply {wanted}, to be asked once more"
        if facts.applying_seconds < CONFIG_MAP_SECONDS:
            return Working(waiting_for=f"{waiting} after {CONFIG_MAP_SECONDS} s")
        patch = NodePatch(
            node=facts.name,
            labels={CONFIG: UNKNOWN_CONFIG, STATE: None},
            annotations={REPAIRED: f"{wanted} {facts.applying_seconds}"},
            why="the manager may have read its file before the configuration was in it",
        )
        return Working(writes=(patch,), waiting_for=waiting)
    return _refused(facts, wanted)


def _refused(facts: NodeFacts, wanted: str) -> ApplyFailed:
    manager = next(iter(facts.pods_of(Component.MIG_MANAGER)), None)
    logs = (
        f"kubectl logs -n {manager.pod.metadata.namespace} {manager.pod.metadata.name}"
        if manager is not None
        else "kubectl get pods -A -l app=nvidia-mig-manager"
    )
    return ApplyFailed(
        reason=f"the MIG manager could not apply {wanted} and publishes no reason: an unknown"
        " configuration, a GPU in use, or a mode that needs a reboot",
        next_step=logs,
    )


def _stuck(facts: NodeFacts, wanted: str) -> adapter.Outcome:
    clients = _running_clients(facts)
    names = ", ".join(f"{each.id} ({_state(each)})" for each in clients) or "none runs any more"
    if _repaired_after(facts, wanted) is not None:
        return ApplyFailed(
            reason=f"the MIG manager hangs in {wanted} a second time; clients it waited for: {names}",
            next_step="end the named pods, or restart the kubelet of the node if they do not end",
        )
    patch = NodePatch(
        node=facts.name,
        labels={CONFIG: UNKNOWN_CONFIG},
        annotations={REPAIRED: f"{wanted} {facts.applying_seconds}"},
        why=f"pending for {facts.applying_seconds} s: the manager gave up waiting for its clients",
    )
    return Working(
        writes=(patch,),
        waiting_for=f"the MIG manager, which hangs in {wanted}, to wake up; clients it waited for: {names}",
    )


def _pending_seconds(facts: NodeFacts, wanted: str) -> int:
    """At most how long this try has been under way."""
    return facts.applying_seconds - (_repaired_after(facts, wanted) or 0)


def _repaired_after(facts: NodeFacts, wanted: str) -> int | None:
    """After how many seconds this change was repaired; None where it was not."""
    config, _, seconds = facts.annotations.get(REPAIRED, "").partition(" ")
    if config != wanted:
        return None
    return int(seconds) if seconds.isdecimal() else 0


def _running_clients(facts: NodeFacts) -> list[StackPod]:
    return [each for app in _CLIENT_APPS for each in facts.pods_labelled("app", app)]


def _state(client: StackPod) -> str:
    if client.is_going:
        return "deleted, does not end"
    return "running" if client.is_ready else driver_pods.problem_of(client)
