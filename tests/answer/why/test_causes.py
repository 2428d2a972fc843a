"""One small cluster for each cause: its class, its code, and the words a person needs."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model import policy
from tests.answer.why import clusters
from tests.answer.why.clusters import GPU, claim, device_class, gpus, member, node, pod, taint

Tree = dict[str, Any]
FULL = [node("a", 8), pod("busy", 8, on="a")]
DRA = [device_class(), node("a"), gpus("a")]
ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "x"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
NEAR = {"podAffinity": ANTI["podAntiAffinity"]}
PORT = [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 9400}]}]
RACK = {"dovetail.dev/topology-required": "rack"}


def spread(key: str) -> list[Tree]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ]


def affinity(*expressions: Tree) -> Tree:
    terms = [{"matchExpressions": list(expressions)}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


def labelled(tree: Tree, **labels: str) -> Tree:
    tree["metadata"]["labels"] = labels
    return tree


CASES: dict[str, tuple[list[Tree], str, str, tuple[str, ...]]] = {
    # Room
    "busy": ([*FULL, pod("waits", 8)], "capacity", "Busy", ("8 nvidia.com/gpu", "node a")),
    "fragmented": (
        [*(node(n, 8) for n in "abc"), *(pod(f"b{n}", 6, on=n) for n in "abc"), pod("waits", 4)],
        "capacity",
        "Fragmented",
        ("needs 4", "6 are free", "at most 2"),
    ),
    "cpu is short while GPUs are free": (
        [node("a", 8), pod("busy", cpu="50", on="a"), pod("waits", 1, cpu="32")],
        "capacity",
        "Busy",
        ("32 cpu", "14"),
    ),
    "pods ahead of it take what is free": (
        [node("a", 8), pod("first", 8, priority=10), pod("waits", 8)],
        "capacity",
        "Busy",
        ("8 nvidia.com/gpu", "at most 0", "team/first is ahead of it"),
    ),
    "too large": ([node("a", 8), pod("waits", 16)], "config", "TooLargeForAnyNode", ("16", "8")),
    "misspelt resource": (
        [node("a", 8), pod("waits", limits={"nvidia.com/gpus": "1"})],
        "config",
        "ResourceUnknown",
        ("nvidia.com/gpus", "nvidia.com/gpu:"),
    ),
    "no device plugin": (
        [node("a"), pod("waits", 1)],
        "platform",
        "ResourceNotAdvertised",
        (GPU, "device plugin"),
    ),
    "boards without a driver": (
        [
            node("a", labels={"nvidia.com/gpu.present": "true"}),
            node("b", 8, unschedulable=False),
            pod("busy", 8, on="b"),
            pod("waits", 1, nodeSelector={"kubernetes.io/hostname": "a"}),
        ],
        "platform",
        "ResourceNotAdvertised",
        ("1 node (a)", "driver"),
    ),
    "unhealthy devices": (
        [node("a", amounts={GPU: "0"}, capacity={GPU: "8"}), pod("waits", 1)],
        "platform",
        "ResourceNotAdvertised",
        ("nvidia.com/gpu", "device plugin"),
    ),
    "another MIG profile": (
        [
            node("a", amounts={"nvidia.com/mig-3g.40gb": "2"}),
            pod("waits", limits={"nvidia.com/mig-1g.10gb": "1"}),
        ],
        "config",
        "MigProfileAbsent",
        ("1g.10gb", "nvidia.com/mig-3g.40gb"),
    ),
    "no nodes": ([pod("waits")], "platform", "NoNodes", ("no nodes",)),
    # What nodes are
    "taint": (
        [node("a", 8, taints=[taint("sku", "gpu")]), node("cpu"), pod("waits", 1)],
        "config",
        "UntoleratedTaint",
        ("sku=gpu:NoSchedule", "1 node (a)"),
    ),
    "toleration of another value": (
        [
            node("a", 8, taints=[taint("sku", "gpu")]),
            pod("waits", 1, tolerations=[{"key": "sku", "operator": "Equal", "value": "GPU"}]),
        ],
        "config",
        "UntoleratedTaint",
        ("sku=gpu:NoSchedule", "it tolerates sku=GPU"),
    ),
    "idle nodes of others, its own full": (
        [*FULL, node("b", 8, taints=[taint("team", "nlp")]), pod("waits", 8)],
        "policy",
        "NodesReservedByTaint",
        ("team=nlp", "1 node (b)"),
    ),
    "label without its prefix": (
        [
            node("a", 8, labels={"product": "NVIDIA-A100"}),
            pod("waits", 1, nodeSelector={"product": "A100"}),
        ],
        "config",
        "NodeLabelsDiffer",
        ("product=A100", "did you mean NVIDIA-A100 (1 node)"),
    ),
    "misspelt key of a label": (
        [
            node("a", 8, labels={"example.com/gpu_tier": "gold"}),
            pod("waits", 1, nodeSelector={"example.com/gpu-tier": "gold"}),
        ],
        "config",
        "NodeLabelsDiffer",
        ("did you mean example.com/gpu_tier",),
    ),
    "label of nodes without GPUs": (
        [
            node("a", 8, labels={"zone": "x"}),
            node("b", labels={"zone": "y"}),
            pod("waits", 1, nodeSelector={"zone": "y"}),
        ],
        "config",
        "NodeLabelsDiffer",
        ("zone=y", "node a", "has x"),
    ),
    "comparison of labels": (
        [
            node("a", 8, labels={"memory": "81559"}),
            pod(
                "waits",
                1,
                affinity=affinity({"key": "memory", "operator": "Gt", "values": ["90000"]}),
            ),
        ],
        "config",
        "NodeLabelsDiffer",
        ("memory Gt 90000", "81559"),
    ),
    "cordoned": (
        [node("a", 8, unschedulable=True), node("cpu"), pod("waits", 1)],
        "platform",
        "NodesCordoned",
        ("1 node", "cordoned", "a"),
    ),
    "cordoned for a driver upgrade": (
        [
            node(
                "a",
                8,
                labels={"nvidia.com/gpu-driver-upgrade-state": "drain-required"},
                unschedulable=True,
            ),
            pod("waits", 1),
        ],
        "platform",
        "NodesCordoned",
        ("upgrade", "drain-required"),
    ),
    "cordoned while it is idle, the other full": (
        [*FULL, node("b", 8, unschedulable=True), pod("waits", 8)],
        "platform",
        "NodesCordoned",
        ("(b)",),
    ),
    "not ready": (
        [node("a", 8, taints=[taint("node.kubernetes.io/not-ready")]), pod("waits", 1)],
        "platform",
        "NodesNotReady",
        ("not-ready", "(a)"),
    ),
    "full and not ready": (
        [
            node("a", 8, taints=[taint("node.kubernetes.io/not-ready")]),
            pod("b", 8, on="a"),
            pod("waits", 8),
        ],
        "platform",
        "NodesNotReady",
        ("not-ready",),
    ),
    "node that does not exist": (
        [node("a", 8), pod("waits", 1, on="gone")],
        "config",
        "NodeNameUnknown",
        ("gone", "does not exist"),
    ),
    # Other pods
    "affinity to nothing": (
        [node("a", 8), pod("waits", 1, affinity=NEAR)],
        "config",
        "PodAffinityUnmet",
        ("app=x",),
    ),
    "affinity to a full node": (
        [
            node("a", 8),
            node("b", 8),
            labelled(pod("leader", 8, on="a"), app="x"),
            pod("waits", 1, affinity=NEAR),
        ],
        "capacity",
        "Busy",
        ("1 nvidia.com/gpu", "node a"),
    ),
    "one replica per node": (
        [
            node("a", 8),
            labelled(pod("other", 1, on="a"), app="x"),
            labelled(pod("waits", 1, affinity=ANTI), app="x"),
        ],
        "config",
        "PodAntiAffinityUnmet",
        ("app=x",),
    ),
    "kept away by another pod": (
        [node("a", 8), pod("alone", 1, on="a", affinity=ANTI), labelled(pod("waits", 1), app="x")],
        "capacity",
        "KeptAwayByOtherPods",
        ("team/alone",),
    ),
    "spread over a label that no node has": (
        [
            node("a", 8),
            labelled(pod("waits", 1, topologySpreadConstraints=spread("rack")), app="x"),
        ],
        "config",
        "TopologySpreadUnmet",
        ("rack", "no node has that label"),
    ),
    "spread over a zone without GPUs": (
        [
            node("a", 8, labels={"zone": "x"}),
            node("b", labels={"zone": "y"}),
            labelled(pod("one", 1, on="a"), app="x"),
            labelled(pod("waits", 1, topologySpreadConstraints=spread("zone")), app="x"),
        ],
        "config",
        "TopologySpreadUnmet",
        ("zone", "y has no node"),
    ),
    "host port": (
        [node("a"), pod("other", on="a", containers=PORT), pod("waits", containers=PORT)],
        "capacity",
        "HostPortInUse",
        ("9400",),
    ),
    # Devices
    "devices in use": (
        [
            *DRA,
            *clusters.holding("b", "a", "gpu-0", "gpu-1", "gpu-2"),
            claim("c", 2),
            pod("waits", uses=("c",)),
        ],
        "capacity",
        "DevicesInUse",
        ("needs 2 devices", "at most 1"),
    ),
    "devices in pieces": (
        [
            *DRA,
            node("b"),
            gpus("b"),
            *clusters.holding("x", "a", "gpu-0"),
            *clusters.holding("y", "b", "gpu-0"),
            claim("c", 4),
            pod("waits", uses=("c",)),
        ],
        "capacity",
        "DevicesFragmented",
        ("needs 4 devices", "6 are free", "at most 3"),
    ),
    "selector in another case": (
        [
            *DRA,
            claim("c", when=f'{clusters.ATTRIBUTES}.architecture == "hopper"'),
            pod("waits", uses=("c",)),
        ],
        "config",
        "SelectorMatchesTooFew",
        ('architecture == "hopper"', '"Hopper" on 4 devices'),
    ),
    "one condition of several": (
        [
            *DRA,
            claim(
                "c",
                when=f'{clusters.ATTRIBUTES}.architecture == "Hopper" && '
                f'{clusters.CAPACITY}.memory.compareTo(quantity("96Gi")) >= 0',
            ),
            pod("waits", uses=("c",)),
        ],
        "config",
        "SelectorMatchesTooFew",
        ("`memory >= 96Gi`", "80Gi"),
    ),
    "attribute that no device has": (
        [
            *DRA,
            claim("c", when=f'{clusters.ATTRIBUTES}.architectur == "Hopper"'),
            pod("waits", uses=("c",)),
        ],
        "config",
        "SelectorMatchesTooFew",
        ("no device has architectur", "architecture"),
    ),
    "more devices than any node has": (
        [*DRA, claim("c", 8), pod("waits", uses=("c",))],
        "config",
        "MoreDevicesThanAnyNodeHas",
        ("8 devices", "no node has more than 4"),
    ),
    "constraint": (
        [
            *DRA,
            claim("c", 4, constraints=[{"matchAttribute": f"{clusters.DRIVER}/root"}]),
            pod("waits", uses=("c",)),
        ],
        "config",
        "ConstraintUnmet",
        ("root", "4 devices", "more than 2"),
    ),
    "missing class": (
        [*DRA, claim("c", class_="gpus"), pod("waits", uses=("c",))],
        "config",
        "DeviceClassMissing",
        ("gpus", "did you mean gpu?"),
    ),
    "class of a driver that does not run": (
        [
            device_class(when='device.driver == "other.example.org"'),
            node("a"),
            gpus("a"),
            claim("c"),
            pod("waits", uses=("c",)),
        ],
        "platform",
        "NoDevicesPublished",
        ("other.example.org",),
    ),
    "no devices at all": (
        [device_class(), node("a"), claim("c"), pod("waits", uses=("c",))],
        "platform",
        "NoDevicesPublished",
        (clusters.DRIVER,),
    ),
    "selector that does not compile": (
        [*DRA, claim("c", when="device.nothing"), pod("waits", uses=("c",))],
        "config",
        "CelError",
        ("does not compile",),
    ),
    "tainted devices": (
        [
            device_class(),
            node("a"),
            gpus("a", device={"taints": [{"key": "broken", "effect": "NoSchedule"}]}),
            claim("c"),
            pod("waits", uses=("c",)),
        ],
        "platform",
        "DevicesTainted",
        ("broken", "a"),
    ),
    "incomplete pool": (
        [device_class(), node("a"), gpus("a", slices=2), claim("c"), pod("waits", uses=("c",))],
        "platform",
        "ResourcePoolIncomplete",
        (f"{clusters.DRIVER}/a",),
    ),
    # Claims and gates
    "missing claim": (
        [*DRA, claim("data"), pod("waits", uses=("datas",))],
        "config",
        "ClaimMissing",
        ("team/datas", "did you mean data?"),
    ),
    "missing template": (
        [*DRA, pod("waits", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "nope"}])],
        "config",
        "ClaimTemplateMissing",
        ("nope",),
    ),
    "gates": (
        [node("a", 8), pod("waits", 1, schedulingGates=[{"name": "x/one"}, {"name": "y/two"}])],
        "policy",
        "SchedulingGated",
        ("x/one", "y/two"),
    ),
    "gate in front of a mistake": (
        [node("a", 8), pod("waits", 16, schedulingGates=[{"name": "x/one"}])],
        "config",
        "TooLargeForAnyNode",
        ("16",),
    ),
    "missing volume claim": (
        [
            node("a"),
            pod("waits", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]),
        ],
        "config",
        "VolumeClaimMissing",
        ("volume claim d",),
    ),
    # Gangs
    "gang with too few pods": (
        [node("a", 8), *(member(name, 1) for name in ("waits", "m1", "m2"))],
        "policy",
        "GangIncomplete",
        ("gang g", "minimum is 4"),
    ),
    "gang with one node too few free": (
        [
            *(node(n, 8) for n in "abcd"),
            pod("busy", 8, on="d"),
            *(member(name, 8) for name in ("waits", "m1", "m2", "m3")),
        ],
        "capacity",
        "GangCannotStart",
        ("3 of 4 pods", "8 nvidia.com/gpu"),
    ),
    "gang larger than the cluster": (
        [*(node(n, 8) for n in "abc"), *(member(name, 8) for name in ("waits", "m1", "m2", "m3"))],
        "config",
        "GangTooLarge",
        ("4 pods at once", "only 3"),
    ),
    "gang with a member that never fits": (
        [
            *(node(n, 8) for n in "abcd"),
            *(member(name, 8) for name in ("waits", "m1", "m2")),
            member("m3", 16),
        ],
        "config",
        "TooLargeForAnyNode",
        ("pod m3 of its gang", "16"),
    ),
    "gang that needs a cordoned node": (
        [
            *(node(n, 8) for n in "abc"),
            node("d", 8, unschedulable=True),
            *(member(name, 8) for name in ("waits", "m1", "m2", "m3")),
        ],
        "platform",
        "NodesCordoned",
        ("3 of 4 pods", "(d)"),
    ),
    "rack that is full": (
        [
            *(node(f"n{i}", 8, labels={"rack": f"r{i // 4}"}) for i in range(8)),
            pod("x", 8, on="n0"),
            pod("y", 8, on="n4"),
            *(member(name, 8, **RACK) for name in ("waits", "m1", "m2", "m3")),
        ],
        "capacity",
        "TopologyUnmet",
        ("4 pods in one rack", "takes 3 now: 1 short"),
    ),
    "racks that are too small": (
        [
            *(node(f"n{i}", 8, labels={"rack": f"r{i // 2}"}) for i in range(6)),
            *(member(name, 8, **RACK) for name in ("waits", "m1", "m2", "m3")),
        ],
        "config",
        "TopologyTooSmall",
        ("even empty", "takes 2"),
    ),
    "rack that no node names": (
        [
            *(node(f"n{i}", 8) for i in range(4)),
            *(member(name, 8, **RACK) for name in ("waits", "m1", "m2", "m3")),
        ],
        "config",
        "TopologyUnknown",
        ("rack",),
    ),
    "pod beyond the minimum of a gang that starts": (
        [
            *(node(n, 8) for n in "ab"),
            *(member(name, 8, minimum=2) for name in ("m1", "m2", "waits")),
        ],
        "capacity",
        "Busy",
        ("8 nvidia.com/gpu", "team/m1 and 1 more are ahead of it"),
    ),
    # Rules about evictions
    "it never preempts": (
        [*FULL, pod("waits", 8, priority=10, preemptionPolicy="Never")],
        "policy",
        "PreemptionForbidden",
        ("preemptionPolicy is Never",),
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_cause(title: str) -> None:
    trees, class_, code, words = CASES[title]
    answer = clusters.ask(*trees)
    assert not answer.schedulable
    assert answer.cause is not None
    named = (answer.cause.class_.value, answer.cause.code.value)
    assert named == (class_, code), answer.cause.sentence
    for word in words:
        assert word in answer.cause.sentence
    assert len(answer.cause.sentence) <= 200


def test_a_pod_that_starts_says_where() -> None:
    answer = clusters.ask(node("a", 8), pod("waits", 8))
    assert (answer.schedulable, answer.cause) == (True, None)
    assert answer.verdict == "starts on node a"


def test_a_pod_that_preempts_says_after_whom() -> None:
    answer = clusters.ask(*FULL, pod("waits", 8, priority=10))
    assert answer.schedulable
    assert answer.verdict == "starts on node a when team/busy left it"


def test_two_rules_at_once_are_both_named() -> None:
    answer = clusters.ask(
        node("a", 8, taints=[taint("sku", "gpu")], labels={"product": "NVIDIA-A100"}),
        pod("waits", 1, nodeSelector={"product": "A100"}),
    )
    assert answer.cause is not None
    codes = {answer.cause.code.value, *(cause.code.value for cause in answer.also)}
    assert codes == {"UntoleratedTaint", "NodeLabelsDiffer"}


def test_a_pod_of_another_scheduler_is_judged_as_one_of_ours() -> None:
    ours = policy.Policy(scheduler_names=("dovetail",))
    other = pod("waits", 8, schedulerName="default-scheduler")
    answer = clusters.ask(*FULL, other, policy_=ours)
    assert answer.cause is not None
    assert answer.cause.code.value == "Busy"


def test_claims_that_are_still_to_be_made_do_not_hide_the_cause() -> None:
    template = clusters.claim("sixteen", 16)
    template |= {"kind": "ResourceClaimTemplate", "spec": {"spec": template["spec"]}}
    uses = [{"name": "g", "resourceClaimTemplateName": "sixteen"}]
    answer = clusters.ask(*DRA, template, pod("waits", resourceClaims=uses))
    assert answer.cause is not None
    assert answer.cause.code.value == "MoreDevicesThanAnyNodeHas"


def job(gpu_count: int) -> Tree:
    spec = pod("x", gpu_count)["spec"] | {"restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "team", "name": "train", "uid": "uid-train"},
        "spec": {"template": {"spec": spec}},
    }


def test_a_workload_without_pods_is_judged_by_its_template() -> None:
    starts = clusters.ask(node("a", 8), job(1), name="train", kind="Job")
    assert starts.schedulable
    assert starts.verdict == "has no pods yet; a pod of its template starts on node a"
    waits = clusters.ask(node("a", 8), job(16), name="train", kind="Job")
    assert waits.cause is not None
    assert waits.cause.code.value == "TooLargeForAnyNode"
    assert waits.subject.kind == "Job"


def test_a_workload_is_judged_by_its_first_pod_that_waits() -> None:
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train"}]
    waits = pod("train-0", 16, metadata={"ownerReferences": owner})
    answer = clusters.ask(node("a", 8), job(16), waits, name="train", kind="Job")
    assert answer.subject.name == "train-0"
    assert not answer.schedulable


def test_a_driver_that_the_image_rules_out_is_named_with_a_checked_fix() -> None:
    labels = {
        "nvidia.com/cuda.runtime-version.full": "12.8",
        "nvidia.com/cuda.driver-version.full": "570.211.01",
    }
    waits = pod("waits", 1)
    variable = {"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=13.0"}
    waits["spec"]["containers"][0]["env"] = [variable]
    refuse = policy.Policy(image_requirements=policy.ImageRequirements.REFUSE)
    answer = clusters.ask(node("a", 8, labels=labels), waits, policy_=refuse)
    assert answer.cause is not None
    assert answer.cause.code == "ImageRequirementsUnmet"
    assert "needs cuda>=13.0; the host has cuda 12.8, driver 570.211.1" in answer.cause.sentence
    assert [fix.title for fix in answer.fixes] == [
        "set NVIDIA_DISABLE_REQUIRE=true in container main"
    ]
    assert "have a driver that its image requires" in [step.step for step in answer.funnel]
