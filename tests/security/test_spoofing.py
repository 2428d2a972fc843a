"""Labels, names, owners and reservations that an attacker made up open nothing that was closed."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.live.bind import binder
from dovetail.model import policy
from dovetail.schedule.node import extended_resources
from tests.live.live_scheduler import NAME, Stage, play
from tests.schedule import build
from tests.schedule.test_extended import GPU, cluster, wanting

OURS = {"dovetail.dev/owned": "true"}
CLAIMED = {
    "dovetail.dev/owned": "true",
    "dovetail.dev/queue": "research",
    "dovetail.dev/pool": "h100",
    "dovetail.dev/rack": "r1",
    "kueue.x-k8s.io/queue-name": "research",
    "kai.scheduler/queue": "research",
    "nvidia.com/gpu.product": "H100",
    "kubernetes.io/hostname": "n0",
    "node-role.kubernetes.io/control-plane": "",
}


def decided(world: Any) -> Any:
    return build.decided(world, policy=policy.Policy(ownership=policy.Ownership(node_labels=OURS)))


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_a_pod_that_labels_itself_as_ours_opens_no_node_that_is_not(field: str) -> None:
    world = build.world(
        build.claim("c"), build.pod("p", uses=("c",), metadata={field: CLAIMED}), nodes=2
    )
    done = decided(world)
    assert done.placements == ()
    assert "belong to another scheduler" in build.summary_of(done, "p")


def test_labels_of_queues_pools_and_nodes_on_a_pod_change_nothing_about_where_it_goes() -> None:
    plans = []
    for metadata in ({}, {"labels": CLAIMED, "annotations": CLAIMED}):
        pods = [build.pod(name, uses=(name,), metadata=metadata) for name in ("a", "b", "c")]
        world = build.world(*(build.claim(name, 4) for name in ("a", "b", "c")), *pods, nodes=2)
        plans.append(build.decided(world))
    assert plans[0] == plans[1]
    assert len(plans[0].placements) == 3


def test_a_claim_that_labels_itself_gets_no_device_that_is_not_ours() -> None:
    world = build.world(
        build.claim("c", metadata={"labels": CLAIMED}), build.pod("p", uses=("c",)), nodes=1
    )
    ours = policy.Policy(ownership=policy.Ownership(device_rules=("ours",)))
    assert build.decided(world, policy=ours).placements == ()


@pytest.mark.parametrize(
    "name", ["", "default-scheduler", "Dovetail", "dovetail ", "dovetail\n", "dоvetail"]
)
def test_a_pod_of_another_scheduler_is_not_ours_however_similar_its_name(name: str) -> None:
    async def story() -> None:
        stage = Stage(nodes=1)
        stage.template("one")
        stage.pod("theirs", templates=("one",))
        tree = stage.api.tree(registry.POD, "theirs", namespace="default")
        tree["spec"]["schedulerName"] = name
        stage.api.shelf.put(registry.POD, tree)
        stage.pod("ours", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time()
        assert (stage.node_of("theirs"), bool(stage.node_of("ours"))) == ("", True)
        assert stage.the_pod("theirs").status.conditions == ()

    play(story)


def test_a_pod_that_names_us_gains_no_more_than_any_other_pod_of_ours() -> None:
    world = build.world(
        build.pod("p", schedulerName=NAME, tolerations=[{"operator": "Exists"}]), nodes=1
    )
    assert decided(world).placements == (), "the node carries no label of ours"


@pytest.mark.parametrize(
    "owner",
    [
        {
            "namespace": "elsewhere"
        },  # right owner, wrong namespace: any tenant may write an owner reference
        {"uid": "uid-of-another"},
        {"controller": False},
    ],
)
def test_a_claim_is_not_adopted_for_resources_on_the_word_of_its_annotation(
    owner: dict[str, Any],
) -> None:
    victim = wanting("victim")
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "victim",
        "uid": "uid-of-victim",
        "controller": True,
    }
    namespace = owner.get("namespace", "default")
    reference |= {key: value for key, value in owner.items() if key != "namespace"}
    planted = build.claim(
        "planted",
        requests=[
            {"name": "container-0-request-1", "exactly": {"deviceClassName": "gpu", "count": 1}}
        ],
        metadata={
            "namespace": namespace,
            "annotations": {extended_resources.ANNOTATION: "true"},
            "ownerReferences": [reference],
        },
    )
    world = cluster(victim, planted)
    assert extended_resources.existing_claims(world, victim) == ()
    (placement,) = build.decided(world).placements
    assert placement.made is not None
    assert placement.made.existing is None, "it gets a claim of its own"


def test_a_claim_that_occupies_the_name_of_ours_is_left_alone_and_reported_on_the_pod() -> None:
    async def story() -> None:
        stage = Stage(nodes=1)
        stage.pod("victim", resources={"limits": {"nvidia.com/gpu": "1"}})
        world = build.put(
            build.world(), *(item for kind in registry.WATCHED for item in stage.api.all(kind))
        )
        (placement,) = build.decided(world).placements
        _, name = binder.extended_claim_key(placement)
        stage.claim(name)  # a neighbour who knows how names are made was first
        async with stage.scheduling():
            await stage.pass_time()
            (planted,) = stage.claims()
            assert (planted.status.allocation, planted.status.reserved_for) == (None, ())
            assert stage.node_of("victim") == ""
            assert any(
                "belongs to another pod" in condition.message
                for condition in stage.the_pod("victim").status.conditions
            )
            stage.pod("other", resources={"limits": {"nvidia.com/gpu": "1"}})
            await stage.pass_time()
            assert stage.node_of("other")

    play(story)


def test_a_claim_reserved_for_a_pod_that_never_asked_for_it_binds_the_pod_to_nothing() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        stage.template("one")
        stage.pod("victim", templates=("one",), nodeSelector={"kubernetes.io/hostname": "n-0"})
        stage.claim("planted")
        stage.take("planted", ("n-1", "gpu-0"), same=True, uid=stage.the_pod("victim").metadata.uid)
        async with stage.scheduling():
            await stage.pass_time(5)
            assert stage.node_of("victim") == "n-0"
            held = next(claim for claim in stage.claims() if claim.metadata.name == "planted")
            assert held.status.allocation is not None, (
                "who wrote it answers for it: it is not ours to take back"
            )
            assert stage.devices() == sorted({*stage.devices()})
            assert stage.differences() == ()

    play(story)


def test_a_claim_from_another_owners_template_is_not_used() -> None:
    stolen = build.claim(
        "stolen",
        metadata={"ownerReferences": [{"kind": "Pod", "uid": "uid-of-b", "controller": True}]},
    )
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "stolen"}]}
    world = build.world(stolen, build.pod("a", resourceClaims=[entry], status=status), nodes=1)
    done = build.decided(world)
    assert done.placements == ()
    assert "made from a template for another pod" in build.summary_of(done, "a")


def test_a_class_behind_a_resource_cannot_be_made_by_who_may_only_write_pods_and_claims() -> None:
    """What `nvidia.com/gpu` means is said by DeviceClasses, which are cluster-scoped; labels on claims say nothing."""
    planted = build.claim(
        "c", metadata={"annotations": {"extendedResourceName": GPU}, "labels": {"gpu": "true"}}
    )
    world = build.world(
        planted,
        build.pod("p", containers=[{"name": "m", "resources": {"limits": {GPU: "1"}}}]),
        nodes=1,
    )
    assert build.decided(world).placements == ()
