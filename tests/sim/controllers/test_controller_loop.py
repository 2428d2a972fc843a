"""The controllers in an event loop: they act on changes and at their times, under a virtual clock."""

from __future__ import annotations

import asyncio
import contextlib

from dovetail.sim import virtual_clock
from dovetail.sim.controllers import controller_loop, workload_controllers
from tests.sim.controllers.test_cron_job import cron_job
from tests.sim.controllers.tiny_store import BEGINNING, TinyStore, workload


def test_changes_and_times_make_the_loop_act() -> None:
    asyncio.run(story())


async def story() -> None:
    clock = virtual_clock.VirtualClock(BEGINNING)
    store = TinyStore()
    controllers = workload_controllers.WorkloadControllers(store)
    changed = asyncio.Event()

    def observe(tree: dict[str, object], *, is_deleted: bool = False) -> None:
        store.now = clock.now()
        controllers.observe(tree, is_deleted=is_deleted)
        changed.set()

    def count(kind: str) -> int:
        return sum(key.kind == kind for key in store.trees)

    store.observers.append(observe)
    task = asyncio.create_task(controller_loop.run(controllers, clock, changed))
    await clock.advance(1)
    for tree in (workload("ReplicaSet", replicas=3), cron_job("*/10 * * * *")):
        tree["metadata"]["namespace"] = "default"
        store.create(tree)
    await clock.advance(1)
    assert count("Pod") == 3
    await clock.advance(590)
    assert count("Job") == 0
    await clock.advance(20)
    assert count("Job") == 1
    await clock.advance(600)
    assert count("Job") == 2
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
