"""Plans MIG geometry from demand: which GPUs to partition how, so that more of the waiting work starts.

Given a replica. Nodes are tried in turn, those with the fewest holders first: their free GPUs are filled with what
waits, largest partitions first, then with what runs elsewhere. A change is kept if the engine starts more waiting pods
with it, none that starts without it waits, and every pod that had to leave starts again elsewhere. Changes without
moves that start nothing by themselves are kept for a gang that needs several, and dropped at the end unless they
count. Bounded by the number of trials. Never changes a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dovetail.answer.partitioning import mig_parted, partition_demand, partition_nodes
from dovetail.answer.partitioning.partition_answer import (
    Acceptance,
    BoardChange,
    Move,
    PartitionPlan,
    Passed,
    Proposal,
)
from dovetail.answer.partitioning.partition_demand import WHOLE, Need, Needs, Waiting
from dovetail.answer.partitioning.partition_nodes import BoardState, Geometry, StaticNode
from dovetail.answer.partitioning.partition_trial import NodeChange, Outcome, Trials
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import node_selection

MOST_TRIALS: Final = 200


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What a change costs besides: times in seconds."""

    restart_seconds: int = 300  # until restarted work computes again
    checkpoint_seconds: int | None = None  # evicted work loses at most so much; None: all of it
    partition_seconds: int = 300  # in which the GPUs of a change serve no work


def planned(
    replica: Replica,
    *,
    costs: Costs | None = None,
    managed: Collection[str] = (),
    excluded: Mapping[str, str] | None = None,
    drains_nodes: bool = False,
    recent: Sequence[str] = (),
    most_trials: int = MOST_TRIALS,
) -> PartitionPlan:
    """The plan.

    `managed` are the nodes on which a MIG manager runs, `excluded` those that are left alone, with the reason.
    `drains_nodes`: all pods with GPUs leave a node that is changed. `recent`: profiles that work waited for, the most
    wanted first; room that is left is filled with them before those in use.
    """
    nodes = partition_nodes.nodes_of(replica).without(excluded or {})
    search = _Search(replica, nodes.static, most_trials, drains_nodes=drains_nodes, recent=recent)
    changes, tried = search.run()
    return _Answer(search, costs or Costs(), frozenset(managed)).plan(nodes, changes, tried)


