"""Who yields where several could: the rules first, then lost work, failures that count, and who shares devices."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kubetypes import meta
from dovetail.model import gangs, policy, workload_annotations
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build


def full(*queues: Any, gpus: int = 2) -> World:
    """One node whose GPUs a device plugin offers."""
    return stories.world(stories.plugin_node("n0", gpus), *queues)


def gang_of(world: World, name: str) -> gangs.GangKey:
    member = world.gangs.of(f"uid-of-{name}")
    assert member is not None
    return member.gang


def checkpoint(seconds_ago: float) -> dict[str, str]:
    return {workload_annotations.LAST_CHECKPOINT: stories.stamp(seconds_ago)}


# Lost work


def test_without_checkpoints_the_youngest_is_evicted() -> None:
    world = full(stories.queue("a", gpu=2))
    build.put(world, stories.pod("old", "a", gpus=1, node="n0", since=7200))
    build.put(world, stories.pod("young", "a", gpus=1, node="n0", since=600))
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10))
    assert stories.evicted(stories.decided(world)) == {"young": "Preempted"}


def test_with_a_checkpoint_the_gang_that_loses_least_is_evicted() -> None:
    world = full(stories.queue("a", gpu=2))
    build.put(
        world, stories.pod("saved", "a", gpus=1, node="n0", since=7200, annotations=checkpoint(60))
    )
    build.put(world, stories.pod("young", "a", gpus=1, node="n0", since=600))
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10))
    done = stories.decided(world)
    assert stories.evicted(done) == {"saved": "Preempted"}
    assert "loses 1 GPU-minutes since its checkpoint" in stories.detail(done, "saved")


def test_a_checkpoint_of_the_future_is_none() -> None:
    world = full(stories.queue("a", gpu=2))
    build.put(
        world,
        stories.pod("liar", "a", gpus=1, node="n0", since=7200, annotations=checkpoint(-3600)),
    )
    build.put(world, stories.pod("young", "a", gpus=1, node="n0", since=600))
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10))
    assert stories.evicted(stories.decided(world)) == {"young": "Preempted"}


def test_lost_work_is_capped() -> None:
    """Beyond the cap both lose the same, and age decides again."""
    world = full(stories.queue("a", gpu=2))
    build.put(world, stories.pod("less", "a", gpus=1, node="n0", since=9000, age=20_000))
    build.put(
        world,
        stories.pod("younger", "a", gpus=1, node="n0", since=9500, annotations=checkpoint(9200)),
    )
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10))
    assert stories.evicted(stories.decided(world)) == {"less": "Preempted"}
    capped = policy.Policy(batch=policy.Batch(lost_work_cap_seconds=600))
    assert stories.evicted(stories.decided(world, policy=capped)) == {"younger": "Preempted"}


def test_priority_comes_before_lost_work() -> None:
    world = full(stories.queue("a", gpu=2))
    build.put(
        world, stories.pod("saved", "a", gpus=1, node="n0", priority=5, annotations=checkpoint(1))
    )
    build.put(world, stories.pod("unsaved", "a", gpus=1, node="n0", since=90_000))
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10))
    assert stories.evicted(stories.decided(world)) == {"unsaved": "Preempted"}


def test_a_checkpoint_in_one_queue_changes_nothing_in_another() -> None:
    world = full(stories.queue("a", gpu=2), stories.queue("b", gpu=1), gpus=3)
    build.put(world, stories.pod("elsewhere", "b", gpus=1, node="n0", annotations=checkpoint(60)))
    build.put(world, stories.pod("large-young", "a", gpus=1, node="n0", since=60, age=60))
    build.put(
        world, stories.pod("old", "a", gpus=1, node="n0", since=30, age=7200)
    )  # restarted a moment ago
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10))
    assert stories.evicted(stories.decided(world)) == {"large-young": "Preempted"}


# Jobs that count failures


def counted(world: World, name: str, *, counts: bool) -> None:
    """Declares whether this pod's owner counts failures."""
    known = world.gangs.definition(gang_of(world, name))
    build.put(world, build.replaced(known, counts_failures=counts))


def test_an_eviction_that_counts_as_a_failure_comes_later_and_says_so() -> None:
    world = full(stories.queue("a", gpu=2))
    build.put(world, stories.pod("counts", "a", gpus=1, node="n0", since=60))
    build.put(world, stories.pod("ignores", "a", gpus=1, node="n0", since=7200))
    counted(world, "counts", counts=True)
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10))
    assert stories.evicted(stories.decided(world)) == {"ignores": "Preempted"}
    build.put(world, stories.pod("ignores", "a", gpus=1, node="n0", since=7200, priority=20))
    done = stories.decided(world)
    assert stories.evicted(done) == {"counts": "Preempted"}
    assert "backoffLimit" in stories.detail(done, "counts")


