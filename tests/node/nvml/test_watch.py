"""The watch over a machine's life: what changes is noticed, and nothing else is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dovetail.boot import clocks
from dovetail.node.inventory import Inventory
from dovetail.node.nvml import watch
from tests.node.nvml.conftest import Machine, MakeMachine
from tests.support import waiting

pytestmark = pytest.mark.slow


class Watched:
    """The inventories a watch has yielded so far."""

    def __init__(self, changes: AsyncIterator[Inventory]) -> None:
        self._changes = changes

    async def next(self) -> Inventory:
        """The next one."""
        return await asyncio.wait_for(anext(self._changes), waiting.GIVE_UP_SECONDS)


def watch_of(machine: Machine) -> watch.GpuWatch:
    """A watch that looks often."""
    return watch.GpuWatch(
        machine.session,
        machine.control,
        clock=clocks.SystemClock(),
        proc_root=machine.hardware.proc_root,
        poll_seconds=0.05,
    )


def run(machine: Machine, story: Callable[[Watched], Awaitable[None]]) -> None:
    """Watches a machine while a story lasts."""
    asyncio.run(_main(machine, story))


async def _main(machine: Machine, story: Callable[[Watched], Awaitable[None]]) -> None:
    await story(Watched(watch_of(machine).changes()))


def test_a_gpu_that_is_lost_and_comes_back_is_noticed(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=3)

    async def story(watched: Watched) -> None:
        assert len((await watched.next()).gpus) == 3
        machine.hardware.lose(1)
        without = await watched.next()
        assert [gpu.minor for gpu in without.gpus] == [0, 2]
        assert [gpu.index for gpu in without.unread] == [1]
        machine.hardware.restore(1)
        assert len((await watched.next()).gpus) == 3

    run(machine, story)


def test_gpus_that_hang_are_noticed_and_found_again(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)
    patience = machine.session.call_seconds

    async def story(watched: Watched) -> None:
        assert len((await watched.next()).gpus) == 2
        machine.session.call_seconds = 0.5
        machine.hardware.hang("nvmlDeviceGetMigMode")
        hanging = await watched.next()
        while hanging.gpus:
            hanging = await watched.next()
        assert [gpu.index for gpu in hanging.unread] == [0, 1]

        machine.session.call_seconds = patience
        machine.hardware.release()
        answering = await watched.next()
        while len(answering.gpus) < 2:
            answering = await watched.next()

    run(machine, story)


def test_a_gpu_that_is_plugged_in_is_noticed(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)

    async def story(watched: Watched) -> None:
        assert len((await watched.next()).gpus) == 1
        machine.hardware.add_gpu(machine="dgx-h100")
        assert len((await watched.next()).gpus) == 2

    run(machine, story)


def test_mig_mode_and_devices_by_hand_are_noticed(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)

    async def story(watched: Watched) -> None:
        assert not (await watched.next()).gpus[0].is_mig_enabled
        machine.hardware.set_mig_mode(0, True)
        assert (await watched.next()).gpus[0].is_mig_enabled
        machine.hardware.create_mig(0, 9, 4)
        inventory = await watched.next()
        while not inventory.gpus[0].mig_devices or not inventory.gpus[0].mig_devices[0].uuid:
            inventory = await watched.next()
        assert inventory.gpus[0].mig_devices[0].placement.start == 4

    run(machine, story)


def test_a_driver_that_is_replaced_is_noticed(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)

    async def story(watched: Watched) -> None:
        assert (await watched.next()).driver_version == "580.95.05"
        machine.hardware.reload_driver("590.44.01")
        inventory = await watched.next()
        while inventory.driver_version != "590.44.01":
            inventory = await watched.next()
        assert len(inventory.gpus) == 2

    run(machine, story)


def test_without_a_driver_there_are_no_gpus_until_it_is_back(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=2)

    async def story(watched: Watched) -> None:
        assert len((await watched.next()).gpus) == 2
        for function in ("nvmlSystemGetCudaDriverVersion", "nvmlInitWithFlags"):
            machine.hardware.fail(function, 9)
        assert await watched.next() == watch.NO_DRIVER
        machine.hardware.release()
        assert len((await watched.next()).gpus) == 2

    run(machine, story)


def test_nothing_is_reported_while_nothing_changes(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)

    async def story(watched: Watched) -> None:
        await watched.next()
        # Temperature and power are no part of an inventory; the next report is of the change after them.
        machine.hardware.set_temperature(0, 80)
        machine.hardware.set_power(0, watts=500)
        machine.hardware.lose(0)
        assert (await watched.next()).gpus == ()

    run(machine, story)


def test_events_come_while_the_inventory_is_watched(make_machine: MakeMachine) -> None:
    machine = make_machine("dgx-h100", gpus=1)

    async def main() -> None:
        gpus = watch_of(machine)
        inventories = gpus.changes()
        await anext(inventories)
        collected = gpus.events()
        machine.hardware.inject_xid(0, 79)
        # Events from before the first registration are lost, as with a real driver; so it is repeated.
        task = asyncio.ensure_future(anext(collected))

        async def repeated() -> bool:
            machine.hardware.inject_xid(0, 79)
            return task.done()

        await waiting.until(repeated, "an event")
        assert (await task).xid == 79

    asyncio.run(main())