class _Search:
    """Finds the changes."""

    def __init__(
        self,
        replica: Replica,
        nodes: Sequence[StaticNode],
        most_trials: int,
        *,
        drains_nodes: bool = False,
        recent: Sequence[str] = (),
    ) -> None:
        self.trials = Trials(replica)
        self.waiting = partition_demand.waiting(replica)
        self.needs = Needs(replica)
        self.before = self.trials.outcome(())
        self.refused: dict[str, str] = {}
        self._names = frozenset(each.name for each in self.waiting)
        self._nodes = sorted(
            nodes, key=lambda node: (len(node.holders), node_selection.natural(node.name))
        )
        self._most = most_trials
        self._drains_nodes = drains_nodes
        self._recent = (*recent, *self._held_profiles(nodes))

    def run(self) -> tuple[list[NodeChange], int]:
        """The changes to make, and how many nodes were not tried."""
        changes: list[NodeChange] = []
        best = self.before
        for place, node in enumerate(self._nodes):
            left = self.left(best)
            if not left:
                break
            if self.trials.count >= self._most:
                return self._needed(changes, best), len(self._nodes) - place
            change, outcome = self._best_of_node(node, changes, best, left)
            if change is not None:
                changes.append(change)
                best = outcome
        return self._needed(changes, best), 0

    def left(self, outcome: Outcome) -> list[Waiting]:
        """Pods that still wait."""
        return [each for each in self.waiting if each.name not in outcome.placed]

    def started(self, outcome: Outcome) -> frozenset[str]:
        """Waiting pods that start."""
        return self._names & outcome.placed.keys()

    def _best_of_node(
        self,
        node: StaticNode,
        changes: Sequence[NodeChange],
        best: Outcome,
        left: Sequence[Waiting],
    ) -> tuple[NodeChange | None, Outcome]:
        """The change of a node that starts most; with moves only if it starts more."""
        chosen: NodeChange | None = None
        outcome = best
        for boards in _choices(node):
            change = self._change(node, boards, left)
            if change is None or (chosen is not None and change.after == chosen.after):
                continue
            trial = self.trials.outcome([*changes, change])
            if trial.refusal:
                self.refused.setdefault(node.name, trial.refusal)
                continue
            if not self._is_safe(trial, best):
                continue
            is_better = len(self.started(trial)) > len(self.started(outcome))
            if is_better or (chosen is None and not change.leaving):
                chosen, outcome = change, trial
        return chosen, outcome

    def _is_safe(self, trial: Outcome, best: Outcome) -> bool:
        return self.started(best) <= self.started(trial)

    def _needed(self, changes: list[NodeChange], best: Outcome) -> list[NodeChange]:
        """Without the changes that start nothing."""
        kept = list(changes)
        for change in reversed(changes):
            fewer = [each for each in kept if each is not change]
            trial = self.trials.outcome(fewer)
            if not trial.refusal and self.started(trial) >= self.started(best):
                kept = fewer
        return kept

    def _change(
        self, node: StaticNode, boards: Sequence[BoardState], left: Sequence[Waiting]
    ) -> NodeChange | None:
        """The boards filled with what waits. None where nothing would change."""
        wanted = self._wanted(node, left)
        after: dict[int, Geometry] = {}
        for board in boards:
            geometry = _packed(node, wanted, self._recent)
            if geometry is None:
                break
            if geometry != board.geometry:
                after[board.number] = geometry
        if not after:
            return None
        if node.is_counted:  # its GPUs change all together
            for board in node.boards:
                after.setdefault(board.number, board.geometry or ())
        return NodeChange(node, after, self._drains_nodes)

    def _wanted(self, node: StaticNode, left: Sequence[Waiting]) -> list[str]:
        """Partitions that waiting pods need on such a node: whole GPUs first, then the largest."""
        needs = [self.needs.of(each.pod, node) for each in left]
        profiles = [profile for need in needs if need is not None for profile in need]
        sizes = {name: size for size, name in enumerate(partition_demand.by_size(node.board))}
        largest = len(sizes)
        return sorted(
            profiles,
            key=lambda name: (-(largest if name == WHOLE else sizes.get(name, 0)), name),
        )

    def _held_profiles(self, nodes: Sequence[StaticNode]) -> tuple[str, ...]:
        """Profiles of GPUs in use, the most common first: what room is left is filled with them."""
        counts = Counter(
            profile
            for node in nodes
            for board in node.boards
            if board.holders
            for profile in board.geometry or ()
        )
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return tuple(name for name, _ in ordered)


def _choices(node: StaticNode) -> Iterator[tuple[BoardState, ...]]:
    """Sets of boards to change: the free ones, then with each more that is held, the fewest holders first."""
    ordered = sorted(node.boards, key=lambda board: (len(board.holders), board.number))
    if node.is_counted:
        yield tuple(ordered)
        return
    free = [board for board in ordered if not board.holders]
    if free:
        yield tuple(free)
    for count in range(len(free) + 1, len(ordered) + 1):
        # Held boards first: the free ones alone were tried.
        yield (*ordered[len(free) : count], *free)


