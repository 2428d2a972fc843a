"""The World: events keep it current, trials leave no trace, and a fresh one from a list is the same."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import StateError
from dovetail.schedule.node import equivalence
from dovetail.world import change_log, dump
from dovetail.world.events import Changed, Deleted
from dovetail.world.world import World
from tests.world import build


def used(world: World, node: str) -> int:
    return world.view(node).pools[0].used


def allocation(pool: str, *devices: str) -> Any:
    return build.claim("x", devices=tuple((pool, d) for d in devices)).status.allocation


def test_an_allocated_claim_takes_its_device_and_gives_it_back() -> None:
    world = build.cluster(2)
    world.apply(Changed(build.claim("a", devices=(("node-0", "gpu-3"),))))
    assert used(world, "node-0") == 0b1000
    world.apply(Changed(build.claim("a")))
    assert used(world, "node-0") == 0
    world.apply(Changed(build.claim("a", devices=(("node-0", "gpu-1"),))))
    world.apply(Deleted(build.claim("a")))
    assert used(world, "node-0") == 0


def test_a_device_allocated_twice_stays_taken_until_both_are_gone() -> None:
    world = build.cluster(1)
    for name in ("a", "b"):
        world.apply(Changed(build.claim(name, devices=(("node-0", "gpu-0"),))))
    world.apply(Deleted(build.claim("a")))
    assert used(world, "node-0") == 1
    world.apply(Deleted(build.claim("b")))
    assert used(world, "node-0") == 0


def test_a_newer_generation_replaces_the_older_one() -> None:
    world = build.cluster(1)
    world.apply(Changed(build.gpu_slice("node-0", gpus=4, generation=2, slice_name="newer")))
    (pool,) = world.view("node-0").pools
    assert len(pool.devices) == 4
    assert pool.is_complete
    world.apply(Deleted(build.gpu_slice("node-0", gpus=4, generation=2, slice_name="newer")))
    assert len(world.view("node-0").pools[0].devices) == 8


def test_a_running_pod_takes_of_its_node_and_an_ended_one_does_not() -> None:
    world = build.cluster(1)
    whole = world.free("node-0").milli_cpu
    world.apply(Changed(build.pod("a", cpu="3", node_name="node-0", phase="Running")))
    assert world.free("node-0").milli_cpu == whole - 3000
    world.apply(Changed(build.pod("a", cpu="3", node_name="node-0", phase="Succeeded")))
    assert world.free("node-0").milli_cpu == whole


def test_a_trial_leaves_no_trace() -> None:
    world = build.cluster(2)
    pod = build.pod("a")
    world.apply(Changed(pod))
    before = dump.dump(world)
    with world.trial():
        world.assume(pod, "node-1", {("default", "a"): allocation("node-1", "gpu-0")})
        assert used(world, "node-1") == 1
        assert world.pending() == []
        with world.trial() as inner:
            world.forget(pod)
            inner.commit()
        assert used(world, "node-1") == 0
    assert dump.dump(world) == before


def test_a_committed_trial_stays_unless_the_outer_one_is_taken_back() -> None:
    world = build.cluster(1)
    pod = build.pod("a")
    world.apply(Changed(pod))
    before = dump.dump(world)
    with world.trial(), world.trial() as inner:
        world.assume(pod, "node-0")
        inner.commit()
    assert dump.dump(world) == before
    with world.trial() as kept:
        world.assume(pod, "node-0")
        kept.commit()
    assert world.assumed


def test_an_event_inside_a_trial_is_refused() -> None:
    world = build.cluster(1)
    with world.trial(), pytest.raises(StateError, match="inside a trial"):
        world.apply(Changed(build.node("late")))


def test_events_confirm_an_assumption_without_counting_twice() -> None:
    world = build.cluster(1)
    pod, claim = build.pod("a", cpu="2"), build.claim("a")
    world.apply(Changed(pod))
    world.apply(Changed(claim))
    whole = world.free("node-0").milli_cpu
    world.assume(pod, "node-0", {("default", "a"): allocation("node-0", "gpu-5")})
    assert (world.free("node-0").milli_cpu, used(world, "node-0")) == (whole - 2000, 0b100000)
    world.apply(Changed(build.pod("a", cpu="2", node_name="node-0")))
    assert (world.free("node-0").milli_cpu, used(world, "node-0")) == (whole - 2000, 0b100000)
    world.apply(Changed(build.claim("a", devices=(("node-0", "gpu-5"),))))
    assert used(world, "node-0") == 0b100000
    assert not world.assumed


def test_a_deleted_pod_cancels_what_was_assumed_for_it() -> None:
    world = build.cluster(1)
    pod = build.pod("a")
    world.apply(Changed(pod))
    world.assume(pod, "node-0", {("default", "a"): allocation("node-0", "gpu-0")})
    world.apply(Deleted(pod))
    assert not world.assumed
    assert used(world, "node-0") == 0


def test_identical_nodes_look_alike_although_their_uuids_differ() -> None:
    world = build.cluster(20)

    def kinds(*paths: tuple[str, ...], compared: tuple[str, ...] = ()) -> int:
        keys = equivalence.NodeKeys(equivalence.Reads(frozenset(paths), frozenset(compared)))
        return len({keys.devices_key(world.view(name)) for name in world.nodes})

    assert kinds() == 1
    assert kinds(("attributes", build.DRIVER, "model")) == 1
    assert kinds(("attributes", build.DRIVER, "uuid")) == 20
    assert kinds(compared=(f"{build.DRIVER}/uuid",)) == 1


def test_the_journal_of_changes_is_bounded() -> None:
    world = build.cluster(1)
    for cpu in range(8):
        for _ in range(change_log.LIMIT // 6):
            world.node_changes.note("node-0")
        world.apply(Changed(build.node("node-0", cpu=str(cpu))))
        assert len(world.node_changes) <= change_log.LIMIT


WORDS = (
    "slice",
    "unslice",
    "claim",
    "unclaim",
    "pod",
    "bind",
    "unpod",
    "node",
    "unnode",
    "assume",
    "forget",
    "hold",
)
STEPS = st.lists(
    st.tuples(st.sampled_from(WORDS), st.integers(0, 2), st.integers(0, 3)), max_size=25
)


def play(steps: list[tuple[str, int, int]]) -> tuple[World, list[Any]]:
    """A world after a history, and the list of objects an API server would return now."""
    world = build.cluster(2, gpus=4)
    facts: dict[tuple[str, str], Any] = {}
    for i in range(2):
        for item in (build.node(f"node-{i}"), build.gpu_slice(f"node-{i}", gpus=4)):
            facts[type(item).__name__, item.metadata.name] = item
    for what, a, b in steps:
        pod = build.pod(f"p{b}")
        known = ("Pod", f"p{b}") in facts
        if what in ("assume", "forget", "hold"):
            if what == "forget":
                world.forget(pod)
            elif what == "hold":
                world.release(f"hold-{a}")
                if b:
                    world.hold(f"hold-{a}", allocation(f"node-{a}", f"gpu-{b}"))
            elif (
                known
                and f"pod-p{b}" not in world.assumed
                and not facts["Pod", f"p{b}"].spec.node_name
            ):
                world.assume(
                    pod, f"node-{a}", {("default", f"c{b}"): allocation(f"node-{a}", f"gpu-{b}")}
                )
            continue
        made = {
            "slice": build.gpu_slice(f"node-{a}", gpus=b + 1, generation=b),
            "claim": build.claim(f"c{b}", devices=((f"node-{a}", f"gpu-{b}"),) if a else ()),
            "pod": pod,
            "bind": build.pod(f"p{b}", node_name=f"node-{a}"),
            "node": build.node(f"node-{a}", cpu=str(8 + b)),
        }
        item = (
            made.get(what)
            or made[
                {"unslice": "slice", "unclaim": "claim", "unpod": "pod", "unnode": "node"}[what]
            ]
        )
        key = (type(item).__name__, item.metadata.name)
        if what.startswith("un"):
            if key in facts:
                world.apply(Deleted(facts.pop(key)))
        else:
            facts[key] = item
            world.apply(Changed(item))
    return world, list(facts.values())


@settings(max_examples=150)
@given(STEPS)
def test_the_world_is_what_a_fresh_list_makes_of_it(steps: list[tuple[str, int, int]]) -> None:
    world, facts = play(steps)
    assert dump.dump(world) == dump.dump(dump.rebuilt(facts, world))


def test_two_hash_seeds_make_one_world() -> None:
    script = (
        "import msgspec; from tests.world import test_world as t; from dovetail.world import dump;"
        "steps=[('claim',1,2),('slice',2,3),('node',2,0),('pod',0,1),('assume',1,1),('bind',0,3),('unnode',1,0)];"
        "print(msgspec.json.encode(dump.dump(t.play(steps)[0])).decode())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
