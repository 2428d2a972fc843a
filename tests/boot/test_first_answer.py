"""A scheduler that starts before its API server waits for it, and its log stays short."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.boot import first_answer
from dovetail.ports import failures
from dovetail.sim.virtual_clock import VirtualClock


class LateServer:
    """Answers from a certain time on; records when it was asked."""

    def __init__(self, clock: VirtualClock, *, answers_from: float) -> None:
        self._clock = clock
        self._answers_from = answers_from
        self.asked_at: list[float] = []

    async def ask(self) -> str:
        now = self._clock.monotonic()
        self.asked_at.append(now)
        if now < self._answers_from:
            raise failures.Unavailable("connection refused")
        return "v1.37.1"


def test_a_server_that_comes_late_is_asked_and_logged_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> tuple[str, list[float]]:
        clock = VirtualClock()
        server = LateServer(clock, answers_from=60)
        answering = asyncio.ensure_future(first_answer.first_answer(server.ask, clock=clock))
        await clock.advance(120)
        return answering.result(), server.asked_at

    answer, asked_at = asyncio.run(story())
    assert answer == "v1.37.1"
    assert asked_at == [0, 1, 3, 7, 15, 30, 45, 60]
    warnings = [record for record in caplog.records if record.name == "dovetail.scheduler"]
    assert [record.__dict__["next_try_seconds"] for record in warnings] == [1, 2, 4, 8, 15, 15, 15]


def test_a_refusal_is_not_waited_out() -> None:
    async def refuse() -> str:
        raise failures.Refused("forbidden", status=403)

    with pytest.raises(failures.Refused):
        asyncio.run(first_answer.first_answer(refuse, clock=VirtualClock()))
