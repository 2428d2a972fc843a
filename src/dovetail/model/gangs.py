"""Gangs: pods that start together or not at all, as a tree of groups. A pod alone is a gang of one.

A pod names the gang it belongs to (`seat_of`, `membership`). The gang itself is described by a native PodGroup, by the
owner of its pods or by labels; where none of these describes it, its pods do (`implied`).
Reads any pod without raising, however odd. Never counts pods, never decides.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail import timestamps
from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import pods
from dovetail.model import gpu_annotations, workload_annotations
from dovetail.model.workload_annotations import TopologyRequest as TopologyRequest
from dovetail.quantity import durations

GANG_LABEL: Final = "dovetail.dev/gang"
GROUP_LABEL: Final = "dovetail.dev/gang-group"
MIN_LABEL: Final = workload_annotations.MIN
QUEUE_LABEL: Final = workload_annotations.QUEUE
DEFAULT_GROUP: Final = "default"
# How long a gang waits for its owner to be seen; after that its pods describe it.
UNKNOWN_SECONDS: Final = 30

# Labels and annotations the controllers of these kinds write on pods, from their API and constants packages.
JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_INDEX: Final = "jobset.sigs.k8s.io/job-index"
LWS_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
RAY_CLUSTER: Final = "ray.io/cluster"
RAY_GROUP: Final = "ray.io/group"
KUBEFLOW_JOB: Final = "training.kubeflow.org/job-name"
KUBEFLOW_OPERATOR: Final = "training.kubeflow.org/operator-name"
KUBEFLOW_TYPE: Final = "training.kubeflow.org/replica-type"
KUBEFLOW_ROLE: Final = "training.kubeflow.org/job-role"
KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
# KAI, pkg/common/constants: its pod grouper writes them, unless a user does and asks it to stay away.
KAI_GROUP_ANNOTATION: Final = "pod-group-name"
KAI_SUBGROUP: Final = "kai.scheduler/subgroup-name"
KAI_USER_MADE: Final = "kai.scheduler/skip-podgrouper"
MPI_OPERATOR: Final = "mpi-operator"

JOB: Final = "job"
STATEFUL_SET: Final = "statefulset"
JOBSET: Final = "jobset"
LWS: Final = "leaderworkerset"
RAY: Final = "raycluster"
MPI: Final = "mpijob"
POD_GROUP: Final = "podgroup"
COMPOSITE: Final = "compositepodgroup"
KAI_GROUP: Final = "kai-podgroup"
NATIVE: Final = frozenset({POD_GROUP, COMPOSITE})
# Objects that own no pods: pods name them, and do not start before they exist.
GROUPS: Final = NATIVE | {KAI_GROUP}
KUBEFLOW: Final = {
    "PyTorchJob": "pytorchjob",
    "TFJob": "tfjob",
    "XGBoostJob": "xgboostjob",
    "JAXJob": "jaxjob",
    "PaddleJob": "paddlejob",
    "MPIJob": MPI,
}
_KIND_NAMES: Final = {
    JOB: "Job",
    STATEFUL_SET: "StatefulSet",
    JOBSET: "JobSet",
    LWS: "LeaderWorkerSet",
    RAY: "RayCluster",
    POD_GROUP: "PodGroup",
    COMPOSITE: "CompositePodGroup",
    KAI_GROUP: "KAI PodGroup",
    **{source: kind for kind, source in KUBEFLOW.items()},
}
LEADER: Final = "leader"
WORKER: Final = "worker"
_LABELLED: Final = "gang"
_ALONE: Final = "pod"
_KUEUE: Final = "kueue-pod-group"
# Owners whose pods start one by one unless the workload requests a gang.
_ONE_BY_ONE: Final = frozenset({JOB, STATEFUL_SET})
_GANG_KEYS: Final = (
    workload_annotations.MIN,
    workload_annotations.KAI_MIN,
    workload_annotations.KAI_MIN_OTHERS,
)

T = TypeVar("T")
GangKey = tuple[str, str]  # namespace, and source with name: gang/llama or job/train


class Group(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node of the tree below the root."""

    name: str
    parent: str | None = None  # None: the root
    holds_groups: bool = False  # else pods
    min: int = 1  # pods, or child groups, it needs to be of use
    max: int | None = None
    topology: TopologyRequest | None = None


LONE_GROUP: Final = Group(name=DEFAULT_GROUP)