# Pods that no controller recreates


def bare(name: str, **facts: Any) -> Any:
    return stories.pod(name, "a", gpus=1, node="n0", metadata={"ownerReferences": []}, **facts)


def test_a_bare_pod_is_not_evicted_unless_it_says_so() -> None:
    world = full(stories.queue("a", gpu=1), gpus=1)
    build.put(world, bare("precious"), stories.pod("urgent", "a", gpus=1, priority=10))
    assert not stories.decided(world).evictions
    build.put(world, bare("precious", annotations={workload_annotations.WHEN_EVICTED: "end"}))
    assert stories.evicted(stories.decided(world)) == {"precious": "Preempted"}


def test_a_bare_pod_cannot_move() -> None:
    world = stories.world(
        stories.plugin_node("n0", 2), stories.plugin_node("n1", 2), stories.queue("a", gpu=4)
    )
    build.put(world, stories.pod("small", "a", gpus=1, node="n0"))
    build.put(world, bare("other", annotations={workload_annotations.WHEN_EVICTED: "end"}))
    build.put(
        world,
        build.replaced(
            world.pods["uid-of-other"],
            spec=build.replaced(world.pods["uid-of-other"].spec, node_name="n1"),
        ),
    )
    build.put(world, stories.pod("whole", "a", gpus=2))
    done = stories.decided(world)
    assert stories.evicted(done) == {"small": "Consolidated"}


# Elastic gangs


def test_what_is_beyond_a_minimum_goes_before_anything_is_ended() -> None:
    world = full(stories.queue("a", gpu=2), stories.queue("b", gpu=2), gpus=4)
    for number in range(3):
        build.put(world, stories.member(f"elastic-{number}", "b", "elastic", 1, gpus=1, node="n0"))
    build.put(world, stories.pod("rigid", "b", gpus=1, node="n0", since=10))
    build.put(world, stories.pod("due", "a", gpus=1), stories.pod("due-too", "a", gpus=1))
    done = stories.decided(world)
    assert stories.evicted(done) == {"elastic-2": "Reclaimed", "elastic-1": "Reclaimed"}


def test_a_gang_that_goes_whole_loses_nothing_singly() -> None:
    world = full(stories.queue("a", gpu=2), stories.queue("b", gpu=0), gpus=3)
    for number in range(3):
        build.put(world, stories.member(f"tied-{number}", "b", "tied", 1, gpus=1, node="n0"))
    key = gang_of(world, "tied-0")
    build.put(world, build.replaced(world.gangs.definition(key), evicts_whole=True))
    build.put(world, stories.pod("due", "a", gpus=1))
    done = stories.decided(world)
    assert set(stories.evicted(done)) == {"tied-0", "tied-1", "tied-2"}


# Shared claims


def sharing(*owners: tuple[str, str], **facts: Any) -> World:
    """One GPU, held by one claim, used by several pods of these queues."""
    world = stories.world(
        build.node("n0"),
        build.gpu_slice("n0", 1),
        stories.queue("a", gpu=1),
        stories.queue("b", gpu=0),
    )
    build.put(world, stories.holding("shared", ("n0", "gpu-0"), users=[name for name, _ in owners]))
    for name, of in owners:
        build.put(world, stories.pod(name, of, uses=["shared"], node="n0", **facts.get(name, {})))
    return world


def test_all_who_share_a_claim_go_together() -> None:
    world = stories.waits(sharing(("one", "b"), ("two", "b")), "due", "a")
    done = stories.decided(world)
    assert stories.evicted(done) == {"one": "Reclaimed", "two": "Reclaimed"}
    assert stories.nominated(done) == {"due": "n0"}


def test_pods_that_share_a_claim_stay_if_one_of_them_may_not_be_evicted() -> None:
    kept = {"two": {"priority": 50, "annotations": {workload_annotations.PREEMPTIBLE: "false"}}}
    world = stories.waits(sharing(("one", "b"), ("two", "b"), **kept), "due", "a")
    done = stories.decided(world)
    assert not done.evictions
    assert not done.nominations


