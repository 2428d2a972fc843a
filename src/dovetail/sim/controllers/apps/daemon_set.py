"""Reconciles a DaemonSet: one pod on every node that fits, replaced node by node when the template changes.

Given a DaemonSet, its pods and revisions, and the nodes; yields actions. Failed pods are replaced with a delay per
node that doubles. Never binds a pod: the scheduler does, guided by the pod's affinity.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterable
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.ports import failures
from dovetail.sim.controllers import (
    controller_actions,
    owner_references,
    pod_states,
    pod_templates,
    tree_fields,
    workload_conditions,
)
from dovetail.sim.controllers.apps import controller_revisions, daemon_nodes, replica_set
from dovetail.sim.controllers.controller_actions import Action, Outcome, Situation, Steps
from dovetail.sim.controllers.object_index import CORE

Tree = dict[str, Any]

BURST: Final = 250  # pods created or deleted in one reconciliation: daemon.BurstReplicas
FAILED_DELAY_SECONDS: Final = 1  # flowcontrol.NewBackOff(1 s, 15 min) of the daemon controller
MAX_FAILED_DELAY_SECONDS: Final = 900


class Retry(NamedTuple):
    """When a failed pod of a node was last replaced, and the delay after it."""

    time: datetime.datetime
    delay_seconds: int


class Sync:
    """One reconciliation under way: the set, its nodes, and its pods by node."""

    def __init__(self, situation: Situation, pods: list[Tree], hash_text: str) -> None:
        self.owner: Tree = situation.owner
        self.now: datetime.datetime = situation.now
        self.hash = hash_text
        self.retries: dict[str, Retry] = dict(situation.memory or {})
        self.wake_ups: list[datetime.datetime] = []
        placement = daemon_nodes.Placement(self.owner)
        nodes = situation.objects.of_kind(CORE, "Node")
        self.fits = {node["metadata"]["name"]: placement.fit(node) for node in nodes}
        self.pods_by_node: dict[str, list[Tree]] = {}
        for pod in pods:
            node_name = daemon_nodes.target_of(pod)
            is_over = pod_states.is_finished(pod) and pod_states.is_deleted(pod)
            if node_name and not is_over:
                self.pods_by_node.setdefault(node_name, []).append(pod)
        for node_pods in self.pods_by_node.values():
            node_pods.sort(key=_seniority)

    @property
    def desired(self) -> int:
        """The number of nodes that should run a pod."""
        return sum(fit.should_run for fit in self.fits.values())

    def is_available(self, pod: Tree) -> bool:
        """Whether the pod has been ready for long enough."""
        min_ready = tree_fields.number(self.owner["spec"], "minReadySeconds")
        return pod_states.is_available(pod, min_ready, self.now)

    def is_updated(self, pod: Tree) -> bool:
        """Whether the pod has the newest template."""
        labels = owner_references.labels_of(pod)
        return labels.get(controller_revisions.POD_LABEL) == self.hash


class Work(NamedTuple):
    """Nodes that need a pod, and pods to delete."""

    nodes: list[str]
    pods: list[Tree]


def reconcile(situation: Situation) -> Steps:
    """Starts and ends pods so that every fitting node runs one of the newest template."""
    owner, objects = situation.owner, situation.objects
    if owner_references.is_deleted(owner):
        return
    namespace = owner["metadata"].get("namespace", "")
    pods = yield from owner_references.claimed(
        owner, objects.controlled(owner, "Pod"), objects.orphans(CORE, "Pod", namespace)
    )
    revisions = yield from controller_revisions.history(situation)
    revision = yield from controller_revisions.current(
        owner, revisions, hash_label=controller_revisions.POD_LABEL
    )
    hash_text = owner_references.labels_of(revision)[controller_revisions.POD_LABEL]
    sync = Sync(situation, pods, hash_text)

    failure = yield from _manage(sync)
    yield from _truncate(sync, revisions, revision, pods)
    status = _status(sync)
    if status != owner.get("status"):
        yield controller_actions.SetStatus(owner, status)
    yield controller_actions.Remember(sync.retries)
    if failure is not None:
        raise failure
    min_ready = tree_fields.number(owner["spec"], "minReadySeconds")
    moment = pod_states.next_availability(pods, min_ready, situation.now)
    moments = [*sync.wake_ups, *([] if moment is None else [moment])]
    if moments:
        yield controller_actions.WakeAt(min(moments))


def _manage(sync: Sync) -> Generator[Action, Outcome, failures.ApiFailure | None]:
    """Pods per node first; a rolling update goes on only when that left nothing to do."""
    work = yield from _work_on_nodes(sync)
    if not work.nodes and not work.pods:
        work = _rolling_work(sync)
    pods = [
        daemon_nodes.pod_for(sync.owner, node_name, sync.hash) for node_name in work.nodes[:BURST]
    ]
    first_failure = yield from replica_set.created_pods(sync.owner, pods)
    for pod in work.pods[:BURST]:
        failure = yield from replica_set.deleted_pod(sync.owner, pod)
        first_failure = first_failure or failure
    return first_failure


def _work_on_nodes(sync: Sync) -> Generator[Action, Outcome, Work]:
    work = Work([], [])
    for node_name, fit in sync.fits.items():
        node_pods = sync.pods_by_node.get(node_name, [])
        if fit.should_run and not node_pods:
            work.nodes.append(node_name)
        elif fit.may_stay:
            ended = yield from _ended(sync, node_name, node_pods)
            work.pods.extend(ended)
            running = [pod for pod in node_pods if pod_states.is_active(pod)]
            work.pods.extend(_surplus(sync, running))
            if _allows_surge(sync) and fit.should_run and not running:
                work.nodes.append(node_name)
        else:
            work.pods.extend(pod for pod in node_pods if not pod_states.is_deleted(pod))
    for node_name, node_pods in sync.pods_by_node.items():
        if node_name not in sync.fits:
            # The node is gone, and a pod that waits for it can never start.
            work.pods.extend(pod for pod in node_pods if not pod_states.node_of(pod))
    return work


def _ended(
    sync: Sync, node_name: str, node_pods: Iterable[Tree]
) -> Generator[Action, Outcome, list[Tree]]:
    """Pods that have ended and are replaced now; a failed one only after its delay."""
    ended = []
    for pod in node_pods:
        name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
        if pod_states.is_deleted(pod) or not pod_states.is_finished(pod):
            continue
        if pod_states.phase_of(pod) == "Succeeded":
            message = (
                f"Found succeeded daemon pod {name} on node {node_name}, will try to delete it"
            )
            yield controller_actions.normal(sync.owner, "SucceededDaemonPod", message)
            ended.append(pod)
        elif _may_retry(sync, node_name):
            message = f"Found failed daemon pod {name} on node {node_name}, will try to kill it"
            yield controller_actions.warning(sync.owner, "FailedDaemonPod", message)
            ended.append(pod)
    return ended


def _may_retry(sync: Sync, node_name: str) -> bool:
    """Whether the failed pod of a node may be replaced now; notes the time if so."""
    last = sync.retries.get(node_name)
    delay_seconds = FAILED_DELAY_SECONDS
    if last is not None:
        age = (sync.now - last.time).total_seconds()
        if age < last.delay_seconds:
            sync.wake_ups.append(last.time + datetime.timedelta(seconds=last.delay_seconds))
            return False
        if age < 2 * MAX_FAILED_DELAY_SECONDS:
            delay_seconds = min(2 * last.delay_seconds, MAX_FAILED_DELAY_SECONDS)
    sync.retries[node_name] = Retry(sync.now, delay_seconds)
    return True


def _surplus(sync: Sync, running: list[Tree]) -> list[Tree]:
    """Pods beyond the first of a node; with surge, an old and a new one may run side by side."""
    if not _allows_surge(sync):
        return running[1:]
    new = [pod for pod in running if sync.is_updated(pod)]
    old = [pod for pod in running if not sync.is_updated(pod)]
    surplus = [*new[1:], *old[1:]]
    if new and old and (not pod_states.is_ready(old[0]) or sync.is_available(new[0])):
        surplus.append(old[0])
    return surplus


# Rolling update


def _rolling_work(sync: Sync) -> Work:
    if sync.owner["spec"]["updateStrategy"]["type"] != "RollingUpdate":
        return Work([], [])
    limits = sync.owner["spec"]["updateStrategy"]["rollingUpdate"]
    surge = pod_templates.scaled_value(limits["maxSurge"], sync.desired, rounds_up=True)
    unavailable = pod_templates.scaled_value(limits["maxUnavailable"], sync.desired, rounds_up=True)
    if surge:
        return _surging_work(sync, surge)
    return _replacing_work(sync, max(unavailable, 1))


def _replacing_work(sync: Sync, limit: int) -> Work:
    """Deletes old pods: unavailable ones at once, available ones as far as the limit allows."""
    unavailable = 0
    useless = []
    useful = []
    for node_name in sorted(sync.pods_by_node):
        staying = [pod for pod in sync.pods_by_node[node_name] if not pod_states.is_deleted(pod)]
        if len(staying) != 1:
            unavailable += 1
        elif sync.is_updated(staying[0]):
            unavailable += not sync.is_available(staying[0])
        elif sync.is_available(staying[0]):
            useful.append(staying[0])
        else:
            unavailable += 1
            useless.append(staying[0])
    room = max(limit - unavailable, 0)
    return Work([], [*useless, *useful[:room]])


def _surging_work(sync: Sync, limit: int) -> Work:
    """Starts new pods beside old ones, within the surge; the old ones go when the new ones are available."""
    surging = 0
    urgent: list[str] = []
    candidates: list[str] = []
    victims = []
    for node_name in sorted(sync.pods_by_node):
        staying = [pod for pod in sync.pods_by_node[node_name] if not pod_states.is_deleted(pod)]
        new = [pod for pod in staying if sync.is_updated(pod)]
        old = [pod for pod in staying if not sync.is_updated(pod)]
        if len(new) > 1 or len(old) > 1:
            surging += 1
        elif old and not new:
            fit = sync.fits.get(node_name, daemon_nodes.Fit(False, False))
            group = candidates if sync.is_available(old[0]) else urgent
            if fit.should_run:
                group.append(node_name)
            elif group is urgent:
                victims.append(old[0])
        elif old and new and sync.is_available(new[0]):
            victims.append(old[0])
        elif old and new:
            surging += 1
    room = max(limit - surging, 0)
    return Work([*urgent, *candidates[:room]], victims)


def _allows_surge(sync: Sync) -> bool:
    strategy = sync.owner["spec"]["updateStrategy"]
    if strategy["type"] != "RollingUpdate":
        return False
    surge = strategy["rollingUpdate"]["maxSurge"]
    return pod_templates.scaled_value(surge, 1, rounds_up=True) > 0


# History and status


def _truncate(sync: Sync, revisions: list[Tree], current: Tree, pods: list[Tree]) -> Steps:
    current_name = current["metadata"]["name"]
    old = [revision for revision in revisions if revision["metadata"]["name"] != current_name]
    owner_name = sync.owner["metadata"]["name"]
    hashes = {owner_references.labels_of(pod).get(controller_revisions.POD_LABEL) for pod in pods}
    live = {f"{owner_name}-{hash_text}" for hash_text in hashes}
    surplus = len(old) - sync.owner["spec"]["revisionHistoryLimit"]
    yield from controller_revisions.truncated(old, live=live, surplus=surplus)


def _status(sync: Sync) -> Tree:
    first_pods = {name: node_pods[0] for name, node_pods in sync.pods_by_node.items()}
    wanted = [name for name, fit in sync.fits.items() if fit.should_run]
    unwanted = [name for name, fit in sync.fits.items() if not fit.should_run]
    running = [first_pods[name] for name in wanted if name in first_pods]
    available = [pod for pod in running if sync.is_available(pod)]
    status = {
        "currentNumberScheduled": len(running),
        "numberMisscheduled": sum(name in first_pods for name in unwanted),
        "desiredNumberScheduled": len(wanted),
        "numberReady": sum(map(pod_states.is_ready, running)),
        "updatedNumberScheduled": sum(map(sync.is_updated, running)),
        "numberAvailable": len(available),
        "numberUnavailable": len(wanted) - len(available),
        "observedGeneration": sync.owner["metadata"].get("generation", 0),
        "conditions": tree_fields.mapping(sync.owner, "status").get("conditions"),
    }
    always = (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    )
    return workload_conditions.compact(status, always=always)


def _seniority(pod: Tree) -> tuple[bool, str, str]:
    created = pod_states.created_at(pod)
    stamp = "" if created is None else timestamps.to_exact_text(created)
    return not pod_states.node_of(pod), stamp, pod["metadata"]["name"]
