"""Decides what an upgrade does next. Given its object, facts and the time: a new status, or instructions.

Either the status changes and is written first, or the instructions that follow from the written status are carried
out; never both in one step. So whatever is done to a node stands in the status before, and a process that dies between
any two writes is followed by one that takes the same next step. Never reads a clock, never writes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.answer.what_if import node_selection
from dovetail.kubetypes import meta
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import (
    NodePhase,
    NodeStatus,
    Phase,
    Rollback,
    StackUpgrade,
    StackUpgradeStatus,
    WaveState,
    WaveStatus,
)
from dovetail.upgrade.machine import gang_drain, instructions, node_steps, upgrade_waves
from dovetail.upgrade.machine.cluster_facts import Facts, Judges, Ongoing, Readiness
from dovetail.upgrade.machine.node_steps import Setting

ENDED: Final = frozenset({Phase.COMPLETED, Phase.STOPPED, Phase.ABORTED, Phase.REFUSED})
_FENCED: Final = frozenset(upgrade_waves.FENCED - {NodePhase.UNFENCING})


class Step(NamedTuple):
    """A status that is to be written, or what follows from the one that is."""

    status: StackUpgradeStatus
    instructions: tuple[instructions.Instruction, ...] = ()


class Moment(NamedTuple):
    """The time by which durations are measured, and that by which windows open."""

    now: datetime.datetime
    wall: datetime.datetime


def step(upgrade: StackUpgrade, facts: Facts, judges: Judges, at: Moment) -> Step:
    """What comes next. The same status back means that only the instructions are to be carried out."""
    before = upgrade.status
    is_protected = stack_upgrades.FINALIZER in upgrade.metadata.finalizers
    is_deleted = upgrade.metadata.deletion_timestamp is not None
    if not is_protected and not is_deleted and before.phase not in ENDED:
        return Step(before, (instructions.Protect(),))

    after = before if before.phase in ENDED else _advanced(upgrade, facts, judges, at)
    if after != before:
        return Step(_stamped(after, before, upgrade.metadata.generation, at.now))
    orders = _instructions(upgrade, facts, judges, at)
    if before.phase in ENDED and is_deleted and is_protected and not orders:
        orders = [instructions.Release()]
    return Step(before, tuple(orders))


# The status


def _advanced(
    upgrade: StackUpgrade, facts: Facts, judges: Judges, at: Moment
) -> StackUpgradeStatus:
    status = upgrade.status
    if not status.nodes:
        return _begun(upgrade, facts, judges, at)
    is_aborted = _is_aborted(upgrade)
    setting = _setting(upgrade, facts, judges, at)
    if is_aborted:
        status = _given_up(status, at.now)
    nodes = tuple(node_steps.advanced(node, setting) for node in status.nodes)
    drain = gang_drain.advanced(status, facts, upgrade.spec.drain, at.now, is_held=setting.is_held)
    status = msgspec.structs.replace(status, nodes=nodes, drain=drain)
    stop = _stop_reason(upgrade, status, facts, at.now)
    if is_aborted:
        return _ending(status, facts, upgrade, Phase.ABORTED, "aborted", at.now)
    if stop or status.phase is Phase.ROLLING_BACK:
        return _stopped(upgrade, status, facts, at.now, stop or status.reason)
    if upgrade.spec.paused:
        return msgspec.structs.replace(status, phase=Phase.PAUSED, reason="paused by its spec")
    return _progressed(upgrade, status, facts, at)


def _setting(upgrade: StackUpgrade, facts: Facts, judges: Judges, at: Moment) -> Setting:
    return Setting(
        name=upgrade.metadata.name,
        spec=upgrade.spec,
        facts=facts,
        judges=judges,
        now=at.now,
        is_reversible=upgrade.status.is_reversible is True,
        is_held=_is_held(upgrade),
    )


def _is_aborted(upgrade: StackUpgrade) -> bool:
    return upgrade.spec.aborted or upgrade.metadata.deletion_timestamp is not None


def _is_held(upgrade: StackUpgrade) -> bool:
    """Whether no gang begins to leave."""
    return upgrade.spec.paused or _is_aborted(upgrade)


def _begun(upgrade: StackUpgrade, facts: Facts, judges: Judges, at: Moment) -> StackUpgradeStatus:
    """The waves and whether there is a way back, before the first node is touched."""
    status = upgrade.status
    if _is_aborted(upgrade):
        return _with_end(status, Phase.ABORTED, "aborted before it began", at.now)
    if facts.active:
        return msgspec.structs.replace(status, reason=f"waits for upgrade {facts.active}")
    why = upgrade_waves.problem(upgrade.spec, facts)
    if why:
        return _with_end(status, Phase.REFUSED, why, at.now)
    if upgrade.spec.paused:
        return msgspec.structs.replace(status, reason="paused before it began")

    waves = upgrade_waves.waves_of(upgrade.spec, facts)
    names = [name for wave in waves for name in wave]
    readiness = {name: _readiness(upgrade, judges, name) for name in names}
    unserved = [name for name in names if not readiness[name].adapter]
    if len(unserved) == len(names):
        wanted = _text(upgrade.spec.versions_of(unserved[0]))
        blocker = readiness[unserved[0]].blocker
        why = f"no adapter brings node {unserved[0]} to {wanted}" + (blocker and f": {blocker}")
        return _with_end(status, Phase.REFUSED, why, at.now)
    nodes = [
        _first(name, number, readiness[name], facts, at.now)
        for number, wave in enumerate(waves, 1)
        for name in wave
    ]
    blocked = [node for node in nodes if node.phase is NodePhase.SKIPPED]
    if len(blocked) == len(nodes) and not any(each.is_current for each in readiness.values()):
        why = f"no node can begin: {blocked[0].name}: {blocked[0].reason}"
        return _with_end(status, Phase.REFUSED, why, at.now)
    return _start(status, nodes, len(waves), readiness, upgrade, at.now)


def _readiness(upgrade: StackUpgrade, judges: Judges, name: str) -> Readiness:
    """What the node's adapter says; none where the spec wants another."""
    ready = judges.readiness(name, upgrade.spec.versions_of(name))
    wanted = upgrade.spec.adapter
    if wanted in ("", ready.adapter) or not ready.adapter:
        return ready
    return Readiness("", blocker=f"{ready.adapter} serves it, not {wanted}")


