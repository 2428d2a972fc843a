"""A kind that is not installed yet is waited for, then watched; a server that does not answer is tried again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from dovetail.boot import clocks
from dovetail.kube.http import transport
from dovetail.kube.watching import wait_for_kind
from dovetail.kubetypes import registry
from tests.kube import serving

ROOT = "/apis/dovetail.dev/v1alpha1"


class Sink:
    """Records calls, and sets an event at the first list."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.listed = asyncio.Event()

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        self.calls += ["replaced", *(item.metadata.name for item in objects)]
        self.listed.set()

    def changed(self, result: Any, /) -> None:
        self.calls.append(f"changed {result.metadata.name}")

    def deleted(self, result: Any, /) -> None:
        self.calls.append(f"deleted {result.metadata.name}")

    def broken(self, reason: str, /) -> None:
        self.calls.append("broken")

    def unreadable(self, name: str, problem: str, /) -> None:
        self.calls.append(f"unreadable {name}")


def server(*before: int) -> Any:
    """One that answers discovery with these codes first and then serves queues; and what it was asked."""
    left, asked = list(before), []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        if request.path == ROOT and left:
            return serving.refusal(left.pop(0), "Because", "not now")
        if request.path == ROOT:
            return serving.answer({"resources": [{"name": "queues"}, {"name": "queues/status"}]})
        if request.query.get("watch"):
            await asyncio.Event().wait()  # nothing happens until the client leaves
        queue = {"metadata": {"name": "vision", "uid": "u", "resourceVersion": "5"}}
        return serving.answer({"metadata": {"resourceVersion": "7"}, "items": [queue]})

    return handler, asked


def test_a_kind_is_waited_for_and_reported_before_its_first_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wait_for_kind, "ASK_SECONDS", 0.001)
    handler, asked = server(404, 503, 404)

    async def main() -> Sink:
        sink = Sink()
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url)) as over,
        ):
            following = asyncio.create_task(
                wait_for_kind.follow(
                    over,
                    registry.QUEUE,
                    sink,
                    clock=clocks.SystemClock(),
                    arrived=lambda: sink.calls.append("arrived"),
                )
            )
            await sink.listed.wait()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        return sink

    sink = asyncio.run(main())
    assert sink.calls[:3] == ["arrived", "replaced", "vision"]
    assert asked[:5] == [ROOT, ROOT, ROOT, ROOT, f"{ROOT}/queues"]


def test_what_is_served_of_several_kinds_is_one_question() -> None:
    handler, asked = server()

    async def main() -> tuple[registry.Kind, ...]:
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url)) as over,
        ):
            return await wait_for_kind.served(over, registry.OURS)

    assert asyncio.run(main()) == (registry.QUEUE,)
    assert asked == [ROOT]
