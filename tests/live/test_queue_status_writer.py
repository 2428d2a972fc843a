"""The status of queues: what is written, and how often; in memory, in simulated time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from dovetail.kubetypes import registry
from dovetail.kubetypes.custom import queues
from dovetail.live.informer import informer
from dovetail.live.report import queue_status_writer
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim import virtual_clock
from dovetail.sim.server import api_server
from dovetail.world.world import World


class Office:
    """A server in memory, a picture of it, and the loop that writes."""

    def __init__(self) -> None:
        self.clock = virtual_clock.VirtualClock()
        self.api = api_server.SimApi(self.clock)
        self.writes: list[str] = []
        self.written_at: dict[str, list[float]] = {}  # by queue
        self.api.after = self._count
        self.statuses: queue_status_writer.QueueStatusWriter | None = None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[queue_status_writer.QueueStatusWriter]:
        seen = informer.Informer(World(), self.clock, registry.OURS)
        feeds = [
            self.api.follow(kind, informer.Feed(seen, kind, trouble=lambda a, b: None))
            for kind in registry.OURS
        ]
        made = queue_status_writer.QueueStatusWriter(seen, self.api, clock=self.clock)
        tasks = [asyncio.create_task(seen.pump())]
        await self.clock.advance(0)
        tasks.append(asyncio.create_task(made.run()))
        await self.clock.advance(0)
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for feed in feeds:
                feed.end()

    def queue(self, name: str, **spec: Any) -> None:
        head = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}}
        self.api.put(head | {"spec": spec})

    def change(self, name: str, **spec: Any) -> None:
        tree = self.api.tree(registry.QUEUE, name)
        self.api.shelf.put(registry.QUEUE, tree | {"spec": spec})

    def status(self, name: str) -> queues.QueueStatus:
        queue: queues.Queue = self.api.find(registry.QUEUE, name)
        return queue.status

    def ready(self, name: str) -> tuple[str, str, int]:
        (condition,) = self.status(name).conditions
        return condition.status, condition.reason, condition.observed_generation

    def _count(self, verb: str, target: Target) -> None:
        if verb == "patch":
            self.writes.append(target.name)
            self.written_at.setdefault(target.name, []).append(self.clock.monotonic())


def gpus(charged: str, **others: Any) -> queues.QueueStatus:
    return queues.QueueStatus(
        resources={"nvidia.com/gpu": queues.ShareStatus(charged=charged)}, **others
    )


def play(story: Any) -> None:
    asyncio.run(story)


def test_every_queue_says_whether_it_is_in_order_and_again_when_that_changes() -> None:
    async def story() -> None:
        office = Office()
        office.queue("org")
        office.queue("team", parent="org")
        office.queue("lost", parent="gone")
        async with office.open():
            assert office.ready("org") == office.ready("team") == ("True", "Ready", 1)
            assert office.ready("lost") == ("False", "ParentMissing", 1)
            since = office.status("lost").conditions[0].last_transition_time
            assert sorted(office.writes) == ["lost", "org", "team"]
            await office.clock.advance(100)
            assert len(office.writes) == 3, "nothing changed"
            office.change("org", parent="team")
            await office.clock.advance(10)
            assert office.ready("org") == ("False", "ParentsFormACircle", 2)
            assert office.ready("team")[:2] == ("False", "ParentsFormACircle")
            office.queue("gone")
            await office.clock.advance(10)
            assert office.ready("lost")[:2] == ("True", "Ready")
            assert office.status("lost").conditions[0].last_transition_time > since

    play(story())


def test_numbers_are_those_published_and_written_no_more_often_than_allowed() -> None:
    async def story() -> None:
        office = Office()
        office.queue("a")
        office.queue("b")
        async with office.open() as statuses:
            await office.clock.advance(10)
            office.written_at.clear()
            for second in range(30):
                statuses.publish({"a": gpus(str(second), running=second), "b": gpus("1")})
                await office.clock.advance(1)
            await office.clock.advance(10)
            assert office.status("a").resources["gpu"].charged == "29"
            assert office.status("a").running == 29
            every_three_seconds = [
                10.0 + queue_status_writer.EVERY_SECONDS * number for number in range(11)
            ]
            assert office.written_at == {"a": every_three_seconds, "b": [10.0]}
            assert office.ready("a") == ("True", "Ready", 1)

    play(story())


def test_what_only_time_changes_is_written_once_a_minute() -> None:
    async def story() -> None:
        office = Office()
        office.queue("a")
        async with office.open() as statuses:
            await office.clock.advance(10)
            office.written_at.clear()
            for second in range(300):
                stamp = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
                statuses.publish({"a": gpus("1", usage={"gpu": str(second)}, usage_time=stamp)})
                await office.clock.advance(1)
            assert office.written_at == {"a": [10.0, 70.0, 130.0, 190.0, 250.0, 310.0]}

    play(story())


def test_what_is_gone_from_the_numbers_is_gone_from_the_status() -> None:
    async def story() -> None:
        office = Office()
        office.queue("a")
        async with office.open() as statuses:
            shares = {
                "cpu": queues.ShareStatus(charged="4"),
                "gpu": queues.ShareStatus(charged="1", fair_share="2"),
            }
            statuses.publish({"a": queues.QueueStatus(resources=shares, pending=3)})
            await office.clock.advance(10)
            assert office.status("a").resources == shares
            statuses.publish({"a": gpus("1")})
            await office.clock.advance(10)
            assert office.status("a").resources == {"gpu": queues.ShareStatus(charged="1")}
            assert office.status("a").pending == 0
            tree = office.api.tree(registry.QUEUE, "a")["status"]
            assert "pending" not in tree
            assert tree["resources"] == {"gpu": {"charged": "1"}}

    play(story())


def test_conflicts_and_lost_answers_are_survived_and_queues_may_go() -> None:
    async def story() -> None:
        office = Office()
        office.queue("a")
        office.queue("b")
        troubles = [
            failures.Conflict("another writer was first", status=409, reason="Conflict"),
            failures.Unavailable("no answer"),
            failures.Throttled("too many", status=429),
        ]

        def refuse(verb: str, target: Target) -> None:
            if troubles and target.name == "a":
                raise troubles.pop()

        office.api.before = refuse
        async with office.open() as statuses:
            await office.clock.advance(60)
            assert troubles == []
            assert office.ready("a") == ("True", "Ready", 1)
            statuses.publish({"a": gpus("1"), "b": gpus("1"), "never": gpus("1")})
            office.api.shelf.delete(registry.QUEUE, ("", "b"))
            await office.clock.advance(60)
            assert office.status("a").resources["gpu"].charged == "1"

    play(story())


def test_conditions_of_others_stay() -> None:
    async def story() -> None:
        office = Office()
        office.queue("a")
        tree = office.api.tree(registry.QUEUE, "a")
        foreign = {
            "type": "Billed",
            "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "Yes",
        }
        office.api.shelf.put(registry.QUEUE, tree | {"status": {"conditions": [foreign]}})
        async with office.open():
            assert [condition.type for condition in office.status("a").conditions] == [
                "Billed",
                "Ready",
            ]

    play(story())


def test_a_merge_patch_makes_one_tree_of_the_other() -> None:
    before = {
        "a": 1,
        "gone": {"x": 1},
        "map": {"keep": 1, "drop": 2},
        "list": [1, 2],
        "same": {"y": 1},
    }
    after = {"a": 2, "map": {"keep": 1, "new": {"z": 3}}, "list": [1], "same": {"y": 1}}
    patch = queue_status_writer.merge_patch(before, after)
    assert patch == {"gone": None, "a": 2, "map": {"drop": None, "new": {"z": 3}}, "list": [1]}
