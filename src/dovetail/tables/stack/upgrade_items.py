"""Upgrades of the GPU stack as items: what happened to each node and when, and how many GPUs were in service meanwhile.

Given objects and how many GPUs a node has; returns structs for the dashboard and for pictures. The expected end is an
estimate from nodes that are done, left out where windows, people or a pause decide. Never reads a cluster.
"""

from __future__ import annotations

import datetime
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.kubetypes.custom.stack_upgrades import (
    NodePhase,
    NodeStatus,
    Phase,
    StackUpgrade,
    WaveState,
    WaveStatus,
)

Instant = datetime.datetime

NOT_RECORDED: Final = "NotRecorded"  # a time of which the status does not say the phase
LONGEST_SECONDS: Final = 10**7  # of a phase: other writers may have broken the status
ENDED: Final = frozenset({Phase.COMPLETED, Phase.STOPPED, Phase.ABORTED, Phase.REFUSED})
UNDER_WAY: Final = frozenset(
    {
        NodePhase.FENCING,
        NodePhase.DRAINING,
        NodePhase.APPLYING,
        NodePhase.VALIDATING,
        NodePhase.UNFENCING,
    }
)
_WAVE_ENDS: Final = frozenset({WaveState.DONE, WaveState.STOPPED})
_DIGITS: Final = re.compile(r"[0-9]{1,12}")
_ARE_QUIET: Final = frozenset({NodePhase.WAITING, NodePhase.SKIPPED})


class PhaseSpan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A phase of a node, from when to when."""

    phase: str
    start: Instant
    end: Instant | None  # None: it lasts


class UpgradeNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node of an upgrade."""

    name: str
    phase: str
    since: Instant | None
    reason: str
    started_at: Instant | None
    finished_at: Instant | None
    gpus: int
    is_out_of_service: bool
    is_going_back: bool
    failure: str
    by_hand: tuple[str, ...]
    spans: tuple[PhaseSpan, ...]


