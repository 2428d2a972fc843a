"""Simulates a roll-out wave by wave: fences nodes, displaces their gangs, lets the engine place them, and goes on.

Given a replica, the units and the policy. At each wave a chooser picks the units; the engine decides who starts where,
as the live scheduler would. Gangs that fall below their minimum are displaced whole, since one lost pod ends their
work. Disruption budgets are counted along the way. Nodes whose turn comes later can be made less attractive by a taint
(PreferNoSchedule), so that displaced work is not displaced again. Never changes the replica.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.answer import simulate
from dovetail.answer.drain import disruption_account, drain_filters, unrequested_gpus
from dovetail.answer.replica import gang_departure
from dovetail.answer.replica.replica import Replica
from dovetail.answer.rollout import rollout_policy
from dovetail.answer.rollout.rollout_units import Unit
from dovetail.answer.what_if import (
    cluster_outcome,
    displaced_pods,
    gpu_numbers,
    node_selection,
)
from dovetail.kubetypes.core import nodes, pods
from dovetail.model import gangs, plan, policy
from dovetail.quantity import durations
from dovetail.schedule import pod_order
from dovetail.world import events
from dovetail.world.events import Changed

FENCE: Final = "dovetail.dev/rollout"
LATER: Final = nodes.Taint(key=FENCE, value="later", effect="PreferNoSchedule")
MOST_TURNS: Final = 60  # decisions of one wave
MOST_STOPS: Final = 6  # times inside a wave at which the engine is asked again
SHORTEST_WAIT: Final = 600  # seconds between two looks at work that is about to end
LATER_STOPS: Final = 48  # and from the last wave to the horizon
MOST_WAVES: Final = 5_000


class Displacement(msgspec.Struct):
    """Work that lost its nodes in a wave, and what became of it."""

    gang: plan.GangRef
    wave: int
    at: datetime.datetime
    pods: dict[str, str]  # id of each displaced pod, and its node before
    milli_gpus: int
    lost_seconds: int  # work since its start or its last checkpoint
    restart_seconds: int  # until restarted work computes again
    types: tuple[str, ...]  # of the GPUs, for prices
    starts: dict[str, tuple[datetime.datetime, str]]  # by pod: when and where it started again
    is_lost: bool = False  # no controller creates it again

    @property
    def start(self) -> datetime.datetime | None:
        """When all of it had started again."""
        if self.is_lost or len(self.starts) < len(self.pods):
            return None
        return max(at for at, _ in self.starts.values())


class Wave(NamedTuple):
    """Nodes that are out of service together."""

    number: int
    is_canary: bool
    start: datetime.datetime
    end: datetime.datetime
    late_end: datetime.datetime
    units: tuple[Unit, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the wave."""
        return tuple(name for unit in self.units for name in unit.nodes)


class Refused(NamedTuple):
    """An eviction that a budget refuses even after the pods before it are back."""

    pod: str
    node: str
    wave: int
    refusal: disruption_account.Refusal


class Outcome(NamedTuple):
    """What a roll-out comes to."""

    waves: tuple[Wave, ...]
    displaced: tuple[Displacement, ...]
    refused: tuple[Refused, ...]
    starts: dict[plan.GangRef, datetime.datetime]  # of work that waited at the beginning
    needs: dict[plan.GangRef, int]  # of that work, in thousandths of GPUs
    reasons: dict[str, str]  # why pods still wait at the end, by id
    window_too_short: bool
    horizon: datetime.datetime

    def thrown_away(self, each: Displacement) -> int:
        """Work that is done again, and the time until restarted work computes."""
        seconds = each.lost_seconds if each.is_lost else each.lost_seconds + each.restart_seconds
        return each.milli_gpus * seconds

    def waited(self, each: Displacement) -> int:
        """GPUs times seconds between the eviction and the next start, up to the horizon."""
        if each.is_lost:
            return 0
        end = each.start or self.horizon
        return each.milli_gpus * max(0, int((end - each.at).total_seconds()))

    def delayed(self, ref: plan.GangRef, before: datetime.datetime) -> int:
        """GPUs times seconds by which waiting work starts later than without the roll-out."""
        after = self.starts.get(ref, self.horizon)
        return self.needs.get(ref, 0) * max(0, int((after - before).total_seconds()))


Chooser = Callable[["RolloutSimulation", list[Unit], int], Sequence[Unit]]


