"""The control plane's turn: claims from templates, what was decided is written, what an API server would accept."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from dovetail import timestamps
from dovetail.admission import admit
from dovetail.kubetypes import field_errors
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.sim.fleet import fleet_objects, fleet_spec, sample_workload
from dovetail.sim.local import claim_templates, control, local_cluster, state_dir
from tests.sim.applying import NOW, applied


@pytest.fixture(scope="module")
def waiting() -> local_cluster.Cluster:
    """The sample fleet with the sample workload, nothing placed."""
    fleet = applied(local_cluster.Cluster("sample"), *fleet_objects.objects_of(fleet_spec.sample()))
    return applied(fleet, *sample_workload.objects_of_sample())


@pytest.fixture(scope="module")
def filled(waiting: local_cluster.Cluster) -> local_cluster.Cluster:
    return control.turn(waiting, now=NOW)


def of_kind(cluster: local_cluster.Cluster, kind: str) -> list[Any]:
    return [stored.struct for stored in local_cluster.listed(cluster, kind)]


def test_every_template_entry_gets_a_claim_of_its_pods_own(filled: local_cluster.Cluster) -> None:
    known = {
        (one.metadata.namespace, one.metadata.name): one for one in of_kind(filled, "ResourceClaim")
    }
    made = 0
    for pod in of_kind(filled, "Pod"):
        names = {
            status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses
        }
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name:
                claim = known[pod.metadata.namespace, names[entry.name]]
                assert [owner.uid for owner in claim.metadata.owner_references] == [
                    pod.metadata.uid
                ]
                assert (
                    claim.metadata.annotations[claim_templates.POD_CLAIM_ANNOTATION] == entry.name
                )
                made += 1
    assert made == len(known) - 1  # all but the one that two pods share


def test_a_running_pod_is_a_user_of_allocated_claims_on_its_node(
    filled: local_cluster.Cluster,
) -> None:
    known = {
        (one.metadata.namespace, one.metadata.name): one for one in of_kind(filled, "ResourceClaim")
    }
    for pod in of_kind(filled, "Pod"):
        for status in pod.status.resource_claim_statuses if pod.spec.node_name else ():
            claim = known[pod.metadata.namespace, status.resource_claim_name]
            assert {result.pool for result in claim.status.allocation.devices.results} == {
                pod.spec.node_name
            }
            assert [user.uid for user in claim.status.reserved_for] == [pod.metadata.uid]
            assert claims.DELETE_PROTECTION_FINALIZER in claim.metadata.finalizers
    shared = known["serve", "shared-gpu"]
    assert sorted(user.name for user in shared.status.reserved_for) == [
        "rank-0",
        "rank-1",
    ]  # whoever was first


def test_what_cannot_fit_waits_with_a_reason_and_holds_nothing(
    filled: local_cluster.Cluster,
) -> None:
    waits = [pod for pod in of_kind(filled, "Pod") if not pod.spec.node_name]
    assert sorted(pod.metadata.name for pod in waits) == [
        "huge-cache",
        "not-here",
        "picky",
        "too-wide",
    ]
    for pod in waits:
        [condition] = [one for one in pod.status.conditions if one.type == control.SCHEDULED]
        assert (condition.status, condition.reason) == ("False", "Unschedulable")
        assert condition.message.startswith("26 nodes: ")
    held = {pod.metadata.uid for pod in waits}
    users = {
        user.uid for claim in of_kind(filled, "ResourceClaim") for user in claim.status.reserved_for
    }
    assert not held & users


def test_no_device_is_held_by_two_claims(filled: local_cluster.Cluster) -> None:
    results = [
        (result.driver, result.pool, result.device)
        for claim in of_kind(filled, "ResourceClaim")
        if claim.status.allocation
        for result in claim.status.allocation.devices.results
    ]
    assert len(results) == len(set(results)) > 60


def test_an_api_server_would_accept_every_status_that_was_written(
    filled: local_cluster.Cluster,
) -> None:
    terms = field_errors.Terms(
        check_selector=state_dir.check_selector, namespace_has_admin_label=False, now=""
    )
    for claim in of_kind(filled, "ResourceClaim"):
        bare = claims.ResourceClaim(
            api_version=claim.api_version, kind=claim.kind, metadata=claim.metadata, spec=claim.spec
        )
        assert admit.update_status(claim, bare, terms=terms).problems == ()


def test_another_turn_changes_nothing(filled: local_cluster.Cluster) -> None:
    later = NOW + datetime.timedelta(hours=1)
    assert control.turn(filled, now=later) == filled


def test_a_reason_that_changes_is_written_anew_and_keeps_its_beginning(
    filled: local_cluster.Cluster,
) -> None:
    [node] = [one for one in of_kind(filled, "Node") if one.metadata.name == "h100-3"]
    fewer = local_cluster.delete(filled, local_cluster.Key("Node", "", node.metadata.name))
    assert fewer is not None
    after = control.turn(fewer, now=NOW + datetime.timedelta(hours=1))
    found = local_cluster.get(after, local_cluster.Key("Pod", "notebooks", "picky"))
    assert found is not None
    assert isinstance(found.struct, pods.Pod)
    [condition] = found.struct.status.conditions
    assert condition.message.startswith("25 nodes: ")
    assert condition.last_transition_time == timestamps.to_text(NOW)
