"""Gangs: pods that start together or not at all, as a tree of groups; a pod alone is a gang of one.

Which gang a pod belongs to is read off the pod (`seat_of`, `membership`); what is known about the gang comes from
whoever knows it (a native PodGroup, an owner, labels), and from its pods where nobody else says anything (`implied`).
Data and the reading of it: total, whatever a pod looks like. Never counts pods, never decides.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec

from dovetail.model import durations, meta, pods, wishes
from dovetail.model.wishes import TopologyWish as TopologyWish

GANG_LABEL: Final = "dovetail.dev/gang"
GROUP_LABEL: Final = "dovetail.dev/gang-group"
MIN_LABEL: Final = wishes.MIN
QUEUE_LABEL: Final = wishes.QUEUE
DEFAULT_GROUP: Final = "default"
UNKNOWN_SECONDS: Final = 30  # for so long a gang waits for its owner to be seen; then its pods speak for it

# What the kinds' own controllers write on pods: their API and constants packages.
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
MPI_OPERATOR: Final = "mpi-operator"

JOB: Final = "job"
STATEFUL_SET: Final = "statefulset"
JOBSET: Final = "jobset"
LWS: Final = "leaderworkerset"
RAY: Final = "raycluster"
MPI: Final = "mpijob"
POD_GROUP: Final = "podgroup"
COMPOSITE: Final = "compositepodgroup"
NATIVE: Final = frozenset({POD_GROUP, COMPOSITE})
KUBEFLOW: Final = {
    "PyTorchJob": "pytorchjob",
    "TFJob": "tfjob",
    "XGBoostJob": "xgboostjob",
    "JAXJob": "jaxjob",
    "PaddleJob": "paddlejob",
    "MPIJob": MPI,
}
_SPOKEN: Final = {
    JOB: "Job",
    STATEFUL_SET: "StatefulSet",
    JOBSET: "JobSet",
    LWS: "LeaderWorkerSet",
    RAY: "RayCluster",
    POD_GROUP: "PodGroup",
    COMPOSITE: "CompositePodGroup",
    **{source: kind for kind, source in KUBEFLOW.items()},
}
LEADER: Final = "leader"
WORKER: Final = "worker"
_LABELLED: Final = "gang"
_ALONE: Final = "pod"
_KUEUE: Final = "kueue-pod-group"
_SINGLY: Final = frozenset({JOB, STATEFUL_SET})  # whose pods start singly unless somebody asks for more
_ASKS: Final = (wishes.MIN, wishes.KAI_MIN, wishes.KAI_MIN_OTHERS)

T = TypeVar("T")
GangKey = tuple[str, str]  # namespace and name; the name says the source, such as gang/llama or job/train


class Group(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node of the tree below the root."""

    name: str
    parent: str | None = None  # None: the root
    holds_groups: bool = False  # else pods
    min: int = 1  # pods, or child groups, without which it is nothing
    max: int | None = None
    topology: TopologyWish | None = None


LONE: Final = Group(name=DEFAULT_GROUP)


