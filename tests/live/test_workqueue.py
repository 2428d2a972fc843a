"""Keyed work when due: one run per key, a bounded number at once, retried after failures, never stopped by one key."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from dovetail.live.workqueue import FIRST_DELAY, LONGEST_DELAY, WorkQueue
from dovetail.ports import failures
from dovetail.sim.virtual_clock import VirtualClock, rest

Do = Callable[[str], Awaitable[float | None]]
Story = Callable[[WorkQueue[str], VirtualClock], Awaitable[None]]


def run_story(story: Story, do: Callable[[VirtualClock], Do], *, concurrency: int = 2) -> None:
    """Runs a story with the work queue running."""

    async def main() -> None:
        clock = VirtualClock()
        queue = WorkQueue(clock, do(clock), concurrency=concurrency)
        task = asyncio.create_task(queue.run())
        await rest()
        try:
            await story(queue, clock)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_a_key_is_processed_when_due_and_as_often_as_it_requests() -> None:
    done: list[tuple[str, float]] = []

    def do(clock: VirtualClock) -> Do:
        async def work(key: str) -> float | None:
            done.append((key, clock.monotonic()))
            return 10 if key == "again" else None

        return work

    async def story(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.put("late", 5)
        queue.put("again")
        queue.put("now")
        await clock.advance(25)
        assert done == [("again", 0), ("now", 0), ("late", 5), ("again", 10), ("again", 20)]
        queue.drop("again")
        await clock.advance(100)
        assert len(done) == 5

    run_story(story, do)


def test_the_earlier_due_time_counts() -> None:
    done: list[float] = []

    def do(clock: VirtualClock) -> Do:
        async def work(key: str) -> float | None:
            done.append(clock.monotonic())
            return None

        return work

    async def story(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.put("a", 30)
        queue.put("a", 10)
        queue.put("a", 20)
        await clock.advance(100)
        assert done == [10]

    run_story(story, do)


def test_one_key_has_one_worker_and_is_processed_again_for_changes_that_came_meanwhile() -> None:
    began: list[str] = []
    ended: list[str] = []

    def do(clock: VirtualClock) -> Do:
        async def work(key: str) -> float | None:
            began.append(key)
            await clock.sleep(10)
            ended.append(key)
            return None

        return work

    async def story(queue: WorkQueue[str], clock: VirtualClock) -> None:
        for key in ("a", "a", "b", "c"):
            queue.put(key)
        await rest()
        assert began == ["a", "b"]  # two workers, and a only once
        for _ in range(5):
            queue.put("a")
        assert not queue.is_idle
        await clock.advance(10)
        assert began == ["a", "b", "c", "a"] or began == ["a", "b", "a", "c"]
        await clock.advance(100)
        assert sorted(ended) == ["a", "a", "b", "c"]
        assert queue.is_idle

    run_story(story, do)


def test_after_failures_a_key_waits_longer_each_time_up_to_a_limit() -> None:
    tried: list[float] = []

    def do(clock: VirtualClock) -> Do:
        async def work(key: str) -> float | None:
            tried.append(clock.monotonic())
            raise failures.Unavailable("away")

        return work

    async def story(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.put("a")
        await clock.advance(100)
        pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
        assert pauses[:3] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
        assert max(pauses) == LONGEST_DELAY

    run_story(story, do)


def test_what_will_be_refused_again_and_what_is_gone_is_not_tried_again() -> None:
    tried: list[str] = []

    def do(clock: VirtualClock) -> Do:
        async def work(key: str) -> float | None:
            tried.append(key)
            raise failures.Refused("no") if key == "refused" else failures.Missing("gone")

        return work

    async def story(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.put("refused")
        queue.put("missing")
        await clock.advance(100)
        assert sorted(tried) == ["missing", "refused"]
        queue.put("refused")  # something about it changed
        await clock.advance(1)
        assert tried.count("refused") == 2

    run_story(story, do)


def test_a_server_that_says_when_to_retry_is_retried_then() -> None:
    tried: list[float] = []

    def do(clock: VirtualClock) -> Do:
        async def work(key: str) -> float | None:
            tried.append(clock.monotonic())
            if len(tried) == 1:
                raise failures.Throttled("slow down", retry_after=7.0)
            return None

        return work

    async def story(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.put("a")
        await clock.advance(20)
        assert tried == [0, 7]

    run_story(story, do)


def test_a_fault_in_one_key_stops_no_other() -> None:
    done: list[str] = []

    def do(clock: VirtualClock) -> Do:
        async def work(key: str) -> float | None:
            done.append(key)
            if key == "odd":
                raise ValueError("a mistake")
            return 1

        return work

    async def story(queue: WorkQueue[str], clock: VirtualClock) -> None:
        queue.put("odd")
        queue.put("good")
        await clock.advance(LONGEST_DELAY + 1)
        assert done.count("good") > 10
        assert done.count("odd") == 2
        assert queue.failed == 2

    run_story(story, do, concurrency=1)
