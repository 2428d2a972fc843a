"""What Kueue, KAI and Volcano say about a pod or job of theirs."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from tests.answer.evidence import objects
from tests.answer.evidence.objects import Tree

KUEUE = "kueue.x-k8s.io/v1beta2"
LABELS = {"kueue.x-k8s.io/queue-name": "research"}
UNUSED = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor h100, 4 more needed"
)
LARGE = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, "
    "previously considered podsets requests (0) + current podset request (16) > maximum capacity (8)"
)
TAINT = "couldn't assign flavors to pod set main: untolerated taint {gpu present NoSchedule} in flavor h100"
TOPOLOGY = (
    'couldn\'t assign flavors to pod set main: topology "rack" allows to fit only 3 out of 8 pod(s)'
)


def job(**spec: Any) -> Tree:
    body = {"suspend": True, "parallelism": 2, **spec}
    return objects.named("batch/v1", "Job", "train", metadata={"labels": LABELS}, spec=body)


def workload(owner: Tree, *conditions: Tree, **fields: Any) -> Tree:
    status = {"conditions": list(conditions), **fields.pop("status", {})}
    metadata = {"ownerReferences": [objects.owner_reference(owner)]}
    spec = {"queueName": "research", **fields.pop("spec", {})}
    return objects.named(
        KUEUE, "Workload", "job-train-1a", metadata=metadata, spec=spec, status=status
    )


def queues(**cluster: Any) -> list[Tree]:
    amounts = [{"name": "nvidia.com/gpu", "nominalQuota": 8}]
    groups = [
        {
            "coveredResources": ["nvidia.com/gpu"],
            "flavors": [{"name": "h100", "resources": amounts}],
        }
    ]
    used = [
        {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "8", "borrowed": "0"}]}
    ]
    status = {
        "flavorsReservation": used,
        "conditions": [objects.condition("Active", "True", "Ready")],
    }
    body = {"spec": {"resourceGroups": groups}, "status": status} | cluster
    return [
        objects.named(KUEUE, "LocalQueue", "research", spec={"clusterQueue": "gpus"}),
        objects.named(KUEUE, "ClusterQueue", "gpus", namespace="", **body),
    ]


def pending(reason: str, message: str) -> Tree:
    return objects.condition("QuotaReserved", "False", reason, message)


@pytest.mark.parametrize(
    ("reason", "message", "code", "words"),
    [
        (
            "WaitingForQuota",
            UNUSED,
            CauseCode.KUEUE_QUOTA,
            "4 more nvidia.com/gpu needed in flavor h100 (8 of 8 used)",
        ),
        ("Pending", UNUSED, CauseCode.KUEUE_QUOTA, "queue gpus: 4 more"),
        (
            "ExceedsMaxQuota",
            LARGE,
            CauseCode.KUEUE_QUOTA,
            "asks for 16 nvidia.com/gpu, and flavor h100 has at most 8",
        ),
        ("Pending", LARGE, CauseCode.KUEUE_QUOTA, "asks for 16"),
        ("NoMatchingFlavor", TAINT, CauseCode.KUEUE_CONFIG, "untolerated taint"),
        ("Pending", TAINT, CauseCode.KUEUE_CONFIG, "untolerated taint"),
        (
            "TopologyPlacementFailed",
            TOPOLOGY,
            CauseCode.KUEUE_TOPOLOGY,
            "3 of 8 pods fit topology rack",
        ),
        ("Pending", TOPOLOGY, CauseCode.KUEUE_TOPOLOGY, "3 of 8 pods"),
        (
            "Misconfigured",
            "DeviceClass x is not mapped in DRA configuration",
            CauseCode.KUEUE_CONFIG,
            "not mapped",
        ),
        (
            "Inadmissible",
            "DeviceClass x is not mapped in DRA configuration",
            CauseCode.KUEUE_CONFIG,
            "not mapped",
        ),
        ("WaitingForPreemptedWorkloads", "Waiting for 2", CauseCode.KUEUE_POLICY, "Waiting for 2"),
        ("WaitingForPodsReady", "waits", CauseCode.KUEUE_POLICY, "waits"),
        ("PendingEvaluation", "", CauseCode.KUEUE_POLICY, "PendingEvaluation"),
        ("Suspended", "stopped", CauseCode.KUEUE_POLICY, "stopped"),
        ("SomethingNew", "in new words", CauseCode.KUEUE_POLICY, "in new words"),
    ],
)
def test_kueue_reserves_no_quota(reason: str, message: str, code: CauseCode, words: str) -> None:
    owner = job()
    answer = objects.seen(owner, workload(owner, pending(reason, message)), *queues())
    assert answer.cause.code is code
    assert words in answer.cause.sentence
    assert answer.overrides
    assert any(
        "Workload team/job-train-1a, condition QuotaReserved=False" in x for x in answer.evidence
    )


def test_a_gated_pod_of_an_admitted_group_shows_only_its_gate() -> None:
    pod = objects.pod(labels=LABELS, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    waiting = workload(pod, pending("WaitingForQuota", UNUSED))
    assert objects.code(pod, waiting, *queues()) is CauseCode.KUEUE_QUOTA

    admitted = workload(
        pod, objects.condition("QuotaReserved", "True"), objects.condition("Admitted", "True")
    )
    assert objects.code(pod, admitted, *queues()) is CauseCode.GATED


def test_kueue_admitted_the_job_since() -> None:
    owner = job(suspend=False)
    admitted = workload(
        owner,
        objects.condition("QuotaReserved", "True"),
        objects.condition("Admitted", "True"),
        objects.condition("Evicted", "False", "QuotaReserved", "was preempted before"),
    )
    assert objects.observe(owner, admitted, *queues()) is None


def test_an_admission_check_is_open() -> None:
    owner = job()
    check = {"name": "provision", "state": "Pending", "message": "capacity is requested"}
    waiting = workload(
        owner, objects.condition("QuotaReserved", "True"), status={"admissionChecks": [check]}
    )
    answer = objects.seen(owner, waiting, *queues())
    assert answer.cause.code is CauseCode.KUEUE_POLICY
    assert "admission check provision is Pending: capacity is requested" in answer.cause.sentence


def test_a_workload_is_deactivated() -> None:
    owner = job()
    evicted = objects.condition("Evicted", "True", "Deactivated", "exceeded maximum execution time")
    answer = objects.seen(owner, workload(owner, evicted, spec={"active": False}), *queues())
    assert answer.cause.code is CauseCode.KUEUE_POLICY
    assert "maximum execution time" in answer.cause.sentence
    assert "spec.active: false" in answer.cause.sentence
    assert answer.fixes == ()  # Kueue decides what happens then


def test_queues_that_are_missing_or_stopped() -> None:
    owner = job()
    local, cluster = queues()
    held = workload(owner, pending("Pending", "x"))

    other = objects.named(KUEUE, "LocalQueue", "teaching", spec={"clusterQueue": "gpus"})
    answer = objects.seen(owner, held, other, cluster)
    assert (answer.cause.code, answer.cause.class_) == (CauseCode.KUEUE_CONFIG, CauseClass.CONFIG)
    assert "no LocalQueue research in namespace team" in answer.cause.sentence

    another = objects.named(KUEUE, "ClusterQueue", "cpus", namespace="", spec={})
    answer = objects.seen(owner, held, local, another)
    assert "names ClusterQueue gpus, which does not exist" in answer.cause.sentence

    # A dump without any ClusterQueue may leave them out: whether this one exists is not known.
    answer = objects.seen(owner, held, local)
    assert answer.cause.code is CauseCode.KUEUE_POLICY

    stopped = queues(spec={"stopPolicy": "Hold"})
    answer = objects.seen(owner, held, *stopped)
    assert answer.cause.code is CauseCode.KUEUE_POLICY
    assert "resumes it with stopPolicy None" in answer.cause.sentence

    active = objects.condition(
        "Active", "False", "FlavorNotFound", "references missing ResourceFlavor(s): h100"
    )
    answer = objects.seen(owner, held, *queues(status={"conditions": [active]}))
    assert answer.cause.code is CauseCode.KUEUE_CONFIG
    assert "missing ResourceFlavor" in answer.cause.sentence


def test_kueue_does_not_run() -> None:
    answer = objects.seen(job())
    assert answer.cause.code is CauseCode.KUEUE_POLICY
    assert "does Kueue run?" in answer.cause.sentence


# KAI and Volcano

GANG = (
    "Resources were found for 3 pods while 8 are required for gang scheduling. Additional pods cannot "
    "be scheduled due to: no nodes with enough resources were found: 4 node(s) didn't have enough "
    "resources: GPUs."
)
SUB_GROUP = (
    "Resources were found for 3 pods from all sub-groups while sub-group workers requires 8 pods for "
    "gang scheduling. Additional pods cannot be scheduled in this sub-group due to: no room"
)
OVER_QUOTA = (
    "Non-preemptible workload is over quota. Workload requested 4 GPUs, but research quota is 8 GPUs, "
    "while 6 GPUs are already allocated for non-preemptible pods. Use a preemptible workload to go "
    "over quota."
)


def kai_pod(**fields: Any) -> Tree:
    return objects.pod(
        schedulerName="kai-scheduler", annotations={"pod-group-name": "pg-train"}, **fields
    )


def kai_group(*conditions: Tree) -> Tree:
    return objects.named(
        "scheduling.run.ai/v2alpha2",
        "PodGroup",
        "pg-train",
        spec={"minMember": 8, "queue": "research"},
        status={"schedulingConditions": list(conditions)},
    )


def unschedulable(message: str, *, id_: str = "1", reason: str = "") -> Tree:
    condition = objects.condition("UnschedulableOnNodePool", "True", "Unschedulable", message)
    reasons = [{"reason": reason, "message": message}] if reason else []
    return condition | {"transitionID": id_, "reasons": reasons}


@pytest.mark.parametrize(
    ("condition", "code", "words", "overrides"),
    [
        (unschedulable(GANG), CauseCode.KAI_CAPACITY, "room for 3 of the 8 pods", False),
        (unschedulable(SUB_GROUP), CauseCode.KAI_CAPACITY, "room for 3 of the 8 pods", False),
        (
            unschedulable("node(s) didn't have enough of mig profile: 1g.10gb"),
            CauseCode.KAI_CAPACITY,
            "mig profile",
            False,
        ),
        (
            unschedulable("node-group rack-1 can allocate only 3 of 8 required pods"),
            CauseCode.KAI_CAPACITY,
            "largest topology domain, rack-1, takes 3 of the 8 pods",
            False,
        ),
        (
            unschedulable("Unable to schedule pod"),
            CauseCode.KAI_CAPACITY,
            "Unable to schedule",
            False,
        ),
        (
            unschedulable(OVER_QUOTA, reason="NonPreemptibleOverQuota"),
            CauseCode.KAI_QUOTA,
            "KAI queue research is at its quota for non-preemptible work: 6 of 8 GPUs used, 4 more",
            True,
        ),
        (unschedulable(OVER_QUOTA), CauseCode.KAI_QUOTA, "queue research", True),
        (
            unschedulable(
                "research quota has reached the allowable limit of GPUs. Limit is 8 GPUs"
            ),
            CauseCode.KAI_QUOTA,
            "allowable limit",
            True,
        ),
        (
            unschedulable("Queue 'x' does not exist", reason="QueueDoesNotExist"),
            CauseCode.KAI_CONFIG,
            "does not exist",
            True,
        ),
        (unschedulable("words of a later KAI"), CauseCode.OTHER_SCHEDULER, "later KAI", False),
    ],
)
def test_kai_holds_a_pod(condition: Tree, code: CauseCode, words: str, overrides: bool) -> None:
    answer = objects.seen(kai_pod(), kai_group(condition))
    assert answer.cause.code is code
    assert words in answer.cause.sentence
    assert answer.overrides is overrides


def test_the_last_node_pool_that_kai_tried_counts() -> None:
    group = kai_group(unschedulable(OVER_QUOTA, id_="2"), unschedulable(GANG, id_="10"))
    assert objects.code(kai_pod(), group) is CauseCode.KAI_CAPACITY


def test_an_event_of_kai_is_enough_and_a_bound_pod_needs_none() -> None:
    pod = kai_pod()
    event = objects.event(
        pod, "Unschedulable", f"NonPreemptibleOverQuota: {OVER_QUOTA}", by="kai-scheduler"
    )
    assert objects.code(pod, event) is CauseCode.KAI_QUOTA
    placed = kai_pod(nodeName="gpu-1")
    assert objects.observe(placed, event, kai_group(unschedulable(GANG))) is None


def test_volcano_holds_a_group() -> None:
    pod = objects.pod(
        schedulerName="volcano", annotations={"scheduling.k8s.io/group-name": "train"}
    )
    message = "3/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable"
    condition = objects.condition("Unschedulable", "True", "NotEnoughResources", message)
    group = objects.named(
        "scheduling.volcano.sh/v1beta1",
        "PodGroup",
        "train",
        status={"phase": "Pending", "conditions": [condition]},
    )
    answer = objects.seen(pod, group)
    assert answer.cause.code is CauseCode.OTHER_SCHEDULER
    assert "3/4 tasks in gang unschedulable" in answer.cause.sentence
    group["status"]["phase"] = "Running"
    pod["spec"]["nodeName"] = "gpu-1"
    assert objects.observe(pod, group) is None