class Gang(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known about a gang. Times are in seconds; None means the value of the policy or the queue applies."""

    metadata: meta.ObjectMeta  # its name is the key's
    queue: str = ""  # as the workload names it; whether it may use the queue is decided elsewhere
    labels: dict[str, str] = {}  # queue labels of other schedulers
    priority: int | None = None  # None: its pods'
    is_preemptible: bool | None = None  # None: by the policy
    min_groups: int = 1  # of the root's children
    groups: tuple[Group, ...] = (LONE_GROUP,)
    topology: TopologyRequest | None = None  # of the root
    may_evict_after: int = 0  # before that age it starts only in free room, without evictions
    stale_grace: int | None = None  # evicted after so long below its minimum; negative: never
    stale_since: str | None = None  # since when it is below its minimum
    expected_runtime: int | None = None
    max_runtime: int | None = None
    last_checkpoint: str | None = None  # RFC 3339
    is_recreated: bool = True  # whether a controller creates its pods again after an eviction
    may_be_lost: bool = False  # no controller does, and the workload accepts that
    counts_failures: bool = False  # an eviction counts as a failure of its Job
    evicts_whole: bool = False  # it loses all its pods or none, also those above its minimum
    is_known: bool = True  # False: its owner was not seen yet, so its groups are not known
    is_loose: bool = False  # its pods start and are evicted one by one: each is a gang alone
    part_of: str = ""  # the name of the larger gang in which it is a group
    uid: str = ""  # of a native group
    claims: tuple[pods.PodResourceClaim, ...] = ()  # shared by its pods, reserved for the group
    problems: tuple[str, ...] = ()  # requests that are ignored, and why


class Membership(NamedTuple):
    """The gang of a pod, and the group in it."""

    gang: GangKey
    group: str


class GangCandidate(NamedTuple):
    """The gang a pod can belong to, and whether it does so without its owner's request."""

    membership: Membership | None
    is_member: bool


def membership(pod: pods.Pod) -> Membership:
    """The gang a pod belongs to by its own metadata. Its owner may override that: see world.gangs."""
    seat = candidate_of(pod)
    return (
        seat.membership if seat.membership is not None and seat.is_member else lone_membership(pod)
    )


def lone_membership(pod: pods.Pod) -> Membership:
    """The gang that consists of this pod alone."""
    return Membership((pod.metadata.namespace, f"{_ALONE}/{pod.metadata.name}"), DEFAULT_GROUP)


def candidate_of(pod: pods.Pod) -> GangCandidate:
    """The gang of a pod that starts together with others. Called for every event: a few look-ups."""
    native = pod.spec.scheduling_group
    if native is not None and native.pod_group_name:
        return _seat(pod, f"{POD_GROUP}/{native.pod_group_name}")
    labels = pod.metadata.labels
    if name := labels.get(GANG_LABEL):
        return _seat(pod, f"{_LABELLED}/{name}", labels.get(GROUP_LABEL) or DEFAULT_GROUP)
    if name := labels.get(KUEUE_GROUP):
        return _seat(pod, f"{_KUEUE}/{name}")
    kai_group = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION)
    if kai_group and KAI_USER_MADE in pod.metadata.annotations:
        return _kai_seat(pod, kai_group)
    for owner in pod.metadata.owner_references:
        if owner.controller:
            by_owner = _seat_by_owner(pod, owner)
            if by_owner.membership is not None:
                return by_owner
    return _kai_seat(pod, kai_group) if kai_group else GangCandidate(None, False)


def scheduling_annotations(metadata: meta.ObjectMeta) -> frozenset[tuple[str, str]]:
    """The annotations that matter to a scheduler: every one that this module or a decision reads from a pod."""
    entries = workload_annotations.scheduler_entries(metadata.annotations)
    others = [
        (key, metadata.annotations[key])
        for key in (LWS_SIZE, KAI_GROUP_ANNOTATION)
        if key in metadata.annotations
    ]
    return frozenset((*entries, *others) if others else entries)


def source_of(key: GangKey) -> str:
    """What a gang comes from, such as job or podgroup."""
    return key[1].partition("/")[0]


def owner_name(key: GangKey) -> str:
    """Kind and name of what a gang comes from: PodGroup pg, JobSet llama."""
    source, _, name = key[1].partition("/")
    return f"{_KIND_NAMES.get(source, source)} {name.partition('/')[0]}"


def is_shared(key: GangKey) -> bool:
    """Whether the gang can have more than one pod."""
    return not key[1].startswith(f"{_ALONE}/")


def family_of(key: GangKey) -> GangKey | None:
    """The owner of several gangs that are all alike, such as the groups of a LeaderWorkerSet."""
    above, _, last = key[1].rpartition("/")
    return (key[0], above) if last and "/" in above else None


