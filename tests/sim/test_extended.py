"""Ordinary pods that ask for `nvidia.com/gpu` run on a cluster whose GPUs only claims give out."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dovetail.admission import admit
from dovetail.kubetypes import field_errors
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.schedule.node import extended_resources
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.local import control, local_cluster, state_dir
from tests.sim.applying import NOW, applied

GPU = "nvidia.com/gpu"


def pod(name: str, gpus: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "train",
        "resources": {"limits": {"cpu": "1", GPU: str(gpus)}},
    }
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }


@pytest.fixture(scope="module")
def fleet() -> local_cluster.Cluster:
    return applied(local_cluster.Cluster("sample"), *fleet_objects.objects_of(fleet_spec.sample()))


def found(cluster: local_cluster.Cluster, name: str) -> pods.Pod:
    stored = local_cluster.get(cluster, local_cluster.Key("Pod", "default", name))
    assert stored is not None
    assert isinstance(stored.struct, pods.Pod)
    return stored.struct


def claims_of(cluster: local_cluster.Cluster) -> list[claims.ResourceClaim]:
    listed = [stored.struct for stored in local_cluster.listed(cluster, "ResourceClaim")]
    return [one for one in listed if isinstance(one, claims.ResourceClaim)]


def test_a_pod_that_asks_for_gpus_by_name_runs_and_its_status_says_which_request_serves_it(
    fleet: local_cluster.Cluster,
) -> None:
    after = control.turn(applied(fleet, pod("train", 2)), now=NOW)
    train = found(after, "train")
    assert train.status.phase == "Running"
    [claim] = claims_of(after)
    told = train.status.extended_resource_claim_status
    assert told is not None
    assert told.resource_claim_name == claim.metadata.name
    [mapping] = told.request_mappings
    assert (mapping.container_name, mapping.resource_name) == ("main", GPU)
    assert claim.status.allocation is not None
    results = claim.status.allocation.devices.results
    assert {(one.request, one.pool) for one in results} == {
        (mapping.request_name, train.spec.node_name)
    }
    assert len(results) == 2
    assert [user.uid for user in claim.status.reserved_for] == [train.metadata.uid]
    assert claims.DELETE_PROTECTION_FINALIZER in claim.metadata.finalizers
    assert claim.metadata.annotations[extended_resources.ANNOTATION] == "true"


def test_an_api_server_would_accept_the_claim_and_its_status(fleet: local_cluster.Cluster) -> None:
    after = control.turn(applied(fleet, pod("train", 2)), now=NOW)
    [claim] = claims_of(after)
    bare = claims.ResourceClaim(
        api_version=claim.api_version, kind=claim.kind, metadata=claim.metadata, spec=claim.spec
    )
    terms = field_errors.Terms(
        check_selector=state_dir.check_selector, namespace_has_admin_label=False, now=""
    )
    assert admit.update_status(claim, bare, terms=terms).problems == ()


def test_another_turn_makes_no_second_claim(fleet: local_cluster.Cluster) -> None:
    after = control.turn(applied(fleet, pod("a", 1), pod("b", 8)), now=NOW)
    assert len(claims_of(after)) == 2
    assert control.turn(after, now=NOW + datetime.timedelta(hours=1)) == after


def test_more_than_any_node_has_is_refused_under_the_resources_name(
    fleet: local_cluster.Cluster,
) -> None:
    after = control.turn(applied(fleet, pod("huge", 9)), now=NOW)
    assert claims_of(after) == []
    [condition] = found(after, "huge").status.conditions
    assert f"cannot serve resource {GPU}" in condition.message
