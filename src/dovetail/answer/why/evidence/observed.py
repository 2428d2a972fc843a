"""What objects and events reveal about a pod or workload that does not start: the one cause that explains most.

Given the replica and the subject. The order is the order of a pod's life, from the last stage it reached backwards: a
bound pod is past every scheduling rule, a gated one before them all. Events about a state that has passed count for
nothing. Pure; never asks the engine, so `why` joins both. Bounded by the objects of the namespace and the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dovetail.answer.replica import patches
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.evidence import (
    absent_pods,
    absent_scheduler,
    claim_creation,
    container_failures,
    device_preparation,
    gates,
    kubelet_refusals,
    kueue_conditions,
    pod_group_conditions,
    scheduler_verdicts,
    volume_failures,
)
from dovetail.answer.why.evidence.gpu_platform import gpu_stack
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import fields, object_events, owner_chain, pod_state
from dovetail.answer.why.evidence.sources.pod_state import PodState
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods

__all__ = ["KINDS", "Observed", "evidence_lines", "observed"]

Question = Callable[[Replica, PodState], Observed | None]

_AFTER_BINDING: Final[tuple[Question, ...]] = (
    kubelet_refusals.refused,
    device_preparation.prepare_failed,
    volume_failures.failed,
    container_failures.failed,
)
_BEFORE_BINDING: Final[tuple[Question, ...]] = (
    gates.gated,
    claim_creation.not_made,
    device_preparation.binding_pending,
    absent_scheduler.absent,
    gpu_stack.not_advertised,
    pod_group_conditions.kai,
    pod_group_conditions.volcano,
    gpu_stack.labels_missing,
    scheduler_verdicts.verdict,
    scheduler_verdicts.no_scale_up,
)
_MAX_LINES: Final = 12
_MAX_PODS: Final = 50  # of a workload; the first that shows a cause counts


def _kind(api_version: str, name: str, plural: str, *, is_namespaced: bool = True) -> registry.Kind:
    is_of_kueue = api_version == kueue_conditions.API_VERSION
    older = (kueue_conditions.OLDER_VERSION,) if is_of_kueue else ()
    kind = registry.Kind(api_version, name, plural, is_namespaced, codec.Generic)
    return kind._replace(older_versions=older)


# What these answers read besides what every question reads. A cluster may serve none of them.
KINDS: Final = (
    registry.EVENT,
    registry.LEASE,
    _kind("apps/v1", "Deployment", "deployments"),
    _kind("apps/v1", "ReplicaSet", "replicasets"),
    _kind("apps/v1", "DaemonSet", "daemonsets"),
    _kind("v1", "ResourceQuota", "resourcequotas"),
    _kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", is_namespaced=False),
    _kind(kueue_conditions.API_VERSION, "Workload", "workloads"),
    _kind(kueue_conditions.API_VERSION, "LocalQueue", "localqueues"),
    _kind(kueue_conditions.API_VERSION, "ClusterQueue", "clusterqueues", is_namespaced=False),
    _kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups")._replace(shares_name=True),
)


def observed(replica: Replica, subject: patches.ObjectRef) -> Observed | None:
    """The cause that objects and events reveal; None where they reveal none."""
    stored = replica.get(subject.key)
    if stored is None:
        return None
    if isinstance(stored.struct, pods.Pod):
        return _of_pod(replica, stored, stored.struct)
    return absent_pods.observed_workload(replica, stored) or _of_pods(replica, stored)


def evidence_lines(replica: Replica, subject: patches.ObjectRef) -> tuple[str, ...]:
    """What conditions and events say about the subject and its owners, newest first, whatever the cause is."""
    stored = replica.get(subject.key)
    if stored is None:
        return ()
    lines = list(_condition_lines(stored)) if isinstance(stored.struct, pods.Pod) else []
    for each in (stored, *owner_chain.owners_of(replica, stored.struct)):
        metadata = each.struct.metadata
        events = object_events.events_of(
            replica, each.struct.kind, metadata.namespace, metadata.name, uid=metadata.uid
        )
        lines += [event.line for event in events if event.is_warning or event.reason in _TELLING]
    return tuple(dict.fromkeys(lines))[:_MAX_LINES]


_TELLING: Final = frozenset(
    {"NotTriggerScaleUp", "TriggeredScaleUp", "BindingConditionsPending", "Nominated", "Suspended"}
)


def _of_pod(replica: Replica, stored: codec.Stored, pod: pods.Pod) -> Observed | None:
    if pod.status.phase == "Succeeded" or pod.metadata.deletion_timestamp is not None:
        return None
    state = pod_state.state_of_stored(replica, stored, pod)
    is_past_scheduling = bool(pod.spec.node_name) or pod.status.phase == "Failed"
    questions = _AFTER_BINDING if is_past_scheduling else _BEFORE_BINDING
    seen = [answer for question in questions if (answer := question(replica, state)) is not None]
    if not seen:
        return None
    first = next((answer for answer in seen if answer.overrides), seen[0])
    lines = [*first.evidence, *(line for answer in seen for line in answer.evidence)]
    return first._replace(evidence=tuple(dict.fromkeys(lines))[:_MAX_LINES])


def _of_pods(replica: Replica, top: codec.Stored) -> Observed | None:
    """What the pods of a workload reveal, those that wait first."""
    for stored in absent_pods.pods_below(replica, top)[:_MAX_PODS]:
        if isinstance(stored.struct, pods.Pod):
            seen = _of_pod(replica, stored, stored.struct)
            if seen is not None:
                return seen
    return None


def _condition_lines(stored: codec.Stored) -> Iterator[str]:
    pod = stored.struct
    about = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    for condition in fields.trees_at(stored.tree, "status", "conditions"):
        if fields.text_at(condition, "status") == "False" and fields.text_at(condition, "message"):
            yield pod_state.condition_line(about, condition)
