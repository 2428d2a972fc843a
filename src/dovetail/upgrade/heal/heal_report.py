"""Shows what the healer does: each decision once in the log, as an event of its Node and as metrics.

Given the steps of a pass and what became of them. Words that change from pass to pass, such as how long a remedy has
been waited for, are no news. Remembers only what it has shown. Never decides.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence
from typing import Final

from dovetail.ports import api as api_port
from dovetail.ports import meter
from dovetail.upgrade import recorded_events
from dovetail.upgrade.heal.heal_record import MovedPod, Record, Unreadable
from dovetail.upgrade.heal.healing import Action, Step

REMEDIES: Final = "dovetail_heal_remedies_total"
REFUSALS: Final = "dovetail_heal_refusals_total"
EVICTIONS: Final = "dovetail_heal_evictions_total"
NODES: Final = "dovetail_heal_nodes"
BREAKERS: Final = "dovetail_heal_breaker_open"
PASSES: Final = "dovetail_heal_passes_total"
STATES: Final = {
    Action.BEGIN: "draining",
    Action.MOVE: "draining",
    Action.WITHDRAW: "draining",
    Action.REQUEST: "requested",
    Action.WAIT: "requested",
    Action.STUCK: "stuck",
    Action.REFUSE: "refused",
    Action.ADVISE: "advised",
}
_WARNINGS: Final = frozenset({Action.REFUSE, Action.STUCK, Action.ADVISE})
# What is no news after the first time, however its words change.
_BY_REMEDY: Final = frozenset({Action.MOVE, Action.WAIT})

LOG: Final = logging.getLogger("dovetail.upgrade.heal")


class HealReport:
    """What one process has shown."""

    def __init__(self, api: api_port.Api, meter_: meter.Meter) -> None:
        self._events = recorded_events.RecordedEvents(api)
        self._meter = meter_
        self._shown: dict[str, tuple[str, str]] = {}
        self._pools: set[str] = set()

    def passed(self, steps: Sequence[Step]) -> None:
        """A pass has decided these steps."""
        self._meter.count(PASSES)
        counts = dict.fromkeys(STATES.values(), 0)
        for step in steps:
            if step.action in STATES:
                counts[STATES[step.action]] += 1
        for state, count in counts.items():
            self._meter.gauge(NODES, count, state=state)
        open_pools = {step.pool for step in steps if step.pool}
        self._pools |= open_pools
        for pool in sorted(self._pools):
            self._meter.gauge(BREAKERS, int(pool in open_pools), pool=pool)
        present = {step.node for step in steps}
        self._shown = {node: said for node, said in self._shown.items() if node in present}

    async def decided(
        self, step: Step, before: Record | Unreadable, now: datetime.datetime
    ) -> None:
        """A step whose write, if it has one, is done."""
        key = _key(step, before)
        if self._shown.get(step.node) == (step.action.value, key):
            return
        if step.action not in (Action.WAIT, Action.NOTHING):
            kind = "Warning" if step.action in _WARNINGS else "Normal"
            reason = f"Heal{step.action.title()}"
            await self._record(step.node, reason, step.reason, kind, now, key=key)
        self._shown[step.node] = (step.action.value, key)
        LOG.info("heal.%s node=%s: %s", step.action, step.node, step.reason)
        self._count(step)

    async def unit_stays(
        self, node: str, unit: str, pods: int, refusal: str, now: datetime.datetime
    ) -> None:
        """The server does not let every pod of a gang go, so none went; or not a single pod."""
        LOG.info("heal.unit.stays node=%s unit=%s pods=%d: %s", node, unit, pods, refusal)
        note = f"{unit} stays for now, {pods} pods: {refusal}"
        await self._record(node, "HealBlocked", note, "Warning", now)

    def evicted(self, pod: MovedPod, refusal: str) -> None:
        """An eviction that was no rehearsal, and why the server refused it."""
        self._meter.count(EVICTIONS, result="refused" if refusal else "done")
        if refusal:
            LOG.warning("heal.pod.stays pod=%s/%s: %s", pod.namespace, pod.name, refusal)

    def _count(self, step: Step) -> None:
        rung = step.rung.value if step.rung is not None else ""
        if step.action is Action.REFUSE and step.rule is not None:
            self._meter.count(REFUSALS, rule=step.rule.value)
        if step.action is Action.BEGIN:
            self._meter.count(REMEDIES, rung=rung, result="begun")
        if step.action is Action.STUCK:
            self._meter.count(REMEDIES, rung=rung, result="refused")
        if step.action is Action.FINISH and step.record is not None:
            self._meter.count(REMEDIES, rung=rung, result=step.record.attempts[-1].result.value)

    async def _record(
        self, node: str, reason: str, note: str, kind: str, now: datetime.datetime, *, key: str = ""
    ) -> None:
        about = recorded_events.about_node(node)
        event = recorded_events.Happening(about, reason, note, kind=kind, action="Heal", key=key)
        await self._events.record(event, now)


def _key(step: Step, before: Record | Unreadable) -> str:
    """What makes a decision another one: the remedy it is about, and its words where they are its substance."""
    record = step.record if step.record is not None and step.record.id else before
    remedy = record.id if isinstance(record, Record) else ""
    return remedy if step.action in _BY_REMEDY else f"{remedy} {step.reason}".strip()
