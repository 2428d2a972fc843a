"""A leader's term that fails restarts from a new list: the process goes on, and metrics count it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.core import nodes
from dovetail.live import supervised_tasks
from dovetail.live.cycle import restarts
from dovetail.live.informer import informer
from dovetail.ports import failures, meter
from dovetail.sim import virtual_clock
from dovetail.world.world import World
from tests.live.live_scheduler import play


class Counting(meter.NoMeter):
    """Counts what is counted."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1


async def begun(work: Callable[[], Awaitable[None]], made: restarts.Restarts) -> asyncio.Task[None]:
    task = asyncio.create_task(made.run(work))
    await asyncio.sleep(0)
    return task


def test_a_tenure_that_fails_is_followed_by_another_later_each_time() -> None:
    async def story() -> None:
        clock, counting = virtual_clock.VirtualClock(), Counting()
        made = restarts.Restarts(clock, counting)
        starts: list[float] = []

        async def work() -> None:
            starts.append(clock.monotonic())
            if len(starts) <= 3:
                raise ZeroDivisionError
            await clock.sleep(1e9)

        task = await begun(work, made)
        await clock.advance(1)
        assert made.is_steady, "once may happen"
        await clock.advance(5)
        assert not made.is_steady
        for _ in range(40):
            await clock.advance(1)
        assert [round(start) for start in starts] == [0, 5, 15, 35]
        assert counting.counts == {"dovetail_tenure_errors_total": 3}
        assert not made.is_steady
        await clock.advance(supervised_tasks.LONGEST_PAUSE)
        assert made.is_steady, "it goes on for a while"
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    play(story)


def test_a_task_that_a_tenure_needs_ends_it_and_another_begins() -> None:
    async def story() -> None:
        clock = virtual_clock.VirtualClock()
        made = restarts.Restarts(clock, meter.NoMeter())
        ended: list[str] = []

        async def feed(number: int) -> None:
            await clock.sleep(10 if number == 0 else 1e9)
            raise KeyError("feed")

        async def work() -> None:
            task = asyncio.create_task(feed(len(ended)))
            task.add_done_callback(made.task_ended)
            try:
                await clock.sleep(1e9)
            finally:
                ended.append("tenure")
                task.cancel()

        task = await begun(work, made)
        await clock.advance(11)
        assert ended == ["tenure"]
        await clock.advance(20)
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})
        assert ended == ["tenure", "tenure"]
        assert task.cancelled()

    play(story)


@pytest.mark.parametrize("error", [failures.Fenced("lost"), failures.Refused("forbidden")])
def test_a_shut_fence_and_a_server_that_never_let_us_in_pass(error: Exception) -> None:
    async def story() -> None:
        made = restarts.Restarts(virtual_clock.VirtualClock(), meter.NoMeter())

        async def work() -> None:
            raise error

        with pytest.raises(type(error)):
            await made.run(work)

    play(story)


def test_background_work_restarts_after_it_failed() -> None:
    async def story() -> None:
        clock, counting = virtual_clock.VirtualClock(), Counting()
        starts: list[float] = []

        async def work() -> None:
            starts.append(clock.monotonic())
            if len(starts) < 4:
                raise ZeroDivisionError

        task = asyncio.create_task(supervised_tasks.run_supervised("audit", work, clock, counting))
        for _ in range(10):
            await clock.advance(0.5)
        assert starts == pytest.approx([0.0, 0.5, 1.5, 3.5])
        assert task.done()
        assert counting.counts == {"dovetail_turn_errors_total": 3}

    play(story)


def test_an_object_that_a_world_trips_over_twice_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = World.apply

    def failing(self: World, event: object) -> None:
        if event.object.metadata.name == "poison" and type(event).__name__ == "Changed":  # type: ignore[attr-defined]
            raise ZeroDivisionError
        apply(self, event)  # type: ignore[arg-type]

    async def story() -> None:
        monkeypatch.setattr(World, "apply", failing)
        suspects: set[str] = set()

        def listed() -> informer.Informer:
            made = informer.Informer(
                World(), virtual_clock.VirtualClock(), (registry.NODE,), suspects=suspects
            )
            for name in ("a", "poison", "b"):
                metadata = meta.ObjectMeta(name=name, uid=f"uid-of-{name}", resource_version="7")
                made.changed(registry.NODE, nodes.Node(metadata=metadata))
            return made

        with pytest.raises(ZeroDivisionError):
            listed()
        assert [*listed().world.nodes] == ["a", "b"]

    play(story)
