"""Puts the nodes of an upgrade into waves, and says which of a wave may begin.

Given the spec and the facts. Units (racks, NVLink domains) are never divided. A plan's own waves are kept as they are;
without one, nodes go by name, the canary first. Never more nodes are unavailable than allowed: fenced ones, failed
ones, and those that are cordoned or not ready for other reasons count. Never changes a status.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence

from dovetail import errors
from dovetail.answer.rollout import rollout_policy
from dovetail.answer.what_if import node_selection
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, NodeStatus
from dovetail.upgrade.machine.cluster_facts import Facts

Unit = tuple[str, ...]
FENCED = frozenset(
    {
        NodePhase.FENCING,
        NodePhase.DRAINING,
        NodePhase.APPLYING,
        NodePhase.VALIDATING,
        NodePhase.UNFENCING,
    }
)


def is_fenced(node: NodeStatus) -> bool:
    """Whether the node is out of service because of us."""
    return node.phase in FENCED or (node.phase is NodePhase.FAILED and not node.is_given_back)


def limit(spec: stack_upgrades.StackUpgradeSpec, facts: Facts) -> int:
    """How many nodes of the cluster may be unavailable."""
    return rollout_policy.unavailable_nodes(spec.waves.max_unavailable, len(facts.nodes))


def problem(spec: stack_upgrades.StackUpgradeSpec, facts: Facts) -> str:
    """Why the nodes cannot be put into waves; empty where they can."""
    try:
        most = limit(spec, facts)
        windows = tuple(map(rollout_policy.window, spec.waves.windows))
    except errors.InputError as error:
        return str(error)
    units = units_of(_selected(facts), facts)
    if not units:
        return f"no nodes are selected; the cluster has {len(facts.nodes)} nodes"
    largest = max(units, key=len)
    if len(largest) > most:
        return (
            f"{len(largest)} nodes go together ({facts.nodes[largest[0]].unit or largest[0]}), "
            f"maxUnavailable {spec.waves.max_unavailable} allows {most} of {len(facts.nodes)} nodes"
        )
    longest = max((window.minutes * 60 for window in windows), default=spec.waves.node_seconds)
    if longest < spec.waves.node_seconds:
        return f"a node takes {spec.waves.node_seconds} s, the longest window has {longest} s"
    return _planning_problem(spec, facts)


def waves_of(spec: stack_upgrades.StackUpgradeSpec, facts: Facts) -> list[Unit]:
    """The nodes of each wave."""
    if spec.waves.planned:
        return [wave.nodes for wave in spec.waves.planned]
    units = units_of(_selected(facts), facts)
    waves = _filled(units[:1], spec.waves.canary) if spec.waves.canary else []
    size = min(spec.waves.parallel or limit(spec, facts), limit(spec, facts))
    begun = frozenset(name for wave in waves for name in wave)
    later = [unit for unit in units if not begun.intersection(unit)]
    if waves and len(waves[0]) < spec.waves.canary:
        room = spec.waves.canary - len(waves[0])
        added = [unit for unit in later if len(unit) == 1][:room]
        waves = [(*waves[0], *(unit[0] for unit in added))]
        later = [unit for unit in later if unit not in added]
    return [*waves, *_filled(later, size)]


def units_of(names: Iterable[str], facts: Facts) -> list[Unit]:
    """The units of these nodes, by name."""
    members: dict[str, list[str]] = {}
    for name in sorted(names, key=node_selection.natural):
        unit = facts.nodes[name].unit if name in facts.nodes else ""
        members.setdefault(f"unit/{unit}" if unit else f"node/{name}", []).append(name)
    return [tuple(unit) for unit in members.values()]


def startable(
    waiting: Sequence[NodeStatus],
    present: Iterable[NodeStatus],
    facts: Facts,
    most: int,
) -> list[str]:
    """Which of the waiting nodes may begin now: whole units, as many as may be unavailable."""
    unavailable = unavailable_nodes(present, facts)
    started: list[str] = []
    for unit in units_of([node.name for node in waiting], facts):
        after = unavailable.union(started, unit)
        if len(after) <= most:
            started += unit
    return started


def unavailable_nodes(present: Iterable[NodeStatus], facts: Facts) -> frozenset[str]:
    """All nodes that are out of service, for whatever reason."""
    ours = frozenset(node.name for node in present if is_fenced(node) and node.name in facts.nodes)
    others = frozenset(name for name, view in facts.nodes.items() if view.is_unavailable)
    return ours | others


def is_open(spec: stack_upgrades.StackUpgradeSpec, at: datetime.datetime) -> bool:
    """Whether a wave that begins now ends inside a window."""
    windows = tuple(map(rollout_policy.window, spec.waves.windows))
    return rollout_policy.next_start(windows, at, spec.waves.node_seconds) == at


def _selected(facts: Facts) -> list[str]:
    return [name for name, view in facts.nodes.items() if view.is_selected]


def _planning_problem(spec: stack_upgrades.StackUpgradeSpec, facts: Facts) -> str:
    """What is wrong with the waves of a plan."""
    names = [name for wave in spec.waves.planned for name in wave.nodes]
    unknown = sorted(set(names) - facts.nodes.keys(), key=node_selection.natural)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if unknown:
        return f"spec.waves.planned names nodes that do not exist: {', '.join(unknown[:5])}"
    if repeated:
        return f"spec.waves.planned names nodes twice: {', '.join(repeated[:5])}"
    return ""


def _filled(units: Collection[Unit], size: int) -> list[Unit]:
    """Waves of at most so many nodes; a larger unit is a wave alone."""
    waves: list[list[str]] = []
    for unit in units:
        if waves and len(waves[-1]) + len(unit) <= size:
            waves[-1] += unit
        else:
            waves.append(list(unit))
    return [tuple(wave) for wave in waves]
