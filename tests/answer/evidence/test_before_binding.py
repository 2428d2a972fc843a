"""A pod without a node: gates, claims, binding conditions, schedulers that are absent or wrote about it."""

from __future__ import annotations

import pytest

from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence import observed
from dovetail.model import policy
from tests.answer.evidence import objects
from tests.answer.evidence.objects import Tree

CLAIMING = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
TEMPLATE = objects.named(
    "resource.k8s.io/v1",
    "ResourceClaimTemplate",
    "one-gpu",
    spec={
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    },
)


# Gates


@pytest.mark.parametrize(
    ("gate", "remover"),
    [
        ("kueue.x-k8s.io/admission", "Kueue, when it admits"),
        ("kueue.x-k8s.io/topology", "Kueue, after it assigned a topology domain"),
        ("kai.scheduler/gang", "KAI"),
        ("dovetail.dev/hold", "Dovetail"),
        ("grove.io/podgang-pending-creation", "Grove"),
        ("example.com/review", "the program that added it"),
    ],
)
def test_a_gate_names_who_removes_it(gate: str, remover: str) -> None:
    pod = objects.pod(schedulingGates=[{"name": gate}])
    answer = objects.seen(pod)
    assert answer.cause.code is CauseCode.GATED
    assert f"{gate}: removed by {remover}" in answer.cause.sentence
    assert answer.overrides


def test_a_gate_that_was_removed_is_no_cause() -> None:
    pod = objects.pod()
    event = objects.event(pod, "FailedScheduling", "waiting for scheduling gates: [example.com/x]")
    answer = objects.seen(pod, event)  # what was said last is quoted, and overrides nothing
    assert answer.cause.code is CauseCode.OTHER_SCHEDULER
    assert not answer.overrides


# Claims


def failed_claim(pod: Tree, problem: str, **fields: object) -> Tree:
    note = f"PodResourceClaim gpu: {problem}"
    return objects.event(pod, "FailedResourceClaimCreation", note, by="resource_claim")


def test_a_template_that_does_not_exist_and_the_nearest_name() -> None:
    pod = objects.pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one-gpus"}])
    problem = 'resource claim template "one-gpus": resourceclaimtemplate "one-gpus" not found'
    answer = objects.seen(pod, TEMPLATE, failed_claim(pod, problem))
    assert answer.cause.code is CauseCode.TEMPLATE_MISSING
    assert "did you mean one-gpu" in answer.cause.sentence
    assert "FailedResourceClaimCreation" in answer.evidence[0]


def test_a_template_in_another_namespace_is_named() -> None:
    pod = objects.pod(resourceClaims=CLAIMING)
    elsewhere = TEMPLATE | {"metadata": {"name": "one-gpu", "namespace": "platform"}}
    assert "namespace platform has one" in objects.seen(pod, elsewhere).cause.sentence


def test_a_template_that_was_created_since_is_no_cause() -> None:
    pod = objects.pod(resourceClaims=CLAIMING)
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "train-0-gpu"}]
    claim = objects.named("resource.k8s.io/v1", "ResourceClaim", "train-0-gpu")
    problem = 'resource claim template "one-gpu": not found'
    assert objects.observe(pod, TEMPLATE, claim, failed_claim(pod, problem)) is None


QUOTA_KEY = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
QUOTA_PROBLEM = (
    'resourceclaims.resource.k8s.io "train-0-gpu-" is forbidden: exceeded quota: gpus, '
    f"requested: {QUOTA_KEY}=2, used: {QUOTA_KEY}=8, limited: {QUOTA_KEY}=8"
)


def quota(used: str, hard: str = "8", key: str = QUOTA_KEY) -> Tree:
    return objects.named(
        "v1",
        "ResourceQuota",
        "gpus",
        spec={"hard": {key: hard}},
        status={"hard": {key: hard}, "used": {key: used}},
    )


def test_a_quota_refuses_the_claim_and_its_users_are_named() -> None:
    pod = objects.pod(resourceClaims=CLAIMING)
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8}}
    holder = objects.named(
        "resource.k8s.io/v1", "ResourceClaim", "big", spec={"devices": {"requests": [request]}}
    )
    event = failed_claim(pod, QUOTA_PROBLEM)
    event["note"] = f"(combined from similar events): {event['note']}"
    answer = objects.seen(pod, TEMPLATE, quota("8"), holder, event)
    assert "combined" not in answer.evidence[0]
    assert answer.cause.code is CauseCode.RESOURCE_QUOTA
    assert "8 of 8 devices of class gpu.nvidia.com used, 2 more" in answer.cause.sentence
    assert "team/big: 8" in answer.cause.sentence
    (fix,) = answer.fixes
    assert fix.patch[0].merge == {"spec": {"hard": {QUOTA_KEY: "10"}}}
    assert not fix.verified


