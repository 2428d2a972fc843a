"""Carries out the upgrades of a cluster: reads everything, asks the machine about each, writes, and begins again.

Given an API, a reader and a clock. Keeps nothing that the next process would need. A write that fails ends the pass for
its upgrade; the next pass reads again. Durations are measured by a steady clock that begins where the status ends, so
that a clock that is set does not make nodes fail. Never decides what comes next.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes import gpu_stack_kinds, object_set, registry
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, StackUpgrade
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter
from dovetail.upgrade import instruction_writer, read_facts, upgrade_events
from dovetail.upgrade.machine import instructions, upgrade_machine
from dovetail.upgrade.machine.cluster_facts import Judges

LOG = logging.getLogger("dovetail.lifecycle")
# What is read while an upgrade is under way.
KINDS: Final = (
    registry.STACK_UPGRADE,
    registry.NODE,
    registry.SLICE,
    registry.DEVICE_CLASS,
    registry.TAINT_RULE,
    registry.CLAIM,
    registry.POD,
    registry.BUDGET,
    *registry.OWNERS,
    *registry.PARENTS,
    *gpu_stack_kinds.ALL,
)
BUSY_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 5.0
WRITES: Final = "dovetail_lifecycle_writes_total"
NODES: Final = "dovetail_lifecycle_nodes"
PASSES: Final = "dovetail_lifecycle_passes_total"


class Reading(NamedTuple):
    """The objects of a cluster, and whether it has device taint rules."""

    objects: object_set.ObjectSet
    has_rules: bool


Read = Callable[[], Awaitable[Reading]]
Judge = Callable[[object_set.ObjectSet], Judges]


class SteadyTime:
    """Time that goes on evenly from the later of the clock's and a written one."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._base = clock.now()
        self._began = clock.monotonic()

    def now(self, not_before: str = "") -> datetime.datetime:
        """The time; never earlier than one that was written."""
        passed = datetime.timedelta(seconds=self._clock.monotonic() - self._began)
        written = timestamps.parse_or_none(not_before)
        if written is not None and written > self._base + passed:
            self._base = written - passed
        return self._base + passed


class UpgradeLoop:
    """The loop of one tenure."""

    def __init__(
        self,
        api: apis.Api,
        read: Read,
        clock: clocks.Clock,
        judge: Judge,
        *,
        meter_: meter.Meter | None = None,
    ) -> None:
        self._api = api
        self._read = read
        self._clock = clock
        self._judge = judge
        self._meter = meter_ or meter.NoMeter()
        self._time = SteadyTime(clock)
        self._events = upgrade_events.UpgradeEvents(api)

    async def run(self) -> None:
        """Works until it is cancelled or fenced."""
        while True:
            is_active = await self.run_once()
            await self._clock.sleep(BUSY_SECONDS if is_active else IDLE_SECONDS)

    async def run_once(self) -> bool:
        """One pass over all upgrades; whether any is under way."""
        reading = await self._read()
        self._meter.count(PASSES)
        upgrades = read_facts.upgrades_of(reading.objects)
        active = [each for each in upgrades if needs_work(each)]
        for upgrade in active:
            try:
                await self._work_on(upgrade, reading)
            except failures.Fenced:
                raise
            except failures.ApiFailure as failure:
                self._count("failed")
                LOG.warning(
                    "lifecycle.write.failed: tried again",
                    extra={"upgrade": upgrade.metadata.name, "why": str(failure)},
                )
        return bool(active)

    async def _work_on(self, upgrade: StackUpgrade, reading: Reading) -> None:
        wall = self._clock.now()
        now = self._time.now(upgrade.status.updated_at)
        objects = reading.objects
        facts = read_facts.facts_of(objects, upgrade, has_rules=reading.has_rules, now=now)
        at = upgrade_machine.Moment(now, wall)
        step = upgrade_machine.step(upgrade, facts, self._judge(objects), at)
        writer = instruction_writer.InstructionWriter(self._api, upgrade, objects, facts)
        self._measure(upgrade)
        if step.status != upgrade.status:
            await writer.write_status(step.status)
            self._count("status")
            self._log(upgrade, step)
            return
        await self._events.record(upgrade, now)
        for order in step.instructions:
            await self._carry_out(writer, order)

    async def _carry_out(
        self, writer: instruction_writer.InstructionWriter, order: instructions.Instruction
    ) -> None:
        """A write that fails for its own object leaves the others alone."""
        try:
            await writer.carry_out(order)
            self._count(type(order).__name__.lower())
        except (failures.Protected, failures.Conflict, failures.Missing, failures.Refused) as no:
            self._count("refused")
            LOG.warning("lifecycle.refused: tried again", extra={"why": str(no)})

    def _count(self, write: str) -> None:
        self._meter.count(WRITES, write=write)

    def _measure(self, upgrade: StackUpgrade) -> None:
        counts: dict[str, int] = {}
        for node in upgrade.status.nodes:
            counts[node.phase] = counts.get(node.phase, 0) + 1
        for phase in NodePhase:
            self._meter.gauge(
                NODES, counts.get(phase, 0), upgrade=upgrade.metadata.name, phase=str(phase)
            )

    def _log(self, upgrade: StackUpgrade, step: upgrade_machine.Step) -> None:
        before = {node.name: node.phase for node in upgrade.status.nodes}
        moved = [node for node in step.status.nodes if before.get(node.name) is not node.phase]
        LOG.info(
            "lifecycle.status",
            extra={
                "upgrade": upgrade.metadata.name,
                "phase": str(step.status.phase),
                "moved": [f"{node.name} {node.phase}" for node in moved],
            },
        )


def needs_work(upgrade: StackUpgrade) -> bool:
    """Whether the upgrade is under way, waits, or is to be released."""
    is_deleted = upgrade.metadata.deletion_timestamp is not None
    return is_deleted or upgrade.status.phase not in upgrade_machine.ENDED