class UpgradeWave(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One wave with its nodes."""

    number: int
    is_canary: bool
    state: str
    reason: str
    started_at: Instant | None
    finished_at: Instant | None
    nodes: tuple[UpgradeNode, ...]


class LeavingGang(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The one gang that leaves now."""

    gang: str
    pods: int
    since: Instant | None
    is_evicting: bool  # before, it was asked for a checkpoint


class UpgradeCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the lifecycle process says in a condition."""

    type: str
    status: str
    reason: str
    message: str
    since: Instant | None


class GpusInService(msgspec.Struct, frozen=True, kw_only=True):
    """How many GPUs of the upgrade's nodes take work from a time on."""

    at: Instant
    gpus: int


class UpgradeItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One upgrade."""

    name: str
    phase: str
    reason: str
    to: str  # driver=595.91.07,toolkit=1.19.0
    done: int
    nodes: int
    phases: dict[str, int]  # nodes by phase
    created: Instant | None
    started_at: Instant | None
    expected_end: Instant | None
    expectation: str  # what the estimate is made of, or why there is none
    finished_at: Instant | None
    is_ended: bool
    is_paused: bool  # as the spec wants it
    is_aborted: bool
    adapter: str
    is_reversible: bool | None  # None: not decided yet
    reversibility: str
    gpus: int
    drain: LeavingGang | None
    conditions: tuple[UpgradeCondition, ...]
    in_service: tuple[GpusInService, ...]
    waves: tuple[UpgradeWave, ...]


def items_of(
    upgrades: Iterable[StackUpgrade], gpus: Mapping[str, int], now: Instant
) -> tuple[UpgradeItem, ...]:
    """Upgrades under way first, then the newest."""
    items = [item_of(upgrade, gpus, now) for upgrade in upgrades]
    oldest = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def order(item: UpgradeItem) -> tuple[bool, float, str]:
        created = item.created or oldest
        return (item.is_ended, -(created - oldest).total_seconds(), item.name)

    return tuple(sorted(items, key=order))


def item_of(upgrade: StackUpgrade, gpus: Mapping[str, int], now: Instant) -> UpgradeItem:
    """One upgrade. Linear in its nodes."""
    spec, status = upgrade.spec, upgrade.status
    members: dict[int, list[UpgradeNode]] = {}
    for node in status.nodes:
        members.setdefault(node.wave, []).append(_node(node, gpus.get(node.name, 0)))
    waves = tuple(_wave(wave, members.get(wave.number, ())) for wave in status.waves)
    nodes = [node for wave in waves for node in wave.nodes]
    estimate = _estimate(upgrade, waves, now)
    return UpgradeItem(
        name=upgrade.metadata.name,
        phase=str(status.phase),
        reason=status.reason,
        to=",".join(f"{part}={version}" for part, version in sorted(spec.to.items())),
        done=sum(node.phase == NodePhase.DONE for node in nodes),
        nodes=len(nodes),
        phases=dict(Counter(node.phase for node in nodes)),
        created=timestamps.parse_or_none(upgrade.metadata.creation_timestamp),
        started_at=timestamps.parse_or_none(status.started_at),
        expected_end=estimate.end,
        expectation=estimate.why,
        finished_at=timestamps.parse_or_none(status.finished_at),
        is_ended=status.phase in ENDED,
        is_paused=spec.paused,
        is_aborted=spec.aborted,
        adapter=status.adapter,
        is_reversible=status.is_reversible,
        reversibility=status.reversibility,
        gpus=sum(node.gpus for node in nodes),
        drain=_drain(upgrade),
        conditions=_conditions(upgrade),
        in_service=in_service(nodes),
        waves=waves,
    )


def in_service(nodes: Iterable[UpgradeNode]) -> tuple[GpusInService, ...]:
    """The GPUs in service from each time on at which their number changes; nothing before the first node begins."""
    total = 0
    changes: dict[Instant, int] = {}
    for node in nodes:
        total += node.gpus
        for span in _out_of_service(node):
            changes[span.start] = changes.get(span.start, 0) - node.gpus
            if span.end is not None:
                changes[span.end] = changes.get(span.end, 0) + node.gpus
    points: list[GpusInService] = []
    for at in sorted(changes):
        if changes[at]:  # a phase that follows another one at once changes nothing
            total += changes[at]
            points.append(GpusInService(at=at, gpus=total))
    return tuple(points)


def spans_of(node: NodeStatus) -> tuple[PhaseSpan, ...]:
    """The phases of a node one after the other, without its wait before the first."""
    since = timestamps.parse_or_none(node.since)
    if since is None or (node.phase in _ARE_QUIET and not node.passed):
        return ()
    spans = [PhaseSpan(phase=str(node.phase), start=since, end=None)]
    end = since
    for written in reversed(node.passed):
        phase, _, seconds = written.partition("=")
        took = min(int(seconds), LONGEST_SECONDS) if _DIGITS.fullmatch(seconds) else 0
        start = end - datetime.timedelta(seconds=took)
        spans.append(PhaseSpan(phase=phase, start=start, end=end))
        end = start
    started = timestamps.parse_or_none(node.started_at)
    if not node.passed and started is not None and started < since:
        spans.append(PhaseSpan(phase=NOT_RECORDED, start=started, end=since))
    return tuple(reversed(spans))


def _out_of_service(node: UpgradeNode) -> Iterable[PhaseSpan]:
    for span in node.spans:
        is_last = span.end is None
        is_broken = span.phase == NodePhase.FAILED and not (is_last and not node.is_out_of_service)
        if span.phase in UNDER_WAY or span.phase == NOT_RECORDED or is_broken:
            yield span


def _node(node: NodeStatus, gpus: int) -> UpgradeNode:
    is_broken = node.phase is NodePhase.FAILED and not node.is_given_back
    return UpgradeNode(
        name=node.name,
        phase=str(node.phase),
        since=timestamps.parse_or_none(node.since),
        reason=node.reason,
        started_at=timestamps.parse_or_none(node.started_at),
        finished_at=timestamps.parse_or_none(node.finished_at),
        gpus=gpus,
        is_out_of_service=node.phase in UNDER_WAY or is_broken,
        is_going_back=node.is_going_back,
        failure=node.failure,
        by_hand=node.by_hand,
        spans=spans_of(node),
    )


def _wave(wave: WaveStatus, nodes: Iterable[UpgradeNode]) -> UpgradeWave:
    """The wave with its nodes in the order in which they began, those that have not at the end."""

    def order(node: UpgradeNode) -> tuple[bool, float]:
        begin = node.started_at
        return (begin is None, begin.timestamp() if begin is not None else 0.0)

    return UpgradeWave(
        number=wave.number,
        is_canary=wave.is_canary,
        state=str(wave.state),
        reason=wave.reason,
        started_at=timestamps.parse_or_none(wave.started_at),
        finished_at=timestamps.parse_or_none(wave.finished_at),
        nodes=tuple(sorted(nodes, key=order)),
    )


def _drain(upgrade: StackUpgrade) -> LeavingGang | None:
    drain = upgrade.status.drain
    if drain is None:
        return None
    return LeavingGang(
        gang=drain.gang,
        pods=len(drain.pods),
        since=timestamps.parse_or_none(drain.since),
        is_evicting=drain.is_evicting,
    )


def _conditions(upgrade: StackUpgrade) -> tuple[UpgradeCondition, ...]:
    return tuple(
        UpgradeCondition(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=each.message,
            since=timestamps.parse_or_none(each.last_transition_time),
        )
        for each in upgrade.status.conditions
    )


# The expected end


class _Estimate(NamedTuple):
    end: Instant | None
    why: str


def _estimate(upgrade: StackUpgrade, waves: tuple[UpgradeWave, ...], now: Instant) -> _Estimate:
    """When the last wave ends, if each takes as long as a node did so far."""
    status, spec = upgrade.status, upgrade.spec
    nodes = [node for wave in waves for node in wave.nodes]
    if status.phase in ENDED:
        return _Estimate(None, "")
    if status.phase is not Phase.PROGRESSING or spec.paused:
        return _Estimate(None, f"no estimate while it is {status.phase}")
    if any(node.by_hand for node in nodes):
        return _Estimate(None, "no estimate: a person has to do something first")
    left = [wave for wave in waves if wave.state not in _WAVE_ENDS]
    if spec.waves.windows and any(wave.started_at is None for wave in left):
        return _Estimate(None, "no estimate: later waves wait for their windows")

    took = [
        (node.finished_at - node.started_at).total_seconds()
        for node in nodes
        if node.phase == NodePhase.DONE and node.finished_at and node.started_at
    ]
    seconds = statistics.median(took) if took else float(spec.waves.node_seconds)
    each = datetime.timedelta(seconds=seconds)
    watch = datetime.timedelta(seconds=spec.waves.watch_canary_seconds)
    end = now
    for wave in left:
        begins = [node.started_at or end for node in wave.nodes if node.finished_at is None]
        # A node that takes longer than the others ends at any moment.
        end = max([end, *(begin + each for begin in begins)])
        if wave.is_canary:
            end = max(end, (wave.finished_at or end) + watch)
    source = f"the median of {len(took)} nodes that are done" if took else "by its spec"
    if len(took) == 1:
        source = "as the node that is done"
    minutes = max(1, round(seconds / 60))
    count = f"{len(left)} wave" if len(left) == 1 else f"{len(left)} waves"
    return _Estimate(end, f"{count} left, {minutes} min each, {source}")