def test_a_quota_that_has_room_again_is_said_to_have_it() -> None:
    pod = objects.pod(resourceClaims=CLAIMING)
    answer = objects.seen(pod, TEMPLATE, quota("4"), failed_claim(pod, QUOTA_PROBLEM))
    assert answer.cause.code is CauseCode.CLAIM_NOT_MADE
    assert "has room now" in answer.cause.sentence
    assert not answer.fixes


def test_no_controller_makes_the_claim() -> None:
    pod = objects.pod(resourceClaims=CLAIMING)
    lost = lease("kube-controller-manager", ago=30)
    answer = objects.seen(pod, TEMPLATE, lost)
    assert answer.cause.code is CauseCode.CLAIM_NOT_MADE
    assert answer.cause.class_ is CauseClass.PLATFORM
    assert "does not run" in answer.cause.sentence

    held = lease("kube-controller-manager", ago=0)
    assert objects.observe(pod, TEMPLATE, held, lease("kube-scheduler", ago=0)) is None
    assert objects.observe(pod, TEMPLATE) is None  # the claim may only not have been read
    pod["metadata"]["creationTimestamp"] = objects.at(0.1)  # the controller had no time yet
    assert objects.observe(pod, TEMPLATE, lost) is None


def test_another_refusal_of_a_claim_is_quoted() -> None:
    pod = objects.pod(resourceClaims=CLAIMING)
    answer = objects.seen(pod, TEMPLATE, failed_claim(pod, "the server is on fire"))
    assert answer.cause.code is CauseCode.CLAIM_NOT_MADE
    assert "the server is on fire" in answer.cause.sentence


# Binding conditions


def allocated(conditions: list[Tree]) -> Tree:
    result = {
        "request": "gpu",
        "driver": "fabric.example.com",
        "pool": "rack",
        "device": "gpu-7",
        "bindingConditions": ["Attached"],
        "bindingFailureConditions": ["AttachFailed"],
    }
    device = {"driver": "fabric.example.com", "pool": "rack", "device": "gpu-7"}
    return objects.named(
        "resource.k8s.io/v1",
        "ResourceClaim",
        "fabric",
        status={
            "allocation": {"devices": {"results": [result]}},
            "devices": [device | {"conditions": conditions}],
        },
    )


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([], "has not reported Attached yet"),
        ([objects.condition("Attached", "False", "x")], "has not reported Attached yet"),
        ([objects.condition("AttachFailed", "True", "x")], "could not be made ready"),
    ],
)
def test_devices_whose_binding_conditions_are_open(conditions: list[Tree], words: str) -> None:
    pod = objects.pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "fabric"}])
    event = objects.event(
        pod, "BindingConditionsPending", "waiting for binding conditions for device on node gpu-1"
    )
    answer = objects.seen(pod, allocated(conditions), event)
    assert answer.cause.code is CauseCode.BINDING_CONDITIONS
    assert words in answer.cause.sentence
    assert any("BindingConditionsPending" in line for line in answer.evidence)


def test_binding_conditions_that_are_met_are_no_cause() -> None:
    pod = objects.pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "fabric"}])
    event = objects.event(pod, "BindingConditionsPending", "waiting for binding conditions")
    met = allocated([objects.condition("Attached", "True", "x")])
    assert objects.observe(pod, met, event) is None


# Schedulers


def lease(name: str, *, ago: float) -> Tree:
    spec = {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "renewTime": objects.at(ago).replace("Z", ".000000Z"),
    }
    return objects.named(
        "coordination.k8s.io/v1", "Lease", name, namespace="kube-system", spec=spec
    )


def test_a_pod_names_a_scheduler_that_does_not_run() -> None:
    pod = objects.pod(schedulerName="gpu-scheduler")
    answer = objects.seen(pod, lease("kube-scheduler", ago=0))
    assert answer.cause.code is CauseCode.SCHEDULER_ABSENT
    assert '"gpu-scheduler"' in answer.cause.sentence
    assert answer.overrides


@pytest.mark.parametrize(
    "trace",
    [
        lease("gpu-scheduler", ago=0.1),
        objects.pod(
            "x", namespace="sys", labels={"app": "gpu-scheduler"}, status={"phase": "Running"}
        ),
        objects.pod(
            "other",
            schedulerName="gpu-scheduler",
            status={"conditions": [objects.condition("PodScheduled", "False", "Unschedulable")]},
        ),
    ],
)
def test_a_scheduler_that_leaves_traces_runs(trace: Tree) -> None:
    pod = objects.pod(schedulerName="gpu-scheduler")
    assert objects.observe(pod, trace) is None


