"""The findings of `dovetail doctor`: facts as small stories, one finding each, with the next command."""

from __future__ import annotations

import datetime
from typing import Any, TypeVar

import msgspec
import pytest

from dovetail.doctor import check_control_plane, checkup, findings, gather
from dovetail.doctor.findings import Facts, Finding, Severity
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import leases, nodes, pods, resource_quotas
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.resource import claims, device_classes, slices
from dovetail.quantity import quantity

NOW = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)
HOUR_AGO = "2026-01-01T11:00:00Z"
GKE = "cloud.google.com/gke-nodepool"
Tree = dict[str, Any]
S = TypeVar("S", bound=msgspec.Struct)


def healthy(**changes: Any) -> Facts:
    """A cluster nothing is to be said against, but for what the story changes."""
    served = {
        "resource.k8s.io/v1": frozenset({*check_control_plane.NEEDED_KINDS, "devicetaintrules"}),
        "scheduling.k8s.io/v1alpha3": frozenset({"podgroups"}),
        "admissionregistration.k8s.io/v1": frozenset({"mutatingadmissionpolicies"}),
    }
    facts = Facts(
        now=NOW,
        server_version="v1.37.1",
        server_number=(1, 37),
        served=served,
        clock_ahead_seconds=0.2,
        rights=findings.Rights("you", (findings.Right("list", "", "pods"),), ()),
        kubelets={"n0": "v1.37.0"},
        nodes=(node("n0"),),
        slices=(slice_of("n0"),),
        classes=(device_class("gpu.nvidia.com"),),
        matches={"gpu.nvidia.com": findings.Matches(2, 2)},
        claims=(),
        templates=(),
        pods=(),
        leases=(lease("dovetail-scheduler"),),
        quotas=(),
        queues=(),
    )
    return msgspec.structs.replace(facts, **changes)


def node(
    name: str,
    *,
    labels: Tree | None = None,
    taint: str = "nvidia.com/gpu",
    offers: Tree | None = None,
) -> nodes.Node:
    taints = [{"key": taint, "value": "present", "effect": "NoSchedule"}] if taint else []
    return struct(
        nodes.Node,
        {
            "metadata": {"name": name, "labels": {GKE: "h100"} | (labels or {})},
            "spec": {"taints": taints},
            "status": {"allocatable": offers or {}},
        },
    )


def slice_of(
    node: str,
    *,
    generation: int = 1,
    count: int = 1,
    name: str = "s",
    devices: tuple[str, ...] = ("a", "b"),
) -> slices.ResourceSlice:
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": node,
        "pool": pool,
        "devices": [{"name": device} for device in devices],
    }
    return struct(slices.ResourceSlice, {"metadata": {"name": f"{node}-{name}"}, "spec": spec})


def device_class(name: str) -> device_classes.DeviceClass:
    return struct(device_classes.DeviceClass, {"metadata": {"name": name}})


