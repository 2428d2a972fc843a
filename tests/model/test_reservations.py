"""For whom a claim is reserved: the pod, or the PodGroup that lists the same claim."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.model import gangs, reservations

TEMPLATE = pods.PodResourceClaim(name="gpu", resource_claim_template_name="t")
NAMED = pods.PodResourceClaim(name="gpu", resource_claim_name="c")
GROUP = gangs.Gang(
    metadata=meta.ObjectMeta(namespace="ml", name="podgroup/pg"), uid="group", claims=(TEMPLATE,)
)
USER = claims.ResourceClaimConsumerReference(
    api_group="scheduling.k8s.io", resource="podgroups", name="pg", uid="group"
)


def pod(entry: pods.PodResourceClaim = TEMPLATE, *, of: str | None = "pg") -> pods.Pod:
    made = (pods.PodResourceClaimStatus(name=entry.name, resource_claim_name="c"),)
    return pods.Pod(
        metadata=meta.ObjectMeta(namespace="ml", name="p", uid="pod"),
        spec=pods.PodSpec(
            resource_claims=(entry,),
            scheduling_group=pods.PodSchedulingGroup(pod_group_name=of) if of else None,
        ),
        status=pods.PodStatus(resource_claim_statuses=made),
    )


def claim(*users: claims.ResourceClaimConsumerReference, **owner: Any) -> claims.ResourceClaim:
    owners = (meta.OwnerReference(**({"controller": True} | owner)),) if owner else ()
    return claims.ResourceClaim(
        metadata=meta.ObjectMeta(namespace="ml", name="c", owner_references=owners),
        status=claims.ResourceClaimStatus(reserved_for=users),
    )


def test_a_claim_that_the_group_lists_is_the_groups() -> None:
    assert reservations.user_of(pod(), "c", GROUP) == USER
    assert reservations.is_group(USER)
    assert reservations.group_key(USER, "ml") == ("ml", "podgroup/pg")


@pytest.mark.parametrize(
    "entry",
    [
        NAMED,
        pods.PodResourceClaim(name="other", resource_claim_template_name="t"),
        pods.PodResourceClaim(name="gpu", resource_claim_template_name="other"),
    ],
)
def test_all_of_an_entry_has_to_agree(entry: pods.PodResourceClaim) -> None:
    assert reservations.user_of(pod(entry), "c", GROUP).resource == "pods"


def test_without_a_group_a_claim_is_the_pods() -> None:
    user = reservations.user_of(pod(of=None), "c")
    assert (user.api_group, user.resource, user.name, user.uid) == ("", "pods", "p", "pod")
    assert reservations.user_of(pod(), "another", GROUP).uid == "pod"


def test_a_reservation_of_the_group_counts_for_its_pods_by_name() -> None:
    assert reservations.reserves(claim(USER), pod())
    assert not reservations.reserves(claim(USER), pod(of="another"))
    assert not reservations.reserves(claim(USER), pod(of=None))
    stranger = claims.ResourceClaimConsumerReference(
        api_group="example.com", resource="podgroups", name="pg", uid="x"
    )
    assert not reservations.reserves(claim(stranger), pod())


def test_a_claim_is_made_for_a_pod_or_its_group() -> None:
    native = {
        "api_version": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "name": "pg",
        "uid": "group",
    }
    assert reservations.is_made_for(claim(uid="pod"), pod())
    assert reservations.is_made_for(claim(**native), pod())
    assert not reservations.is_made_for(claim(**native), pod(of="another"))
    assert not reservations.is_made_for(
        claim(**(native | {"api_version": "example.com/v1"})), pod()
    )
    assert not reservations.is_made_for(claim(**(native | {"controller": False})), pod())
    assert not reservations.is_made_for(claim(), pod())
