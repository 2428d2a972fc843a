"""Pods that have to yield in the cluster in memory: gone, or made anew, and nothing of theirs stays held."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dovetail import timestamps
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.model import plan
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.local import control, local_cluster, local_evictions

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
STAMP = timestamps.to_text(NOW)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}


def pod(name: str, *, claim: str, is_owned: bool) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if is_owned:
        metadata["ownerReferences"] = [OWNER]
    entry = (
        {"name": "gpu", "resourceClaimTemplateName": "gpu"}
        if claim == "own"
        else {
            "name": "gpu",
            "resourceClaimName": claim,
        }
    )
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": [entry]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def running(*trees: dict[str, Any]) -> local_cluster.Cluster:
    """A cluster of one node with two GPUs on which these pods run."""
    request = {
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
    }
    head = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "gpu", "namespace": "default"}}
    template = head | {"kind": "ResourceClaimTemplate", "spec": {"spec": request}}
    shared = head | {
        "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": "default"},
        "spec": request,
    }
    pool = fleet_spec.Pool(name="n", count=1, gpu="H100-SXM5-80GB", gpus_per_node=2)
    given = [
        *fleet_objects.objects_of(fleet_spec.Fleet(name="f", pools=(pool,))),
        template,
        shared,
        *trees,
    ]
    applied = local_cluster.apply(
        local_cluster.Cluster("f"),
        [local_cluster.Given(one) for one in given],
        now=STAMP,
        check_selector=lambda _: None,
    )
    assert isinstance(applied, local_cluster.Applied)
    return control.turn(applied.cluster, now=NOW)


def found(cluster: local_cluster.Cluster, name: str) -> pods.Pod:
    stored = local_cluster.get(cluster, local_cluster.Key("Pod", "default", name))
    assert stored is not None
    assert isinstance(stored.struct, pods.Pod)
    return stored.struct


def eviction(cluster: local_cluster.Cluster, name: str) -> plan.Eviction:
    ref = plan.pod_ref(found(cluster, name))
    return plan.Eviction(
        pod=ref, gang=plan.GangRef("default", f"pod/{name}"), rule=plan.Rule.PREEMPTED
    )


def claims_of(cluster: local_cluster.Cluster) -> list[str]:
    return [one.struct.metadata.name for one in local_cluster.listed(cluster, "ResourceClaim")]


def test_a_pod_without_a_controller_is_gone_with_its_claim() -> None:
    before = running(pod("a", claim="own", is_owned=False), pod("b", claim="own", is_owned=False))
    assert found(before, "a").spec.node_name
    after = local_evictions.evicted(before, [eviction(before, "a")], now=STAMP)
    assert local_cluster.get(after, local_cluster.Key("Pod", "default", "a")) is None
    assert found(after, "b") == found(before, "b")
    assert [name[:2] for name in claims_of(after)] == ["b-", "sh"]


def test_a_controller_makes_the_pod_anew_and_it_waits() -> None:
    before = running(pod("a", claim="own", is_owned=True))
    after = local_evictions.evicted(before, [eviction(before, "a")], now=STAMP)
    made = found(after, "a")
    assert made.metadata.uid != found(before, "a").metadata.uid
    assert (made.spec.node_name, made.status.phase, made.status.resource_claim_statuses) == (
        "",
        "Pending",
        (),
    )
    assert claims_of(after) == ["shared"]
    again = control.turn(after, now=NOW)
    assert found(again, "a").spec.node_name, (
        "its manifest is still its own: it starts, and walks on"
    )
    assert control.turn(again, now=NOW).revision == again.revision


@pytest.mark.parametrize("count", [1, 2])
def test_a_shared_claim_is_given_back_by_its_last_user(count: int) -> None:
    before = running(
        pod("a", claim="shared", is_owned=False), pod("b", claim="shared", is_owned=False)
    )
    after = local_evictions.evicted(
        before, [eviction(before, name) for name in ("a", "b")[:count]], now=STAMP
    )
    stored = local_cluster.get(after, local_cluster.Key("ResourceClaim", "default", "shared"))
    assert stored is not None
    status = codec.tree_of(stored.struct).get("status", {})
    assert len(status.get("reservedFor", ())) == 2 - count
    assert ("allocation" in status) == (count == 1)


def test_who_is_gone_already_is_no_error_and_nominations_are_written() -> None:
    before = running(pod("a", claim="own", is_owned=False))
    ref = eviction(before, "a")
    once = local_evictions.evicted(before, [ref, ref], now=STAMP)
    assert local_evictions.evicted(once, [ref], now=STAMP) is once
    wish = plan.Nomination(pod=ref.pod, node="n-0", gang=ref.gang)
    (told,) = local_evictions.nominated(before, [wish])
    assert isinstance(told.struct, pods.Pod)
    assert told.struct.status.nominated_node_name == "n-0"
    assert list(local_evictions.nominated(once, [wish])) == []