class RolloutSimulation:
    """One roll-out, simulated."""

    def __init__(
        self,
        replica: Replica,
        policy_: rollout_policy.Policy,
        *,
        begin: datetime.datetime,
        horizon_seconds: int,
    ) -> None:
        self._policy = policy_
        self._rules = _without_evictions(replica.policy)
        self._horizon_seconds = horizon_seconds
        self._waiting: dict[str, Displacement] = {}
        self._evicted: dict[str, pods.Pod] = {}  # those that wait, as they were
        self._displaced: list[Displacement] = []
        self._refused: list[Refused] = []
        self.sim = simulate.Simulation(
            replica.facts(),
            self._rules,
            replica.now,
            promises=tuple(replica.world.promises.values()),
            decided=self._note_starts,
        )
        self.world = self.sim.world
        budgets = replica.budgets()
        self.world.budget_protection.put(budgets)
        present = self.world.pods.values() if budgets else ()
        self._account = disruption_account.Account(budgets, present)
        self._stock = gpu_numbers.Stock(self.world, self._rules)
        waiting = cluster_outcome.waiting_gangs(self.world, self._rules)
        self._needs = {ref: self._need(ref) for ref in waiting}
        self._begin = begin
        self.may_wait_until = begin  # the latest time to which the next wave can be put off
        cordoned = [name for name, node in self.world.nodes.items() if node.spec.unschedulable]
        self._cordoned = frozenset(cordoned)  # by others: they stay so

    # The whole of it

    def run(self, units: Sequence[Unit], limit: int, choose: Chooser, *, fences: bool) -> Outcome:
        """All waves, then time goes on to the horizon."""
        left = list(units)
        waves: list[Wave] = []
        too_short = False
        self._settle(self._begin)
        deadline = self._deadline(left, limit)
        if fences:
            self._mark_later(name for unit in left for name in unit.nodes)
        while left and len(waves) < MOST_WAVES:
            is_canary = not waves and self._policy.canary > 0
            start = self._next_start(waves)
            if start is None:
                too_short = True
                start = self.sim.now
            self._settle(start)
            size = min(self._policy.canary, limit) if is_canary else limit
            self.may_wait_until = deadline - self._needed(left, limit)
            picked = tuple(choose(self, left, size))
            if not picked:
                self._settle(self._next_end(left))
                continue
            wave = self._wave(len(waves) + 1, start, picked, is_canary=is_canary)
            waves.append(wave)
            self._carry_out(wave)
            left = [unit for unit in left if unit not in picked]
        end = waves[-1].end if waves else self._begin
        return self._finish(tuple(waves), end, window_too_short=too_short)

    def _needed(self, left: Sequence[Unit], limit: int) -> datetime.timedelta:
        """The time that waves of full size take one after the other."""
        count = sum(len(unit.nodes) for unit in left)
        return -(-count // limit) * datetime.timedelta(
            seconds=self._policy.durations.likely_seconds
        )

    def _deadline(self, units: Sequence[Unit], limit: int) -> datetime.datetime:
        """The end of the roll-out if it takes all the time that it may."""
        extra = self._policy.patience_seconds
        if self._policy.canary > 0:
            extra += self._policy.canary_seconds + self._policy.durations.likely_seconds
        return self._begin + self._needed(units, limit) + datetime.timedelta(seconds=extra)

    def _next_end(self, left: Sequence[Unit]) -> datetime.datetime:
        """When work on these nodes ends next, at the latest when waiting has to end."""
        present = self.pods_by_node()
        names = [name for unit in left for name in unit.nodes]
        ends = [self.sim.end_of(pod_id) for name in names for pod_id in present.get(name, ())]
        soonest = durations.later(self.sim.now, SHORTEST_WAIT)
        known = [max(end, soonest) for end in ends if end is not None]
        return min(*known, self.may_wait_until) if known else self.may_wait_until

    def baseline(self, until: datetime.datetime) -> dict[plan.GangRef, datetime.datetime]:
        """When waiting work starts without a roll-out."""
        self._settle(until, most_stops=LATER_STOPS)
        return self._starts()

    def _wave(
        self, number: int, start: datetime.datetime, units: tuple[Unit, ...], *, is_canary: bool
    ) -> Wave:
        times = self._policy.durations
        return Wave(
            number,
            is_canary,
            start,
            durations.later(start, times.likely_seconds),
            durations.later(start, times.late_seconds),
            units,
        )

    def _next_start(self, waves: Sequence[Wave]) -> datetime.datetime | None:
        earliest = max(self._begin, self.sim.now)
        if waves:
            pause = self._policy.canary_seconds if waves[-1].is_canary else 0
            earliest = max(durations.later(waves[-1].end, pause), self.sim.now)
        late = self._policy.durations.late_seconds
        return rollout_policy.next_start(self._policy.windows, earliest, late)

    def _finish(
        self, waves: tuple[Wave, ...], end: datetime.datetime, *, window_too_short: bool
    ) -> Outcome:
        horizon = durations.later(end, self._horizon_seconds)
        self._settle(horizon, most_stops=LATER_STOPS)
        reasons = {refusal.pod.uid: refusal.summary for refusal in self.sim.plan.refusals}
        return Outcome(
            waves=waves,
            displaced=tuple(self._displaced),
            refused=tuple(self._refused),
            starts=self._starts(),
            needs=self._needs,
            reasons=reasons,
            window_too_short=window_too_short,
            horizon=horizon,
        )

    def _starts(self) -> dict[plan.GangRef, datetime.datetime]:
        started = {plan.GangRef(*key): start.at for key, start in self.sim.started.items()}
        return {ref: started[ref] for ref in self._needs if ref in started}

    # One wave

    def _carry_out(self, wave: Wave) -> None:
        for name in wave.nodes:
            self._set_node(name, unschedulable=True, taints=())
        self._stock = gpu_numbers.Stock(self.world, self._rules)
        self._evict(wave)
        self._settle(wave.end)
        for name in wave.nodes:
            self._set_node(name, unschedulable=name in self._cordoned, taints=())

    def _evict(self, wave: Wave) -> None:
        """Evicts what has to leave. Budgets that refuse are asked again once the pods before are back."""
        present = self.pods_by_node()
        remaining = [
            pod_id for name in wave.nodes for pod_id in self.leaving(present.get(name, ()))
        ]
        while remaining:
            refused: list[tuple[str, disruption_account.Refusal]] = []
            for pod_id in remaining:
                pod = self.world.pods.get(pod_id)
                if pod is None or not pod.spec.node_name:
                    continue  # went with its gang
                displacement = self.displacement(pod_id, wave.number)
                leaving = [self.world.pods[each] for each in displacement.pods]
                refusal = self._account.evict_together(leaving)
                if refusal is not None:
                    refused.append((pod_id, refusal))
                else:
                    self._displace(displacement)
            came_back = self._returned_after_turn() if refused else 0
            if refused and not came_back:
                self._give_up(refused, wave)
                return
            remaining = [pod_id for pod_id, _ in refused]

    def _returned_after_turn(self) -> int:
        """Lets the engine place what waits; how many displaced pods are back."""
        before = {pod_id for each in self._displaced for pod_id in each.starts}
        self._turns()
        return sum(len(each.starts) for each in self._displaced) - len(before)

    def _give_up(self, refused: list[tuple[str, disruption_account.Refusal]], wave: Wave) -> None:
        """Records the refused evictions, and goes on as if the budgets had been dealt with."""
        for pod_id, refusal in refused:
            pod = self.world.pods[pod_id]
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            self._refused.append(Refused(name, pod.spec.node_name, wave.number, refusal))
        for pod_id, _ in refused:
            left = self.world.pods.get(pod_id)  # None: it went for good with its gang
            if left is not None and left.spec.node_name:
                self._displace(self.displacement(pod_id, wave.number))

    def _displace(self, displacement: Displacement) -> None:
        """Displaces a pod, and its gang with it where that falls below its minimum."""
        self._displaced.append(displacement)
        for member_id in displacement.pods:
            before = self.world.pods[member_id]
            if self.sim.displace(member_id):
                self._waiting[member_id] = displacement
                self._evicted[member_id] = before
            else:
                displacement.is_lost = True

    def growth(self, displacement: Displacement, seconds: int) -> int:
        """How much more the displacement would lose after so many seconds, in seconds of its work."""
        most = self._policy.checkpoint_seconds
        return seconds if most is None else max(0, min(seconds, most - displacement.lost_seconds))

    def displacement(self, pod_id: str, wave: int) -> Displacement:
        """What the eviction of a pod would cost now. Changes nothing."""
        pod = self.world.pods[pod_id]
        member = self.world.gangs.of(pod_id) or gangs.lone_membership(pod)
        leaving = gang_departure.leaving_with(self.world, pod_id, member.gang)
        since = max(_start_of(self.world.pods[each], self.sim.now) for each in leaving)
        checkpoint = self._checkpoint(member.gang)
        seconds = int((self.sim.now - max(since, checkpoint or since)).total_seconds())
        if self._policy.checkpoint_seconds is not None:
            seconds = min(seconds, self._policy.checkpoint_seconds)
        return Displacement(
            gang=plan.GangRef(*member.gang),
            wave=wave,
            at=self.sim.now,
            pods={each: self.world.pods[each].spec.node_name for each in leaving},
            milli_gpus=sum(self._stock.held(self.world.pods[each]) for each in leaving),
            lost_seconds=max(0, seconds),
            restart_seconds=self._policy.restart_seconds,
            types=self._types(leaving),
            starts={},
        )

    def _checkpoint(self, key: gangs.GangKey) -> datetime.datetime | None:
        written = self.world.gangs.definition(key).last_checkpoint
        if written is None:
            return None
        at = pod_order.instant(written)
        return None if at is pod_order.NEVER else min(at, self.sim.now)

    def _types(self, pod_ids: Iterable[str]) -> tuple[str, ...]:
        from_nodes = {self.world.pods[each].spec.node_name for each in pod_ids}
        known = sorted(from_nodes & self.world.nodes.keys())
        return tuple(sorted({node_selection.gpu_type(self.world, name) for name in known}))

    # Pods and nodes

    def pods_by_node(self) -> dict[str, list[str]]:
        """The ids of the pods on each node."""
        by_node: dict[str, list[str]] = {}
        for pod_id, (node, _) in self.world.running().items():
            by_node.setdefault(node, []).append(pod_id)
        return by_node

    def leaving(self, pod_ids: Iterable[str]) -> list[str]:
        """Which of a node's pods have to leave it, in the order of a drain."""
        present = [self.world.pods[pod_id] for pod_id in pod_ids]
        ordered = drain_filters.in_order([pod for pod in present if self._has_to_leave(pod)])
        return [events.pod_id(pod) for pod in ordered]

    def _has_to_leave(self, pod: pods.Pod) -> bool:
        if displaced_pods.is_bound_to_node(pod):
            return False
        return not self._policy.only_gpu_pods or unrequested_gpus.requests_gpus(
            pod, self.world.claims
        )

    def _mark_later(self, names: Iterable[str]) -> None:
        for name in names:
            self._set_node(name, unschedulable=None, taints=(LATER,))

    def _set_node(
        self, name: str, *, unschedulable: bool | None, taints: tuple[nodes.Taint, ...]
    ) -> None:
        node = self.world.nodes[name]
        foreign = tuple(taint for taint in node.spec.taints if taint.key != FENCE)
        is_fenced = node.spec.unschedulable if unschedulable is None else unschedulable
        spec = msgspec.structs.replace(
            node.spec, unschedulable=is_fenced, taints=(*foreign, *taints)
        )
        self.world.apply(Changed(msgspec.structs.replace(node, spec=spec)))

    # Time

    def _settle(self, until: datetime.datetime, *, most_stops: int = MOST_STOPS) -> None:
        """Lets the engine decide up to that time."""
        self._turns()
        self.sim.run_while_pending(
            until, most_turns=MOST_TURNS, most_stops=most_stops, policy_=self._rules
        )
        self.sim.advance(until)

    def _turns(self) -> None:
        for _ in range(MOST_TURNS):
            if not self.world.pending() or not self.sim.turn():
                return

    def _note_starts(self, decided: plan.Plan, now: datetime.datetime) -> None:
        """Records where displaced pods start again, and gives their budgets back what they took."""
        for placement in decided.placements:
            displacement = self._waiting.pop(placement.pod.uid, None)
            if displacement is not None:
                displacement.starts[placement.pod.uid] = (now, placement.node)
                self._account.returned(self._evicted.pop(placement.pod.uid))

    def _need(self, ref: plan.GangRef) -> int:
        members = self.world.gangs.members((ref.namespace, ref.name))
        waiting = [
            self.world.pods[each] for each in members if not self.world.pods[each].spec.node_name
        ]
        return sum(self._stock.needed(pod) for pod in waiting)


def _without_evictions(rules: policy.Policy) -> policy.Policy:
    """No running work yields to displaced work: who would is searched at every step, which takes minutes.

    Pods of other schedulers are placed as ours would be: that they never start again is the worse guess.
    """
    steps = tuple(step for step in rules.steps if step not in cluster_outcome.EVICTING)
    return msgspec.structs.replace(rules, steps=steps, scheduler_names=())


def _start_of(pod: pods.Pod, now: datetime.datetime) -> datetime.datetime:
    at = pod_order.instant(pod.status.start_time) if pod.status.start_time else now
    return now if at is pod_order.NEVER else min(at, now)