def test_half_of_a_shared_claim_is_no_room() -> None:
    """The claim is used by a pod of another scheduler too: its devices stay where they are."""
    world = stories.waits(
        sharing(("one", "b"), ("foreign", "b"), foreign={"schedulerName": "other"}), "due", "a"
    )
    ours = policy.Policy(scheduler_names=("default-scheduler", ""))
    done = stories.decided(world, policy=ours)
    assert not done.evictions


def test_a_gang_whose_member_shares_a_claim_goes_as_a_whole() -> None:
    world = stories.world(
        build.node("n0"),
        build.gpu_slice("n0", 2),
        stories.queue("a", gpu=1),
        stories.queue("b", gpu=0),
    )
    build.put(world, stories.holding("shared", ("n0", "gpu-0"), users=["lone", "m0"]))
    build.put(world, stories.holding("own", ("n0", "gpu-1"), users=["m1"]))
    build.put(world, stories.pod("lone", "b", uses=["shared"], node="n0", since=5))
    build.put(world, stories.member("m0", "b", "pair", 2, uses=["shared"], node="n0"))
    build.put(world, stories.member("m1", "b", "pair", 2, uses=["own"], node="n0"))
    world = stories.waits(world, "due", "a", 2)
    build.put(world, stories.queue("a", gpu=2))
    done = stories.decided(world)
    assert set(stories.evicted(done)) == {"lone", "m0", "m1"}


# Time


@pytest.mark.parametrize(("since", "evicted"), [(59, False), (61, True)])
def test_work_has_a_minimum_runtime_before_preemption_in_its_queue(
    since: int, evicted: bool
) -> None:
    world = full(stories.queue("a", gpu=1, min_runtime_seconds=60), gpus=1)
    build.put(world, stories.pod("young", "a", gpus=1, node="n0", since=since))
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10))
    assert bool(stories.decided(world).evictions) is evicted


def test_preemption_and_reclaim_may_wait_for_different_times() -> None:
    patient = stories.queue(
        "b", gpu=0, preempt_min_runtime_seconds=10, reclaim_min_runtime_seconds=600
    )
    world = full(stories.queue("a", gpu=1), patient, gpus=1)
    build.put(world, stories.pod("runs", "b", gpus=1, node="n0", since=60))
    build.put(world, stories.pod("due", "a", gpus=1))
    assert not stories.decided(world).evictions
    build.put(world, stories.pod("urgent", "b", gpus=1, priority=10))
    assert stories.evicted(stories.decided(world)) == {"runs": "Preempted"}


@pytest.mark.parametrize(
    ("minimums", "evicted"),
    [
        ({"dept-b": 600}, False),  # the two departments are where the branches part: theirs counts
        ({"b": 600}, True),  # below that no minimum is read
        ({"dept-a": 600}, True),
        ({"top": 600}, False),  # above it counts where nothing nearer is set
        ({"dept-b": 10, "top": 600}, True),
    ],
)
def test_reclaim_asks_the_branch_of_the_victim_for_its_minimum(
    minimums: dict[str, int], evicted: bool
) -> None:
    tree = {"top": "", "dept-a": "top", "dept-b": "top", "a": "dept-a", "b": "dept-b"}
    queues = [
        stories.queue(
            name,
            gpu=0 if name in ("b", "dept-b") else 1,
            parent=parent,
            reclaim_min_runtime_seconds=minimums.get(name),
        )
        for name, parent in tree.items()
    ]
    world = full(*queues, gpus=1)
    build.put(world, stories.pod("runs", "b", gpus=1, node="n0", since=60))
    build.put(world, stories.pod("due", "a", gpus=1))
    assert bool(stories.decided(world).evictions) is evicted


def test_an_elastic_gang_may_lose_what_is_beyond_its_minimum_however_young() -> None:
    world = full(
        stories.queue("a", gpu=2), stories.queue("b", gpu=0, min_runtime_seconds=600), gpus=2
    )
    for number in range(2):
        build.put(world, stories.member(f"e-{number}", "b", "e", 1, gpus=1, node="n0", since=5))
    build.put(world, stories.pod("due-0", "a", gpus=1), stories.pod("due-1", "a", gpus=1))
    assert stories.evicted(stories.decided(world)) == {"e-1": "Reclaimed"}


def test_a_job_may_have_to_wait_before_it_evicts_others() -> None:
    world = full(stories.queue("a", gpu=1), gpus=1)
    build.put(world, stories.pod("runs", "a", gpus=1, node="n0"))
    later: dict[str, Any] = {"annotations": {workload_annotations.MAY_EVICT_AFTER: "300"}}
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10, age=200, **later))
    done = stories.decided(world)
    assert not done.evictions
    build.put(world, stories.pod("urgent", "a", gpus=1, priority=10, age=301, **later))
    assert stories.evicted(stories.decided(world)) == {"runs": "Preempted"}


