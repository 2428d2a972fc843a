"""Why a workload has no pods, or too few: it is suspended, Kueue holds it, or the API server refuses its pods.

Given a workload of any kind and what it owns. A refusal counts while pods are missing and no later event shows that
they were created; a refusal by quota counts while the quota has no room. Never creates a pod.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from dovetail.answer.replica import patches
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import template_pods
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import (
    admission_refusals,
    kueue_conditions,
    observation,
    quota_room,
)
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import (
    fields,
    object_events,
    owner_chain,
    pod_state,
    quoting,
)
from dovetail.answer.why.evidence.sources.fields import Tree
from dovetail.answer.why.why_answer import Fix, Who
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.core import pods

_RUNTIME_CLASS: Final = object_set.unique_kind("node.k8s.io/v1", "RuntimeClass")
_MAX_REASON: Final = 128  # events.k8s.io/v1
_FAILED: Final = re.compile(r"Failed\w*Create\w*|\w*(?:Create|Creation)Failed\w*")
_CREATED: Final = re.compile(r"Successful\w*Create\w*")
# Where a kind says that it is suspended, and how many pods it wants.
_SUSPENDED: Final = (("spec", "suspend"), ("spec", "runPolicy", "suspend"))
_WANTED: Final = {
    "Job": ("spec", "parallelism"),
    "ReplicaSet": ("spec", "replicas"),
    "Deployment": ("spec", "replicas"),
    "StatefulSet": ("spec", "replicas"),
    "ReplicationController": ("spec", "replicas"),
}
# Kinds whose pod template may be changed in place.
_MUTABLE_TEMPLATES: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet"})


class _Failure(NamedTuple):
    """A refusal that was reported, by an event or a condition."""

    text: str
    when: datetime.datetime | None
    line: str
    workload: codec.Stored


def observed_workload(replica: Replica, top: codec.Stored) -> Observed | None:
    """Why pods of the workload are missing; None where none is, or nothing says why."""
    below, owned = owner_chain.owned_by(replica, top)
    chain = [top, *below]
    if seen := _suspended(replica, chain):
        return seen
    live = [
        stored.struct
        for stored in owned
        if isinstance(stored.struct, pods.Pod)
        and stored.struct.status.phase not in pods.TERMINAL_PHASES
    ]
    failure = _last_failure(replica, chain)
    if failure is None:
        return _unreported(replica, chain, live)
    missing = _missing(failure.workload, live)
    return _refused(replica, failure, chain, missing) if missing else None


def pods_below(replica: Replica, top: codec.Stored) -> list[codec.Stored]:
    """The pods of a workload, those that wait for a node first, then by name."""
    _, owned = owner_chain.owned_by(replica, top)

    def order(stored: codec.Stored) -> tuple[int, str]:
        pod = stored.struct
        assert isinstance(pod, pods.Pod)
        rank = 0 if not pod.spec.node_name else 1
        return (2 if pod.status.phase == "Failed" else rank), pod.metadata.name

    return sorted((each for each in owned if isinstance(each.struct, pods.Pod)), key=order)


# Suspended workloads


def _suspended(replica: Replica, chain: Sequence[codec.Stored]) -> Observed | None:
    for stored in chain:
        tree = stored.tree
        path = next((path for path in _SUSPENDED if fields.is_true(tree, *path)), None)
        is_paused = stored.struct.kind == "Deployment" and fields.is_true(tree, "spec", "paused")
        if path is not None:
            return _of_kueue(replica, chain, stored) or _by_hand(stored, path, "is suspended")
        if is_paused and len(chain) == 1:  # it never had a ReplicaSet
            return _by_hand(stored, ("spec", "paused"), "is paused")
        if _wants(stored, tree) == 0:
            return _wants_none(stored)
    return None


def _of_kueue(
    replica: Replica, chain: Sequence[codec.Stored], stored: codec.Stored
) -> Observed | None:
    """A job that Kueue keeps suspended until it admits it."""
    uids = owner_chain.owner_uids(replica, stored.struct)
    labels: dict[str, str] = {}
    for each in chain:
        uids.add(each.struct.metadata.uid)
        labels |= each.struct.metadata.labels
    held = kueue_conditions.observed_workload(
        replica, stored.struct.metadata.namespace, uids - {""}, labels
    )
    if held is not None:
        line = quoting.line(_about(stored), None, "suspended")
        return held._replace(evidence=(line, *held.evidence))
    queue = labels.get(kueue_conditions.QUEUE_LABEL)
    if not queue:
        return None
    sentence = (
        f"{_about(stored)} is suspended until Kueue admits it (queue {quoting.words(queue, 63)}), "
        "and Kueue made no Workload for it: does Kueue run?"
    )
    return observation.observed_cause(CauseCode.KUEUE_POLICY, sentence)


def _by_hand(stored: codec.Stored, path: tuple[str, ...], state: str) -> Observed:
    merge: Any = False
    for name in reversed(path):
        merge = {name: merge}
    fix = Fix(
        who=Who.USER,
        title=f"resume {_about(stored)}",
        patch=(patches.Patch(object=owner_chain.reference_to(stored), merge=merge),),
        verified=False,  # its pods do not exist yet, so no placement was tried
        effect="its controller creates the pods",
    )
    field = ".".join(path)
    sentence = f"{_about(stored)} {state} ({field}: true), so it has no pods"
    line = quoting.line(_about(stored), None, f"{field}: true")
    return observation.observed_cause(CauseCode.OWNER_SUSPENDED, sentence, line, fixes=(fix,))


def _wants_none(stored: codec.Stored) -> Observed | None:
    if stored.struct.kind == "ReplicaSet":  # an earlier revision of a Deployment
        return None
    path = _WANTED[stored.struct.kind]
    merge: Any = 1
    for name in reversed(path):
        merge = {name: merge}
    fix = Fix(
        who=Who.USER,
        title=f"scale {_about(stored)} to 1",
        patch=(patches.Patch(object=owner_chain.reference_to(stored), merge=merge),),
        verified=False,
        effect="its controller creates a pod",
    )
    sentence = f"{_about(stored)} asks for 0 pods ({'.'.join(path)}: 0)"
    line = quoting.line(_about(stored), None, f"{'.'.join(path)}: 0")
    return observation.observed_cause(CauseCode.OWNER_SUSPENDED, sentence, line, fixes=(fix,))


def _wants(stored: codec.Stored, tree: Tree) -> int | None:
    """How many pods the workload wants at once; None where its kind does not say."""
    path = _WANTED.get(stored.struct.kind)
    value = fields.value_at(tree, *path) if path is not None else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number else (1 if path is not None else None)


# Refused pods


def _missing(workload: codec.Stored, live: Sequence[pods.Pod]) -> int:
    """How many pods the workload wants besides those that live; a kind that does not say wants one."""
    mine = [pod for pod in live if _is_of(pod, workload)] or live
    tree = workload.tree
    wanted = _wants(workload, tree)
    if workload.struct.kind == "Job" and wanted is not None:
        ended = fields.number_at(tree, "status", "succeeded")
        completions = fields.value_at(tree, "spec", "completions")
        if isinstance(completions, int):
            wanted = min(wanted, max(0, completions - ended))
    return max(0, (wanted if wanted is not None else 1) - len(mine))


def _is_of(pod: pods.Pod, workload: codec.Stored) -> bool:
    uid = workload.struct.metadata.uid
    return any(reference.uid == uid for reference in pod.metadata.owner_references)


def _last_failure(replica: Replica, chain: Sequence[codec.Stored]) -> _Failure | None:
    """The newest refusal among the workload and those below it."""
    failures = [failure for stored in chain for failure in _failures(replica, stored)]
    return max(failures, key=_newest, default=None)


def _newest(failure: _Failure) -> datetime.datetime:
    return failure.when or datetime.datetime.min.replace(tzinfo=datetime.UTC)


def _failures(replica: Replica, stored: codec.Stored) -> Iterator[_Failure]:
    struct = stored.struct
    metadata = struct.metadata
    events = object_events.events_of(
        replica, struct.kind, metadata.namespace, metadata.name, uid=metadata.uid
    )
    created = next(
        (event for event in events if _CREATED.fullmatch(event.reason[:_MAX_REASON])), None
    )
    for event in events:
        if _FAILED.fullmatch(event.reason[:_MAX_REASON]):
            if created is None or created.order <= event.order:
                yield _Failure(event.message, event.last, event.line, stored)
            break
    condition = fields.condition(stored.tree, "ReplicaFailure")
    if fields.text_at(condition, "status") == "True":
        line = pod_state.condition_line(_about(stored), condition)
        when = pod_state.condition_time(condition)
        yield _Failure(fields.text_at(condition, "message"), when, line, stored)


def _unreported(
    replica: Replica, chain: Sequence[codec.Stored], live: Sequence[pods.Pod]
) -> Observed | None:
    """A quota that has no room for the next pod, where no event tells of a refusal, or none any more."""
    for stored in chain:
        template = template_pods.pod_of(stored)
        missing = _missing(stored, live)
        if template is None or not missing or not isinstance(template.struct, pods.Pod):
            continue
        namespace = stored.struct.metadata.namespace
        exceeded = quota_room.exceeded_by(replica, namespace, template.struct)
        if exceeded is not None:
            room = quota_room.room(replica, namespace, exceeded, pods_missing=missing)
            sentence = admission_refusals.exceeded_sentence(exceeded, namespace)
            line = quoting.line(f"ResourceQuota {namespace}/{exceeded.quota}", None, sentence)
            return observation.observed_cause(
                CauseCode.RESOURCE_QUOTA,
                f"{sentence}{_used_by(room)}",
                line,
                fixes=room.fixes,
            )
    return None


def _used_by(room: quota_room.Room) -> str:
    users = quoting.words(", ".join(room.users[:3]), 100)
    return f"; used by {users}" if users else ""


def _refused(
    replica: Replica, failure: _Failure, chain: Sequence[codec.Stored], missing: int
) -> Observed | None:
    namespace = failure.workload.struct.metadata.namespace
    refusal = admission_refusals.refusal(failure.text, namespace)
    fixes: tuple[Fix, ...] = ()
    sentence = refusal.sentence
    if refusal.exceeded is not None:
        room = quota_room.room(replica, namespace, refusal.exceeded, pods_missing=missing)
        if room.suffices:
            return None  # the controller's next try passes
        sentence += _used_by(room)
        fixes = room.fixes
    if refusal.runtime_class:
        key_exists = any(
            stored.struct.metadata.name == refusal.runtime_class
            for stored in replica.listed(_RUNTIME_CLASS)
        )
        if key_exists:
            return None  # it was created since
        fixes = _without_runtime_class(chain[0])
    return observation.observed_cause(
        refusal.code, sentence, failure.line, fixes=fixes, class_=refusal.class_
    )


def _without_runtime_class(top: codec.Stored) -> tuple[Fix, ...]:
    if top.struct.kind not in _MUTABLE_TEMPLATES:
        return ()
    merge = {"spec": {"template": {"spec": {"runtimeClassName": None}}}}
    return (
        Fix(
            who=Who.USER,
            title=f"remove runtimeClassName from {_about(top)}",
            patch=(patches.Patch(object=owner_chain.reference_to(top), merge=merge),),
            verified=False,
            effect="its pods are admitted; they see GPUs where the node's runtime uses CDI",
        ),
    )


def _about(stored: codec.Stored) -> str:
    metadata = stored.struct.metadata
    return quoting.words(codec.named(stored.struct.kind, metadata.namespace, metadata.name), 140)