def _start(
    status: StackUpgradeStatus,
    nodes: list[NodeStatus],
    wave_count: int,
    readiness: dict[str, Readiness],
    upgrade: StackUpgrade,
    now: datetime.datetime,
) -> StackUpgradeStatus:
    begun = [readiness[node.name] for node in nodes if node.phase is NodePhase.WAITING]
    one_way = [each.forward_only for each in begun if each.forward_only]
    adapters = sorted({each.adapter for each in begun if each.adapter})
    has_canary = upgrade.spec.waves.canary > 0
    waves = [
        WaveStatus(number=number, is_canary=has_canary and number == 1)
        for number in range(1, wave_count + 1)
    ]
    return msgspec.structs.replace(
        status,
        phase=Phase.PROGRESSING,
        reason="",
        adapter=", ".join(adapters),
        is_reversible=not one_way,
        reversibility=one_way[0] if one_way else "the earlier versions can be installed again",
        started_at=timestamps.to_text(now),
        nodes=tuple(sorted(nodes, key=lambda node: node_selection.natural(node.name))),
        waves=tuple(waves),
    )


def _first(
    name: str, wave: int, ready: Readiness, facts: Facts, now: datetime.datetime
) -> NodeStatus:
    previous = {**facts.nodes[name].versions, **ready.previous}
    node = NodeStatus(name=name, wave=wave, previous=previous)
    if ready.is_current:
        return node_steps.changed(node, NodePhase.SKIPPED, now, reason="has the versions already")
    why = ready.blocker or ("" if ready.adapter else "no adapter brings it there")
    if why:
        return node_steps.changed(node, NodePhase.SKIPPED, now, reason=why)
    return node_steps.changed(node, NodePhase.WAITING, now)


