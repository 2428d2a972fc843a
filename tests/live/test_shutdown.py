"""A scheduler that stops: writes in flight are completed, and no new ones begin."""

from __future__ import annotations

import asyncio

from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play


def test_a_write_under_way_is_answered_before_the_scheduler_ends() -> None:
    """A lease is handed over at once only if no write is in doubt."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        stage.pod("a", templates=("one",))
        arrived, gate = asyncio.Event(), asyncio.Event()
        cancelled: list[str] = []
        create = stage.api.create

        async def slow(target: Target, document: bytes, *, brief: bool = False) -> bytes:
            if target.subresource == "binding":
                arrived.set()
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    cancelled.append(target.name)
                    raise
            return await create(target, document, brief=brief)

        stage.api.create = slow  # type: ignore[method-assign]
        async with stage.scheduling(drain_seconds=60.0):
            await stage.pass_time(1)
            assert arrived.is_set()
            stage.pod("b", templates=("one",))
            asyncio.get_running_loop().call_later(0.01, gate.set)
        assert cancelled == []
        assert stage.node_of("a")
        assert stage.node_of("b") == ""

    play(story)


def test_a_write_that_is_never_answered_does_not_keep_the_scheduler() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=1)
        stage.template("one")
        stage.pod("a", templates=("one",))

        async def silent(target: Target, document: bytes, *, brief: bool = False) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

        stage.api.create = silent  # type: ignore[method-assign]
        async with stage.scheduling(drain_seconds=0.01):
            await stage.pass_time(1)
        assert stage.node_of("a") == ""

    play(story)
