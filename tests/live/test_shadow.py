"""The shadow compares and writes nothing."""

from __future__ import annotations

import asyncio
import collections

from dovetail.kubetypes import registry
from dovetail.live.cycle import scheduler_loop, shadow
from dovetail.live.informer import informer
from dovetail.model import policy
from dovetail.ports import meter
from dovetail.ports.api import Target
from dovetail.world.world import World
from tests.live.live_scheduler import NAME, Stage, play


def test_it_says_where_it_would_differ_and_writes_nothing() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=2)
        for name in ("same", "elsewhere", "impossible", "early"):
            stage.claim(name, count=3 if name == "impossible" else 1)
        for name in ("same", "elsewhere", "impossible"):
            stage.pod(name, named=(name,))
        writes: list[str] = []
        stage.api.before = lambda verb, target: writes.append(f"{verb} {target}")
        comparisons: list[shadow.Comparison] = []
        seen = informer.Informer(World(), stage.clock)
        watcher = shadow.Shadow(
            seen,
            clock=stage.clock,
            meter_=meter.NoMeter(),
            settings=scheduler_loop.Settings(policy=policy.Policy(scheduler_names=(NAME,))),
            report=comparisons.append,
        )
        pump, task = asyncio.create_task(seen.pump()), asyncio.create_task(watcher.run())
        feeds = [
            stage.api.follow(kind, informer.Feed(seen, kind, trouble=lambda a, b: None))
            for kind in registry.WATCHED
        ]
        await stage.clock.advance(1)
        assert writes == []
        opinions = {uid: one.node for uid, one in watcher._opinions.items() if hasattr(one, "node")}
        ours = {
            stage.the_pod(name).metadata.name: opinions[stage.the_pod(name).metadata.uid]
            for name in ("same", "elsewhere")
        }
        await bind(stage, "same", ours["same"], "gpu-0")
        other = next(node for node in ("n-0", "n-1") if node != ours["elsewhere"])
        await bind(stage, "elsewhere", other, "gpu-1")
        await bind(stage, "impossible", "n-0", "gpu-1")
        stage.pod("premature", named=("premature",))
        await stage.clock.advance(1)
        stage.claim("premature")  # until now there was nothing to have an opinion about
        await bind(stage, "premature", "n-1", "gpu-0", settle=False)
        stage.pod("early", named=("early",))
        await bind(stage, "early", "n-1", "gpu-0", settle=False)
        await stage.clock.advance(1)
        stage.claim("overtaken")
        stage.pod("overtaken", named=("overtaken",))
        await stage.clock.advance(1)
        await bind(
            stage, "overtaken", "n-0", "", settle=True
        )  # the feed of pods is ahead of that of claims
        assert "overtaken" not in {comparison.pod.partition("/")[2] for comparison in comparisons}
        uid = stage.the_pod("overtaken").metadata.uid
        stage.take("overtaken", ("n-0", "gpu-1"), same=True, uid=uid)
        await stage.clock.advance(0.1)
        assert [
            comparison.their_devices
            for comparison in comparisons
            if comparison.pod == "default/overtaken"
        ] == [("gpu.nvidia.com/n-0/gpu-1",)]
        results = {
            comparison.pod.partition("/")[2]: comparison.result for comparison in comparisons
        }
        assert results["elsewhere"] == "other-node"
        assert results["impossible"] == "we-refuse"
        assert results["early"] == results["premature"] == "late"
        assert results["same"] in ("same", "other-devices")
        assert watcher.totals == collections.Counter(results.values())
        for item in (pump, task):
            item.cancel()
        await asyncio.gather(pump, task, return_exceptions=True)
        for feed in feeds:
            feed.end()

    play(story)


async def bind(stage: Stage, name: str, node: str, device: str, *, settle: bool = True) -> None:
    """Another scheduler allocates and binds; without a device it only binds."""
    if device:
        stage.take(name, (node, device), same=True, uid=stage.the_pod(name).metadata.uid)
    target = Target(registry.POD, "default", name, "binding")
    before, stage.api.before = stage.api.before, None
    await stage.api.create(
        target, b'{"apiVersion":"v1","kind":"Binding","target":{"name":"%s"}}' % node.encode()
    )
    stage.api.before = before
    if settle:
        await stage.clock.advance(0.1)