def _given_up(status: StackUpgradeStatus, now: datetime.datetime) -> StackUpgradeStatus:
    """Nodes to which nothing was applied return into service; the others finish."""
    nodes = [
        node_steps.given_back(node, NodePhase.SKIPPED, now, "aborted")
        if node.phase is NodePhase.WAITING or node.phase in node_steps.UNTOUCHED
        else node
        for node in status.nodes
    ]
    return msgspec.structs.replace(
        status, phase=Phase.ABORTING, reason="aborted", nodes=tuple(nodes)
    )


def _stop_reason(
    upgrade: StackUpgrade, status: StackUpgradeStatus, facts: Facts, now: datetime.datetime
) -> str:
    """The stop rule that applies; empty where none does."""
    rules = upgrade.spec.stop
    failed = failures(status)
    canaries = {wave.number for wave in status.waves if wave.is_canary}
    of_canary = [node for node in failed if node.wave in canaries]
    if of_canary:
        return f"canary {of_canary[0].name} failed: {of_canary[0].reason}"
    if len(failed) >= rules.failures:
        last = failed[-1]
        nodes = "node" if len(failed) == 1 else "nodes"
        return f"{len(failed)} {nodes} failed, {rules.failures} stop it; {last.name}: {last.reason}"
    seconds = gang_drain.seconds_since(status.started_at, now)
    is_unfinished = any(node.phase is not NodePhase.DONE for node in status.nodes)
    if rules.total_seconds and seconds >= rules.total_seconds and is_unfinished:
        return f"takes longer than {rules.total_seconds} s"
    most = upgrade_waves.limit(upgrade.spec, facts)
    fenced = [node for node in failed if upgrade_waves.is_fenced(node)]
    if fenced and len(fenced) >= most and _has_waiting(status):
        users = "1 failed node uses" if len(fenced) == 1 else f"{len(fenced)} failed nodes use"
        return f"{users} up maxUnavailable {upgrade.spec.waves.max_unavailable}"
    return ""


def failures(status: StackUpgradeStatus) -> list[NodeStatus]:
    """The nodes that failed, those that went back for it among them."""
    went_back = (NodePhase.ROLLED_BACK, *upgrade_waves.FENCED)
    return [
        node
        for node in status.nodes
        if node.phase is NodePhase.FAILED or (bool(node.failure) and node.phase in went_back)
    ]


def _has_waiting(status: StackUpgradeStatus) -> bool:
    return any(node.phase is NodePhase.WAITING for node in status.nodes)


def _stopped(
    upgrade: StackUpgrade,
    status: StackUpgradeStatus,
    facts: Facts,
    now: datetime.datetime,
    why: str,
) -> StackUpgradeStatus:
    """No other node begins; those under way finish; then the nodes go back, where the rules want that."""
    waiting = [node for node in status.nodes if node.phase is NodePhase.WAITING]
    nodes = status.nodes
    if status.phase is not Phase.ROLLING_BACK:
        nodes = tuple(
            node_steps.changed(node, NodePhase.SKIPPED, now, reason="stopped before its turn")
            if node in waiting
            else node
            for node in nodes
        )
        status = msgspec.structs.replace(
            status, phase=Phase.PROGRESSING, reason=f"stopping: {why}", nodes=nodes
        )
        if _is_busy(status, facts, upgrade.metadata.name):
            return status
        if upgrade.spec.rollback is Rollback.ALL and status.is_reversible:
            return _turned(status, now, why)
    else:
        status = _begin_nodes(upgrade, status, facts, now, reversed(waiting))
        if waiting and not _is_stuck(upgrade, status, facts):
            return status
    return _ending(status, facts, upgrade, Phase.STOPPED, why, now)