class Gang(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known about a gang. Times are seconds; None where the policy's or the queue's value holds."""

    metadata: meta.ObjectMeta  # its name is the key's
    queue: str = ""  # as the workload names it; a label alone opens nothing
    labels: dict[str, str] = {}  # queue labels of other schedulers
    priority: int | None = None  # None: its pods'
    is_preemptible: bool | None = None  # None: by the policy
    min_groups: int = 1  # of the root's children
    groups: tuple[Group, ...] = (LONE,)
    topology: TopologyWish | None = None  # of the root
    may_evict_after: int = 0  # until that age it may start but make nobody yield
    stale_grace: int | None = None  # below its minimum for so long it is taken back; negative: never
    stale_since: str | None = None  # since when it is below its minimum
    expected_runtime: int | None = None
    max_runtime: int | None = None
    last_checkpoint: str | None = None  # RFC 3339
    is_recreated: bool = True  # whether something makes its pods anew
    may_be_lost: bool = False  # nothing makes its pods anew, and that is acceptable
    counts_failures: bool = False  # an eviction counts as a failure of its Job
    evicts_whole: bool = False  # it loses all its pods or none, also those above its minimum
    is_known: bool = True  # False: its owner is not seen yet, so nobody knows what it consists of
    is_loose: bool = False  # its pods start and yield singly: each is a gang of its own
    part_of: str = ""  # the name of the larger gang in which it is a group
    uid: str = ""  # of a native group
    claims: tuple[pods.PodResourceClaim, ...] = ()  # those its pods share, reserved for the native group
    problems: tuple[str, ...] = ()  # what was asked for and is left out, and why


class Membership(NamedTuple):
    """The gang of a pod, and the group in it."""

    gang: GangKey
    group: str


class Seat(NamedTuple):
    """The gang a pod's owner may ask for, and whether that is so where nobody says anything."""

    tied: Membership | None
    is_tied: bool


def membership(pod: pods.Pod) -> Membership:
    """The gang a pod belongs to, by what the pod itself says. Its owner may say otherwise: see world.gangs."""
    seat = seat_of(pod)
    return seat.tied if seat.tied is not None and seat.is_tied else alone(pod)


def alone(pod: pods.Pod) -> Membership:
    """The gang of the pod and nobody else."""
    return Membership((pod.metadata.namespace, f"{_ALONE}/{pod.metadata.name}"), DEFAULT_GROUP)


def seat_of(pod: pods.Pod) -> Seat:
    """Where a pod belongs if it starts together with others. Called for every event: a few look-ups."""
    native = pod.spec.scheduling_group
    if native is not None and native.pod_group_name:
        return _seat(pod, f"{POD_GROUP}/{native.pod_group_name}")
    labels = pod.metadata.labels
    if name := labels.get(GANG_LABEL):
        return _seat(pod, f"{_LABELLED}/{name}", labels.get(GROUP_LABEL) or DEFAULT_GROUP)
    if name := labels.get(KUEUE_GROUP):
        return _seat(pod, f"{_KUEUE}/{name}")
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return _owned(pod, owner)
    return Seat(None, False)


def words_of(metadata: meta.ObjectMeta) -> frozenset[tuple[str, str]]:
    """What annotations say to a scheduler: all of them that anything here, or a decision, reads off a pod."""
    spoken = wishes.spoken(metadata.annotations)
    size = metadata.annotations.get(LWS_SIZE)
    return frozenset(spoken if size is None else (*spoken, (LWS_SIZE, size)))


def source_of(key: GangKey) -> str:
    """What a gang comes from, such as job or podgroup."""
    return key[1].partition("/")[0]


def owner_name(key: GangKey) -> str:
    """What a gang comes from, as people say it: PodGroup pg, JobSet llama."""
    source, _, name = key[1].partition("/")
    return f"{_SPOKEN.get(source, source)} {name.partition('/')[0]}"


def is_shared(key: GangKey) -> bool:
    """Whether others may belong to the gang too."""
    return not key[1].startswith(f"{_ALONE}/")


def family_of(key: GangKey) -> GangKey | None:
    """The owner of several gangs that are all alike, such as the groups of a LeaderWorkerSet."""
    above, _, last = key[1].rpartition("/")
    return (key[0], above) if last and "/" in above else None


def implied(pod: pods.Pod) -> Gang:
    """What a pod says about its gang where nobody else says anything."""
    member = membership(pod)
    source = source_of(member.gang)
    asked = wishes.read(wishes.place_of(pod.metadata))
    groups, is_known = _implied_groups(pod, member, source=source, asked=asked)
    found = pod.metadata
    gang = Gang(
        metadata=meta.ObjectMeta(
            namespace=member.gang[0], name=member.gang[1], creation_timestamp=found.creation_timestamp
        ),
        groups=groups,
        min_groups=len(groups),
        max_runtime=durations.at_most(pod.spec.active_deadline_seconds),
        is_recreated=any(one.controller for one in found.owner_references),
        is_known=is_known,
    )
    return asking(gang, asked)


def asking(gang: Gang, asked: wishes.Wishes) -> Gang:
    """The gang with what labels and annotations ask for it, groups apart."""
    if asked is wishes.NOTHING:
        return gang
    return msgspec.structs.replace(
        gang,
        queue=asked.queue or gang.queue,
        labels=dict(asked.labels) or gang.labels,
        is_preemptible=_either(asked.is_preemptible, gang.is_preemptible),
        topology=asked.topology or gang.topology,
        may_evict_after=_either(asked.may_evict_after, gang.may_evict_after) or 0,
        stale_grace=_either(asked.stale_grace, gang.stale_grace),
        expected_runtime=_either(asked.expected_runtime, gang.expected_runtime),
        max_runtime=_shorter(asked.max_runtime, gang.max_runtime),
        last_checkpoint=asked.last_checkpoint or gang.last_checkpoint,
        is_recreated=gang.is_recreated or asked.may_be_lost is False,
        may_be_lost=gang.may_be_lost or bool(asked.may_be_lost),
        problems=tuple(dict.fromkeys((*gang.problems, *asked.problems))),
    )


def completed(told: Gang, said: Gang, key: GangKey) -> Gang:
    """What was told about the gang of this key, and where that is silent what its oldest pod says."""
    is_native = source_of((told.metadata.namespace, told.metadata.name)) in NATIVE
    age = said if told.is_loose or told.metadata.creation_timestamp is None else told
    metadata = meta.ObjectMeta(namespace=key[0], name=key[1], creation_timestamp=age.metadata.creation_timestamp)
    return msgspec.structs.replace(
        told,
        metadata=metadata,
        queue=told.queue or said.queue,
        labels=told.labels or said.labels,
        is_preemptible=_either(told.is_preemptible, said.is_preemptible),
        may_evict_after=told.may_evict_after or said.may_evict_after,
        stale_grace=_either(told.stale_grace, said.stale_grace),
        expected_runtime=_either(told.expected_runtime, said.expected_runtime),
        max_runtime=_shorter(told.max_runtime, said.max_runtime),
        last_checkpoint=_newest((told.last_checkpoint, said.last_checkpoint)),
        topology=told.topology or (said.topology if is_native else None),
        is_recreated=said.is_recreated if is_native else told.is_recreated,
        may_be_lost=told.may_be_lost or said.may_be_lost,
        problems=tuple(dict.fromkeys((*told.problems, *said.problems))),
    )


def checkpoint_of(gang: Gang, members: Iterable[pods.Pod]) -> str | None:
    """The newest point in time a gang can go on from: of its pods any may write it down."""
    written = (pod.metadata.annotations.get(wishes.LAST_CHECKPOINT) for pod in members)
    return _newest((gang.last_checkpoint, *written))


def _owned(pod: pods.Pod, owner: meta.OwnerReference) -> Seat:
    """By the controller of a pod, and by labels where that is only a part of something larger."""
    labels = pod.metadata.labels
    group = owner.api_version.partition("/")[0]
    match group, owner.kind:
        case "batch", "Job":
            if name := labels.get(JOBSET_LABEL):
                return _seat(pod, f"{JOBSET}/{name}", f"{labels.get(JOBSET_JOB, '')}/{labels.get(JOBSET_INDEX, '')}")
            if labels.get(KUBEFLOW_OPERATOR) == MPI_OPERATOR and (name := labels.get(KUBEFLOW_JOB)):
                return _seat(pod, f"{MPI}/{name}", _role(labels))
            return _seat(pod, f"{JOB}/{owner.name}", is_tied=_asks(pod))
        case "apps", "StatefulSet":
            if name := labels.get(LWS_LABEL):
                return _lws(pod, name)
            return _seat(pod, f"{STATEFUL_SET}/{owner.name}", is_tied=_asks(pod))
        case "apps", "ReplicaSet" if name := labels.get(LWS_LABEL):
            return _lws(pod, name)
        case "kubeflow.org", kind if kind in KUBEFLOW:
            return _seat(pod, f"{KUBEFLOW[kind]}/{owner.name}", _role(labels))
        case "ray.io", "RayCluster":
            return _seat(pod, f"{RAY}/{owner.name}", labels.get(RAY_GROUP) or DEFAULT_GROUP)
        case _:
            return Seat(None, False)


def _seat(pod: pods.Pod, name: str, group: str = DEFAULT_GROUP, *, is_tied: bool = True) -> Seat:
    return Seat(Membership((pod.metadata.namespace, name), group), is_tied)


def _lws(pod: pods.Pod, name: str) -> Seat:
    labels = pod.metadata.labels
    group = LEADER if labels.get(LWS_WORKER, "0") == "0" else WORKER
    return _seat(pod, f"{LWS}/{name}/{labels.get(LWS_GROUP, '0')}", group)


def _role(labels: dict[str, str]) -> str:
    return (labels.get(KUBEFLOW_TYPE) or labels.get(KUBEFLOW_ROLE) or DEFAULT_GROUP).lower()


def _asks(pod: pods.Pod) -> bool:
    """Whether the pod itself says that it is part of a gang."""
    found = pod.metadata
    return any(key in found.annotations or key in found.labels for key in _ASKS)


def _implied_groups(
    pod: pods.Pod, member: Membership, *, source: str, asked: wishes.Wishes
) -> tuple[tuple[Group, ...], bool]:
    """The groups as far as one pod can know them, and whether that is all."""
    if source == _ALONE:
        return (LONE,), True
    if source == LWS and (size := _number(pod.metadata.annotations.get(LWS_SIZE, ""))):
        return leader_and_workers(max(size, 2) if member.group == WORKER else size), True
    smallest: int | None = None
    if source == _KUEUE:
        smallest = _number(pod.metadata.annotations.get(KUEUE_TOTAL, ""))
    elif source == _LABELLED or source in _SINGLY:
        smallest = asked.min if asked.min != wishes.ALL else None
    is_known = smallest is not None or source == _LABELLED
    most = asked.max if asked.max is not None and asked.max >= (smallest or 1) else None
    return (Group(name=member.group, min=smallest or 1, max=most, topology=asked.segments),), is_known


def leader_and_workers(size: int) -> tuple[Group, ...]:
    """The groups of one replica of a LeaderWorkerSet."""
    workers = (Group(name=WORKER, min=size - 1),) if size > 1 else ()
    return (Group(name=LEADER), *workers)


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) < 7
    return (int(text) or None) if is_number else None


def _either(one: T | None, other: T | None) -> T | None:
    return one if one is not None else other


def _shorter(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)


def _newest(times: Iterable[str | None]) -> str | None:
    """The latest of these points in time; what cannot be read does not count."""
    read = [(moment, text) for text in times if text and (moment := _moment(text)) is not None]
    return max(read)[1] if read else None


def _moment(text: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