def lease(
    name: str, *, age: float = 2.0, holder: str = "pod-1", namespace: str = "kube-system"
) -> leases.Lease:
    renewed = (NOW - datetime.timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return struct(leases.Lease, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def pod(
    name: str,
    *,
    scheduler: str = "dovetail",
    node: str = "",
    claim: str = "",
    template: str = "",
    **more: Any,
) -> pods.Pod:
    entries = [{"name": "c", "resourceClaimName": claim}] if claim else []
    entries += [{"name": "t", "resourceClaimTemplateName": template}] if template else []
    metadata = {"name": name, "namespace": "a", "creationTimestamp": HOUR_AGO} | more.pop(
        "metadata", {}
    )
    containers = [{"name": "main", "resources": {"limits": more.pop("limits", {})}}]
    spec = {
        "schedulerName": scheduler,
        "nodeName": node,
        "resourceClaims": entries,
        "containers": containers,
    }
    return struct(
        pods.Pod,
        {"metadata": metadata, "spec": spec, "status": {"phase": "Running" if node else "Pending"}},
    )


def claim(name: str, *devices: str, **spec: Any) -> claims.ResourceClaim:
    results = [
        {"request": "r", "driver": "gpu.nvidia.com", "pool": "n0", "device": device}
        for device in devices
    ]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    tree = {
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"devices": spec},
        "status": status,
    }
    return struct(claims.ResourceClaim, tree)


def template(name: str, device_class: str, count: int) -> claims.ResourceClaimTemplate:
    expected = {"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}
    spec = {"spec": {"devices": {"requests": [expected]}}}
    return struct(
        claims.ResourceClaimTemplate, {"metadata": {"name": name, "namespace": "a"}, "spec": spec}
    )


def quota(
    used: str, hard: str, *, key: str = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
) -> resource_quotas.ResourceQuota:
    status = resource_quotas.ResourceQuotaStatus(
        hard={key: quantity.parse(hard)}, used={key: quantity.parse(used)}
    )
    return msgspec.structs.replace(
        struct(resource_quotas.ResourceQuota, {"metadata": {"name": "team", "namespace": "a"}}),
        status=status,
    )


def struct(kind: type[S], tree: Tree) -> S:
    return codec.decode_struct(kind, codec.encode_tree(tree))


def said(facts: Facts, check: str) -> list[Finding]:
    """What is said about one check, notes left out where there is worse."""
    return [
        finding
        for finding in checkup.report(facts).findings
        if finding.check == check and finding.severity is not Severity.NOTE
    ]


def only(facts: Facts, check: str, severity: Severity) -> Finding:
    messages = said(facts, check)
    assert [message.severity for message in messages] == [severity], messages
    others = [
        finding
        for finding in checkup.report(facts).findings
        if finding.check != check and finding.severity is not Severity.NOTE
    ]
    assert others == []
    assert messages[0].next
    return messages[0]


def test_nothing_is_said_against_a_healthy_cluster() -> None:
    report = checkup.report(healthy())
    assert {finding.severity for finding in report.findings} <= {Severity.NOTE}
    assert report.unchecked == {}
    assert len(report.checked) == len(checkup.CHECKS)


def test_what_was_not_seen_is_not_called_healthy() -> None:
    report = checkup.report(healthy(quotas=None, unread={"quotas": "may not be read"}))
    assert report.unchecked == {"quotas": "may not be read"}
    assert "quotas" not in report.checked


def test_the_worst_comes_first() -> None:
    report = checkup.report(
        healthy(clock_ahead_seconds=60.0, leases=(lease("dovetail-scheduler", age=500),))
    )
    assert [finding.check for finding in report.findings][:2] == ["leader", "clock"]


@pytest.mark.parametrize(
    ("number", "severity"),
    [((1, 33), Severity.ERROR), ((1, 35), Severity.WARNING), ((1, 38), Severity.WARNING)],
)
def test_a_server_we_do_not_run_on(number: tuple[int, int], severity: Severity) -> None:
    facts = healthy(server_number=number, server_version=f"v1.{number[1]}.0", kubelets={})
    assert f"v1.{number[1]}.0" in only(facts, "versions", severity).what


@pytest.mark.parametrize(
    ("version", "words"),
    [("v1.38.0", "newer than the server"), ("v1.33.2", "4 minor versions older")],
)
def test_kubelets_too_far_from_the_server(version: str, words: str) -> None:
    finding = only(healthy(kubelets={"n0": version, "n1": "v1.34.0"}), "versions", Severity.ERROR)
    assert words in finding.what
    assert finding.where == "n0"


def test_a_server_without_claims() -> None:
    assert "resourceclaims" in only(healthy(served={}), "kinds", Severity.ERROR).what


def test_kinds_that_are_merely_missing_are_notes() -> None:
    report = checkup.report(
        healthy(
            served={check_control_plane.RESOURCE_V1: frozenset(check_control_plane.NEEDED_KINDS)}
        )
    )
    assert [finding.severity for finding in report.findings if finding.check == "kinds"] == [
        Severity.NOTE
    ] * 3


@pytest.mark.parametrize(("ahead", "words"), [(30.0, "30 s ahead of"), (-30.0, "30 s behind")])
def test_clocks_that_disagree(ahead: float, words: str) -> None:
    led = (lease("dovetail-scheduler", age=2 + ahead),)  # two seconds ago by the server's clock
    assert (
        words
        in only(healthy(clock_ahead_seconds=ahead, leases=led), "clock", Severity.WARNING).what
    )


def test_rights_that_are_missing_are_named() -> None:
    needed = gather.needed_rights(findings.Ours())
    finding = only(
        healthy(rights=findings.Rights("sa", needed, needed[:2])), "rights", Severity.ERROR
    )
    assert str(needed[0]) in finding.what
    none = healthy(rights=findings.Rights("sa", needed, needed), leases=None)
    assert "is it installed?" in only(none, "rights", Severity.ERROR).what


def test_missing_rights_are_only_a_note_while_a_replica_leads() -> None:
    needed = gather.needed_rights(findings.Ours())
    report = checkup.report(healthy(rights=findings.Rights("sa", needed, needed)))
    assert [finding.severity for finding in report.findings if finding.check == "rights"] == [
        Severity.NOTE
    ]


def test_the_rights_asked_about_are_those_the_chart_grants() -> None:
    needed = gather.needed_rights(findings.Ours(lease_namespace="gpu", lease_name="mine-scheduler"))
    assert {(verb, kind.plural) for kind in registry.WATCHED for verb in ("list", "watch")} <= {
        (right.verb, right.resource) for right in needed
    }
    assert (
        findings.Right("patch", "coordination.k8s.io", "leases", "gpu", "mine-scheduler") in needed
    )
    assert findings.Right("create", "", "pods/binding") in needed


def test_an_installation_is_found_by_its_label() -> None:
    labels = {"app.kubernetes.io/part-of": "dovetail"}
    labelled = struct(
        leases.Lease, {"metadata": {"name": "x-scheduler", "namespace": "gpu", "labels": labels}}
    )
    recorders = struct(
        leases.Lease,
        {
            "metadata": {
                "name": "x-history",
                "namespace": "elsewhere",
                "labels": labels | {"app.kubernetes.io/component": "history"},
            }
        },
    )
    others = (lease("kube-scheduler"), recorders)
    assert gather.find_installation((*others, labelled)).lease_namespace == "gpu"
    assert gather.find_installation((lease("kube-scheduler"),)) == findings.Ours()


@pytest.mark.parametrize(
    ("found", "severity", "words"),
    [
        ((), Severity.WARNING, "has ever led"),
        ((lease("dovetail-scheduler", age=93),), Severity.ERROR, "93 s ago"),
        ((lease("dovetail-scheduler", holder=""),), Severity.ERROR, "gave the lease back"),
        ((lease("dovetail-scheduler", namespace="other"),), Severity.WARNING, "has ever led"),
    ],
)
def test_no_replica_leads(found: tuple[leases.Lease, ...], severity: Severity, words: str) -> None:
    assert words in only(healthy(leases=found), "leader", severity).what


def test_replicas_on_hollow_nodes_cannot_lead() -> None:
    released = struct(
        leases.Lease, {"metadata": {"name": "dovetail-scheduler", "namespace": "kube-system"}}
    )
    assert "has led yet" in only(healthy(leases=(released,)), "leader", Severity.ERROR).what
    replica = pod("dovetail-scheduler-5c4", node="n0", metadata={"namespace": "kube-system"})
    hollow = node("n0", labels={"dovetail.dev/hollow": "true"})
    installed = healthy(leases=(released,), nodes=(hollow,), pods=(replica,))
    finding = only(installed, "leader", Severity.ERROR)
    assert finding.what == "no replica leads: 1 replica on hollow nodes, where no container runs"
    assert finding.next == "dovetail scheduler"


def test_pods_that_name_a_scheduler_which_does_not_run() -> None:
    waiting = (pod("p", scheduler="volcano"), pod("q", scheduler="volcano"))
    finding = only(healthy(pods=waiting), "schedulers", Severity.WARNING)
    assert finding.what == (
        '2 pods wait for scheduler "volcano", which does not run here: '
        "it renews no Lease, and no pod of it runs"
    )
    assert finding.where == "a/p, a/q"
    assert finding.next == (
        "start it, or create the pods with schedulerName: dovetail; "
        "kubectl get pods -A --field-selector spec.schedulerName=volcano,status.phase=Pending"
    )


def test_pods_that_name_no_scheduler_where_kube_scheduler_does_not_run() -> None:
    waiting = (pod("p", scheduler=""), pod("q", scheduler="default-scheduler"))
    finding = only(healthy(pods=waiting), "schedulers", Severity.WARNING)
    assert '2 pods wait for scheduler "default-scheduler" (kube-scheduler)' in finding.what
    stale = (lease("dovetail-scheduler"), lease("kube-scheduler", age=300))
    assert (
        "kube-scheduler"
        in only(healthy(pods=waiting, leases=stale), "schedulers", Severity.WARNING).what
    )
    fresh = (lease("dovetail-scheduler"), lease("kube-scheduler"))
    assert said(healthy(pods=waiting, leases=fresh), "schedulers") == []


@pytest.mark.parametrize(
    ("scheduler", "lease_name"),
    [
        ("volcano", "volcano"),
        ("kai-scheduler", "kai-scheduler"),
        ("hami-scheduler", "hami-scheduler-leader"),
        ("default-scheduler", "kube-scheduler"),
    ],
)
def test_a_scheduler_that_renews_its_lease_runs(scheduler: str, lease_name: str) -> None:
    leading = (lease("dovetail-scheduler"), lease(lease_name, namespace="elsewhere"))
    waiting = (pod("p", scheduler=scheduler),)
    assert said(healthy(pods=waiting, leases=leading), "schedulers") == []


@pytest.mark.parametrize(
    ("scheduler", "name", "namespace", "labels"),
    [
        ("default-scheduler", "kube-scheduler-cp-0", "kube-system", {}),
        ("default-scheduler", "cp-0", "kube-system", {"component": "kube-scheduler"}),
        ("volcano", "volcano-scheduler-5d9f", "volcano-system", {}),
        ("hami-scheduler", "vgpu-hami-scheduler-77c", "kube-system", {}),
        ("kai-scheduler", "kai-scheduler-default-6b", "kai-scheduler", {}),
        ("kai-scheduler", "scheduler-6b", "kai-scheduler", {"app": "scheduler"}),
    ],
)
def test_a_scheduler_whose_pod_runs_is_there(
    scheduler: str, name: str, namespace: str, labels: Tree
) -> None:
    waiting = pod("p", scheduler=scheduler)
    metadata = {"namespace": namespace, "labels": labels}
    program = pod(name, node="n0", metadata=metadata, limits={"nvidia.com/gpu": "1"})
    assert said(healthy(pods=(waiting, program)), "schedulers") == []
    pending = pod(name, metadata=metadata)
    assert len(said(healthy(pods=(waiting, pending)), "schedulers")) == 1


def test_other_pods_of_the_same_project_are_not_its_scheduler() -> None:
    waiting = pod("p", scheduler="volcano")
    others = (
        pod("volcano-controllers-5d", node="n0", limits={"nvidia.com/gpu": "1"}),
        pod("trained", scheduler="volcano", node="n0", limits={"nvidia.com/gpu": "1"}),  # long ago
    )
    assert len(said(healthy(pods=(waiting, *others)), "schedulers")) == 1


def test_a_pod_on_a_hollow_node_runs_no_scheduler() -> None:
    hollow = node("n0", labels={"dovetail.dev/hollow": "true"})
    program = pod("volcano-scheduler-5d", node="n0", limits={"nvidia.com/gpu": "1"})
    unserved = healthy(nodes=(hollow,), pods=(pod("p", scheduler="volcano"), program))
    assert len(said(unserved, "schedulers")) == 1


def test_without_the_leases_no_scheduler_is_called_absent() -> None:
    unread = healthy(pods=(pod("p", scheduler="volcano"),), leases=None)
    report = checkup.report(unread)
    notes = [finding.what for finding in report.findings if finding.check == "schedulers"]
    assert notes[-1] == (
        "1 pod waits for volcano; whether it runs was not checked, because leases could not be read"
    )
    assert report.count(Severity.WARNING) == 0


def test_two_schedulers_that_give_devices_away() -> None:
    both = (
        pod("p", node="n0", claim="x"),
        pod("q", scheduler="default-scheduler", node="n0", claim="y"),
    )
    finding = only(healthy(pods=both), "schedulers", Severity.WARNING)
    assert "default-scheduler 1" in finding.what
    bounded = findings.Ours(node_labels={GKE: "h100"})
    assert said(healthy(pods=both, ours=bounded), "schedulers") == []


def test_ownership_of_nodes_that_do_not_exist() -> None:
    finding = only(
        healthy(ours=findings.Ours(node_labels={"team": "ml"})), "ownership", Severity.ERROR
    )
    assert finding.next == "kubectl label node NAME team=ml"
    finding = only(
        healthy(ours=findings.Ours(node_taint="dovetail.dev/owned")), "ownership", Severity.ERROR
    )
    assert "dovetail.dev/owned" in finding.next


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((slice_of("n0", count=2),), "shows 1 of 2 slices of generation 1"),
        ((slice_of("n0", count=1), slice_of("n0", name="t", count=2, devices=())), "disagree"),
        ((slice_of("n0", devices=("a", "a")),), "lists a more than once"),
    ],
)
def test_pools_that_are_not_whole(found: tuple[slices.ResourceSlice, ...], words: str) -> None:
    finding = only(healthy(slices=found), "slices", Severity.ERROR)
    assert words in finding.what
    assert finding.where == "pool n0 of gpu.nvidia.com"