def _packed(node: StaticNode, wanted: list[str], recent: Sequence[str]) -> Geometry | None:
    """The geometry of one board; takes what it serves from the list. None where nothing is wanted."""
    if not wanted:
        return None
    if wanted[0] == WHOLE:
        wanted.pop(0)
        return ()
    geometry: Geometry = ()
    for profile in tuple(wanted):
        if partition_demand.fits(node.board, (*geometry, profile)):
            geometry = (*geometry, profile)
            wanted.remove(profile)
    if not geometry:
        wanted.clear()  # no board of this type takes what is left
        return None
    for profile in (*recent, *dict.fromkeys(geometry), *partition_demand.by_size(node.board)):
        while partition_demand.fits(node.board, (*geometry, profile)):
            geometry = (*geometry, profile)
    return tuple(sorted(geometry))


class _Answer:
    """Puts the changes into the shape of the answer."""

    def __init__(self, search: _Search, costs: Costs, managed: frozenset[str]) -> None:
        self._search = search
        self._costs = costs
        self._managed = managed

    def plan(
        self, nodes: partition_nodes.Nodes, changes: Sequence[NodeChange], cut_short: int
    ) -> PartitionPlan:
        """The whole answer."""
        search = self._search
        proposals = []
        outcome = search.before
        for count, change in enumerate(changes, start=1):
            following = search.trials.outcome(changes[:count])
            proposals.append(self._proposal(change, outcome, following))
            outcome = following
        needs = self._needs(nodes.static)
        reasons = dict(nodes.passed)
        changed = {change.node.name for change in changes}
        for name, why in search.refused.items():
            if name not in changed:
                reasons.setdefault(name, why)
        return PartitionPlan(
            before=self._acceptance(search.before),
            after=self._acceptance(outcome),
            demand=partition_demand.counted(needs),
            proposals=tuple(proposals),
            on_demand=nodes.on_demand,
            passed=tuple(_passed(reasons)),
            gpu_hours=round(sum(each.gpu_hours for each in proposals), 3),
            cut_short=cut_short,
        )

    def _needs(self, nodes: Sequence[StaticNode]) -> list[Need]:
        """What pods that wait before any change need, on the first node that could serve them."""
        needs = []
        by_type = {(node.gpu_type, node.is_counted): node for node in reversed(nodes)}
        for each in self._search.left(self._search.before):
            served = (self._search.needs.of(each.pod, node) for node in by_type.values())
            need = next((need for need in served if need is not None), None)
            if need is not None:
                needs.append(need)
        return needs

    def _acceptance(self, outcome: Outcome) -> Acceptance:
        names = tuple(sorted(self._search.started(outcome)))
        return Acceptance(pods=len(names), of=len(self._search.waiting), names=names)

    def _proposal(self, change: NodeChange, before: Outcome, after: Outcome) -> Proposal:
        node = change.node
        moves = tuple(self._move(name, change, after) for name in change.leaving)
        idle = len(change.after) * self._costs.partition_seconds / 3600
        starts = self._search.started(after) - self._search.started(before)
        boards = [
            BoardChange(
                index=board.number,
                before=board.geometry,
                after=change.after.get(board.number, board.geometry or ()),
            )
            for board in node.boards
        ]
        return Proposal(
            node=node.name,
            gpu_type=node.gpu_type,
            boards=tuple(boards),
            moves=moves,
            gpu_hours=round(idle + sum(move.gpu_hours for move in moves), 3),
            starts=tuple(sorted(starts)),
            config=mig_parted.config_name([(board.index, board.after) for board in boards]),
            has_manager=node.name in self._managed,
        )

    def _move(self, name: str, change: NodeChange, after: Outcome) -> Move:
        cost = self._search.trials.move_cost(
            name,
            restart_seconds=self._costs.restart_seconds,
            checkpoint_seconds=self._costs.checkpoint_seconds,
        )
        return Move(pod=name, node=change.node.name, to=after.placed.get(name, ""), gpu_hours=cost)


def _passed(reasons: dict[str, str]) -> Iterator[Passed]:
    by_reason: dict[str, list[str]] = {}
    for name, why in reasons.items():
        by_reason.setdefault(why, []).append(name)
    for why, names in sorted(by_reason.items()):
        yield Passed(why=why, nodes=tuple(sorted(names)))