def _turned(status: StackUpgradeStatus, now: datetime.datetime, why: str) -> StackUpgradeStatus:
    """The nodes that are done wait for their way back."""
    nodes = [
        msgspec.structs.replace(
            node_steps.changed(node, NodePhase.WAITING, now), is_going_back=True
        )
        if node.phase is NodePhase.DONE and node.previous
        else node
        for node in status.nodes
    ]
    return msgspec.structs.replace(status, phase=Phase.ROLLING_BACK, reason=why, nodes=tuple(nodes))


def _is_stuck(upgrade: StackUpgrade, status: StackUpgradeStatus, facts: Facts) -> bool:
    """Whether failed nodes alone keep the next one from beginning."""
    failed = [node for node in status.nodes if node.phase is NodePhase.FAILED]
    fenced = [node for node in failed if upgrade_waves.is_fenced(node)]
    is_idle = not any(node.phase in upgrade_waves.FENCED for node in status.nodes)
    return is_idle and len(fenced) >= upgrade_waves.limit(upgrade.spec, facts)


def _ending(
    status: StackUpgradeStatus,
    facts: Facts,
    upgrade: StackUpgrade,
    phase: Phase,
    why: str,
    now: datetime.datetime,
) -> StackUpgradeStatus:
    if _is_busy(status, facts, upgrade.metadata.name):
        return status
    return _with_end(status, phase, why, now)


def _is_busy(status: StackUpgradeStatus, facts: Facts, name: str) -> bool:
    """Whether a node or a gang is under way, or a fence that is to go still stands."""
    is_moving = any(node.phase in upgrade_waves.FENCED for node in status.nodes)
    given_back = [node.name for node in status.nodes if node.is_given_back]
    views = [facts.nodes[each] for each in given_back if each in facts.nodes]
    has_fence = any(not node_steps.is_fence_gone(view, name) for view in views)
    return is_moving or has_fence or status.drain is not None


def _with_end(
    status: StackUpgradeStatus, phase: Phase, why: str, now: datetime.datetime
) -> StackUpgradeStatus:
    return msgspec.structs.replace(
        status, phase=phase, reason=why, finished_at=timestamps.to_text(now)
    )


# Waves


def _progressed(
    upgrade: StackUpgrade, status: StackUpgradeStatus, facts: Facts, at: Moment
) -> StackUpgradeStatus:
    status = msgspec.structs.replace(status, phase=Phase.PROGRESSING, reason="")
    wave = next((wave for wave in status.waves if wave.state not in _WAVE_ENDS), None)
    if wave is None:
        if _is_busy(status, facts, upgrade.metadata.name):
            return status
        return _with_end(status, Phase.COMPLETED, _summary(status), at.now)
    match wave.state:
        case WaveState.WAITING:
            return _opened(upgrade, status, wave, at)
        case WaveState.RUNNING:
            return _run(upgrade, status, wave, facts, at.now)
        case WaveState.WATCHING:
            return _watched(upgrade, status, wave, at.now)
        case _:
            return status


_WAVE_ENDS: Final = frozenset({WaveState.DONE, WaveState.STOPPED})


def _opened(
    upgrade: StackUpgrade, status: StackUpgradeStatus, wave: WaveStatus, at: Moment
) -> StackUpgradeStatus:
    if not upgrade_waves.is_open(upgrade.spec, at.wall):
        windows = "; ".join(upgrade.spec.waves.windows)
        return _with_wave(status, wave, reason=f"waits for its window: {windows}")
    started = timestamps.to_text(at.now)
    return _with_wave(status, wave, state=WaveState.RUNNING, reason="", started_at=started)