def test_a_pool_that_is_being_replaced_is_whole_in_its_newest_generation() -> None:
    both = (slice_of("n0"), slice_of("n0", name="new", generation=2))
    assert said(healthy(slices=both), "slices") == []


def test_slices_of_nodes_that_are_gone_and_no_slices_at_all() -> None:
    finding = only(healthy(slices=(slice_of("n0"), slice_of("ghost"))), "slices", Severity.WARNING)
    assert finding.where == "ghost"
    assert "no driver" in only(healthy(slices=()), "slices", Severity.WARNING).what


def test_classes_that_match_nothing_or_cannot_be_used() -> None:
    expected = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
    none = {"gpu.nvidia.com": findings.Matches(8, 0)}
    assert said(healthy(matches=none), "classes") == []  # no request names it: a note
    finding = only(
        healthy(matches=none, claims=(claim("x", **expected),)), "classes", Severity.WARNING
    )
    assert "matches none of 8 devices, and 1 request ask for it" in finding.what
    broken = {"gpu.nvidia.com": findings.Matches(8, 0, "undeclared reference")}
    assert "undeclared" in only(healthy(matches=broken), "classes", Severity.ERROR).what
    other = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gone"}}]}
    assert (
        "does not exist"
        in only(healthy(claims=(claim("x", **other),)), "classes", Severity.ERROR).what
    )