# Between queues


def test_of_two_queues_the_less_important_gives() -> None:
    world = full(
        stories.queue("a", gpu=1),
        stories.queue("low", gpu=0, priority=1),
        stories.queue("high", gpu=0, priority=9),
        gpus=2,
    )
    build.put(
        world,
        stories.pod("of-low", "low", gpus=1, node="n0"),
        stories.pod("of-high", "high", gpus=1, node="n0"),
    )
    build.put(world, stories.pod("due", "a", gpus=1))
    assert stories.evicted(stories.decided(world)) == {"of-low": "Reclaimed"}


def test_of_two_queues_above_their_share_the_one_further_above_gives() -> None:
    world = full(
        stories.queue("a", gpu=1), stories.queue("b", gpu=1), stories.queue("c", gpu=1), gpus=6
    )
    for number in range(2):
        build.put(world, stories.pod(f"b{number}", "b", gpus=1, node="n0"))
    for number in range(4):
        build.put(world, stories.pod(f"c{number}", "c", gpus=1, node="n0"))
    build.put(world, stories.pod("due", "a", gpus=1))
    done = stories.decided(world)
    assert [name[0] for name in stories.evicted(done)] == ["c"]
    assert "queue a has 0 of the 1 gpu it is due" in stories.detail(
        done, next(iter(stories.evicted(done)))
    )


def test_no_pod_is_evicted_for_a_slice_that_would_not_be_free() -> None:
    """A slice is taken back exactly where the beneficiary then starts: devices, not counts."""
    world = stories.world(*stories.partitioned("one"), *stories.partitioned("two"))
    build.put(world, stories.queue("a", gpu=1), stories.queue("b", gpu=0))
    big = 'device.attributes["gpu.example.com"].?profile.orValue("") == "3g.40gb"'
    whole = '!("profile" in device.attributes["gpu.example.com"])'
    stories.runs(world, "left", "b", ("one", "gpu-0-3g-0"), when=big)
    stories.runs(
        world,
        "right",
        "b",
        ("one", "gpu-0-3g-4"),
        when=big,
        annotations={workload_annotations.PREEMPTIBLE: "false"},
    )
    stories.runs(world, "alone", "b", ("two", "gpu-0-3g-0"), when=big)
    stories.waits(world, "due", "a", when=whole)
    done = stories.decided(world)
    assert stories.evicted(done) == {"alone": "Reclaimed"}
    assert stories.nominated(done) == {"due": "two"}


def test_gangs_say_where_pods_belong() -> None:
    """The stories above stand on this."""
    world = full(stories.queue("b"))
    build.put(world, stories.member("m0", "b", "g", 2))
    assert gang_of(world, "m0") == ("default", "gang/g")
    assert world.gangs.definition(("default", "gang/g")).groups[0].min == 2
    assert gangs.membership(world.pods["uid-of-m0"]).gang == ("default", "gang/g")


# Devices on their way back


def test_no_pod_is_evicted_for_devices_an_ended_pod_is_about_to_release() -> None:
    world = stories.world(
        *stories.boards("n0", 2, stories.H100, "Hopper"), stories.queue("a", gpu=2)
    )
    stories.runs(world, "stays", "a", ("n0", "gpu-0"))
    build.put(
        world, stories.holding("gone-claim", ("n0", "gpu-1"), users=["gone"])
    )  # its pod was evicted and is gone
    stories.waits(world, "urgent", "a", priority=10)
    done = stories.decided(world)
    assert stories.evicted(done) == {}
    assert stories.nominated(done) == {"urgent": "n0"}


def test_a_claim_without_users_whose_pod_is_gone_is_on_its_way_back_too() -> None:
    world = stories.world(
        *stories.boards("n0", 1, stories.H100, "Hopper"), stories.queue("a", gpu=2)
    )
    left = stories.holding("gone-claim", ("n0", "gpu-0"))
    owner = meta.OwnerReference(kind="Pod", name="gone", uid="uid-of-gone", controller=True)
    build.put(
        world,
        build.replaced(left, metadata=build.replaced(left.metadata, owner_references=(owner,))),
    )
    stories.waits(world, "next", "a")
    done = stories.decided(world)
    assert stories.nominated(done) == {"next": "n0"}
