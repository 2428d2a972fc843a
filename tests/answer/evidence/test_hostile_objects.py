"""Whatever other programs write into objects and events, an answer is given, on clean and bounded lines."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import errors
from dovetail.answer.why.evidence import observed
from dovetail.kubetypes import codec
from dovetail.model import policy
from tests.answer.evidence import objects
from tests.answer.evidence.objects import GPU, GPU_NODE, Tree

REASONS = (
    "FailedScheduling",
    "FailedCreate",
    "FailedPrepareDynamicResources",
    "FailedResourceClaimCreation",
    "FailedCreatePodSandBox",
    "NotTriggerScaleUp",
    "Unschedulable",
    "UnexpectedAdmissionError",
)
PIECES = (
    "0/4 nodes are available: ",
    "3 Insufficient nvidia.com/gpu",
    ", ",
    ". preemption: ",
    "exceeded quota: q, requested: a=1, used: a=x, limited: b=",
    'RuntimeClass "',
    "Resources were found for 99999999999999999999 pods while 2 are required for gang scheduling. "
    "x due to: ",
    "insufficient unused quota for ",
    " in flavor ",
    "PodResourceClaim gpu: ",
    "failed calling webhook ",
    "unsatisfied condition: cuda>=",
    "requested number of devices unavailable for x. Requested: 1, Available: ",
    "\x1b[31m",
    "\u202e",
    "\r\n",
    "\x00",
    '"',
    "é",
    "9" * 50,
)
MESSAGES = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=12).map("".join)
SCALARS = st.none() | st.booleans() | st.integers(-3, 10**12) | MESSAGES
WRONG = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["message", "status", "name", "type"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def world() -> list[Tree]:
    """One object of every kind that is read, each with what its readers look at."""
    job = objects.named("batch/v1", "Job", "train", spec={"parallelism": 2})
    pod = objects.pod(
        owner=job,
        resources={GPU: "1", "nvidia.com/mig-1g.10gb": "1"},
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}],
        annotations={"pod-group-name": "pg", "scheduling.k8s.io/group-name": "pg"},
        labels={"kueue.x-k8s.io/queue-name": "q"},
        schedulerName="kai-scheduler",
    )
    bound = objects.bound(
        "bound", owner=job, status={"containerStatuses": [objects.waiting("CrashLoopBackOff")]}
    )
    failed = objects.bound("failed", status={"phase": "Failed", "reason": "OutOfcpu"})
    workload = objects.named(
        "kueue.x-k8s.io/v1beta1",
        "Workload",
        "w",
        metadata={"ownerReferences": [objects.owner_reference(pod)]},
        spec={"queueName": "q"},
        status={"conditions": [objects.condition("QuotaReserved", "False", "Pending", "x")]},
    )
    return [
        job,
        pod,
        bound,
        failed,
        workload,
        objects.named("kueue.x-k8s.io/v1beta1", "LocalQueue", "q", spec={"clusterQueue": "c"}),
        objects.named(
            "kueue.x-k8s.io/v1beta1", "ClusterQueue", "c", namespace="", spec={}, status={}
        ),
        objects.named(
            "scheduling.run.ai/v2alpha2",
            "PodGroup",
            "pg",
            spec={},
            status={"schedulingConditions": [objects.condition("x", "True", "", "m")]},
        ),
        objects.named(
            "scheduling.volcano.sh/v1beta1",
            "PodGroup",
            "pg",
            status={"conditions": [objects.condition("Unschedulable", "True", "", "m")]},
        ),
        objects.named("v1", "ResourceQuota", "q", spec={"hard": {"a": "1"}}),
        objects.named("coordination.k8s.io/v1", "Lease", "l", spec={"renewTime": objects.at(1)}),
        objects.node(labels=GPU_NODE | {"nvidia.com/gpu.product": "x-MIG-1g.10gb"}),
        objects.component(objects.DRIVER, problem="CrashLoopBackOff"),
    ]


def replaced(tree: Tree, data: st.DataObject) -> Tree:
    """The tree with the value at a random path replaced by something else."""
    result = copy.deepcopy(tree)
    place: Any = result
    while True:
        if isinstance(place, dict):
            is_top = place is result  # without its type an object would not have been read
            keys = place.keys() - {"apiVersion", "kind"} if is_top else place.keys()
            key: Any = data.draw(st.sampled_from(sorted(keys)))
        else:
            key = data.draw(st.integers(0, len(place) - 1))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            place = inner
            continue
        place[key] = data.draw(WRONG)
        return result


def decodes(tree: Tree) -> bool:
    """Whether the object could have been read at all."""
    try:
        codec.decode(tree)
        objects.ref(tree)
    except (errors.InputError, KeyError, TypeError, AttributeError):
        return False
    return True


@settings(max_examples=80)
@given(st.data())
def test_an_answer_is_given_whatever_the_objects_hold(data: st.DataObject) -> None:
    trees = world()
    trees = [replaced(tree, data) if data.draw(st.integers(0, 4)) == 0 else tree for tree in trees]
    trees = [tree for tree in trees if decodes(tree)] or world()
    about = data.draw(st.sampled_from(trees))
    core = data.draw(st.booleans())
    events = [
        objects.event(about, data.draw(st.sampled_from(REASONS)), data.draw(MESSAGES), core=core)
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    events += [event for event in [replaced(event, data) for event in events] if decodes(event)]
    ours = data.draw(st.sampled_from([policy.DEFAULT, policy.Policy(scheduler_names=("x",))]))
    replica = objects.replica_of(*trees, *events, policy_=ours)
    for tree in trees:
        subject = objects.ref(tree)
        lines = list(observed.evidence_lines(replica, subject))
        answer = observed.observed(replica, subject)
        if answer is not None:
            lines += [*answer.evidence, *(fix.title for fix in answer.fixes)]
            lines.append(answer.cause.sentence)
        for line in lines:
            assert line.isprintable()
            assert len(line) < 1_200


@pytest.mark.parametrize("piece", PIECES)
def test_a_huge_message_is_cut(piece: str) -> None:
    message = (piece * 60_000)[:60_000]
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
    pod = objects.pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "x"}])
    for subject in (pod, objects.bound(), objects.bound(status=status)):
        events = [objects.event(subject, reason, message) for reason in REASONS]
        for event in events:
            answer = objects.observe(subject, event)
            if answer is not None:
                assert len(answer.cause.sentence) < 500
                assert all(len(line) < 700 for line in answer.evidence)
