"""Quotas of the server in memory beyond the contract: sums that never drift, events, rehearsals, controllers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import resource_quotas
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim import workload_store
from dovetail.sim.server import api_server, builtin_kinds
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.server.quotas import quota_ledger
from dovetail.sim.virtual_clock import VirtualClock
from tests.contract.build import claim, pod
from tests.contract.test_controllers import template, using
from tests.contract.test_quotas import DEVICES, asking, quota, volume_claim

Tree = dict[str, Any]
SPACE = "default"


def used(api: SimApi, name: str = "team") -> Tree:
    api.settle()
    tree: Tree = api.tree(builtin_kinds.RESOURCE_QUOTA, name, namespace=SPACE)
    amounts: Tree = tree["status"]["used"]
    return amounts


def change_quota(api: SimApi, hard: Tree) -> None:
    tree = api.tree(builtin_kinds.RESOURCE_QUOTA, "team", namespace=SPACE)
    target = Target(builtin_kinds.RESOURCE_QUOTA, SPACE, "team")
    api.write(target, tree | {"spec": {"hard": hard}})


def test_a_claim_that_the_quota_forbids_is_one_event_that_counts_and_later_a_claim() -> None:
    api = SimApi()
    api.put(quota(hard={DEVICES: "1"}))
    api.put(template("t"))
    api.put(claim("other"))
    api.put(pod("a", spec=using(resourceClaimTemplateName="t")))
    api.settle()

    [event] = [
        api.tree(registry.EVENT, found.metadata.name, namespace=SPACE)
        for found in api.all(registry.EVENT)
    ]
    assert (event["type"], event["reason"]) == ("Warning", "FailedResourceClaimCreation")
    assert event["note"].startswith("PodResourceClaim gpu: resourceclaims.resource.k8s.io ")
    excess = resource_quotas.exceeded(event["note"])
    assert excess is not None
    assert excess.shortages == (resource_quotas.Shortage(DEVICES, "1", "1", "1"),)

    pod_target = Target(registry.POD, SPACE, "a")
    labelled = api.tree(registry.POD, "a", namespace=SPACE)
    labelled["metadata"]["labels"] = {"looked": "again"}
    api.write(pod_target, labelled)
    api.settle()
    [event] = [
        api.tree(registry.EVENT, found.metadata.name, namespace=SPACE)
        for found in api.all(registry.EVENT)
    ]
    assert event["deprecatedCount"] == 2

    api.shelf.delete(registry.CLAIM, (SPACE, "other"))
    api.settle()
    statuses = api.tree(registry.POD, "a", namespace=SPACE)["status"]["resourceClaimStatuses"]
    assert [status["name"] for status in statuses] == ["gpu"]
    assert used(api) == {DEVICES: "1"}


def test_a_claim_counts_as_the_extended_resource_that_its_class_serves() -> None:
    api = SimApi()
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    }
    api.put(device_class)
    implicit = resource_quotas.IMPLICIT_PREFIX + "gpu.example.com"
    api.put(quota(hard={"requests.example.com/gpu": "2", implicit: "9"}))
    owner = api.put(pod("a", spec=asking({"example.com/gpu": "1"})))
    assert used(api) == {"requests.example.com/gpu": "1", implicit: "0"}

    # The claim that a scheduler makes for the pod's resource is charged to the pod already.
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "a",
        "uid": owner.metadata.uid,
        "controller": True,
    }
    marked = {"resource.kubernetes.io/extended-resource-claim": "true"}
    api.put(claim("of-a", annotations=marked, ownerReferences=[reference]))
    assert used(api) == {"requests.example.com/gpu": "1", implicit: "1"}
    api.put(claim("alone"))
    assert used(api) == {"requests.example.com/gpu": "2", implicit: "2"}
    with pytest.raises(failures.Refused, match=r"used: requests\.example\.com/gpu=2"):
        api.put(claim("more"))


def test_a_volume_claim_may_grow_only_within_the_quota() -> None:
    api = SimApi()
    api.put(quota(hard={"requests.storage": "3Gi"}))
    api.put(volume_claim("a", "2Gi", "fast"))
    target = Target(registry.VOLUME_CLAIM, SPACE, "a")
    tree = api.tree(registry.VOLUME_CLAIM, "a", namespace=SPACE)
    tree["spec"]["resources"]["requests"]["storage"] = "4Gi"
    expected = (
        "requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: requests.storage=3Gi"
    )
    with pytest.raises(failures.Refused, match=expected):
        api.write(target, tree)
    tree["spec"]["resources"]["requests"]["storage"] = "3Gi"
    api.write(target, tree)
    assert used(api) == {"requests.storage": "3Gi"}


def test_a_rehearsal_is_refused_like_the_write_and_uses_nothing() -> None:
    api = SimApi()
    api.put(quota(hard={"pods": "1"}))
    target = Target(registry.POD, SPACE)
    api.create_object(target, pod("a"), is_rehearsal=True)
    assert used(api) == {"pods": "0"}
    api.create_object(target, pod("a"))
    with pytest.raises(failures.Refused, match="exceeded quota"):
        api.create_object(target, pod("b"), is_rehearsal=True)


def test_a_replica_set_gets_the_rest_of_its_pods_when_the_quota_is_raised() -> None:
    clock = VirtualClock()
    api = SimApi(clock)
    store = workload_store.WorkloadStore(api)
    api.put(quota(hard={"pods": "1"}))
    labels = {"app": "web"}
    api.put(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod("x")["spec"]},
            },
        }
    )
    store.settle()
    assert len(api.all(registry.POD)) == 1
    notes = [
        api.tree(registry.EVENT, found.metadata.name, namespace=SPACE)["note"]
        for found in api.all(registry.EVENT)
    ]
    assert any("exceeded quota: team, requested: pods=1, used: pods=1" in note for note in notes)

    change_quota(api, {"pods": "2"})
    wake_up = store.next_wake_up
    assert wake_up is not None
    asyncio.run(clock.advance((wake_up - clock.now()).total_seconds()))
    store.settle()
    assert len(api.all(registry.POD)) == 2
    assert used(api) == {"pods": "2"}


def test_a_server_that_starts_again_goes_on_counting_where_it_was() -> None:
    first = SimApi()
    first.put(quota(hard={"pods": "1"}))
    first.put(pod("a"))
    first.settle()
    stored = [
        api_server.StoredObject(key, record.key, record.document)
        for key, table in first.shelf.tables()
        for record in table.all()
    ]
    second = SimApi(restored=api_server.Restored(first.shelf.revision, stored))
    with pytest.raises(failures.Refused, match="used: pods=1"):
        second.put(pod("b"))
    second.shelf.delete(registry.POD, (SPACE, "a"))
    assert used(second) == {"pods": "0"}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "claim", "volume", "end", "delete"]),
        st.integers(min_value=0, max_value=4),
    ),
    max_size=20,
)


@given(STEPS)
def test_sums_kept_step_by_step_are_those_of_a_fresh_count(steps: list[tuple[str, int]]) -> None:
    api = SimApi()
    hard = {"pods": "9", "count/pods": "9", "requests.cpu": "9", DEVICES: "9"}
    api.put(quota(hard=hard | {"requests.storage": "99Gi"}))
    api.put(quota("brief", hard={"pods": "9"}, scopes=["Terminating"]))
    for verb, number in steps:
        step(api, verb, f"n{number}", deadline=number % 2)
    api.settle()
    before = {name: used(api, name) for name in ("team", "brief")}

    fresh = quota_ledger.QuotaLedger(api.shelf)
    fresh.write_statuses()
    assert before == {name: used(api, name) for name in ("team", "brief")}


def step(api: SimApi, verb: str, name: str, *, deadline: int) -> None:
    spec = asking({"cpu": "500m"}) | ({"activeDeadlineSeconds": 60} if deadline else {})
    trees = {
        "pod": pod(name, spec=spec),
        "claim": claim(name),
        "volume": volume_claim(name, "1500Mi", "fast"),
    }
    found = api.find(registry.POD, name, namespace=SPACE)
    if verb in trees:
        kind = api.kind_of(trees[verb])
        if api.find(kind, name, namespace=SPACE) is None:
            api.put(trees[verb])
    elif verb == "end" and found is not None:
        target = Target(registry.POD, SPACE, name, "status")
        tree = api.tree(registry.POD, name, namespace=SPACE)
        api.write(target, tree | {"status": {"phase": "Succeeded"}})
    elif verb == "delete":
        for kind in (registry.POD, registry.CLAIM, registry.VOLUME_CLAIM):
            api.shelf.delete(kind, (SPACE, name))
