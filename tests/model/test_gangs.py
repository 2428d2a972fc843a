"""Which gang a pod belongs to, by what the pod itself says: a row per kind, and no pod is too odd."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.model import gangs


def pod(
    name: str = "p",
    *,
    owner: tuple[str, str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> pods.Pod:
    """A pod; its owner is apiVersion, kind and name."""
    metadata: dict[str, Any] = {"namespace": "ml", "name": name, "labels": labels or {}}
    metadata["annotations"] = annotations or {}
    if owner is not None:
        version, kind, owner_name = owner
        reference = {
            "apiVersion": version,
            "kind": kind,
            "name": owner_name,
            "uid": "u",
            "controller": True,
        }
        metadata["ownerReferences"] = [{"kind": "Other", "name": "other"}, reference]
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return codec.decode_struct(pods.Pod, codec.encode_tree(tree))


KAI = {"pod-group-name": "pg"}
BY_USER = {"kai.scheduler/skip-podgrouper": "true"}
SUBGROUP = {"kai.scheduler/subgroup-name": "workers"}
JOB = ("batch/v1", "Job")
SET = ("apps/v1", "StatefulSet")
JOBSET = {
    "jobset.sigs.k8s.io/jobset-name": "llama",
    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    "jobset.sigs.k8s.io/job-index": "1",
}
LWS = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "2"}
WORKER = LWS | {"leaderworkerset.sigs.k8s.io/worker-index": "3"}
LEADER = LWS | {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
MPI = {
    "training.kubeflow.org/operator-name": "mpi-operator",
    "training.kubeflow.org/job-name": "hpl",
}
LAUNCHER = MPI | {"training.kubeflow.org/job-role": "launcher"}
MASTER = {"training.kubeflow.org/job-name": "bert", "training.kubeflow.org/replica-type": "Master"}
RAY = {"ray.io/cluster": "tune", "ray.io/node-type": "worker", "ray.io/group": "gpu"}


@pytest.mark.parametrize(
    ("made", "gang", "group"),
    [
        (pod(), "pod/p", "default"),
        (pod(owner=("apps/v1", "ReplicaSet", "web-7d9")), "pod/p", "default"),
        (pod(owner=("example.com/v1", "Robot", "r")), "pod/p", "default"),
        (pod(annotations=KAI), "kai-podgroup/pg", "default"),
        (pod(annotations=KAI, labels=SUBGROUP), "kai-podgroup/pg", "workers"),
        (pod(owner=("example.com/v1", "R", "r"), annotations=KAI), "kai-podgroup/pg", "default"),
        # KAI's pod grouper annotates the pods of every owner; those of a Job are the Job's, unless a user asks.
        (pod(owner=(*JOB, "train"), annotations=KAI), "pod/p", "default"),
        (pod(owner=(*JOB, "train"), annotations=KAI | BY_USER), "kai-podgroup/pg", "default"),
        (pod(owner=(*JOB, "train")), "pod/p", "default"),
        (pod(owner=(*SET, "db")), "pod/p", "default"),
        (
            pod(owner=(*JOB, "train"), annotations={"dovetail.dev/gang-min": "4"}),
            "job/train",
            "default",
        ),
        (
            pod(owner=(*JOB, "train"), labels={"kai.scheduler/batch-min-member": "4"}),
            "job/train",
            "default",
        ),
        (
            pod(owner=(*SET, "db"), labels={"dovetail.dev/gang-min": "2"}),
            "statefulset/db",
            "default",
        ),
        (pod(labels={"dovetail.dev/gang": "llama"}), "gang/llama", "default"),
        (
            pod(labels={"dovetail.dev/gang": "llama", "dovetail.dev/gang-group": "ps"}),
            "gang/llama",
            "ps",
        ),
        (pod(labels={"kueue.x-k8s.io/pod-group-name": "g"}), "kueue-pod-group/g", "default"),
        (
            pod(schedulingGroup={"podGroupName": "pg"}, labels={"dovetail.dev/gang": "x"}),
            "podgroup/pg",
            "default",
        ),
        (pod(owner=(*JOB, "llama-workers-1"), labels=JOBSET), "jobset/llama", "workers/1"),
        (pod(labels=JOBSET), "pod/p", "default"),  # it has no owner: a label alone is no JobSet
        (pod(owner=(*SET, "serve"), labels=LEADER), "leaderworkerset/serve/2", "leader"),
        (pod(owner=(*SET, "serve-2"), labels=WORKER), "leaderworkerset/serve/2", "worker"),
        (
            pod(owner=("kubeflow.org/v1", "PyTorchJob", "bert"), labels=MASTER),
            "pytorchjob/bert",
            "master",
        ),
        (pod(owner=("kubeflow.org/v1", "XGBoostJob", "x")), "xgboostjob/x", "default"),
        (pod(owner=("kubeflow.org/v2beta1", "MPIJob", "hpl"), labels=MPI), "mpijob/hpl", "default"),
        (pod(owner=(*JOB, "hpl-launcher"), labels=LAUNCHER), "mpijob/hpl", "launcher"),
        (pod(owner=("ray.io/v1", "RayCluster", "tune"), labels=RAY), "raycluster/tune", "gpu"),
    ],
)
def test_the_gang_of_a_pod(made: pods.Pod, gang: str, group: str) -> None:
    assert gangs.membership(made) == gangs.Membership(("ml", gang), group)
    assert gangs.gang_of_pod(made).metadata.name == gang


@pytest.mark.parametrize(
    ("made", "is_known", "mins"),
    [
        (pod(), True, [("default", 1)]),
        (
            pod(labels={"dovetail.dev/gang": "a", "dovetail.dev/gang-min": "4"}),
            True,
            [("default", 4)],
        ),
        (pod(labels={"dovetail.dev/gang": "a"}), True, [("default", 1)]),
        (
            pod(owner=(*JOB, "a"), annotations={"dovetail.dev/gang-min": "3"}),
            True,
            [("default", 3)],
        ),
        (
            pod(owner=(*JOB, "a"), annotations={"dovetail.dev/gang-min": "all"}),
            False,
            [("default", 1)],
        ),
        (pod(schedulingGroup={"podGroupName": "pg"}), False, [("default", 1)]),
        (pod(owner=(*JOB, "a"), labels=JOBSET), False, [("workers/1", 1)]),
        (pod(owner=(*SET, "a"), labels=WORKER), False, [("worker", 1)]),
        (
            pod(
                owner=(*SET, "a"),
                labels=WORKER,
                annotations={"leaderworkerset.sigs.k8s.io/size": "4"},
            ),
            True,
            [("leader", 1), ("worker", 3)],
        ),
        (
            pod(
                labels={"kueue.x-k8s.io/pod-group-name": "g"},
                annotations={"kueue.x-k8s.io/pod-group-total-count": "5"},
            ),
            True,
            [("default", 5)],
        ),
    ],
)
def test_what_a_pod_knows_about_its_gang(
    made: pods.Pod, is_known: bool, mins: list[tuple[str, int]]
) -> None:
    gang = gangs.gang_of_pod(made)
    assert gang.is_known == is_known
    assert [(group.name, group.min) for group in gang.groups] == mins
    assert gang.min_groups == len(mins)


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("podgroup/pg", "PodGroup pg"),
        ("leaderworkerset/serve/2", "LeaderWorkerSet serve"),
        ("tfjob/a", "TFJob a"),
        ("gang/a", "gang a"),
    ],
)
def test_what_people_call_it(name: str, spoken: str) -> None:
    assert gangs.owner_name(("ml", name)) == spoken


def test_a_bare_pod_is_not_recreated_and_may_accept_that() -> None:
    assert not gangs.gang_of_pod(pod()).is_recreated
    assert gangs.gang_of_pod(pod(owner=(*JOB, "a"))).is_recreated
    assert gangs.gang_of_pod(pod(annotations={"dovetail.dev/when-evicted": "end"})).may_be_lost
    assert gangs.gang_of_pod(pod(annotations={"dovetail.dev/when-evicted": "restart"})).is_recreated


def test_the_newest_checkpoint_of_any_member_counts() -> None:
    def at(text: str) -> pods.Pod:
        return pod(annotations={"dovetail.dev/last-checkpoint": text})

    gang = gangs.gang_of_pod(at("2026-05-01T12:00:00Z"))
    assert gangs.checkpoint_of(gang, []) == "2026-05-01T12:00:00Z"
    members = [
        at("2026-05-01T13:00:00+02:00"),
        at("2026-05-01T12:30:00Z"),
        at("never"),
        at("2026-05-01T23:00:00"),
    ]
    assert gangs.checkpoint_of(gang, members) == "2026-05-01T12:30:00Z"


KINDS = st.sampled_from(
    ["Job", "StatefulSet", "ReplicaSet", "PyTorchJob", "MPIJob", "RayCluster", ""]
)
GROUPS = st.sampled_from(["batch/v1", "apps/v1", "kubeflow.org/v1", "ray.io/v1", "", "/"])
LABELS = st.sampled_from(
    sorted(
        value
        for name, value in vars(gangs).items()
        if name.isupper() and isinstance(value, str) and "/" in value
    )
)
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["0", "1", "all", "-1", "999999999", "a/b", "mpi-operator"]),
)
WORDS = st.dictionaries(LABELS, TEXTS, max_size=5)


@given(
    st.one_of(st.none(), st.tuples(GROUPS, KINDS, TEXTS)), WORDS, WORDS, st.one_of(st.none(), TEXTS)
)
def test_no_pod_is_too_odd(
    owner: tuple[str, str, str] | None,
    labels: dict[str, str],
    annotations: dict[str, str],
    native: str | None,
) -> None:
    made = pod(
        owner=owner,
        labels=labels,
        annotations=annotations,
        schedulingGroup={"podGroupName": native},
    )
    member, implied = gangs.membership(made), gangs.gang_of_pod(made)
    assert (implied.metadata.namespace, implied.metadata.name) == member.gang
    assert member.group in {group.name for group in implied.groups}
    assert msgspec.json.decode(msgspec.json.encode(implied), type=gangs.Gang) == implied