def test_gpus_counted_by_plugin_and_by_driver() -> None:
    facts = healthy(nodes=(node("n0", offers={"nvidia.com/gpu": "8"}),))
    finding = only(facts, "double counting", Severity.WARNING)
    assert (
        finding.next
        == f"kubectl label nodes -l {GKE}=h100 nvidia.com/gpu.deploy.device-plugin=false --overwrite"
    )


def test_a_device_two_claims_hold() -> None:
    finding = only(
        healthy(claims=(claim("x", "a"), claim("y", "a"), claim("z", "b"))),
        "given twice",
        Severity.ERROR,
    )
    assert finding.where == "a/x, a/y"


def test_partitions_that_failed() -> None:
    facts = healthy(nodes=(node("n0", labels={"nvidia.com/mig.config.state": "failed"}),))
    assert (
        "MIG re-partitioning is failed on 1 node" in only(facts, "partitions", Severity.ERROR).what
    )


def test_general_pods_on_gpu_nodes_bring_the_taint_to_paste() -> None:
    guests = (
        pod("web", node="n0", scheduler="default-scheduler"),
        pod("train", node="n0", limits={"nvidia.com/gpu": "1"}),
        pod(
            "agent",
            node="n0",
            metadata={"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "u"}]},
        ),
        pod("core", node="n0", metadata={"namespace": "kube-system"}),
        pod("elsewhere", node="n1"),
    )
    finding = only(
        healthy(nodes=(node("n0", taint=""),), pods=guests), "general pods", Severity.WARNING
    )
    assert finding.what == "1 GPU node of pool h100 without a taint: 1 pod without GPUs run there"
    assert finding.where == "a/web"
    assert finding.next == f"kubectl taint nodes -l {GKE}=h100 nvidia.com/gpu=present:NoSchedule"
    assert (
        said(healthy(pods=guests), "general pods") == []
    )  # the taint is there: who got in before is let be
    assert (
        said(healthy(nodes=(node("n0", taint="node.kubernetes.io/not-ready"),)), "general pods")
        == []
    )  # a note


def test_a_claim_the_quota_does_not_allow() -> None:
    facts = healthy(
        pods=(pod("p", template="two"),),
        templates=(template("two", "gpu.nvidia.com", 2),),
        quotas=(quota("3", "4"),),
    )
    finding = only(facts, "claims", Severity.ERROR)
    assert (
        "quota team of namespace a is used up: 3 of 4 devices of class gpu.nvidia.com used, 2 more"
        in finding.what
    )
    assert finding.next == "kubectl -n a describe resourcequota team"
    assert (
        "does not exist"
        in only(healthy(pods=(pod("p", template="two"),)), "claims", Severity.ERROR).what
    )
    wide = msgspec.structs.replace(facts, quotas=(quota("1", "4"),))
    assert "events say why" in only(wide, "claims", Severity.ERROR).what


def test_the_template_of_a_share_says_who_creates_it() -> None:
    share = pod("p", template="dovetail-gpu-fraction-0.5")
    finding = only(healthy(pods=(share,)), "claims", Severity.ERROR)
    assert "the scheduler does so if kaiShares is on" in finding.what
    assert "describe pod p" in finding.next


def test_a_quota_that_is_used_up_is_a_note() -> None:
    report = checkup.report(
        healthy(quotas=(quota("4", "4"), quota("5", "9"), quota("1", "1", key="pods")))
    )
    messages = [finding for finding in report.findings if finding.check == "quotas"]
    assert [(message.severity, message.where) for message in messages] == [
        (Severity.NOTE, "namespace a")
    ]
    assert "4 of 4 devices of class gpu.nvidia.com" in messages[0].what


def queue(name: str, *, quota: str, **status: str) -> queues.Queue:
    """A queue with a quota of GPUs, and what the scheduler wrote about it."""
    tree = {
        "metadata": {"name": name},
        "spec": {"resources": {"gpu": {"quota": quota}}},
        "status": {"resources": {"gpu": status}},
    }
    return struct(queues.Queue, tree)


def test_a_queue_that_waits_below_its_quota_behind_pods_that_stay_put_is_named() -> None:
    labels = {"dovetail.dev/queue": "a"}
    bare = struct(
        pods.Pod,
        {"metadata": {"name": "x", "namespace": "t", "labels": labels}, "spec": {"nodeName": "n0"}},
    )
    waits = queue("b", quota="4", charged="1", requested="3")
    holds = queue("a", quota="4", charged="7", requested="7", chargedNonPreemptible="6")
    result = [
        finding
        for finding in checkup.report(healthy(queues=(waits, holds), pods=(bare,))).findings
        if finding.check == "queues"
    ]
    assert [finding.what for finding in result] == [
        "queue b waits with 1 of its quota of 4 gpu: queue a holds 7, 6 of it in work that cannot be evicted"
    ]
    assert result[0].where == "pods that no controller would recreate: t/x"
    gives_back = queue("a", quota="4", charged="7", requested="7", chargedNonPreemptible="4")
    assert not [
        finding
        for finding in checkup.report(healthy(queues=(waits, gives_back))).findings
        if finding.check == "queues"
    ]
    content = queue("b", quota="4", charged="1", requested="1")
    assert not [
        finding
        for finding in checkup.report(healthy(queues=(content, holds))).findings
        if finding.check == "queues"
    ]


def test_the_embedded_cluster_schedules_every_pod_without_a_lease() -> None:
    waiting_pod = struct(pods.Pod, {"metadata": {"namespace": "a", "name": "p"}, "spec": {}})
    alone = healthy(leases=(), pods=(waiting_pod,))
    assert {finding.check for finding in checkup.report(alone).findings} >= {"leader", "schedulers"}
    embedded = msgspec.structs.replace(alone, is_embedded=True)
    severities = {finding.severity for finding in checkup.report(embedded).findings}
    assert severities <= {Severity.NOTE}