def gang_of_pod(pod: pods.Pod, member: Membership | None = None) -> Gang:
    """The gang as one of its pods describes it, for gangs without any other description.

    A caller that knows the pod's own membership may say it.
    """
    member = member or membership(pod)
    metadata = pod.metadata
    options = workload_annotations.read(workload_annotations.labels_and_annotations(metadata))
    groups, is_known = _implied_groups(pod, member, source=source_of(member.gang), options=options)
    gang = Gang(
        metadata=meta.ObjectMeta(
            namespace=member.gang[0],
            name=member.gang[1],
            creation_timestamp=metadata.creation_timestamp,
        ),
        groups=groups,
        min_groups=len(groups),
        max_runtime=durations.at_most(pod.spec.active_deadline_seconds),
        is_recreated=any(owner.controller for owner in metadata.owner_references),
        is_known=is_known,
        problems=gpu_annotations.notes(pod),
    )
    return with_options(gang, options)


def with_options(gang: Gang, options: workload_annotations.WorkloadOptions) -> Gang:
    """The gang with the requests of labels and annotations applied, except those about its groups."""
    if options is workload_annotations.NO_OPTIONS:
        return gang
    return msgspec.structs.replace(
        gang,
        queue=options.queue or gang.queue,
        labels=dict(options.labels) or gang.labels,
        is_preemptible=_first_given(options.is_preemptible, gang.is_preemptible),
        topology=options.topology or gang.topology,
        may_evict_after=_first_given(options.may_evict_after, gang.may_evict_after) or 0,
        stale_grace=_first_given(options.stale_grace, gang.stale_grace),
        expected_runtime=_first_given(options.expected_runtime, gang.expected_runtime),
        max_runtime=_shorter(options.max_runtime, gang.max_runtime),
        last_checkpoint=options.last_checkpoint or gang.last_checkpoint,
        is_recreated=gang.is_recreated or options.may_be_lost is False,
        may_be_lost=gang.may_be_lost or bool(options.may_be_lost),
        problems=tuple(dict.fromkeys((*gang.problems, *options.problems))),
    )


def completed(declared: Gang, by_pod: Gang, key: GangKey) -> Gang:
    """The declared gang under this key; what the declaration leaves open comes from its oldest pod."""
    is_group = source_of((declared.metadata.namespace, declared.metadata.name)) in GROUPS
    has_own_age = not declared.is_loose and declared.metadata.creation_timestamp is not None
    oldest = declared if has_own_age else by_pod
    metadata = meta.ObjectMeta(
        namespace=key[0], name=key[1], creation_timestamp=oldest.metadata.creation_timestamp
    )
    return msgspec.structs.replace(
        declared,
        metadata=metadata,
        queue=declared.queue or by_pod.queue,
        labels=declared.labels or by_pod.labels,
        is_preemptible=_first_given(declared.is_preemptible, by_pod.is_preemptible),
        may_evict_after=declared.may_evict_after or by_pod.may_evict_after,
        stale_grace=_first_given(declared.stale_grace, by_pod.stale_grace),
        expected_runtime=_first_given(declared.expected_runtime, by_pod.expected_runtime),
        max_runtime=_shorter(declared.max_runtime, by_pod.max_runtime),
        last_checkpoint=_newest((declared.last_checkpoint, by_pod.last_checkpoint)),
        topology=declared.topology or (by_pod.topology if is_group else None),
        is_recreated=by_pod.is_recreated if is_group else declared.is_recreated,
        may_be_lost=declared.may_be_lost or by_pod.may_be_lost,
        problems=tuple(dict.fromkeys((*declared.problems, *by_pod.problems))),
    )


def checkpoint_of(gang: Gang, members: Iterable[pods.Pod]) -> str | None:
    """The newest checkpoint a gang can resume from; any of its pods may have recorded it."""
    by_pods = (
        pod.metadata.annotations.get(workload_annotations.LAST_CHECKPOINT) for pod in members
    )
    return _newest((gang.last_checkpoint, *by_pods))


