"""Carries out the upgrades of a cluster: reads everything, asks the machine about each, writes, and begins again.

Given an API, a reader and a clock. Keeps nothing that the next process would need. A write that fails ends the pass for
its upgrade; the next pass reads again. What is read may be a moment old: an upgrade is left alone until its own last
write is seen, and before a node leaves a phase in which it must be empty or valid, what that rests on is read again.
Durations are measured by a steady clock that begins where the status ends, so that a clock that is set does not make
nodes fail. Never decides what comes next.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple

from dovetail import timestamps
from dovetail.kubetypes import gpu_stack_kinds, object_set, registry
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, StackUpgrade
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures, meter
from dovetail.upgrade import instruction_writer, read_facts, upgrade_events
from dovetail.upgrade.machine import instructions, upgrade_machine
from dovetail.upgrade.machine.cluster_facts import Facts, Judges

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
# A node leaves these phases only by what the server says at that moment: the first because work may have come, the
# others because the node may have changed.
CONFIRMED: Final = frozenset({NodePhase.DRAINING, NodePhase.APPLYING, NodePhase.VALIDATING})
SOON_SECONDS: Final = 0.2  # after a pass that wrote, which is when there is most to do
BUSY_SECONDS: Final = 2.0
BUSY_SHARE: Final = (
    4.0  # times what a pass took, so that large clusters leave time for the Lease and for probes
)
IDLE_SECONDS: Final = 1.0  # a look at what the watch of upgrades has kept
WRITES: Final = "dovetail_lifecycle_writes_total"
PASSES: Final = "dovetail_lifecycle_passes_total"


class Reading(NamedTuple):
    """The objects of a cluster, and whether it has device taint rules."""

    objects: object_set.ObjectSet
    has_rules: bool
    rules: registry.Kind = registry.TAINT_RULE  # in the version that the server has


class Decision(NamedTuple):
    """A step of one upgrade, and the facts that it rests on."""

    step: upgrade_machine.Step
    facts: Facts


Read = Callable[[], Awaitable[Reading]]
Confirm = Callable[[Reading, Collection[str]], Awaitable[Reading]]  # with these nodes read again
Observe = Callable[[Sequence[StackUpgrade]], None]
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
        confirm: Confirm | None = None,
        observe: Observe = lambda upgrades: None,
        meter_: meter.Meter | None = None,
    ) -> None:
        self._api = api
        self._read = read
        self._confirm = confirm or _as_read
        self._observe = observe
        self._clock = clock
        self._judge = judge
        self._meter = meter_ or meter.NoMeter()
        self._time = SteadyTime(clock)
        self._events = upgrade_events.UpgradeEvents(api)
        self._has_written = False
        self._superseded: dict[str, str] = {}  # uid -> the version before our last write

    async def run(self) -> None:
        """Works until it is cancelled or fenced."""
        while True:
            began = self._clock.monotonic()
            self._has_written = False
            is_active = await self.run_once()
            pause = IDLE_SECONDS
            if is_active:
                pause = SOON_SECONDS if self._has_written else BUSY_SECONDS
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(pause, BUSY_SHARE * took))

    async def run_once(self) -> bool:
        """One pass over all upgrades; whether any is under way."""
        reading = await self._read()
        self._meter.count(PASSES)
        upgrades = read_facts.upgrades_of(reading.objects)
        self._observe(upgrades)
        for upgrade in upgrades:
            try:
                if needs_work(upgrade):
                    await self._work_on(upgrade, reading)
                else:  # how it ended
                    await self._events.record(upgrade, self._time.now(upgrade.status.updated_at))
            except failures.Fenced:
                raise
            except failures.ApiFailure as failure:
                self._count("failed")
                LOG.warning(
                    "lifecycle.write.failed: tried again",
                    extra={"upgrade": upgrade.metadata.name, "why": str(failure)},
                )
        return any(map(needs_work, upgrades))

    async def _work_on(self, upgrade: StackUpgrade, reading: Reading) -> None:
        metadata = upgrade.metadata
        if self._superseded.get(metadata.uid) == metadata.resource_version:
            return  # our last write is not seen yet
        at = upgrade_machine.Moment(self._time.now(upgrade.status.updated_at), self._clock.now())
        decision = self._decision(upgrade, reading, at)
        if leaving := _leaving(upgrade, decision.step):
            reading = await self._confirm(reading, leaving)
            decision = self._decision(upgrade, reading, at)
        step, facts = decision
        writer = instruction_writer.InstructionWriter(
            self._api, upgrade, reading.objects, facts, rules=reading.rules
        )
        try:
            if step.status != upgrade.status:
                await writer.write_status(step.status)
                self._count_write("status")
                self._log(upgrade, step)
                return
            await self._events.record(upgrade, at.now)
            for order in step.instructions:
                await self._carry_out(writer, order)
        finally:
            if writer.version not in ("", metadata.resource_version):
                self._superseded[metadata.uid] = metadata.resource_version

    def _decision(
        self, upgrade: StackUpgrade, reading: Reading, at: upgrade_machine.Moment
    ) -> Decision:
        objects = reading.objects
        facts = read_facts.facts_of(objects, upgrade, has_rules=reading.has_rules, now=at.now)
        return Decision(upgrade_machine.step(upgrade, facts, self._judge(objects), at), facts)

    async def _carry_out(
        self, writer: instruction_writer.InstructionWriter, order: instructions.Instruction
    ) -> None:
        """A write that fails for its own object leaves the others alone."""
        try:
            await writer.carry_out(order)
            self._count_write(type(order).__name__.lower())
        except (failures.Protected, failures.Conflict, failures.Missing, failures.Refused) as no:
            self._count("refused")
            LOG.warning("lifecycle.refused: tried again", extra={"why": str(no)})

    def _count_write(self, write: str) -> None:
        self._has_written = True
        self._count(write)

    def _count(self, write: str) -> None:
        self._meter.count(WRITES, write=write)

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


async def _as_read(reading: Reading, names: Collection[str]) -> Reading:
    """For readers that list everything each time."""
    return reading


def _leaving(upgrade: StackUpgrade, step: upgrade_machine.Step) -> frozenset[str]:
    """The nodes that the step takes out of a phase which they leave only by what the server says."""
    after = {node.name: node.phase for node in step.status.nodes}
    return frozenset(
        node.name
        for node in upgrade.status.nodes
        if node.phase in CONFIRMED and after.get(node.name) is not node.phase
    )


def needs_work(upgrade: StackUpgrade) -> bool:
    """Whether the upgrade is under way, waits, or is to be released."""
    is_deleted = upgrade.metadata.deletion_timestamp is not None
    return is_deleted or upgrade.status.phase not in upgrade_machine.ENDED
