"""What upgrades read by watches: little while none is under way, the same as a list while one is, one node again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

from dovetail.boot import clocks
from dovetail.kube import read_objects
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import object_set, registry
from dovetail.ports.api import Target
from dovetail.upgrade import upgrade_loop, upgrade_watch
from tests.support import rest_place
from tests.upgrade.simulated_upgrade import SimulatedUpgrade

Story = Callable[[SimulatedUpgrade, "Asking", upgrade_watch.UpgradeWatch], Awaitable[None]]


class Asking(transport.Transport):
    """Remembers the paths that are asked for."""

    asked: tuple[str, ...] = ()

    async def request(self, method: str, path: str, *rest: Any, **more: Any) -> transport.Answer:
        self.asked += (path,)
        return await super().request(method, path, *rest, **more)

    async def lines(self, path: str, *rest: Any, **more: Any) -> AsyncGenerator[bytes, None]:
        self.asked += (path,)
        async for line in super().lines(path, *rest, **more):
            yield line


def report_of(folder: Path, story: Story) -> None:
    rig = SimulatedUpgrade(nodes=2)
    rig.run_pod("lone", "gpu-0")

    async def main() -> None:
        async with (
            rest_place.served(rig.api, folder) as kubeconfig,
            Asking(client_config.load(str(kubeconfig))) as over,
            upgrade_watch.UpgradeWatch(over, clocks.SystemClock()) as cluster,
        ):
            await story(rig, over, cluster)

    asyncio.run(asyncio.wait_for(main(), 60))


def end(rig: SimulatedUpgrade) -> None:
    tree = rig.api.tree(registry.STACK_UPGRADE, "roll")
    tree["status"] = {"phase": "Completed"}
    rig.api.write(Target(registry.STACK_UPGRADE, "", "roll", "status"), tree)


def trees(objects: object_set.ObjectSet) -> dict[object_set.Key, Any]:
    return {object_set.key_of(stored.struct): stored.tree for stored in objects.all()}


def watches() -> list[Any]:
    return [
        task
        for task in asyncio.all_tasks()
        if not task.done() and getattr(task.get_coro(), "__name__", "") == "follow"
    ]


def test_while_an_upgrade_is_under_way_it_reads_what_a_list_would_say(tmp_path: Path) -> None:
    async def story(
        rig: SimulatedUpgrade, over: Asking, cluster: upgrade_watch.UpgradeWatch
    ) -> None:
        reading = await cluster.read()
        asked = over.asked
        assert (await cluster.read()).objects == reading.objects
        assert over.asked == asked, "a second reading asks for nothing"
        reads = [object_set.Read(kind) for kind in upgrade_loop.KINDS]
        listed = await read_objects.read_over(over, reads, cluster="")
        assert trees(reading.objects) == trees(listed.objects)
        assert reading.has_rules

    report_of(tmp_path, story)


def test_while_none_is_under_way_only_upgrades_are_watched(tmp_path: Path) -> None:
    async def story(
        rig: SimulatedUpgrade, over: Asking, cluster: upgrade_watch.UpgradeWatch
    ) -> None:
        end(rig)
        reading = await cluster.read()
        assert [*reading.objects.by_kind] == ["StackUpgrade"]
        resources = {path.rpartition("/")[2] for path in over.asked}
        assert resources == {"v1alpha1", "stackupgrades"}, "and its group was looked for"

    report_of(tmp_path, story)


def test_the_other_watches_end_with_the_upgrade(tmp_path: Path) -> None:
    async def story(
        rig: SimulatedUpgrade, over: Asking, cluster: upgrade_watch.UpgradeWatch
    ) -> None:
        assert "Pod" in (await cluster.read()).objects.by_kind
        assert len(watches()) > 10
        end(rig)
        while "Pod" in (await cluster.read()).objects.by_kind:
            await asyncio.sleep(0)
        assert len(watches()) == 1

    report_of(tmp_path, story)


def test_a_node_that_is_read_anew_has_the_pods_it_has_now(tmp_path: Path) -> None:
    async def story(
        rig: SimulatedUpgrade, over: Asking, cluster: upgrade_watch.UpgradeWatch
    ) -> None:
        reading = await cluster.read()
        rig.run_pod("late", "gpu-0")
        rig.run_pod("elsewhere", "gpu-1")
        rig.api.shelf.delete(registry.POD, ("default", "lone-0"), grace_seconds=0)
        confirmed = await cluster.confirm(reading, ["gpu-0"])
        pods = [stored.struct.metadata.name for stored in confirmed.objects.listed("Pod")]
        assert pods == ["late-0"], "and of other nodes nothing was asked"
        assert confirmed.objects.count("Node") == 2

    report_of(tmp_path, story)
