"""Tries changes of partitions on a replica: who starts, who must leave which GPU, and where those go on.

Given a replica and changes of nodes. The engine decides without evictions, before and after, so that both are compared
by the same rules. Changes are undone when a trial ends. Never chooses a geometry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dovetail import timestamps
from dovetail.answer.drain import disruption_account
from dovetail.answer.partitioning import geometry_edits
from dovetail.answer.partitioning.partition_nodes import Geometry, StaticNode
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import cluster_outcome, gpu_numbers
from dovetail.kubetypes.core import pods
from dovetail.model import policy
from dovetail.world.devices import gpu_ledger


class NodeChange(NamedTuple):
    """Other partitions on some GPUs of a node."""

    node: StaticNode
    after: Mapping[int, Geometry]  # by index of the GPU
    is_drained: bool = False  # whether pods on its other GPUs leave as well

    @property
    def leaving(self) -> tuple[str, ...]:
        """The pods that hold one of these GPUs, or any GPU of a node that is drained."""
        if self.is_drained:
            return self.node.holders
        held = {
            name
            for board in self.node.boards
            if board.number in self.after
            for name in board.holders
        }
        return tuple(sorted(held))


class Outcome(NamedTuple):
    """What the engine decides after changes."""

    placed: dict[str, str]  # pods that start now, with their nodes
    moved: tuple[str, ...]  # pods that had to leave
    refusal: str = ""  # why the changes cannot be made


class Trials:
    """Trials on one replica."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.count = 0
        steps = tuple(step for step in replica.policy.steps if step not in cluster_outcome.EVICTING)
        self._rules: policy.Policy = msgspec.structs.replace(replica.policy, steps=steps)
        self._pods = {_name(pod): pod for pod in replica.world.pods.values()}

    def outcome(self, changes: Sequence[NodeChange]) -> Outcome:
        """What the cluster comes to with all of these changes."""
        self.count += 1
        moved: list[str] = []
        with contextlib.ExitStack() as opened:
            for change in changes:
                gone = geometry_edits.vacated(self.replica, change.node.name, change.leaving)
                refusal = self._refusal(change, gone.lost, len(gone.again))
                if refusal:
                    return Outcome({}, (), refusal)
                moved += gone.again
                opened.enter_context(self.replica.edited(gone.edits))
                edits = geometry_edits.partitioned(self.replica, change.node, change.after)
                opened.enter_context(self.replica.edited(edits))
            decided = self.replica.decide(policy_=self._rules)
            placed = {
                f"{each.pod.namespace}/{each.pod.name}": each.node for each in decided.placements
            }
        stays = [name for name in moved if name not in placed]
        if stays:
            return Outcome(placed, tuple(moved), f"{stays[0]} would not start again")
        return Outcome(placed, tuple(moved))

    def _refusal(self, change: NodeChange, lost: Sequence[str], again: int) -> str:
        if lost:
            return f"{lost[0]} holds a GPU of it, and no controller would create it again"
        if len(change.leaving) > again:
            return "a pod that belongs to the node holds a GPU of it"
        budgets = self.replica.budgets()
        if budgets and change.leaving:
            account = disruption_account.Account(budgets, self.replica.world.pods.values())
            for name in change.leaving:
                if account.evict(self._pods[name]) is not None:
                    return f"a disruption budget refuses the eviction of {name}"
        return ""

    def move_cost(
        self, name: str, *, restart_seconds: int, checkpoint_seconds: int | None
    ) -> float:
        """GPU-hours that a pod loses: its work since the start or last checkpoint, and its restart."""
        pod = self._pods[name]
        started = timestamps.parse_or_none(pod.status.start_time or "")
        ran = 0 if started is None else int((self.replica.now - started).total_seconds())
        lost = ran if checkpoint_seconds is None else min(ran, checkpoint_seconds)
        stock = gpu_numbers.Stock(self.replica.world, self.replica.policy)
        held = stock.held(pod) / gpu_ledger.WHOLE
        return round(held * (max(lost, 0) + restart_seconds) / 3600, 3)


def _name(pod: pods.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
