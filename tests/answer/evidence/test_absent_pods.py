"""Workloads whose pods do not appear: suspended, refused by quota, policy, webhook, or a missing runtime class."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.answer.why import subjects
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from tests.answer.evidence import objects
from tests.answer.evidence.objects import Tree

KEY = "requests.nvidia.com/gpu"
EXCEEDED = (
    f'pods "train-x" is forbidden: exceeded quota: gpus, requested: {KEY}=8, used: {KEY}=4, '
    f"limited: {KEY}=8"
)


def job(name: str = "train", **spec: Any) -> Tree:
    return objects.named("batch/v1", "Job", name, spec={"parallelism": 1, **spec})


def deployment(**spec: Any) -> tuple[Tree, Tree]:
    top = objects.named("apps/v1", "Deployment", "serve", spec={"replicas": 2, **spec})
    metadata = {"ownerReferences": [objects.owner_reference(top)]}
    below = objects.named(
        "apps/v1", "ReplicaSet", "serve-6d4", metadata=metadata, spec={"replicas": 2}
    )
    return top, below


def failed(about: Tree, message: str, **fields: Any) -> Tree:
    by = f"{about['kind'].lower()}-controller"
    return objects.event(about, "FailedCreate", f"Error creating: {message}", by=by, **fields)


def quota(used: str, hard: str = "8") -> Tree:
    return objects.named(
        "v1",
        "ResourceQuota",
        "gpus",
        spec={"hard": {KEY: hard}},
        status={"hard": {KEY: hard}, "used": {KEY: used}},
    )


def test_a_quota_refuses_pods_and_its_users_are_named() -> None:
    top = job()
    user = objects.bound("notebook", resources={objects.GPU: "3"})
    other = objects.bound("eval", resources={objects.GPU: "1"})
    ended = objects.bound("old", resources={objects.GPU: "8"}, status={"phase": "Succeeded"})
    answer = objects.seen(top, failed(top, EXCEEDED, count=9), quota("4"), user, other, ended)
    assert answer.cause.code is CauseCode.RESOURCE_QUOTA
    assert answer.cause.class_ is CauseClass.QUOTA
    assert "4 of 8 nvidia.com/gpu used, 8 more asked for" in answer.cause.sentence
    assert answer.cause.sentence.endswith("used by team/notebook: 3, team/eval: 1")
    assert answer.fixes[0].patch[0].merge == {"spec": {"hard": {KEY: "12"}}}
    assert answer.overrides


def test_a_quota_that_was_raised_or_freed_since_is_no_cause() -> None:
    top = job()
    assert objects.observe(top, failed(top, EXCEEDED), quota("0")) is None
    assert objects.observe(top, failed(top, EXCEEDED), quota("4", hard="16")) is None
    assert objects.code(top, failed(top, EXCEEDED)) is CauseCode.RESOURCE_QUOTA  # it was not read


def test_pods_that_were_created_since_are_no_cause() -> None:
    top = job()
    created = objects.event(top, "SuccessfulCreate", "Created pod: train-x", ago=1, type_="Normal")
    assert objects.observe(top, failed(top, EXCEEDED), quota("4"), created) is None
    running = objects.bound("train-x", owner=top, status={"phase": "Running"})
    assert objects.observe(top, failed(top, EXCEEDED, ago=1), quota("4"), running) is None


def test_a_job_that_is_done_needs_no_pods() -> None:
    top = job(completions=4) | {"status": {"succeeded": 4}}
    assert objects.observe(top, failed(top, EXCEEDED), quota("8")) is None


@pytest.mark.parametrize("speaks", ["event", "condition"])
def test_a_deployment_is_refused_by_way_of_its_replica_set(speaks: str) -> None:
    top, below = deployment()
    if speaks == "event":
        said = [
            failed(
                below,
                'pods "serve-6d4-" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
            )
        ]
    else:
        message = 'pods "serve-6d4-" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
        below["status"] = {
            "conditions": [objects.condition("ReplicaFailure", "True", "FailedCreate", message)]
        }
        said = []
    answer = objects.seen(top, below, *said)
    assert answer.cause.code is CauseCode.RUNTIME_CLASS_MISSING
    assert 'RuntimeClass "nvidia" does not exist' in answer.cause.sentence
    patch = answer.fixes[0].patch[0]
    assert patch.object.kind == "Deployment"
    assert patch.merge == {"spec": {"template": {"spec": {"runtimeClassName": None}}}}

    runtime_class = objects.named(
        "node.k8s.io/v1", "RuntimeClass", "nvidia", namespace="", handler="nvidia"
    )
    assert objects.observe(top, below, *said, runtime_class) is None


@pytest.mark.parametrize(
    ("message", "class_", "words"),
    [
        (
            'admission webhook "policy.example.com" denied the request: no privileged pods',
            CauseClass.POLICY,
            "webhook policy.example.com refuses its pods",
        ),
        (
            'Internal error occurred: failed calling webhook "inject.example.com": failed to call webhook: '
            'Post "https://inject.mesh.svc:443/": context deadline exceeded',
            CauseClass.PLATFORM,
            "webhook inject.example.com does not answer",
        ),
        (
            'pods "x" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes',
            CauseClass.POLICY,
            'pod security "restricted:latest"',
        ),
        (
            "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            CauseClass.POLICY,
            "admission policy p refuses its pods: no",
        ),
        (
            'pods "x" is forbidden: [maximum nvidia.com/gpu usage per Container is 4, but limit is 8]',
            CauseClass.CONFIG,
            "a LimitRange of the namespace refuses its pods: maximum nvidia.com/gpu usage per Container "
            "is 4, but limit is 8",
        ),
        (
            'pods "x" is forbidden: failed quota: compute: must specify limits.cpu for: main',
            CauseClass.CONFIG,
            "ResourceQuota compute demands that pods specify limits.cpu",
        ),
        (
            'pods "x" is forbidden: error looking up service account team/runner: serviceaccount '
            '"runner" not found',
            CauseClass.CONFIG,
            "service account team/runner does not exist",
        ),
        (
            'pods "x" is forbidden: no PriorityClass with name high was found',
            CauseClass.CONFIG,
            "PriorityClass high does not exist",
        ),
        (
            'Pod "x" is invalid: spec.containers[0].image: Required value',
            CauseClass.CONFIG,
            "spec.containers[0].image: Required value",
        ),
        ("words of a later server", CauseClass.POLICY, "words of a later server"),
    ],
)
def test_refusals_of_an_api_server(message: str, class_: CauseClass, words: str) -> None:
    top = job()
    answer = objects.seen(top, failed(top, message))
    assert answer.cause.code is CauseCode.ADMISSION_DENIED
    assert answer.cause.class_ is class_
    assert words in answer.cause.sentence
    assert "job-controller" in answer.evidence[0]


def test_a_stateful_set_quotes_the_refusal_in_its_own_way() -> None:
    top = objects.named("apps/v1", "StatefulSet", "db", spec={"replicas": 1})
    message = f"create Pod db-0 in StatefulSet db failed error: {EXCEEDED}"
    event = objects.event(top, "FailedCreate", message, by="statefulset-controller")
    assert objects.code(top, event, quota("4")) is CauseCode.RESOURCE_QUOTA


def test_the_newest_refusal_counts() -> None:
    top = job()
    old = failed(top, EXCEEDED, ago=30)
    new = failed(top, 'pods "x" is forbidden: no PriorityClass with name high was found', ago=1)
    assert objects.code(top, old, new, quota("4")) is CauseCode.ADMISSION_DENIED


@pytest.mark.parametrize(
    ("top", "merge"),
    [
        (job(suspend=True), {"spec": {"suspend": False}}),
        (
            objects.named("jobset.x-k8s.io/v1alpha2", "JobSet", "train", spec={"suspend": True}),
            {"spec": {"suspend": False}},
        ),
        (
            objects.named(
                "kubeflow.org/v1", "PyTorchJob", "train", spec={"runPolicy": {"suspend": True}}
            ),
            {"spec": {"runPolicy": {"suspend": False}}},
        ),
        (
            objects.named("apps/v1", "Deployment", "serve", spec={"paused": True}),
            {"spec": {"paused": False}},
        ),
    ],
)
def test_a_workload_that_was_suspended_by_hand(top: Tree, merge: Tree) -> None:
    answer = objects.seen(top)
    assert answer.cause.code is CauseCode.OWNER_SUSPENDED
    assert answer.fixes[0].patch[0].merge == merge


def test_a_job_of_a_job_set_is_looked_at_too() -> None:
    top = objects.named("jobset.x-k8s.io/v1alpha2", "JobSet", "train", spec={})
    below = job("train-workers-0")
    below["metadata"]["ownerReferences"] = [objects.owner_reference(top)]
    assert objects.code(top, below, failed(below, EXCEEDED), quota("4")) is CauseCode.RESOURCE_QUOTA
    assert objects.observe(top, below) is None


def test_a_workload_that_asks_for_no_pods() -> None:
    top = objects.named("apps/v1", "Deployment", "serve", spec={"replicas": 0})
    answer = objects.seen(top)
    assert answer.cause.code is CauseCode.OWNER_SUSPENDED
    assert "asks for 0 pods" in answer.cause.sentence


def test_an_earlier_replica_set_of_no_pods_is_no_cause() -> None:
    top, below = deployment()
    below["spec"]["replicas"] = 0
    assert objects.observe(top, below) is None


def test_a_workload_whose_pods_exist_is_explained_by_them() -> None:
    top, below = deployment()
    gated = objects.pod("serve-1", owner=below, schedulingGates=[{"name": "example.com/x"}])
    assert objects.code(top, below, gated) is CauseCode.GATED
    refused = objects.bound(
        "serve-2",
        owner=below,
        status={
            "phase": "Failed",
            "reason": "UnexpectedAdmissionError",
            "message": "Allocate failed due to cannot allocate unregistered device nvidia.com/gpu",
        },
    )
    assert objects.code(top, below, refused) is CauseCode.KUBELET_REFUSED


def test_an_object_that_was_not_read_reveals_nothing() -> None:
    from dovetail.answer.why.evidence import observed

    replica = objects.replica_of(job())
    assert observed.observed(replica, objects.ref(job("another"))) is None
    assert observed.evidence_lines(replica, objects.ref(job("another"))) == ()


def test_a_pod_that_could_not_be_created_means_its_workload() -> None:
    owner = objects.named("apps/v1", "StatefulSet", "risk", spec={"replicas": 1})
    words = 'create Pod risk-0 in StatefulSet risk failed error: pods "risk-0" is forbidden: no'
    refusal = objects.event(owner, "FailedCreate", words)
    replica = objects.replica_of(owner, refusal)
    subject = subjects.named(replica, "pod", "risk-0", "team")
    assert subject is not None
    assert (subject.kind, subject.name) == ("StatefulSet", "risk")
    assert subjects.named(replica, "pod", "risk-1", "team") is None
