"""The World as a live scheduler uses it: reserved devices, holders, overlaps, the recheck before a binding."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.errors import StateError
from dovetail.kubetypes.resource import claims
from dovetail.world import dump
from dovetail.world.change_log import LIMIT, ChangeLog
from dovetail.world.devices.device_overlaps import Kind
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.world import build

DRIVER = build.DRIVER


def holds(*devices: str, pool: str = "node-0", **more: Any) -> claims.AllocationResult:
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device, **more}
        for device in devices
    ]
    return allocated("x", *results).status.allocation  # type: ignore[return-value]


def allocated(name: str, *results: dict[str, Any]) -> claims.ResourceClaim:
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "status": {"allocation": {"devices": {"results": list(results)}}},
    }
    return build.struct(tree)  # type: ignore[no-any-return]


def result(device: str, **more: Any) -> dict[str, Any]:
    return {"request": "gpu", "driver": DRIVER, "pool": "node-0", "device": device, **more}


def share(device: str, memory: str, number: int = 0) -> dict[str, Any]:
    id_ = f"00000000-0000-0000-0000-00000000000{number}"
    return result(device, shareID=id_, consumedCapacity={"memory": memory})


def used(world: World) -> int:
    return world.view("node-0").pools[0].used


def put(world: World, *outcome: Any) -> World:
    for item in outcome:
        world.apply(Changed(item))
    return world


# The journal


def test_a_reader_gets_what_changed_since_and_whether_it_fell_behind() -> None:
    journal = ChangeLog()
    assert journal.since(-1) is None
    place = journal.end
    journal.note("a")
    journal.note("b")
    assert journal.since(place) == ["a", "b"]
    assert journal.since(journal.end) == []
    journal.note_all()
    assert journal.since(place) is None
    assert journal.since(journal.end) == []
    later = journal.end
    for _ in range(LIMIT + 1):
        journal.note("c")
    assert journal.since(later) is None
    assert journal.since(journal.end - 2) == ["c", "c"]


def test_what_a_trial_does_and_undoes_is_noted_both_times() -> None:
    world = put(build.cluster(2), build.pod("a"))
    before = world.node_changes.end
    with world.trial():
        world.assume(build.pod("a"), "node-1", {("default", "a"): holds("gpu-0", pool="node-1")})
        during = world.node_changes.end
    assert (
        set(world.node_changes.since(before) or ())
        == set(world.node_changes.since(during) or ())
        == {"node-1"}
    )


def test_a_heartbeat_is_no_change() -> None:
    world = build.cluster(1)
    before = world.node_changes.end
    node = build.node("node-0")
    tree = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    world.view("node-0")
    beating = build.replaced(
        node, status=build.replaced(node.status, conditions=(build.condition(tree),))
    )
    put(world, beating, build.pod("p", node_name="node-0"))
    noted = world.node_changes.since(before) or []
    put(
        world, build.pod("p", node_name="node-0", phase="Running")
    )  # neither is a pod that begins to run
    assert world.node_changes.since(before) == noted == ["node-0"]
    assert world.nodes["node-0"] is beating
    assert world.view("node-0").node is beating


# Devices kept out of use


def test_a_hold_keeps_devices_out_of_use_until_it_is_released() -> None:
    world = build.cluster(1)
    world.hold("quarantine", holds("gpu-0", "gpu-2"))
    assert used(world) == 0b101
    assert dump.dump(world)["held"]
    world.hold("quarantine", holds("gpu-1"))
    assert used(world) == 0b10
    world.release("quarantine")
    world.release("quarantine")
    assert used(world) == 0
    assert world.held == {}


def test_a_held_device_that_a_claim_has_stays_taken_when_either_goes() -> None:
    world = put(build.cluster(1), build.claim("a", devices=(("node-0", "gpu-0"),)))
    world.hold("broken", holds("gpu-0"))
    world.apply(Deleted(build.claim("a")))
    assert used(world) == 1
    assert world.users(DRIVER, "node-0", "gpu-0") == ()


def test_holding_inside_a_trial_is_refused() -> None:
    world = build.cluster(1)
    with world.trial(), pytest.raises(StateError, match="inside a trial"):
        world.hold("x", holds("gpu-0"))
    with world.trial(), pytest.raises(StateError, match="inside a trial"):
        world.release("x")


# Who holds what


def test_users_of_a_device_are_claims_by_status_and_by_assumption() -> None:
    world = put(build.cluster(1), build.claim("b", devices=(("node-0", "gpu-0"),)), build.pod("p"))
    world.assume(build.pod("p"), "node-0", {("default", "a"): holds("gpu-0")})
    assert world.users(DRIVER, "node-0", "gpu-0") == (("default", "a"), ("default", "b"))
    assert world.users(DRIVER, "node-0", "gpu-1") == ()
    world.forget(build.pod("p"))
    assert world.users(DRIVER, "node-0", "gpu-0") == (("default", "b"),)


def test_a_claim_with_devices_is_not_assumed_to_get_them_again() -> None:
    world = put(build.cluster(1), build.claim("a", devices=(("node-0", "gpu-0"),)), build.pod("p"))
    world.assume(build.pod("p"), "node-0", {("default", "a"): holds("gpu-0")})
    assert world.assumed["pod-p"].allocations == {}
    world.apply(Changed(build.claim("a")))
    assert used(world) == 0


def test_assumed_pods_are_users_of_the_claims_they_name() -> None:
    entry = {"name": "gpu", "resourceClaimName": "c"}
    world = build.cluster(1)
    pods = [build.pod(name, claims=(entry,)) for name in "ab"]
    put(world, *pods)
    for pod in pods:
        world.assume(pod, "node-0")
    assert set(world.assumed_users(("default", "c"))) == {"pod-a", "pod-b"}
    world.forget(pods[0])
    world.apply(Deleted(pods[1]))
    assert not world.assumed_users(("default", "c"))


# Overlaps


def test_a_device_two_claims_hold_is_an_overlap_until_one_lets_go() -> None:
    world = put(
        build.cluster(1), *(build.claim(name, devices=(("node-0", "gpu-3"),)) for name in "ba")
    )
    [overlap] = world.overlaps()
    assert (overlap.kind, overlap.driver, overlap.pool, overlap.device) == (
        Kind.DEVICE,
        DRIVER,
        "node-0",
        "gpu-3",
    )
    assert overlap.claims == (("default", "a"), ("default", "b"))
    assert "gpu-3" in str(overlap)
    assert "default/a, default/b" in str(overlap)
    world.apply(Changed(build.claim("b")))
    assert world.overlaps() == ()


def test_an_assumption_that_meets_another_schedulers_claim_is_an_overlap() -> None:
    world = put(build.cluster(1), build.pod("p"))
    world.assume(build.pod("p"), "node-0", {("default", "ours"): holds("gpu-0")})
    put(world, build.claim("theirs", devices=(("node-0", "gpu-0"),)))
    [overlap] = world.overlaps()
    assert overlap.claims == (("default", "ours"), ("default", "theirs"))
    put(world, build.claim("ours", devices=(("node-0", "gpu-1"),)))
    assert world.overlaps() == ()


def test_admin_access_overlaps_with_no_claim() -> None:
    world = put(build.cluster(1), build.claim("a", devices=(("node-0", "gpu-0"),)))
    put(world, allocated("monitor", *(result(f"gpu-{i}", adminAccess=True) for i in range(8))))
    assert world.overlaps() == ()
    assert world.users(DRIVER, "node-0", "gpu-0") == (("default", "a"),)
    world.apply(Deleted(build.claim("monitor")))
    assert world.users(DRIVER, "node-0", "gpu-0") == (("default", "a"),)


def shareable(**capacity: str) -> Any:
    device = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "capacity": {name: {"value": value} for name, value in capacity.items()},
    }
    return build.slice_of("node-0", [device])


def test_shares_overlap_once_they_take_more_than_there_is() -> None:
    world = put(build.cluster(1, gpus=0), shareable(memory="24Gi"))
    put(world, allocated("a", share("gpu-0", "12Gi", 1)), allocated("b", share("gpu-0", "12Gi", 2)))
    assert world.overlaps() == ()
    put(world, allocated("c", share("gpu-0", "1Gi", 3)))
    [overlap] = world.overlaps()
    assert (overlap.kind, overlap.device) == (Kind.CAPACITY, "gpu-0")
    assert [name for _, name in overlap.claims] == ["a", "b", "c"]
    put(world, shareable(memory="80Gi"))  # the pool is published again
    assert world.overlaps() == ()


def test_a_share_overlaps_with_a_claim_that_has_the_whole_device() -> None:
    world = put(build.cluster(1, gpus=0), shareable(memory="24Gi"))
    put(world, allocated("a", share("gpu-0", "1Gi", 1)), allocated("b", result("gpu-0")))
    assert [overlap.kind for overlap in world.overlaps()] == [Kind.DEVICE]


def test_partitions_overlap_where_they_draw_more_than_their_counters_have() -> None:
    world = build.cluster(1, gpus=0)
    counters = [{"name": "board", "counters": {"slices": {"value": "7"}}}]
    parts = [
        {"name": f"part-{size}", "consumesCounters": [{"counterSet": "board", "counters": slices}]}
        for size, slices in ((size, {"slices": {"value": str(size)}}) for size in (2, 3, 4))
    ]
    put(world, *build.slices_of("node-0", {"devices": parts}, {"sharedCounters": counters}))
    put(world, allocated("a", result("part-3")), allocated("b", result("part-4")))
    assert world.overlaps() == ()
    put(world, allocated("c", result("part-2")))
    [overlap] = world.overlaps()
    assert (overlap.kind, overlap.device, overlap.counter_set) == (Kind.COUNTERS, "", "board")
    assert [name for _, name in overlap.claims] == ["a", "b", "c"]
    world.apply(Deleted(build.claim("a")))
    assert world.overlaps() == ()


def test_what_is_held_back_does_not_overlap_with_who_has_it() -> None:
    world = put(build.cluster(1), build.claim("a", devices=(("node-0", "gpu-0"),)))
    world.hold("sick", holds("gpu-0"))
    assert world.overlaps() == ()


# Right before a binding


def test_what_was_assumed_is_sound_while_nothing_else_happens() -> None:
    world = put(build.cluster(1), build.pod("p", cpu="64"))
    given = {("default", "c"): holds("gpu-0")}
    world.assume(build.pod("p", cpu="64"), "node-0", given)
    assert world.binding_problem("node-0", given) is None
    put(world, build.claim("c", devices=(("node-0", "gpu-0"),)))  # the claim was written
    assert world.binding_problem("node-0", given) is None


def test_a_node_that_is_gone_or_overfull_is_not_sound() -> None:
    world = put(build.cluster(1), build.pod("p", cpu="60"))
    world.assume(build.pod("p", cpu="60"), "node-0")
    put(world, build.pod("theirs", cpu="10", node_name="node-0"))
    assert world.binding_problem("node-0", {}) == "node node-0 is overcommitted by 6 cpu"
    assert world.binding_problem("node-9", {}) == "node node-9 is gone"


def test_a_device_another_pod_got_meanwhile_fails_the_recheck() -> None:
    world = put(build.cluster(1), build.pod("p"))
    given = {("default", "c"): holds("gpu-0")}
    world.assume(build.pod("p"), "node-0", given)
    put(world, *(build.claim(name, devices=(("node-0", "gpu-1"),)) for name in "xy"))
    assert world.binding_problem("node-0", given) is None  # their quarrel is not ours
    put(world, build.claim("theirs", devices=(("node-0", "gpu-0"),)))
    assert "device gpu-0" in (world.binding_problem("node-0", given) or "")


def test_a_device_that_is_held_back_meanwhile_is_not_sound() -> None:
    world = put(build.cluster(1), build.pod("p"))
    given = {("default", "c"): holds("gpu-0")}
    world.assume(build.pod("p"), "node-0", given)
    world.hold("quarantine/x", holds("gpu-0"))
    assert "held back: quarantine/x" in (world.binding_problem("node-0", given) or "")


def test_resources_a_node_never_offered_are_not_overdrawn() -> None:
    world = put(
        build.cluster(1), build.pod("p", node_name="node-0", resources={"example.com/gpu": "2"})
    )
    assert world.free("node-0").scalar("example.com/gpu") == -2
    assert world.binding_problem("node-0", {}) is None
