"""A second event loop: work is carried to it and back, and nothing is over before it has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from dovetail.boot import background_loop


def test_work_runs_in_the_other_thread_and_its_result_comes_back() -> None:
    async def main() -> None:
        async with background_loop.BackgroundLoop("beside") as beside:
            assert await beside.run(_thread_id()) != threading.get_ident()

    asyncio.run(main())


def test_work_can_ask_the_first_loop_in_turn() -> None:
    async def main() -> None:
        home = asyncio.get_running_loop()

        async def asks() -> tuple[int, int]:
            return threading.get_ident(), await background_loop.run_on(home, _thread_id())

        async with background_loop.BackgroundLoop("beside") as beside:
            there, here = await beside.run(asks())
            assert here == threading.get_ident() != there

    asyncio.run(main())


def test_an_exception_comes_back() -> None:
    async def main() -> None:
        async with background_loop.BackgroundLoop("beside") as beside:
            with pytest.raises(ZeroDivisionError):
                await beside.run(_fails())

    asyncio.run(main())


def test_cancelled_work_is_over_only_once_it_has_ended() -> None:
    async def main() -> None:
        steps: list[str] = []
        has_begun, may_end = threading.Event(), threading.Event()

        async def lingers() -> None:
            try:
                has_begun.set()
                await asyncio.Event().wait()
            finally:
                steps.append("asked to end")
                await asyncio.to_thread(may_end.wait)
                steps.append("ended")

        async with background_loop.BackgroundLoop("beside") as beside:
            asked = asyncio.create_task(beside.run(lingers()))
            await asyncio.to_thread(has_begun.wait)
            asked.cancel()
            while not steps:
                await asyncio.sleep(0)
            assert not asked.done()
            may_end.set()
            with pytest.raises(asyncio.CancelledError):
                await asked
        assert steps == ["asked to end", "ended"]

    asyncio.run(main())


def test_a_cancellation_that_comes_too_late_for_the_work_still_ends_the_caller() -> None:
    async def main() -> None:
        has_begun, may_end = threading.Event(), threading.Event()
        results: list[str] = []

        async def opens() -> str:
            has_begun.set()
            may_end.wait()  # holds the other loop, so that no cancellation reaches the work
            return "opened"

        async def caller(beside: background_loop.BackgroundLoop) -> None:
            results.append(await beside.run(opens()))
            await asyncio.Event().wait()

        async with background_loop.BackgroundLoop("beside") as beside:
            asked = asyncio.create_task(caller(beside))
            await asyncio.to_thread(has_begun.wait)
            asked.cancel()
            await asyncio.sleep(0)
            may_end.set()
            await asyncio.wait({asked}, timeout=60)
            assert asked.cancelled()
        assert results == ["opened"]  # so that it can be closed

    asyncio.run(main())


def test_what_must_be_finished_is_finished_by_a_caller_that_was_cancelled() -> None:
    """Twice: the second cancellation is pending when the closing begins."""

    async def main() -> None:
        has_begun, may_end = threading.Event(), threading.Event()
        steps: list[str] = []

        async def opens() -> None:
            has_begun.set()
            may_end.wait()  # holds the other loop, so that no cancellation reaches the work

        async def closes() -> None:
            await asyncio.sleep(0)
            steps.append("closed")

        async def caller(beside: background_loop.BackgroundLoop) -> None:
            await beside.run(opens())
            await beside.finish(closes())
            await asyncio.Event().wait()

        async with background_loop.BackgroundLoop("beside") as beside:
            asked = asyncio.create_task(caller(beside))
            await asyncio.to_thread(has_begun.wait)
            asked.cancel()
            await asyncio.sleep(0)
            may_end.set()
            await asyncio.wait({asked}, timeout=60)
            assert asked.cancelled()
        assert steps == ["closed"]

    asyncio.run(main())


def test_work_goes_on_while_the_first_loop_is_held() -> None:
    async def main() -> None:
        counted = threading.Event()

        async def counts() -> None:
            for _ in range(100):
                await asyncio.sleep(0)
            counted.set()

        async with background_loop.BackgroundLoop("beside") as beside:
            work = asyncio.create_task(beside.run(counts()))
            await asyncio.sleep(0)
            assert counted.wait(60), (
                "the held loop kept the other one from its work"
            )  # holds this loop
            await work

    asyncio.run(main())


def test_the_log_can_say_where_a_thread_is() -> None:
    assert "test_the_log_can_say_where_a_thread_is" in background_loop.stack_of(
        threading.get_ident()
    )


async def _thread_id() -> int:
    return threading.get_ident()


def _fails() -> Coroutine[Any, Any, None]:
    async def fails() -> None:
        raise ZeroDivisionError

    return fails()