def test_a_young_pod_and_a_pod_of_the_policy_wait_for_their_scheduler() -> None:
    pod = objects.pod(schedulerName="gpu-scheduler")
    ours = policy.Policy(scheduler_names=("gpu-scheduler",))
    replica = objects.replica_of(pod, policy_=ours)
    assert observed.observed(replica, objects.ref(pod)) is None
    pod["metadata"]["creationTimestamp"] = objects.at(0.2)
    assert objects.observe(pod) is None


def test_kube_scheduler_that_stopped_is_seen_by_its_lease_only() -> None:
    pod = objects.pod()
    assert objects.observe(pod) is None  # nothing was read that would show it
    answer = objects.seen(pod, lease("kube-scheduler", ago=30))
    assert answer.cause.code is CauseCode.SCHEDULER_ABSENT
    assert objects.observe(pod, lease("kube-scheduler", ago=0)) is None


def test_what_kube_scheduler_said_is_quoted_with_its_time() -> None:
    message = (
        "0/4 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}, "
        "3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: 1 Preemption is not "
        "helpful for scheduling, 3 No preemption victims found for incoming pod."
    )
    condition = objects.condition("PodScheduled", "False", "Unschedulable", message)
    pod = objects.pod(status={"conditions": [condition]})
    event = objects.event(pod, "FailedScheduling", message, by="default-scheduler", count=7)
    answer = objects.seen(pod, objects.node("cpu-1"), event)
    assert answer.cause.code is CauseCode.OTHER_SCHEDULER
    assert not answer.overrides
    said = f"kube-scheduler found no place at {objects.at(5)}: 3 of 4 nodes: Insufficient nvidia.com/gpu"
    assert answer.cause.sentence.startswith(said)
    assert "No preemption victims" in answer.cause.sentence
    assert len(answer.evidence) == 2

    bound = objects.bound()
    assert objects.observe(bound, objects.event(bound, "FailedScheduling", message)) is None


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (
            "0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient nvidia.com/gpu. "
            "preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
            CauseCode.BUSY,
        ),
        (
            "0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient nvidia.com/gpu. "
            "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
            CauseCode.TAINT,
        ),
        ("0/4 nodes are available: 4 Insufficient memory.", CauseCode.BUSY),
        (
            'persistentvolumeclaim "data" not found. 0/4 nodes are available: persistentvolumeclaim '
            '"data" not found.',
            CauseCode.VOLUME_MISSING,
        ),
        ("0/4 nodes are available: 4 node(s) are enchanted.", CauseCode.OTHER_SCHEDULER),
    ],
)
def test_without_nodes_the_scheduler_is_believed(message: str, code: CauseCode) -> None:
    pod = objects.pod()
    answer = objects.seen(pod, objects.event(pod, "FailedScheduling", message))
    assert answer.overrides
    assert answer.cause.code is code
    assert "the nodes themselves were not read" in answer.cause.sentence


def test_another_scheduler_refuses_in_its_own_words() -> None:
    pod = objects.pod(schedulerName="yunikorn")
    words = "Request 'a' does not fit in queue 'root.a'"
    event = objects.event(pod, "PodUnschedulable", words, by="yunikorn", type_="Normal")
    answer = objects.seen(pod, objects.node("cpu-1"), event)
    assert answer.is_foreign
    assert answer.cause.class_ is CauseClass.QUOTA
    assert "does not fit in queue" in answer.cause.sentence


def test_what_our_own_scheduler_wrote_is_left_to_the_engine() -> None:
    pod = objects.pod(schedulerName="dovetail")
    message = "no node has 8 free GPUs (largest free block: 6, node b12)"
    pod["status"]["conditions"] = [objects.condition("PodScheduled", "False", "x", message)]
    event = objects.event(pod, "FailedScheduling", message, by="dovetail")
    assert objects.observe(pod, event) is None
    assert len(observed.evidence_lines(objects.replica_of(pod, event), objects.ref(pod))) == 2


# Autoscalers


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "pod didn't trigger scale-up: 2 max node group size reached, 1 Insufficient nvidia.com/gpu",
            "2 max node group size reached",
        ),
        (
            "pod didn't trigger scale-up (it wouldn't fit if a new node is added)",
            "it wouldn't fit if a new node is added",
        ),
    ],
)
def test_the_cluster_autoscaler_adds_no_node(message: str, words: str) -> None:
    pod = objects.pod()
    event = objects.event(
        pod, "NotTriggerScaleUp", message, by="cluster-autoscaler", type_="Normal"
    )
    answer = objects.seen(pod, event)
    assert answer.cause.code is CauseCode.SCALE_UP
    assert words in answer.cause.sentence
    assert not answer.overrides
    scaled = objects.event(pod, "TriggeredScaleUp", "pod triggered scale-up", ago=1, type_="Normal")
    assert objects.observe(pod, event, scaled) is None


