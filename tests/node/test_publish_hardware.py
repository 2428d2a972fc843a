"""From hardware to API server: what happens to GPUs is what the node's pool says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dovetail.boot import clocks
from dovetail.boot.node import node_slices
from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.nvml import control, session, watch
from dovetail.node.slices import layout, options, publisher
from tests.node.nvml.conftest import require_compiler
from tests.node.slices import servers
from tests.support import waiting

pytestmark = pytest.mark.slow

DYNAMIC = options.SliceOptions(is_mig_dynamic=True)


@contextlib.asynccontextmanager
async def agent(node: servers.Node, hardware: Hardware) -> AsyncIterator[publisher.PoolPublisher]:
    """Watches the hardware and publishes it, as the agent does."""
    clock = clocks.SystemClock()
    opened = session.Session(hardware.driver_root, call_seconds=waiting.GIVE_UP_SECONDS)
    gpus = control.NvmlControl(opened, sysfs_root=hardware.sysfs_root)
    changes = watch.GpuWatch(
        opened, gpus, clock=clock, proc_root=hardware.proc_root, poll_seconds=0.05
    ).changes()
    pool = node_slices.publisher_for(node.over, node.name, clock)

    async def follow_hardware() -> None:
        async for inventory in changes:
            pool.publish(layout.contents(inventory, DYNAMIC))

    tasks = [asyncio.create_task(follow_hardware()), asyncio.create_task(pool.run())]
    try:
        yield pool
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        opened.close()


async def wait_for_pool(node: servers.Node, sizes: list[int]) -> list[servers.Tree]:
    """The slices, once the pool is of one generation and has so many devices slice by slice."""

    async def fitting() -> list[servers.Tree]:
        trees = await node.slices()
        generations = {tree["spec"]["pool"]["generation"] for tree in trees}
        counts = [len(tree["spec"].get("devices") or ()) for tree in trees]
        return trees if counts == sizes and len(generations) == 1 else []

    trees: list[servers.Tree] = await waiting.until(fitting, f"a pool of {sizes}")
    return trees


def test_the_pool_follows_the_hardware(tmp_path: Path) -> None:
    require_compiler()
    hardware = Hardware.create(tmp_path / "machine", machine="dgx-h100", gpus=2)

    async def story(node: servers.Node) -> None:
        async with agent(node, hardware):
            await wait_for_pool(node, [0, 26, 26])
            hardware.lose(0)
            await wait_for_pool(node, [0, 26])
            hardware.restore(0)
            await wait_for_pool(node, [0, 26, 26])
            hardware.add_gpu(machine="t4")
            await wait_for_pool(node, [0, 26, 26, 1])
            hardware.reload_driver("590.44.01")

            async def has_new_driver() -> bool:
                *_, last = await node.slices()
                device = last["spec"]["devices"][0]
                return bool(device["attributes"]["driverVersion"]["version"] == "590.44.1")

            await waiting.until(has_new_driver, "the new driver's version")

    servers.run(servers.Embedded(), story)
