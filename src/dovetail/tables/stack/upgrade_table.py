"""Upgrades of the GPU stack for people: a list, or one with its waves and its nodes.

Given objects; returns lines. Nodes that are done are counted, not listed. Never prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from dovetail.kubetypes.custom.stack_upgrades import Acceptance, NodePhase, StackUpgrade, WaveStatus
from dovetail.tables import text

HEADERS: Final = ("name", "phase", "nodes", "to", "reason")
WAVE_HEADERS: Final = ("wave", "state", "nodes", "started", "finished", "reason")
NODE_HEADERS: Final = ("node", "wave", "phase", "since", "reason")
QUIET: Final = frozenset({NodePhase.DONE, NodePhase.WAITING})


def listed(upgrades: Iterable[StackUpgrade]) -> list[str]:
    """One line each."""
    rows = [
        (
            each.metadata.name,
            str(each.status.phase),
            each.status.progress or "-",
            _versions(each),
            each.status.reason or "-",
        )
        for each in upgrades
    ]
    return [*text.table(HEADERS, rows)] if rows else ["no upgrades"]


def described(upgrade: StackUpgrade, *, is_wide: bool) -> list[str]:
    """One upgrade: a sentence, its waves, and the nodes that are worth a look."""
    status = upgrade.status
    way_back = "reversible" if status.is_reversible else "forward only"
    known = f", {way_back}: {status.reversibility}" if status.is_reversible is not None else ""
    reason = f": {status.reason}" if status.reason else ""
    lines = [
        f"{upgrade.metadata.name} to {_versions(upgrade)}: {status.phase}{reason}",
        f"{status.progress or '0/0'} nodes done by {status.adapter or 'no adapter yet'}{known}",
    ]
    if status.drain is not None:
        verb = "leaves" if status.drain.is_evicting else "is asked for a checkpoint"
        lines.append(f"{status.drain.gang} {verb} since {status.drain.since}")
    counts = Counter(node.wave for node in status.nodes)
    rows = [_wave_row(wave, counts[wave.number]) for wave in status.waves]
    if rows:
        lines += ["", *text.table(WAVE_HEADERS, rows)]
    shown = [node for node in status.nodes if is_wide or node.phase not in QUIET]
    if shown:
        nodes = [
            (node.name, str(node.wave), str(node.phase), node.since or "-", node.reason or "-")
            for node in shown
        ]
        lines += ["", *text.table(NODE_HEADERS, nodes)]
    for node in shown:
        lines += [f"{node.name}: by hand: {step}" for step in node.by_hand]
    return lines


def _wave_row(wave: WaveStatus, count: int) -> tuple[str, ...]:
    name = "canary" if wave.is_canary else str(wave.number)
    times = (wave.started_at or "-", wave.finished_at or "-")
    return (name, str(wave.state), str(count), *times, wave.reason or "-")


def started(acceptance: Acceptance, running: Collection[str], pending: Collection[str]) -> str:
    """How many of the pods that a geometry is for have started, and one that still waits."""
    pods = acceptance.pods
    count = sum(pod in running for pod in pods)
    waiting = [pod for pod in pods if pod in pending]
    gone = len(pods) - count - len(waiting)
    parts = [
        f"waiting pods: {acceptance.before} would have started before, {acceptance.after} by the plan;"
        f" {count} have started"
    ]
    if waiting:
        parts.append(f"{len(waiting)} still wait ({waiting[0]})")
    if gone:
        parts.append(f"{gone} are gone")
    return ", ".join(parts)


def _versions(upgrade: StackUpgrade) -> str:
    if upgrade.spec.mig is not None:
        return f"MIG on {text.counted(len(upgrade.spec.mig.nodes), 'node')}"
    return ",".join(f"{part}={version}" for part, version in sorted(upgrade.spec.to.items()))
