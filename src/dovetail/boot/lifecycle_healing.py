"""Wires the healer for the process that carries out upgrades: what it reads, and how both loops share one tenure.

Given connections and a policy. Reads nodes and slices in every pass, and the rest only while they show a fault or a
remedy. Never decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from dovetail.kube import client, read_objects
from dovetail.kube.http import transport
from dovetail.kubetypes import object_set, registry
from dovetail.live.election import leader_election
from dovetail.ports import clock as clocks
from dovetail.ports import meter
from dovetail.upgrade.heal import heal_facts, heal_policy, healer_loop


async def heal(
    over: transport.Transport,
    fence: leader_election.Fence,
    clock: clocks.Clock,
    *,
    policy: heal_policy.HealPolicy,
    meter_: meter.Meter,
) -> None:
    """Heals until cancelled or fenced."""
    api = client.KubeApi(over, fence=fence)
    await healer_loop.run(api, clock, lambda: read(over), policy=policy, meter_=meter_)


async def read(over: transport.Transport) -> object_set.ObjectSet:
    """The cluster, as far as the healer needs it now."""
    first = [object_set.Read(kind) for kind in (registry.NODE, registry.SLICE)]
    objects = (await read_objects.read_over(over, first, cluster="")).objects
    if not heal_facts.has_work(objects):
        return objects
    wanted = [object_set.Read(kind, is_optional=True) for kind in healer_loop.KINDS]
    return (await read_objects.read_over(over, wanted, cluster="")).objects


async def together(*loops: Awaitable[None]) -> None:
    """Runs the loops until one of them ends; its error is raised, the others are cancelled."""
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
