"""Carries out what `healing` decides: reads the cluster, writes one step for each node, and does it again.

Given an API, a way to read the cluster, and a clock. Every step is a single write with the version that was read, or
evictions that the Node's record names already: a process that ends between any two of them is continued by the next. A
gang is evicted only after a dry run of every member succeeded. Never writes `unschedulable`, never touches taints of
others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from dovetail import timestamps
from dovetail.answer.replica import replica
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import nodes
from dovetail.model import policy as policies
from dovetail.node.health.policy_table import HealthPolicy
from dovetail.ports import api as api_port
from dovetail.ports import clock as clock_port
from dovetail.ports import failures, meter
from dovetail.upgrade import upgrade_loop
from dovetail.upgrade.heal import heal_facts, heal_policy, heal_record, heal_report, healing
from dovetail.upgrade.heal.heal_record import MovedPod
from dovetail.upgrade.heal.healing import Action, Step

BUSY_SECONDS: Final = 2.0  # after a pass that wrote: the next step is due
# What `read` has to read: that of upgrades, so that one role serves both loops.
KINDS: Final = tuple(kind for kind in upgrade_loop.KINDS if kind != registry.STACK_UPGRADE)

LOG: Final = logging.getLogger(__name__)

ReadCluster = Callable[[], Awaitable[object_set.ObjectSet]]


async def run(
    api: api_port.Api,
    clock: clock_port.Clock,
    read: ReadCluster,
    *,
    policy: heal_policy.HealPolicy = heal_policy.DEFAULT,
    table: HealthPolicy = HealthPolicy(),  # noqa: B008 frozen
    meter_: meter.Meter | None = None,
) -> None:
    """Heals until cancelled. What the server refuses is tried again with the next pass."""
    healer = Healer(api, clock, policy=policy, table=table, meter_=meter_)
    while True:
        is_busy = False
        try:
            steps = await healer.pass_once(await read())
            is_busy = any(step.action in healing.CHANGES for step in steps)
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            LOG.warning("heal.pass.failed: %s", failure)
        await clock.sleep(
            min(BUSY_SECONDS, policy.pass_seconds) if is_busy else policy.pass_seconds
        )


class Healer:
    """Remembers only what it has reported already; everything else stands on the Nodes."""

    def __init__(
        self,
        api: api_port.Api,
        clock: clock_port.Clock,
        *,
        policy: heal_policy.HealPolicy,
        table: HealthPolicy,
        meter_: meter.Meter | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._policy = policy
        self._table = table
        self._report = heal_report.HealReport(api, meter_ or meter.NoMeter())

    async def pass_once(self, objects: object_set.ObjectSet) -> tuple[Step, ...]:
        """One step for each node. A node whose write fails waits for the next pass; the others go on."""
        now = self._clock.now()
        facts = heal_facts.read(replica.Replica(objects, policies.Policy(), now))
        steps = healing.decide(facts, self._policy, self._table, now=now.timestamp())
        self._report.passed(steps)
        records = {node.name: node.record for node in facts.nodes}
        for step in steps:
            try:
                await self._carry_out(step, objects)
            except (failures.Conflict, failures.Missing) as failure:
                LOG.info("heal.step.outdated node=%s: %s", step.node, failure)
                continue
            await self._report.decided(step, records[step.node], now)
        return steps

    async def _carry_out(self, step: Step, objects: object_set.ObjectSet) -> None:
        if step.action is Action.MOVE:
            await self._move(step)
        elif step.record is not None:
            node = objects.get(object_set.Key(registry.NODE.name, "", step.node))
            if node is not None and isinstance(node.struct, nodes.Node):
                await self._write(step, node.struct)

    async def _write(self, step: Step, node: nodes.Node) -> None:
        """Record, request and fence in one patch, unless the Node has changed since."""
        assert step.record is not None, "a step that writes has a record"
        change: dict[str, Any] = {
            "metadata": {
                "resourceVersion": node.metadata.resource_version,
                "annotations": heal_record.annotations_of(step.record),
            }
        }
        taints = taints_with(node.spec.taints, step.record, timestamps.to_text(self._clock.now()))
        if taints != node.spec.taints:
            change["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in taints]}
        target = api_port.Target(registry.NODE, name=step.node)
        await self._api.patch(target, codec.encode_tree(change), brief=True)

    async def _move(self, step: Step) -> None:
        units: dict[str, list[MovedPod]] = {}
        for pod in step.pods:
            units.setdefault(pod.unit, []).append(pod)
        for unit, members in units.items():
            answers = await asyncio.gather(*(self._evict(pod, True) for pod in members))
            refusals = [answer for answer in answers if answer]
            if refusals:
                now = self._clock.now()
                await self._report.unit_stays(step.node, unit, len(members), refusals[0], now)
                continue
            for pod in members:
                self._report.evicted(pod, await self._evict(pod, False))

    async def _evict(self, pod: MovedPod, is_rehearsal: bool) -> str:
        """Why the pod stays; empty where it goes, or is gone."""
        target = api_port.Target(registry.POD, pod.namespace, pod.name)
        try:
            await self._api.evict(target, uid=pod.uid, is_rehearsal=is_rehearsal)
        except (failures.Missing, failures.Conflict):
            return ""  # gone; a pod of the same name is another one
        except failures.Protected as refusal:
            return str(refusal)
        return ""


def taints_with(
    taints: tuple[nodes.Taint, ...], record: heal_record.Record, now: str
) -> tuple[nodes.Taint, ...]:
    """The taints of a Node with our fence, or without it; all others as they are."""
    foreign = tuple(taint for taint in taints if taint.key != heal_record.FENCE)
    if not record.is_active or record.rung not in healing.NODE_WIDE:
        return foreign
    ours = [taint for taint in taints if taint.key == heal_record.FENCE]
    fence = nodes.Taint(
        key=heal_record.FENCE, value=record.rung, effect="NoSchedule", time_added=now
    )
    return (*foreign, ours[0] if ours and ours[0].value == record.rung else fence)
