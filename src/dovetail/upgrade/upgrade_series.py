"""The series about upgrades that a scrape shows: phases, conditions, and how long each node has been in its phase.

Given upgrades as they were read last and the time; durations are those at the scrape, so they grow while nothing is
read. A limit stands only where the machine would end the phase by itself: not while a person's work is awaited, nor for
drains of a paused upgrade. Never reads anything.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes.custom.stack_upgrades import NodePhase, NodeStatus, StackUpgrade
from dovetail.model.exposition import Family, Series
from dovetail.upgrade.machine import gang_drain, upgrade_waves

PHASE: Final = "dovetail_lifecycle_upgrade_phase"
CONDITION: Final = "dovetail_lifecycle_upgrade_condition"
NODES: Final = "dovetail_lifecycle_nodes"
NODE_SECONDS: Final = "dovetail_lifecycle_node_phase_seconds"
NODE_LIMIT: Final = "dovetail_lifecycle_node_phase_limit_seconds"
FAMILIES: Final = (
    Family(PHASE, "gauge", "1 for the phase that an upgrade is in."),
    Family(CONDITION, "gauge", "Conditions of an upgrade: 1 is True, 0 is False."),
    Family(NODES, "gauge", "Nodes of an upgrade by phase."),
    Family(NODE_SECONDS, "gauge", "How long a node under way has been in its phase."),
    Family(NODE_LIMIT, "gauge", "How long it may be; without a limit there is no series."),
)
FENCE_SECONDS: Final = 300  # a fence is a few writes


def series(upgrades: Iterable[StackUpgrade], now: datetime.datetime) -> Iterator[Series]:
    """All series. Linear in nodes."""
    for upgrade in upgrades:
        name, status = upgrade.metadata.name, upgrade.status
        yield Series(PHASE, {"upgrade": name, "phase": str(status.phase)}, 1)
        for condition in status.conditions:
            labels = {"upgrade": name, "condition": condition.type}
            yield Series(CONDITION, labels, int(condition.status == "True"))
        phases = [node.phase for node in status.nodes]
        for phase in NodePhase if phases else ():
            yield Series(NODES, {"upgrade": name, "phase": str(phase)}, phases.count(phase))
        for node in status.nodes:
            yield from _of_node(upgrade, node, now)


def _of_node(upgrade: StackUpgrade, node: NodeStatus, now: datetime.datetime) -> Iterator[Series]:
    since = timestamps.parse_or_none(node.since)
    if node.phase not in upgrade_waves.FENCED or since is None:
        return
    labels = {"upgrade": upgrade.metadata.name, "node": node.name, "phase": str(node.phase)}
    yield Series(NODE_SECONDS, labels, max(0.0, round((now - since).total_seconds(), 3)))
    limit = _limit_seconds(upgrade, node)
    if limit is not None:
        yield Series(NODE_LIMIT, labels, limit)


def _limit_seconds(upgrade: StackUpgrade, node: NodeStatus) -> int | None:
    """After how many seconds the node leaves the phase, if only as failed; None where it may stay."""
    match node.phase:
        case NodePhase.DRAINING:
            return None if upgrade.spec.paused else gang_drain.deadline_seconds(upgrade.spec.drain)
        case NodePhase.APPLYING:
            return None if node.by_hand else upgrade.spec.stop.apply_seconds
        case NodePhase.VALIDATING:
            return upgrade.spec.stop.validate_seconds
        case _:
            return FENCE_SECONDS
