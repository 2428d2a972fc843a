"""Time passes in the cluster in memory: pods end, give back what they held, and who waited starts."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from dovetail import timestamps
from dovetail.hollow import pod_stages
from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.local import control, local_cluster, state_dir
from dovetail.sim.server import priority_classes

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
FLEET = "name: small\npools: [{name: l4, count: 1, gpu: L4, gpusPerNode: 2}]"
WANTED = {
    "devices": {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]
    }
}

Tree = dict[str, Any]


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def pod(
    name: str,
    *,
    run: str | None = None,
    exit_code: str | None = None,
    claim: str | None = None,
    priority: int = 0,
) -> Tree:
    """A pod that wants both GPUs, by a claim of its own or by this one."""
    given = {pod_stages.RUN_SECONDS: run, pod_stages.EXIT_CODE: exit_code}
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": "both"}
    container = {"name": "main", "image": "train", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {key: value for key, value in given.items() if value is not None},
        },
        "spec": {
            "priorityClassName": f"p{priority}",
            "containers": [container],
            "resourceClaims": [{"name": "gpu", **source}],
        },
    }


def resource(kind: str, name: str, spec: Tree) -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def applied(
    cluster: local_cluster.Cluster, *trees: Tree, at: datetime.datetime = NOW
) -> local_cluster.Cluster:
    given = [local_cluster.Given(tree) for tree in trees]
    outcome = local_cluster.apply(
        cluster, given, now=timestamps.to_text(at), check_selector=state_dir.check_selector
    )
    assert isinstance(outcome, local_cluster.Applied), outcome
    return outcome.cluster


@pytest.fixture(scope="module")
def fleet() -> local_cluster.Cluster:
    """One node with two GPUs, and a template that wants both."""
    made = applied(
        local_cluster.Cluster("small"),
        *fleet_objects.objects_of(fleet_spec.read(FLEET, file="fleet.yaml")),
    )
    ranks = [
        {
            "apiVersion": priority_classes.VERSION,
            "kind": priority_classes.KIND,
            "metadata": {"name": f"p{value}"},
            "value": value,
        }
        for value in range(-5, 2)
    ]
    return applied(made, resource("ResourceClaimTemplate", "both", {"spec": WANTED}), *ranks)


def found(cluster: local_cluster.Cluster, name: str) -> pods.Pod:
    stored = local_cluster.get(cluster, local_cluster.Key("Pod", "default", name))
    assert stored is not None
    assert isinstance(stored.struct, pods.Pod)
    return stored.struct


def phases(cluster: local_cluster.Cluster) -> dict[str, str]:
    return {
        stored.struct.metadata.name: stored.struct.status.phase
        for stored in local_cluster.listed(cluster, "Pod")
        if isinstance(stored.struct, pods.Pod)
    }


def claims_of(cluster: local_cluster.Cluster) -> list[claims.ResourceClaim]:
    listed = [stored.struct for stored in local_cluster.listed(cluster, "ResourceClaim")]
    return [one for one in listed if isinstance(one, claims.ResourceClaim)]


def test_a_pod_ends_its_claim_goes_and_the_next_one_starts(fleet: local_cluster.Cluster) -> None:
    begun = control.turn(applied(fleet, pod("first", run="30", priority=1), pod("second")), now=NOW)
    assert phases(begun) == {"first": "Running", "second": "Pending"}
    [held] = [claim for claim in claims_of(begun) if claim.status.allocation]
    assert not control.is_due(begun, now=after(29.9))
    assert control.turn(begun, now=after(29.9)) == begun
    assert control.is_due(begun, now=after(30))
    ended = control.turn(begun, now=after(30))
    assert phases(ended) == {"first": "Succeeded", "second": "Running"}
    [claim] = claims_of(ended)
    assert claim.metadata.name != held.metadata.name
    assert [user.name for user in claim.status.reserved_for] == ["second"]
    assert not control.is_due(ended, now=after(10**6))  # a pod that says nothing runs for ever


def test_an_exit_code_makes_a_pod_fail_as_a_hollow_node_writes_it(
    fleet: local_cluster.Cluster,
) -> None:
    begun = control.turn(applied(fleet, pod("broken", run="5", exit_code="3")), now=NOW)
    ended = control.turn(begun, now=after(60))
    stored = local_cluster.get(ended, local_cluster.Key("Pod", "default", "broken"))
    assert stored is not None
    status = stored.tree["status"]
    assert status["phase"] == "Failed"
    [container] = status["containerStatuses"]
    assert container["state"]["terminated"] == {
        "exitCode": 3,
        "reason": "Error",
        "startedAt": timestamps.to_text(NOW),
        "finishedAt": timestamps.to_text(after(5)),
    }
    assert {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "False"
    assert claims_of(ended) == []


def test_a_shared_claim_stays_allocated_until_its_last_user_has_ended(
    fleet: local_cluster.Cluster,
) -> None:
    users = [pod(name, run=run, claim="shared") for name, run in (("a", "10"), ("b", "20"))]
    begun = control.turn(
        applied(fleet, resource("ResourceClaim", "shared", WANTED), *users), now=NOW
    )
    [claim] = claims_of(begun)
    assert [user.name for user in claim.status.reserved_for] == ["a", "b"]
    [half] = claims_of(control.turn(begun, now=after(15)))
    assert [user.name for user in half.status.reserved_for] == ["b"]
    assert half.status.allocation == claim.status.allocation
    assert claims.DELETE_PROTECTION_FINALIZER in half.metadata.finalizers
    [free] = claims_of(control.turn(begun, now=after(20)))
    assert (free.status, free.metadata.finalizers) == (claims.ResourceClaimStatus(), ())
    assert free.spec == claim.spec


def test_a_claim_made_for_extended_resources_goes_with_its_pod(
    fleet: local_cluster.Cluster,
) -> None:
    plain = pod("plain", run="10") | {
        "spec": {
            "containers": [
                {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
            ]
        }
    }
    begun = control.turn(applied(fleet, plain), now=NOW)
    assert [claim.status.allocation is not None for claim in claims_of(begun)] == [True]
    assert claims_of(control.turn(begun, now=after(10))) == []


def test_looking_often_gives_what_looking_once_gives(fleet: local_cluster.Cluster) -> None:
    """Each of six starts when the one before it has ended, whoever looked when."""
    wanted = [pod(f"p{index}", run=str(7 + index), priority=-index) for index in range(6)]
    begun = control.turn(applied(fleet, *wanted), now=NOW)
    often = begun
    for seconds in range(0, 64, 4):
        often = control.turn(often, now=after(seconds))
    once = control.turn(begun, now=after(60))
    assert often == once
    starts = [found(once, f"p{index}").status.start_time for index in range(6)]
    assert starts == [timestamps.to_text(after(seconds)) for seconds in (0, 7, 15, 24, 34, 45)]
    assert list(phases(once).values()) == ["Succeeded"] * 6


def test_a_pod_that_takes_no_time_has_ended_when_the_turn_is_over(
    fleet: local_cluster.Cluster,
) -> None:
    done = control.turn(
        applied(fleet, pod("a", run="0"), pod("b", run="0"), pod("c", priority=-1)), now=after(0.5)
    )
    assert phases(done) == {"a": "Succeeded", "b": "Succeeded", "c": "Running"}
    assert control.turn(done, now=after(0.5)) == done


def test_a_deadline_ends_a_pod(fleet: local_cluster.Cluster) -> None:
    late = pod("late")
    late["spec"]["activeDeadlineSeconds"] = 40
    begun = control.turn(applied(fleet, late), now=NOW)
    stored = local_cluster.get(
        control.turn(begun, now=after(40)), local_cluster.Key("Pod", "default", "late")
    )
    assert stored is not None
    assert (stored.tree["status"]["phase"], stored.tree["status"]["reason"]) == (
        "Failed",
        "DeadlineExceeded",
    )


def test_given_stages_are_walked(fleet: local_cluster.Cluster) -> None:
    steps = (
        pod_stages.Stage(phase="Running", after=5),
        pod_stages.Stage(phase="Succeeded", after=10),
    )
    walk = pod_stages.Stages(rules=(pod_stages.Rule(steps=steps),))
    bound = control.turn(applied(fleet, pod("slow")), now=NOW, walk=walk)
    assert (found(bound, "slow").spec.node_name, phases(bound)) == ("l4-0", {"slow": ""})
    running = control.turn(bound, now=after(5), walk=walk)
    assert phases(running) == {"slow": "Running"}
    assert phases(control.turn(running, now=after(14.9), walk=walk)) == {"slow": "Running"}
    assert phases(control.turn(bound, now=after(15), walk=walk)) == {"slow": "Succeeded"}


def test_what_nobody_applied_here_does_not_walk(fleet: local_cluster.Cluster) -> None:
    begun = control.turn(applied(fleet, pod("first", run="30"), pod("second", run="30")), now=NOW)
    records = {
        key: local_cluster.Record(record.document, meta.NO_RAW)
        for key, record in begun.records.items()
    }
    loaded = msgspec.structs.replace(begun, records=records)  # as a snapshot brings it
    assert not control.is_due(loaded, now=after(3600))
    assert control.turn(loaded, now=after(3600)) == loaded


def test_a_bound_pod_starts_only_with_its_claim(fleet: local_cluster.Cluster) -> None:
    stuck, free = pod("stuck", claim="nowhere"), pod("free")
    free["spec"] = {"containers": [{"name": "main", "image": "x"}]}
    lost = free | {"metadata": {"name": "lost"}, "spec": free["spec"] | {"nodeName": "unheard-of"}}
    for one in (stuck, free):
        one["spec"]["nodeName"] = "l4-0"
    begun = control.turn(applied(fleet, stuck, free, lost), now=NOW)
    assert phases(begun) == {"free": "Running", "lost": "", "stuck": ""}
    assert not control.is_due(begun, now=after(3600))


def test_an_end_that_was_set_late_starts_nobody_before_its_time(
    fleet: local_cluster.Cluster,
) -> None:
    begun = control.turn(applied(fleet, pod("first")), now=NOW)
    changed = applied(begun, pod("first", run="1"), pod("second"), at=after(100))
    later = control.turn(changed, now=after(100))
    assert phases(later) == {"first": "Succeeded", "second": "Running"}
    assert found(later, "second").status.start_time == timestamps.to_text(after(100))


@pytest.mark.parametrize("time", ["2026-02-30T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_an_impossible_time_harms_nobody(fleet: local_cluster.Cluster, time: str) -> None:
    odd = pod("odd", run="40") | {"status": {"phase": "Running", "startTime": time}}
    odd["spec"] = {
        "nodeName": "l4-0",
        "activeDeadlineSeconds": 5,
        "containers": [{"name": "main", "image": "x"}],
    }
    begun = control.turn(applied(fleet, odd, pod("fine", run="30")), now=NOW)
    assert phases(control.turn(begun, now=after(30)))["fine"] == "Succeeded"
