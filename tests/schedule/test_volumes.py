"""Volumes decide where pods go: what is bound ties, what waits for its consumer is matched or provisioned there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kubetypes.storage import csi_translation, volumes
from dovetail.model import plan
from dovetail.model.reasons import ReasonCode
from dovetail.world import dump
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.schedule import build
from tests.schedule import storage as store


def placed(world: World, name: str = "a") -> plan.Placement:
    """Where the pod goes."""
    decided = build.decided(world)
    placements = [placement for placement in decided.placements if placement.pod.name == name]
    assert placements, build.summary_of(decided, name)
    return placements[0]


def refused(world: World, name: str = "a") -> tuple[list[ReasonCode], str]:
    """Why the pod waits."""
    decided = build.decided(world)
    [result] = [refusal for refusal in decided.refusals if refusal.pod.name == name]
    return [obstacle.reason.code for obstacle in result.obstacles], result.summary


def steps(placement: plan.Placement) -> dict[str, str]:
    """By claim, the volume it is to get; nothing where one is to be made."""
    return {volume.claim.name: volume.volume for volume in placement.volumes}


# Volumes that are bound


def test_a_pod_follows_its_bound_volume() -> None:
    world = store.world(
        store.volume("v", on="n1", **store.given_to("data")), store.claim("data", volume="v")
    )
    build.put(world, store.pod("a", "data"))
    placement = placed(world)
    assert placement.node == "n1"
    assert placement.volumes == ()


def test_a_volume_no_node_can_reach_keeps_the_pod_pending() -> None:
    world = store.world(
        store.volume("v", on="gone", **store.given_to("data")), store.claim("data", volume="v")
    )
    build.put(world, store.pod("a", "data"))
    codes, summary = refused(world)
    assert codes == [ReasonCode.VOLUME_NODE]
    assert summary == "2 nodes: 2 cannot reach the volume of volume claim data"


def test_names_of_nodes_in_the_affinity_of_a_volume_count_for_nothing() -> None:
    """Upstream shows such an affinity labels only, and passes over tests of fields then."""
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    affinity = {"required": {"nodeSelectorTerms": [field]}}
    world = store.world(store.volume("v", nodeAffinity=affinity, **store.given_to("data")))
    build.put(
        world,
        store.claim("data", volume="v"),
        store.pod("a", "data", nodeSelector={store.HOSTNAME: "n0"}),
    )
    assert placed(world).node == "n0"


def test_zones_in_labels_of_old_volumes_count() -> None:
    world = build.world(gpus=0)
    build.put(
        world,
        build.node("east", labels={store.ZONE: "e"}),
        build.node("west", labels={store.ZONE: "w"}),
    )
    labels = {"failure-domain.beta.kubernetes.io/zone": "w__v"}
    build.put(world, store.volume("v", metadata={"labels": labels}, **store.given_to("data")))
    build.put(world, store.claim("data", volume="v"), store.pod("a", "data"))
    assert placed(world).node == "west"


def test_a_node_without_any_zone_suits_a_volume_with_one() -> None:
    world = store.world(
        store.volume("v", metadata={"labels": {store.ZONE: "w"}}, **store.given_to("data")), nodes=1
    )
    build.put(world, store.claim("data", volume="v"), store.pod("a", "data"))
    assert placed(world).node == "n0"


# Claims that stand in the way of every node


@pytest.mark.parametrize(
    ("claim", "code", "words"),
    [
        (None, ReasonCode.VOLUME_MISSING, "volume claim data: does not exist"),
        (
            store.claim("data", volume="v", phase="Lost"),
            ReasonCode.VOLUME_MISSING,
            "has lost its volume v",
        ),
        (store.claim("data", volume="v"), ReasonCode.VOLUME_MISSING, "its volume v does not exist"),
        (
            store.claim("data", volumeName="v"),
            ReasonCode.VOLUME_UNBOUND,
            "is not bound to a volume yet",
        ),
        (store.claim("data", storageClassName="other"), ReasonCode.VOLUME_UNBOUND, "is not bound"),
        (store.claim("data", storageClassName=""), ReasonCode.VOLUME_UNBOUND, "is not bound"),
        (
            store.claim("data", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            ReasonCode.VOLUME_DELETING,
            "is being deleted",
        ),
    ],
)
def test_a_claim_that_cannot_be_used_is_named(
    claim: volumes.PersistentVolumeClaim | None, code: ReasonCode, words: str
) -> None:
    world = store.world(*([claim] if claim is not None else []))
    build.put(world, store.pod("a", "data"))
    codes, summary = refused(world)
    assert codes == [code]
    assert words in summary


def test_an_immediate_class_is_not_waited_for() -> None:
    immediate = store.storage_class("fast", provisioner=store.DRIVER, volumeBindingMode="Immediate")
    world = store.world(immediate, store.claim("data", storageClassName="fast"))
    build.put(world, store.pod("a", "data"))
    assert refused(world)[0] == [ReasonCode.VOLUME_UNBOUND]


def test_the_claim_of_an_ephemeral_volume_must_be_the_pods_own() -> None:
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    world = store.world(store.volume("v", on="n1"))
    build.put(world, store.pod("a", volumes=[scratch]))
    assert refused(world) == (
        [ReasonCode.VOLUME_MISSING],
        "volume claim a-scratch: is not made yet",
    )
    build.put(world, store.claim("a-scratch"))
    assert refused(world)[0] == [ReasonCode.VOLUME_NOT_OURS]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-of-a", "controller": True}
    build.put(world, store.claim("a-scratch", metadata={"ownerReferences": [owner]}))
    assert placed(world).node == "n1"


def test_one_pod_at_a_time_uses_a_claim_that_says_so() -> None:
    world = store.world(store.volume("v", **store.given_to("data")))
    build.put(world, store.claim("data", volume="v", accessModes=["ReadWriteOncePod"]))
    build.put(world, store.pod("a", "data"), store.pod("b", "data"))
    plan = build.decided(world)
    assert list(build.nodes_of(plan)) == ["a"]
    assert "may be used by one pod at a time" in build.summary_of(plan, "b")
    build.put(world, store.pod("a", "data", nodeName="n0", status={"phase": "Succeeded"}))
    assert placed(world, "b")
    build.put(world, store.pod("a", "data", nodeName="gone"))
    assert placed(world, "b"), "pods on nodes that are gone do not count"


# Claims that wait for their first consumer


def test_of_claims_of_one_size_the_first_the_pod_names_chooses_first() -> None:
    both = ["ReadWriteOnce", "ReadWriteMany"]
    given = [
        store.volume("for-all", on="n0", size="5Gi", accessModes=both),
        store.volume("for-one", on="n0", size="20Gi"),
    ]
    claims = [store.claim("many", accessModes=["ReadWriteMany"]), store.claim("once")]
    for order, is_placed in ((("once", "many"), False), (("many", "once"), True)):
        world = store.world(*given, nodes=1)
        build.put(world, *claims, store.pod("a", *order))
        assert bool(build.decided(world).placements) is is_placed, order


def test_the_smallest_volume_that_fits_is_taken() -> None:
    world = store.world(
        store.volume("large", on="n0", size="100Gi"),
        store.volume("small", on="n0", size="4Gi"),
        store.volume("right", on="n0", size="8Gi"),
        store.volume("also-right", on="n0", size="8Gi"),
        nodes=1,
    )
    build.put(world, store.claim("data", size="5Gi"), store.pod("a", "data"))
    assert steps(placed(world)) == {"data": "also-right"}


def test_a_volume_of_one_place_competes_with_those_of_any_place() -> None:
    for here, anywhere, winner in (("6Gi", "7Gi", "here"), ("7Gi", "6Gi", "anywhere")):
        world = store.world(
            store.volume("here", on="n0", size=here),
            store.volume("anywhere", size=anywhere),
            nodes=1,
        )
        build.put(world, store.claim("data"), store.pod("a", "data"))
        assert steps(placed(world)) == {"data": winner}


@pytest.mark.parametrize(
    "unfit",
    [
        {"size": "1Gi"},
        {"storageClassName": "other"},
        {"volumeMode": "Block"},
        {"accessModes": ["ReadOnlyMany"]},
        {"phase": "Released"},
        {"phase": ""},
        {"volumeAttributesClassName": "gold"},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"claimRef": {"namespace": "default", "name": "other"}, "phase": "Bound"},
    ],
)
def test_a_volume_that_does_not_fit_is_left_alone(unfit: dict[str, Any]) -> None:
    world = store.world(
        store.volume("v", on="n0", **unfit), store.claim("data"), store.pod("a", "data")
    )
    codes, summary = refused(world)
    assert codes == [ReasonCode.VOLUME_NONE]
    assert summary == "2 nodes: 2 have no free volume that fits volume claim data"


def test_a_claim_may_choose_volumes_by_their_labels() -> None:
    world = store.world(
        store.volume("slow", on="n0", metadata={"labels": {"disk": "slow"}}),
        store.volume("fast", on="n1", metadata={"labels": {"disk": "fast"}}),
    )
    build.put(
        world,
        store.claim("data", selector={"matchLabels": {"disk": "fast"}}),
        store.pod("a", "data"),
    )
    assert (placed(world).node, steps(placed(world))) == ("n1", {"data": "fast"})


def test_two_claims_of_a_pod_need_two_volumes_of_one_node() -> None:
    world = store.world(
        store.volume("v0", on="n0"),
        store.volume("v1", on="n1", size="20Gi"),
        store.volume("v2", on="n1", size="6Gi"),
    )
    build.put(
        world,
        store.claim("big", size="15Gi"),
        store.claim("small", size="5Gi"),
        store.pod("a", "big", "small"),
    )
    placement = placed(world)
    assert (placement.node, steps(placement)) == ("n1", {"big": "v1", "small": "v2"})


def test_two_pods_of_one_cycle_do_not_get_the_same_volume() -> None:
    world = store.world(store.volume("v", on="n0"), store.claim("one"), store.claim("two"))
    build.put(world, store.pod("a", "one"), store.pod("b", "two"))
    plan = build.decided(world)
    assert build.nodes_of(plan) == {"a": "n0"}
    assert "no free volume" in build.summary_of(plan, "b")


def test_pods_that_share_a_claim_follow_the_volume_decided_for_it() -> None:
    world = store.world(store.volume("v", on="n1"), store.volume("w", on="n0"), store.claim("data"))
    build.put(
        world, store.pod("a", "data", nodeSelector={store.HOSTNAME: "n1"}), store.pod("b", "data")
    )
    assert build.nodes_of(build.decided(world)) == {"a": "n1", "b": "n1"}


def test_a_volume_meant_for_the_claim_goes_before_all_others() -> None:
    meant = {"claimRef": {"namespace": "default", "name": "data"}}
    world = store.world(
        store.volume("meant", on="n1", size="50Gi", **meant), store.volume("free", on="n0")
    )
    build.put(world, store.claim("data"), store.pod("a", "data"))
    assert (placed(world).node, steps(placed(world))) == ("n1", {"data": "meant"})


def test_a_volume_meant_for_an_older_claim_of_that_name_is_not_ours() -> None:
    old: dict[str, Any] = {
        "claimRef": {"namespace": "default", "name": "data", "uid": "older"},
        "phase": "Released",
    }
    world = store.world(
        store.volume("v", on="n0", **old), store.claim("data"), store.pod("a", "data")
    )
    assert refused(world)[0] == [ReasonCode.VOLUME_NONE]


# Volumes that are still to be made


def dynamic(**more: Any) -> volumes.StorageClass:
    storage_class: volumes.StorageClass = store.storage_class(
        "dynamic", provisioner=store.DRIVER, **more
    )
    return storage_class


def test_a_class_with_a_provisioner_makes_the_volume_where_the_pod_goes() -> None:
    world = store.world(
        dynamic(), store.claim("data", storageClassName="dynamic"), store.pod("a", "data")
    )
    assert steps(placed(world)) == {"data": ""}


def test_a_volume_that_is_there_is_taken_before_one_is_made() -> None:
    world = store.world(dynamic(), store.volume("v", on="n1", storageClassName="dynamic"))
    build.put(world, store.claim("data", storageClassName="dynamic"))
    build.put(world, store.pod("a", "data", nodeSelector={store.HOSTNAME: "n1"}))
    assert steps(placed(world)) == {"data": "v"}


def test_the_node_that_was_chosen_for_a_claim_stays_chosen() -> None:
    chosen = {volumes.SELECTED_NODE: "n1"}
    world = store.world(
        dynamic(), store.claim("data", storageClassName="dynamic", annotations=chosen)
    )
    build.put(world, store.pod("a", "data"))
    placement = placed(world)
    assert (placement.node, steps(placement)) == ("n1", {"data": ""})
    world.apply(Deleted(world.nodes["n1"]))
    codes, summary = refused(world)
    assert codes == [ReasonCode.VOLUME_NODE]
    assert "will be provisioned for node n1" in summary


def test_pods_that_share_a_claim_follow_the_node_decided_for_it() -> None:
    world = store.world(dynamic(), store.claim("data", storageClassName="dynamic"))
    build.put(
        world, store.pod("a", "data", nodeSelector={store.HOSTNAME: "n1"}), store.pod("b", "data")
    )
    assert build.nodes_of(build.decided(world)) == {"a": "n1", "b": "n1"}


def test_a_class_may_make_volumes_in_some_places_only() -> None:
    terms = [{"matchLabelExpressions": [{"key": store.HOSTNAME, "values": ["n1", "n7"]}]}]
    world = store.world(
        dynamic(allowedTopologies=terms), store.claim("data", storageClassName="dynamic")
    )
    build.put(world, store.pod("a", "data"))
    assert placed(world).node == "n1"


def test_storage_that_drivers_say_is_used_up_counts() -> None:
    driver = store.storage(
        "CSIDriver", {"metadata": {"name": store.DRIVER}, "spec": {"storageCapacity": True}}
    )
    world = store.world(
        dynamic(), driver, store.claim("data", storageClassName="dynamic"), store.pod("a", "data")
    )
    assert refused(world) == (
        [ReasonCode.VOLUME_SPACE],
        "2 nodes: 2 have too little storage left for volume claim data",
    )
    for name, node, largest in (("low", "n0", "4Gi"), ("enough", "n1", "5Gi")):
        topology = {"matchLabels": {store.HOSTNAME: node}}
        tree = {
            "metadata": {"name": name, "namespace": "kube-system"},
            "storageClassName": "dynamic",
        }
        sizes = {"capacity": "100Gi", "maximumVolumeSize": largest, "nodeTopology": topology}
        build.put(world, store.storage("CSIStorageCapacity", {**tree, **sizes}))
    assert placed(world).node == "n1"


# How many volumes a node takes


def attached(name: str, node: str) -> list[Any]:
    """A pod with a CSI volume of its own on a node."""
    csi = {"driver": store.DRIVER, "volumeHandle": f"handle-{name}"}
    return [
        store.volume(f"v-{name}", csi=csi, **store.given_to(name)),
        store.claim(name, volume=f"v-{name}"),
        store.pod(f"p-{name}", name, nodeName=node),
    ]


def test_a_node_takes_no_more_volumes_than_its_driver_says() -> None:
    limits = {store.DRIVER.replace(".", "_"): 2}
    world = store.world(
        store.csi_node("n0", **limits), *attached("x", "n0"), *attached("y", "n0"), nodes=1
    )
    build.put(
        world, dynamic(), store.claim("data", storageClassName="dynamic"), store.pod("a", "data")
    )
    codes, summary = refused(world)
    assert codes == [ReasonCode.VOLUME_LIMIT]
    assert (
        summary
        == "1 node: 1 can attach too few volumes of CSI driver disk.example.com (needs 1, at most 0 more)"
    )
    build.put(world, store.pod("b", "x"))
    assert placed(world, "b").node == "n0", "a volume that is there already counts once"


def test_a_volume_that_is_still_attached_counts() -> None:
    limits = {store.DRIVER.replace(".", "_"): 1}
    csi = {"driver": store.DRIVER, "volumeHandle": "left"}
    spec = {"attacher": store.DRIVER, "nodeName": "n0", "source": {"persistentVolumeName": "left"}}
    attachment = store.storage("VolumeAttachment", {"metadata": {"name": "left"}, "spec": spec})
    world = store.world(
        store.csi_node("n0", **limits), store.volume("left", csi=csi), attachment, nodes=1
    )
    build.put(
        world, dynamic(), store.claim("data", storageClassName="dynamic"), store.pod("a", "data")
    )
    assert refused(world)[0] == [ReasonCode.VOLUME_LIMIT]
    world.apply(Deleted(attachment))
    assert placed(world)


def test_a_driver_may_keep_pods_from_nodes_that_do_not_run_it() -> None:
    spec = {"preventPodSchedulingIfMissing": True}
    driver = store.storage("CSIDriver", {"metadata": {"name": store.DRIVER}, "spec": spec})
    world = store.world(driver, store.csi_node("n1", **{store.DRIVER.replace(".", "_"): None}))
    build.put(
        world, dynamic(), store.claim("data", storageClassName="dynamic"), store.pod("a", "data")
    )
    assert placed(world).node == "n1"
    world.apply(Deleted(world.storage.nodes["n1"]))
    assert refused(world)[1] == "2 nodes: 2 do not run CSI driver disk.example.com"


# Volumes of old plugins


def test_a_node_that_serves_old_volumes_by_csi_sees_them_by_the_drivers_zone() -> None:
    world = build.world(gpus=0)
    build.put(
        world,
        build.node("old", labels={store.ZONE: "z"}),
        build.node("new", labels={"topology.gke.io/zone": "z"}),
    )
    old = store.volume(
        "v",
        gcePersistentDisk={"pdName": "d"},
        nodeAffinity=store.near(store.ZONE, "z"),
        **store.given_to("data"),
    )
    build.put(world, old, store.claim("data", volume="v"), store.pod("a", "data"))
    assert placed(world).node == "old"
    for name in ("old", "new"):
        metadata = {
            "name": name,
            "annotations": {csi_translation.MIGRATED_PLUGINS: csi_translation.GCE.name},
        }
        build.put(world, store.storage("CSINode", {"metadata": metadata, "spec": {"drivers": []}}))
    assert placed(world).node == "new"


def test_old_volumes_count_against_the_limit_of_the_driver_that_serves_them() -> None:
    limits = {csi_translation.GCE.driver.replace(".", "_"): 1}
    disk = {"name": "disk", "gcePersistentDisk": {"pdName": "d"}}
    world = store.world(
        store.csi_node("n0", **limits), store.pod("there", volumes=[disk], nodeName="n0"), nodes=1
    )
    old = store.volume("v", gcePersistentDisk={"pdName": "e"}, **store.given_to("data"))
    build.put(world, old, store.claim("data", volume="v"), store.pod("a", "data"))
    assert refused(world)[0] == [ReasonCode.VOLUME_LIMIT]
    world.apply(Deleted(world.pods["uid-of-there"]))
    assert placed(world)


# Disks pods name themselves


@pytest.mark.parametrize(
    ("source", "read_only", "is_shared"),
    [
        ({"gcePersistentDisk": {"pdName": "d"}}, False, False),
        ({"gcePersistentDisk": {"pdName": "d"}}, True, True),
        ({"awsElasticBlockStore": {"volumeID": "d"}}, True, False),
        ({"iscsi": {"targetPortal": "t", "iqn": "d", "lun": 0}}, True, True),
        ({"iscsi": {"targetPortal": "t", "iqn": "d", "lun": 0}}, False, False),
        ({"rbd": {"monitors": ["m"], "image": "i", "pool": "p"}}, False, False),
    ],
)
def test_disks_are_shared_by_readers_only(
    source: dict[str, Any], read_only: bool, is_shared: bool
) -> None:
    [(kind, fields)] = source.items()
    disk = {"name": "disk", kind: fields | {"readOnly": read_only}}
    world = store.world(
        store.pod("there", volumes=[disk], nodeName="n0"), store.pod("a", volumes=[disk]), nodes=1
    )
    if is_shared:
        assert placed(world).node == "n0"
    else:
        assert refused(world) == (
            [ReasonCode.VOLUME_IN_USE],
            "1 node: 1 has a pod that uses the same disk",
        )


# What holds whatever happens


@st.composite
def crowded(draw: st.DrawFn) -> World:
    """A world of volumes, claims and pods in any state and order."""
    made: list[Any] = [store.storage_class(), dynamic()]
    for index in range(draw(st.integers(0, 4))):
        place = draw(st.sampled_from(["", "n0", "n1"]))
        owner = draw(st.sampled_from([{}, {}, store.given_to(f"c{index}")]))
        size, class_ = (
            draw(st.sampled_from(["4Gi", "6Gi"])),
            draw(st.sampled_from([store.LOCAL, "dynamic"])),
        )
        made.append(
            store.volume(f"v{index}", on=place, size=size, storageClassName=class_, **owner)
        )
    for index in range(draw(st.integers(0, 4))):
        class_ = draw(st.sampled_from([store.LOCAL, "dynamic"]))
        made.append(
            store.claim(
                f"c{index}", storageClassName=class_, size=draw(st.sampled_from(["3Gi", "5Gi"]))
            )
        )
    for index in range(draw(st.integers(1, 4))):
        used = draw(
            st.lists(st.sampled_from(["c0", "c1", "c2", "c3"]), min_size=1, max_size=2, unique=True)
        )
        made.append(store.pod(f"p{index}", *used))
    world = build.world(nodes=2, gpus=0)
    for item in draw(st.permutations(made)):
        world.apply(Changed(item))
    return world


@given(crowded())
@settings(max_examples=60)
def test_deciding_leaves_the_storage_as_it_was_and_gives_no_volume_twice(world: World) -> None:
    before = dump.dump(world)
    first, second = build.decided(world), build.decided(world)
    assert first == second
    assert dump.dump(world) == before
    given_away = {
        (item.claim, item.volume)
        for placement in first.placements
        for item in placement.volumes
        if item.volume
    }
    assert len({volume for _, volume in given_away}) == len(given_away)
    for placement in first.placements:
        for item in placement.volumes:
            volume = world.storage.volumes.get(item.volume)
            affinity = volume.spec.node_affinity if volume is not None else None
            assert affinity is None or affinity.required is None or placement.node in str(affinity)


@given(crowded())
@settings(max_examples=40)
def test_what_is_assumed_and_forgotten_leaves_no_trace(world: World) -> None:
    before = dump.dump(world)
    decided = build.decided(world)
    for placement in decided.placements:
        world.assume(world.pods[placement.pod.uid], placement.node, volumes=placement.volumes)
    for placement in reversed(decided.placements):
        world.forget(world.pods[placement.pod.uid])
    assert dump.dump(world) == before