def _run(
    upgrade: StackUpgrade,
    status: StackUpgradeStatus,
    wave: WaveStatus,
    facts: Facts,
    now: datetime.datetime,
) -> StackUpgradeStatus:
    members = [node for node in status.nodes if node.wave == wave.number]
    failed = [node for node in failures(status) if node.wave == wave.number]
    if len(failed) >= upgrade.spec.stop.wave_failures:
        return _wave_stopped(status, wave, members, failed, now)
    waiting = [node for node in members if node.phase is NodePhase.WAITING]
    if waiting:
        return _begin_nodes(upgrade, status, facts, now, waiting)
    if any(node.phase in upgrade_waves.FENCED for node in members):
        return status
    is_watched = wave.is_canary and upgrade.spec.waves.watch_canary_seconds > 0
    state = WaveState.WATCHING if is_watched else WaveState.DONE
    return _with_wave(status, wave, state=state, finished_at=timestamps.to_text(now))


def _wave_stopped(
    status: StackUpgradeStatus,
    wave: WaveStatus,
    members: list[NodeStatus],
    failed: list[NodeStatus],
    now: datetime.datetime,
) -> StackUpgradeStatus:
    """The rest of the wave is skipped; it ends when the nodes under way have."""
    why = f"{failed[0].name} failed: {failed[0].reason}"
    nodes = [
        node_steps.changed(node, NodePhase.SKIPPED, now, reason=f"its wave stopped: {why}")
        if node in members and node.phase is NodePhase.WAITING
        else node
        for node in status.nodes
    ]
    status = msgspec.structs.replace(status, nodes=tuple(nodes))
    if any(node.phase in upgrade_waves.FENCED for node in members):
        return status
    finished = timestamps.to_text(now)
    return _with_wave(status, wave, state=WaveState.STOPPED, reason=why, finished_at=finished)


def _watched(
    upgrade: StackUpgrade, status: StackUpgradeStatus, wave: WaveStatus, now: datetime.datetime
) -> StackUpgradeStatus:
    seconds = gang_drain.seconds_since(wave.finished_at, now)
    if seconds < upgrade.spec.waves.watch_canary_seconds:
        return _with_wave(
            status, wave, reason=f"watched for {upgrade.spec.waves.watch_canary_seconds} s"
        )
    return _with_wave(status, wave, state=WaveState.DONE, reason="")


def _begin_nodes(
    upgrade: StackUpgrade,
    status: StackUpgradeStatus,
    facts: Facts,
    now: datetime.datetime,
    waiting: Iterable[NodeStatus],
) -> StackUpgradeStatus:
    most = upgrade_waves.limit(upgrade.spec, facts)
    started = frozenset(upgrade_waves.startable([*waiting], status.nodes, facts, most))
    nodes = [
        node_steps.changed(node, NodePhase.FENCING, now) if node.name in started else node
        for node in status.nodes
    ]
    return msgspec.structs.replace(status, nodes=tuple(nodes))


def _with_wave(
    status: StackUpgradeStatus, wave: WaveStatus, **fields: str | WaveState
) -> StackUpgradeStatus:
    changed = msgspec.structs.replace(wave, **fields)
    waves = [changed if each.number == wave.number else each for each in status.waves]
    return msgspec.structs.replace(status, waves=tuple(waves))


# Words and conditions


def _summary(status: StackUpgradeStatus) -> str:
    counts = {
        phase: sum(node.phase is phase for node in status.nodes)
        for phase in (NodePhase.DONE, NodePhase.FAILED, NodePhase.ROLLED_BACK, NodePhase.SKIPPED)
    }
    return ", ".join(f"{count} {phase.lower()}" for phase, count in counts.items() if count)


def _text(versions: dict[str, str]) -> str:
    return ",".join(f"{part}={version}" for part, version in versions.items())


def _stamped(
    status: StackUpgradeStatus,
    before: StackUpgradeStatus,
    generation: int,
    now: datetime.datetime,
) -> StackUpgradeStatus:
    done = sum(node.phase is NodePhase.DONE for node in status.nodes)
    at = timestamps.to_text(now)
    return msgspec.structs.replace(
        status,
        observed_generation=generation,
        updated_at=max(at, before.updated_at),
        progress=f"{done}/{len(status.nodes)}",
        conditions=_conditions(status, before, at),
    )