def _seat_by_owner(pod: pods.Pod, owner: meta.OwnerReference) -> GangCandidate:
    """By the pod's controller, and by labels where that controller is itself part of something larger."""
    labels = pod.metadata.labels
    group = owner.api_version.partition("/")[0]
    match group, owner.kind:
        case "batch", "Job":
            if name := labels.get(JOBSET_LABEL):
                return _seat(
                    pod,
                    f"{JOBSET}/{name}",
                    f"{labels.get(JOBSET_JOB, '')}/{labels.get(JOBSET_INDEX, '')}",
                )
            if labels.get(KUBEFLOW_OPERATOR) == MPI_OPERATOR and (name := labels.get(KUBEFLOW_JOB)):
                return _seat(pod, f"{MPI}/{name}", _role(labels))
            return _seat(pod, f"{JOB}/{owner.name}", is_tied=_requests_gang(pod))
        case "apps", "StatefulSet":
            if name := labels.get(LWS_LABEL):
                return _lws_seat(pod, name)
            return _seat(pod, f"{STATEFUL_SET}/{owner.name}", is_tied=_requests_gang(pod))
        case "apps", "ReplicaSet" if name := labels.get(LWS_LABEL):
            return _lws_seat(pod, name)
        case "kubeflow.org", kind if kind in KUBEFLOW:
            return _seat(pod, f"{KUBEFLOW[kind]}/{owner.name}", _role(labels))
        case "ray.io", "RayCluster":
            return _seat(pod, f"{RAY}/{owner.name}", labels.get(RAY_GROUP) or DEFAULT_GROUP)
        case _:
            return GangCandidate(None, False)


def _seat(
    pod: pods.Pod, name: str, group: str = DEFAULT_GROUP, *, is_tied: bool = True
) -> GangCandidate:
    return GangCandidate(Membership((pod.metadata.namespace, name), group), is_tied)


def _kai_seat(pod: pods.Pod, name: str) -> GangCandidate:
    subgroup = pod.metadata.labels.get(KAI_SUBGROUP) or DEFAULT_GROUP
    return _seat(pod, f"{KAI_GROUP}/{name}", subgroup)


def _lws_seat(pod: pods.Pod, name: str) -> GangCandidate:
    labels = pod.metadata.labels
    group = LEADER if labels.get(LWS_WORKER, "0") == "0" else WORKER
    return _seat(pod, f"{LWS}/{name}/{labels.get(LWS_GROUP, '0')}", group)


def _role(labels: dict[str, str]) -> str:
    return (labels.get(KUBEFLOW_TYPE) or labels.get(KUBEFLOW_ROLE) or DEFAULT_GROUP).lower()


def _requests_gang(pod: pods.Pod) -> bool:
    """Whether the pod's own metadata requests a gang."""
    metadata = pod.metadata
    return any(key in metadata.annotations or key in metadata.labels for key in _GANG_KEYS)


def _implied_groups(
    pod: pods.Pod, member: Membership, *, source: str, options: workload_annotations.WorkloadOptions
) -> tuple[tuple[Group, ...], bool]:
    """The groups one pod can know of, and whether these are all."""
    if source == _ALONE:
        return (LONE_GROUP,), True
    if source == LWS:
        size = _number(pod.metadata.annotations.get(LWS_SIZE, ""))
        if size:
            return leader_and_workers(max(size, 2) if member.group == WORKER else size), True

    minimum = _implied_minimum(pod, source, options)
    is_known = minimum is not None or source == _LABELLED
    fewest = minimum or 1
    most = options.max
    if most is not None and most < fewest:
        most = None
    group = Group(name=member.group, min=fewest, max=most, topology=options.segments)
    return (group,), is_known


def _implied_minimum(
    pod: pods.Pod, source: str, options: workload_annotations.WorkloadOptions
) -> int | None:
    """How many pods the gang needs, if its pod states it."""
    if source == _KUEUE:
        return _number(pod.metadata.annotations.get(KUEUE_TOTAL, ""))
    if source != _LABELLED and source not in _ONE_BY_ONE:
        return None
    return None if options.min == workload_annotations.ALL else options.min


def leader_and_workers(size: int) -> tuple[Group, ...]:
    """The groups of one replica of a LeaderWorkerSet."""
    workers = (Group(name=WORKER, min=size - 1),) if size > 1 else ()
    return (Group(name=LEADER), *workers)


def _number(text: str) -> int | None:
    """A count of pods above zero, up to six digits."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 7
    return (int(text) or None) if is_number else None


def _first_given(preferred: T | None, fallback: T | None) -> T | None:
    return preferred if preferred is not None else fallback


def _shorter(first: int | None, second: int | None) -> int | None:
    bounds = [seconds for seconds in (first, second) if seconds is not None]
    return min(bounds) if bounds else None


def _newest(times: Iterable[str | None]) -> str | None:
    """The latest of these times, as written; text that is not a time does not count."""
    texts = [text for text in times if text]
    readable = [(moment, text) for text in texts if (moment := _moment(text)) is not None]
    return max(readable)[1] if readable else None


def _moment(text: str) -> datetime.datetime | None:
    try:
        moment = timestamps.parse(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


# No API server has this kind: gangs are derived from the owners of pods, and the World holds them like any object.
KIND: Final = registry.Kind("", "Gang", "gangs", True, Gang)