def test_karpenter_adds_no_node() -> None:
    pod = objects.pod()
    message = (
        'Failed to schedule pod, incompatible with nodepool "gpu", daemonset overhead={"cpu":"150m"}, '
        "no instance type satisfied resources"
    )
    event = objects.event(pod, "FailedScheduling", message, by="karpenter")
    answer = objects.seen(pod, event)
    assert answer.cause.code is CauseCode.SCALE_UP
    assert 'incompatible with nodepool "gpu"' in answer.cause.sentence
    nominated = objects.event(
        pod, "Nominated", "Pod should schedule on: nodeclaim/x", ago=1, by="karpenter"
    )
    assert objects.observe(pod, event, nominated) is None


def test_the_autoscaler_supports_what_the_scheduler_said() -> None:
    pod = objects.pod()
    failed = objects.event(pod, "FailedScheduling", "0/1 nodes are available: 1 Too many pods.")
    not_scaled = objects.event(pod, "NotTriggerScaleUp", "pod didn't trigger scale-up: x")
    answer = objects.seen(pod, objects.node("cpu-1"), failed, not_scaled)
    assert answer.cause.code is CauseCode.OTHER_SCHEDULER
    assert any("NotTriggerScaleUp" in line for line in answer.evidence)


def test_a_node_that_an_autoscaler_announced_is_waited_for() -> None:
    pod = objects.pod(resources={objects.GPU: "1"})
    announced = objects.event(
        pod, "TriggeredScaleUp", "pod triggered scale-up: [{gpus 0->1 (max: 4)}]", type_="Normal"
    )
    answer = objects.seen(pod, objects.node("cpu-1"), announced)
    assert answer.cause.code is CauseCode.NOT_ADVERTISED
    assert answer.cause.class_ is CauseClass.CAPACITY
    assert "gpus 0->1" in answer.cause.sentence

    address = "an announced [{provider://zones/a/groups/gke-gpus 0->1 (max: 4)}]"
    by_address = objects.event(pod, "TriggeredScaleUp", address, type_="Normal", ago=9)
    answer = objects.seen(pod, objects.node("cpu-1"), by_address)
    assert "adds one: gke-gpus 0->1 (max: 4)" in answer.cause.sentence

    words = (
        "Node scale up in zones a associated with this pod failed: out of stock. "
        "Pod is at risk of not being scheduled."
    )
    out_of_stock = objects.event(pod, "FailedScaleUp", words, ago=3)
    answer = objects.seen(pod, objects.node("cpu-1"), by_address, out_of_stock)
    assert answer.cause.code is CauseCode.SCALE_UP
    assert answer.cause.sentence.endswith("could not add a node for it: out of stock")

    long_ago = objects.event(pod, "TriggeredScaleUp", "x", ago=300, type_="Normal")
    answer = objects.seen(pod, objects.node("cpu-1"), long_ago)
    assert answer.cause.class_ is CauseClass.PLATFORM


def test_words_of_no_known_form_are_shown_and_are_no_cause() -> None:
    pod = objects.pod()
    event = objects.event(pod, "SomethingNew", "in words that nothing reads")
    assert objects.observe(pod, event) is None
    (line,) = observed.evidence_lines(objects.replica_of(pod, event), objects.ref(pod))
    assert "in words that nothing reads" in line


@pytest.mark.parametrize(
    ("reason", "message", "by", "class_"),
    [
        (
            "FailedScheduling",
            'Failed to schedule pod, all available instance types exceed limits for nodepool: "gpu"',
            "karpenter",
            CauseClass.POLICY,
        ),
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 1 max node group size reached",
            "cluster-autoscaler",
            CauseClass.POLICY,
        ),
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu",
            "cluster-autoscaler",
            CauseClass.CAPACITY,
        ),
    ],
)
def test_gpu_nodes_that_come_and_go_are_not_added(
    reason: str, message: str, by: str, class_: CauseClass
) -> None:
    pod = objects.pod(resources={objects.GPU: "1"})
    event = objects.event(pod, reason, message, by=by)
    answer = objects.seen(pod, objects.node("cpu-1"), event)
    assert answer.cause.code is CauseCode.SCALE_UP
    assert answer.cause.class_ is class_
    assert answer.cause.sentence.startswith("no node offers nvidia.com/gpu, and ")
    assert answer.overrides

    broken = objects.node("gpu-1", labels=objects.GPU_NODE)
    assert objects.code(pod, broken, event) is CauseCode.NOT_ADVERTISED
