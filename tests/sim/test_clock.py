"""The clock that stands still: sleepers wake in order, at their own time, and see what happened before."""

from __future__ import annotations

import asyncio

from dovetail.sim.virtual_clock import BEGINNING, VirtualClock


def test_time_passes_only_when_advanced() -> None:
    async def main() -> None:
        clock = VirtualClock()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (clock.monotonic(), clock.now()) == (0, BEGINNING)
        await clock.advance(90)
        assert clock.monotonic() == 90
        assert (clock.now() - BEGINNING).total_seconds() == 90

    asyncio.run(main())


def test_sleepers_wake_in_order_each_at_its_own_time() -> None:
    async def main() -> None:
        clock = VirtualClock()
        woken: list[tuple[str, float]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append((name, clock.monotonic()))

        tasks = [
            asyncio.create_task(sleeper(name, at))
            for name, at in (("c", 3), ("a", 1), ("b", 1), ("d", 9))
        ]
        await clock.advance(3)
        assert woken == [("a", 1), ("b", 1), ("c", 3)]
        assert clock.sleeping == 1
        await clock.advance(10)
        assert woken[-1] == ("d", 9)
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_a_task_that_wakes_and_sleeps_again_wakes_again_within_the_same_advance() -> None:
    async def main() -> None:
        clock = VirtualClock()
        beats: list[float] = []

        async def heart() -> None:
            while True:
                await clock.sleep(10)
                beats.append(clock.monotonic())

        task = asyncio.create_task(heart())
        await clock.advance(35)
        assert beats == [10, 20, 30]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await clock.advance(100)
        assert beats == [10, 20, 30]

    asyncio.run(main())


def test_what_a_sleeper_sets_off_comes_to_rest_before_the_next_wakes() -> None:
    async def main() -> None:
        clock = VirtualClock()
        done: list[str] = []

        async def chain(length: int) -> None:
            await clock.sleep(1)
            for _ in range(length):
                await asyncio.sleep(0)
            done.append("chain")

        async def late() -> None:
            await clock.sleep(1.5)
            done.append("late")

        tasks = [asyncio.create_task(late()), asyncio.create_task(chain(500))]
        await clock.advance(2)
        assert done == ["chain", "late"]
        await asyncio.gather(*tasks)

    asyncio.run(main())