def _conditions(
    status: StackUpgradeStatus, before: StackUpgradeStatus, at: str
) -> tuple[meta.Condition, ...]:
    failed = failures(status)
    is_active = status.phase not in ENDED and status.phase is not Phase.PENDING
    is_stopped = status.phase is Phase.STOPPED
    message = f"{failed[0].name}: {failed[0].reason}" if failed else ""
    why = "NodesFailed" if failed else "NoFailures"
    degraded = (str(status.phase), status.reason) if is_stopped else (why, message)
    wanted = (
        ("Progressing", is_active, str(status.phase), status.reason),
        ("Completed", status.phase is Phase.COMPLETED, str(status.phase), status.reason),
        ("Degraded", bool(failed) or is_stopped, *degraded),
    )
    earlier = {condition.type: condition for condition in before.conditions}
    conditions: list[meta.Condition] = []
    for kind, holds, reason, text in wanted:
        known = earlier.get(kind)
        value = "True" if holds else "False"
        since = known.last_transition_time if known and known.status == value else at
        conditions.append(
            meta.Condition(
                type=kind, status=value, reason=reason, message=text, last_transition_time=since
            )
        )
    return tuple(conditions)


# Instructions


def _instructions(
    upgrade: StackUpgrade, facts: Facts, judges: Judges, at: Moment
) -> list[instructions.Instruction]:
    """What follows from the status that is written."""
    status = upgrade.status
    setting = _setting(upgrade, facts, judges, at)
    is_ended = status.phase in ENDED
    goes_back = _goes_back_in_turn(status)
    orders: list[instructions.Instruction] = []
    for node in status.nodes:
        orders += _of_node(node, setting, goes_back=goes_back, is_ended=is_ended)
    if is_ended:
        return orders
    is_held = setting.is_held
    evictions = gang_drain.evictions(status, facts, upgrade.spec.drain, at.now, is_held=is_held)
    # A gang that has begun to leave is lost as a whole: nothing but a fence goes before the rest of it.
    fences = [order for order in orders if isinstance(order, instructions.Fence)]
    others = [order for order in orders if not isinstance(order, instructions.Fence)]
    return [*fences, *evictions, *others]


def _goes_back_in_turn(status: StackUpgradeStatus) -> bool:
    """Whether nodes go back now, or forward. One object may name the version of many nodes, so that
    none may go forward while another goes back: those that came first finish first.
    """
    applying = [node for node in status.nodes if node.phase is NodePhase.APPLYING]
    first = min(applying, key=lambda node: (node.since, node.name), default=None)
    return first is not None and first.is_going_back


def _of_node(
    node: NodeStatus, setting: Setting, *, goes_back: bool, is_ended: bool
) -> list[instructions.Instruction]:
    view = setting.facts.nodes.get(node.name)
    if view is None:
        return []
    may_unfence = node.phase is NodePhase.UNFENCING or node.is_given_back
    if may_unfence and not node_steps.is_fence_gone(view, setting.name):
        return [instructions.Unfence(node.name)]
    if is_ended:
        return []  # what people do with a failed node is theirs
    keeps_fence = node.phase in _FENCED or (
        node.phase is NodePhase.FAILED and not node.is_given_back
    )
    is_foreign = bool(view.fence) and view.fence != setting.name
    if keeps_fence and not is_foreign and not node_steps.is_fence_set(view, setting):
        return [instructions.Fence(node.name, view.pools, view.needs_cordon)]
    if node.phase is not NodePhase.APPLYING or node.is_going_back != goes_back:
        return []
    seconds = gang_drain.seconds_since(node.since, setting.now)
    versions = node_steps.target_of(node, setting.spec)
    judgement = setting.judges.installing(node.name, versions, seconds)
    if not isinstance(judgement, Ongoing):
        return []
    return [instructions.Install(node.name, write) for write in judgement.writes]
