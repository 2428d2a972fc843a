"""How often the agent reads its Node, and what it says while it cannot."""

from __future__ import annotations

import asyncio
import datetime

import msgspec
import pytest

from dovetail.boot import clocks
from dovetail.kubetypes import registry
from dovetail.model import node_annotations
from dovetail.model.node_annotations import HealRequest, HealResponse, Rehearsal
from dovetail.node.requests import request_loop
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi

NODE = Target(registry.NODE, name="node-a")


class Enough(Exception):
    """The story has seen enough."""


class CountingClock:
    """Moves on by each sleep, and ends the story at a time."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.slept: list[float] = []

    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.monotonic() >= self.until:
            raise Enough


class Loop:
    """The loop of a node whose API server is in memory."""

    def __init__(self, *, until: float = 1_000.0) -> None:
        self.api = SimApi(clocks.SystemClock())
        self.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
        self.clock = CountingClock(until)
        self.is_unwell = False
        self.delivered = 0
        self.loop = request_loop.RequestLoop(
            self.api,
            self.clock,
            node_name="node-a",
            rehearse=self._rehearse,
            heal=self._heal,
            answered=self._answered,
            is_unwell=lambda: self.is_unwell,
        )

    async def _rehearse(self, request: str) -> Rehearsal:
        return Rehearsal(id=request, result="ok")

    async def _heal(self, request: HealRequest) -> HealResponse:
        return HealResponse(id=request.id, result="done")

    async def _answered(self) -> None:
        self.delivered += 1

    def run(self) -> list[float]:
        with pytest.raises(Enough):
            asyncio.run(self.loop.run())
        return self.clock.slept

    def ask(self) -> None:
        request = HealRequest(id="r-1", action="reset-gpu", gpus=("gpu-0",))
        marks = {node_annotations.HEAL_REQUEST: msgspec.json.encode(request).decode()}
        change = msgspec.json.encode({"metadata": {"annotations": marks}})
        asyncio.run(self.api.patch(NODE, change))


def test_it_looks_often_after_its_start_and_then_rarely() -> None:
    slept = Loop(until=1_200.0).run()
    often = [seconds for seconds in slept if seconds == request_loop.ALERT_SECONDS]
    assert sum(often) == request_loop.ALERT_FOR_SECONDS
    assert slept[len(often) :] == [request_loop.CALM_SECONDS] * 10


def test_it_looks_often_while_a_gpu_is_not_well() -> None:
    loop = Loop(until=2_000.0)
    loop.is_unwell = True
    assert set(loop.run()) == {request_loop.ALERT_SECONDS}


def test_an_answer_counts_as_delivered_once_it_stands_on_the_node() -> None:
    loop = Loop(until=12.0)
    loop.ask()
    refusals = iter([True, True])

    def refuse(verb: str, target: Target) -> None:
        if verb == "patch" and next(refusals, False):
            assert loop.delivered == 0
            raise failures.Unavailable("the server is away")

    loop.api.before = refuse
    loop.run()
    assert loop.delivered == 1
    annotations = loop.api.find(registry.NODE, "node-a").metadata.annotations
    assert node_annotations.open_heal_request(annotations) is None


def test_the_same_trouble_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(until=60.0)

    def refuse(verb: str, target: Target) -> None:
        raise failures.Unavailable("the server is away")

    loop.api.before = refuse
    loop.run()
    assert [record.getMessage() for record in caplog.records] == ["requests.failed: tried again"]
