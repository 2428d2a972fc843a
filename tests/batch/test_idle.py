"""Idle work: measured, warned, then first to yield; never ended for being idle alone."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import DovetailError
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.live.report import idle_watch
from dovetail.model import workload_annotations
from dovetail.model.idle import Device, IdleStage, IdleState, Sample
from dovetail.ports import device_metrics
from dovetail.schedule.evict import idle_work
from dovetail.sim import scripted_utilisation
from dovetail.world.events import Deleted
from dovetail.world.world import World
from tests.batch import stories
from tests.batch.test_history import Watch
from tests.schedule import build

POLICY = queues.IdlePolicy(threshold_percent=5, window_seconds=1800, grace_seconds=600)
FIXED = {workload_annotations.PREEMPTIBLE: "false"}


def gpu(index: int, node: str = "n0") -> Device:
    return Device(build.DRIVER, node, f"gpu-{index}")


class Follower:
    """A world whose devices do what a script says, looked at every half minute."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.watch = Watch()
        self.script = scripted_utilisation.Scripted(self.watch)
        self.events: list[tuple[str, str, str]] = []
        self.changes = 0
        self.idle = idle_watch.IdleWatch(
            world, self.script, clock=self.watch, record_event=self._record, changed=self._changed
        )

    def _record(self, pod: pods.Pod, *, reason: str, note: str, kind: str = "Normal") -> None:
        self.events.append((pod.metadata.name, reason, note))

    def _changed(self) -> None:
        self.changes += 1

    def minutes(self, count: float) -> None:
        """So much time goes by."""

        async def main() -> None:
            until = self.watch.seconds + count * 60
            while self.watch.seconds < until:
                await self.idle.measure()
                await self.watch.sleep(idle_watch.EVERY_SECONDS)
            await self.idle.measure()

        asyncio.run(main())

    def stage(self, name: str) -> IdleStage | None:
        result = self.world.idle.get(f"uid-of-{name}")
        return result.stage if result is not None else None

    def decided(self) -> Any:
        return stories.decided(self.world, now=self.watch.now())


def lab(*names: str, **facts: Any) -> Follower:
    """A node with two GPUs; each pod holds one, in a queue that minds idle work."""
    queue = stories.queue("lab", gpu=2, idle=POLICY)
    world = stories.world(build.node("n0"), build.gpu_slice("n0", 2), queue)
    for index, name in enumerate(names):
        stories.runs(world, name, "lab", ("n0", f"gpu-{index}"), since=60, **facts)
    follower = Follower(world)
    for index in range(2):
        follower.script.set(gpu(index), 80)
    return follower


def test_idle_work_is_warned_and_later_preemptible_with_an_event_each_time() -> None:
    follower = lab("notebook", annotations=FIXED)
    follower.script.set(gpu(0), 1)
    follower.minutes(29)
    assert follower.stage("notebook") is None
    follower.minutes(2)
    assert follower.stage("notebook") is IdleStage.WARNED
    assert [(name, reason) for name, reason, _ in follower.events] == [("notebook", "IdleDevices")]
    assert "stayed under 5 % for 30 min; in 10 min it may be evicted" in follower.events[0][2]
    follower.minutes(10)
    assert follower.stage("notebook") is IdleStage.PREEMPTIBLE
    assert follower.events[-1][1] == "IdleMayYield"
    follower.script.set(gpu(0), 60)
    follower.minutes(1)
    assert follower.stage("notebook") is None
    assert follower.events[-1][1] == "BusyAgain"
    assert follower.changes == 3


def test_idle_work_is_not_evicted_while_no_pod_is_pending() -> None:
    follower = lab("notebook", annotations=FIXED)
    follower.script.set(gpu(0), 0)
    follower.minutes(600)
    done = follower.decided()
    assert follower.stage("notebook") is IdleStage.PREEMPTIBLE
    assert not done.evictions


def test_under_pressure_an_idle_pod_is_evicted_though_it_is_non_preemptible() -> None:
    follower = lab("notebook", "training", annotations=FIXED)
    follower.script.set(gpu(0), 0)
    stories.waits(follower.world, "urgent", "lab", priority=10)
    follower.minutes(31)
    assert not follower.decided().evictions  # warned only
    follower.minutes(10)
    done = follower.decided()
    assert stories.evicted(done) == {"notebook": "Preempted"}
    assert "its GPUs were nearly unused for 4" in stories.detail(done, "notebook")


def test_an_idle_pod_is_evicted_before_a_less_important_one() -> None:
    follower = lab("busy", "idler")
    result = follower.world.pods["uid-of-idler"]
    build.put(follower.world, build.replaced(result, spec=build.replaced(result.spec, priority=5)))
    stories.waits(follower.world, "urgent", "lab", priority=10)
    assert stories.evicted(follower.decided()) == {"busy": "Preempted"}
    follower.script.set(gpu(1), 0)
    follower.minutes(41)
    assert stories.evicted(follower.decided()) == {"idler": "Preempted"}


def test_the_usual_rules_hold_for_idle_work_too() -> None:
    """Within its quota no other queue may reclaim it, idle or not."""
    follower = lab("notebook", "other", annotations=FIXED)
    build.put(follower.world, stories.queue("b", gpu=0))
    follower.script.set(gpu(0), 0)
    follower.minutes(60)
    stories.waits(follower.world, "guest", "b")
    assert not follower.decided().evictions


def test_one_busy_device_or_pod_keeps_all_that_belongs_to_it() -> None:
    queue = stories.queue("lab", gpu=2, idle=POLICY)
    world = stories.world(build.node("n0"), build.gpu_slice("n0", 2), queue)
    for index in range(2):
        build.put(
            world, stories.holding(f"c{index}", ("n0", f"gpu-{index}"), users=[f"rank-{index}"])
        )
        build.put(
            world, stories.member(f"rank-{index}", "lab", "gang", 2, uses=[f"c{index}"], node="n0")
        )
    stories.waits(world, "urgent", "lab", 2, priority=10)
    follower = Follower(world)
    follower.script.set(gpu(0), 0)
    follower.script.set(gpu(1), 90)
    follower.minutes(60)
    assert (follower.stage("rank-0"), follower.stage("rank-1")) == (IdleStage.PREEMPTIBLE, None)
    done = follower.decided()
    assert "nearly unused" not in stories.detail(done, "rank-0")
    follower.script.set(gpu(1), 0)
    follower.minutes(60)
    assert "nearly unused" in stories.detail(follower.decided(), "rank-0")


def test_a_device_without_measurements_is_not_idle() -> None:
    follower = lab("notebook")
    follower.script.set(gpu(0), None)
    follower.minutes(120)
    assert follower.stage("notebook") is None


def test_a_gap_in_the_measurements_restarts_the_window() -> None:
    follower = lab("notebook")
    follower.script.set(gpu(0), 0)
    follower.minutes(45)
    assert follower.stage("notebook") is IdleStage.PREEMPTIBLE
    failing = DovetailError("the store of measurements does not answer")
    follower.script.fails = lambda: failing
    follower.minutes(6)
    assert follower.stage("notebook") is None
    follower.script.fails = lambda: None
    follower.minutes(20)
    assert follower.stage("notebook") is None
    follower.minutes(12)
    assert follower.stage("notebook") is IdleStage.WARNED


def test_a_pod_that_is_gone_is_forgotten() -> None:
    follower = lab("notebook")
    follower.script.set(gpu(0), 0)
    follower.minutes(45)
    follower.world.apply(Deleted(follower.world.pods["uid-of-notebook"]))
    assert not follower.world.idle
    follower.minutes(1)
    assert not follower.world.idle


def test_the_queue_above_may_ask_for_it() -> None:
    follower = lab("notebook")
    build.put(
        follower.world,
        stories.queue("above", idle=POLICY),
        stories.queue("lab", gpu=2, parent="above"),
    )
    follower.script.set(gpu(0), 0)
    follower.minutes(31)
    assert follower.stage("notebook") is IdleStage.WARNED


def test_without_an_idle_policy_no_pod_is_watched() -> None:
    follower = lab("notebook")
    build.put(follower.world, stories.queue("lab", gpu=2))
    follower.script.set(gpu(0), 0)
    follower.minutes(100)
    assert not follower.world.idle
    assert not follower.events


def test_without_metrics_no_pod_is_idle() -> None:
    async def main() -> None:
        assert await device_metrics.NoMetrics().utilisation([gpu(0)]) == {}

    asyncio.run(main())


# The pure part


def at(seconds: float) -> datetime.datetime:
    return stories.NOW + datetime.timedelta(seconds=seconds)


@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 100)), max_size=30))
def test_a_device_is_idle_since_the_first_of_the_samples_that_end_low_without_a_hole(
    listed: list[tuple[int, float]],
) -> None:
    samples = sorted({moment: Sample(at(moment), percent) for moment, percent in listed}.values())
    track = idle_work.updated(idle_work.Track(), samples, threshold=5)
    expected = None
    for index in range(len(samples) - 1, -1, -1):
        if samples[index].percent >= 5:
            break
        expected = samples[index].at
        if (
            index
            and (samples[index].at - samples[index - 1].at).total_seconds()
            > idle_work.MAX_GAP_SECONDS
        ):
            break
    assert track.since == expected


@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 10)), max_size=20), st.integers(0, 20))
def test_samples_in_portions_say_the_same(listed: list[tuple[int, float]], cut: int) -> None:
    samples = sorted({moment: Sample(at(moment), percent) for moment, percent in listed}.values())
    once = idle_work.updated(idle_work.Track(), samples, threshold=5)
    first = idle_work.updated(idle_work.Track(), samples[:cut], threshold=5)
    assert idle_work.updated(first, samples, threshold=5) == once


def test_what_is_no_number_is_no_evidence() -> None:
    track = idle_work.updated(idle_work.Track(), [Sample(at(0), float("nan"))], threshold=5)
    assert track.since is None


@pytest.mark.parametrize("seconds", [0, 599, 600, 10_000])
def test_grace_counts_from_the_warning(seconds: int) -> None:
    """However long it was idle before the warning."""
    warned = idle_work.next_state(None, at(-100_000), policy=POLICY, now=at(0))
    assert warned == IdleState(since=at(-100_000), warned=at(0), stage=IdleStage.WARNED)
    after = idle_work.next_state(warned, at(-100_000), policy=POLICY, now=at(seconds))
    assert after is not None
    assert (after.stage is IdleStage.PREEMPTIBLE) == (seconds >= 600)
