"""Plans a roll-out: simulates the waves in the order that loses least and in the order by name, and compares them.

Given a replica, the nodes, the policy, the DaemonSets that were read and what a GPU-hour costs. The engine decides in
every wave who moves where and who waits. A plan that cannot finish says why: evictions that stay refused, a unit larger
than what may be unavailable, a window that is too short, work that never fits again. Never changes anything.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from dovetail import errors, timestamps
from dovetail.answer.drain import drain_filters
from dovetail.answer.replica.replica import Replica
from dovetail.answer.rollout import (
    rollout_answer,
    rollout_blockers,
    rollout_order,
    rollout_policy,
    rollout_units,
    wave_simulation,
)
from dovetail.answer.what_if import gpu_numbers, node_changes
from dovetail.model import plan
from dovetail.world.devices import gpu_ledger

BY_NAME: Final = "by name, as NVIDIA's operator knows no order"
LEAST_LOST: Final = "least lost, displaced work kept off nodes still to come"
HOUR: Final = gpu_ledger.WHOLE * 3600  # thousandths of GPU-seconds
Starts = dict[plan.GangRef, datetime.datetime]


class Wish(NamedTuple):
    """What is planned."""

    to: Mapping[str, str]  # versions by part of the stack
    nodes: Sequence[str]
    skipped: Sequence[str]
    begin: datetime.datetime
    horizon_seconds: int
    prices: Mapping[str, Fraction]


def planned(
    replica: Replica,
    wish: Wish,
    policy_: rollout_policy.Policy,
    daemon_sets: drain_filters.DaemonSets,
) -> rollout_answer.Plan:
    """The plan. Raises InputError where there is nothing to plan."""
    if not wish.nodes:
        raise errors.InputError("no nodes to roll out to: all selected ones are there already")
    units = rollout_units.units_of(replica.world, wish.nodes, policy_.together)
    most = rollout_policy.unavailable_nodes(policy_.max_unavailable, len(replica.world.nodes))
    elsewhere = _unavailable_elsewhere(replica, wish.nodes)
    limit = min(most - len(elsewhere), policy_.parallel or most)
    blockers = [
        *_too_large(units, limit, most, elsewhere),
        *rollout_blockers.drain_blockers(replica, frozenset(wish.nodes), policy_, daemon_sets),
    ]
    simulated = _simulated(replica, wish, policy_, units, max(limit, 1))
    horizon = max(outcome.horizon for _, outcome in simulated)
    baseline = _simulation(replica, wish, policy_).baseline(horizon)
    losses = [_loss(name, outcome, baseline, wish.prices) for name, outcome in simulated]
    best = min(range(len(losses)), key=lambda place: (losses[place].total, place))
    outcome = simulated[best][1]
    blockers += _refused(outcome)
    blockers += _never(outcome)
    if outcome.window_too_short:
        blockers.append(_short_window(policy_))
    naive = losses[-1].total
    times = policy_.durations
    ends = [(wave.end, wave.late_end) for wave in outcome.waves]
    return rollout_answer.Plan(
        now=timestamps.to_text(replica.now),
        to=dict(sorted(wish.to.items())),
        can_finish=not blockers,
        nodes=len(wish.nodes),
        skipped=tuple(wish.skipped),
        max_unavailable=most,
        node_seconds={"p50": times.likely_seconds, "p90": times.late_seconds},
        durations_from=times.source,
        start=timestamps.to_text(outcome.waves[0].start),
        end=timestamps.to_text(max(end for end, _ in ends)),
        late_end=timestamps.to_text(_late_end(outcome, policy_)),
        waves=tuple(_wave(replica, wave, outcome) for wave in outcome.waves),
        slips=tuple(_slips(replica, outcome, baseline)),
        blockers=tuple(blockers),
        chosen=losses[best],
        compared=tuple(loss for place, loss in enumerate(losses) if place != best),
        saved_percent=round(100 * (naive - losses[best].total) / naive, 1) if naive else None,
        assumptions=tuple(_assumptions(policy_, elsewhere)),
    )


def _simulated(
    replica: Replica,
    wish: Wish,
    policy_: rollout_policy.Policy,
    units: Sequence[rollout_units.Unit],
    limit: int,
) -> list[tuple[str, wave_simulation.Outcome]]:
    """The orders to choose from, the order by name last."""
    orders: list[tuple[str, wave_simulation.Chooser, bool]] = [
        (BY_NAME, rollout_order.by_name, False)
    ]
    if policy_.order == "least-lost":
        orders.insert(0, (LEAST_LOST, rollout_order.least_lost, True))
    return [
        (name, _simulation(replica, wish, policy_).run(units, limit, choose, fences=fences))
        for name, choose, fences in orders
    ]


def _simulation(
    replica: Replica, wish: Wish, policy_: rollout_policy.Policy
) -> wave_simulation.RolloutSimulation:
    return wave_simulation.RolloutSimulation(
        replica, policy_, begin=wish.begin, horizon_seconds=wish.horizon_seconds
    )


def _unavailable_elsewhere(replica: Replica, nodes: Sequence[str]) -> list[str]:
    """Nodes outside the roll-out that take no pods already: they count as unavailable."""
    chosen = frozenset(nodes)
    return sorted(
        name
        for name, node in replica.world.nodes.items()
        if name not in chosen and (node.spec.unschedulable or not _is_ready(replica, name))
    )


def _is_ready(replica: Replica, name: str) -> bool:
    conditions = replica.world.nodes[name].status.conditions
    stated = [each.status for each in conditions if each.type == "Ready"]
    return not stated or stated[0] == "True"


def _too_large(
    units: Sequence[rollout_units.Unit], limit: int, most: int, elsewhere: Sequence[str]
) -> Iterable[rollout_answer.Blocker]:
    for unit in units:
        if len(unit.nodes) > limit:
            already = f", {len(elsewhere)} are unavailable already" if elsewhere else ""
            yield rollout_answer.Blocker(
                code="UnitTooLarge",
                nodes=unit.nodes,
                subjects=(unit.name,),
                message=f"{unit.name} has {len(unit.nodes)} nodes that go together; at most "
                f"{max(limit, 0)} may go at once (max unavailable {most}{already})",
                next="raise --max-unavailable or --parallel, or give smaller units with --together",
            )


def _short_window(policy_: rollout_policy.Policy) -> rollout_answer.Blocker:
    longest = max(policy_.windows, key=lambda window: window.minutes)
    need = -(-policy_.durations.late_seconds // 60)
    return rollout_answer.Blocker(
        code="WindowTooShort",
        nodes=(),
        subjects=tuple(window.text for window in policy_.windows),
        message=f"a node takes up to {need} minutes, the longest window has {longest.minutes}",
        next="give a longer --window",
    )


def _refused(outcome: wave_simulation.Outcome) -> Iterable[rollout_answer.Blocker]:
    by_message: dict[tuple[str, str], list[wave_simulation.Refused]] = {}
    for each in outcome.refused:
        by_message.setdefault((each.refusal.budget, each.refusal.message), []).append(each)
    for (budget, message), entries in sorted(by_message.items()):
        namespace, _, name = budget.partition("/")
        yield rollout_answer.Blocker(
            code="DisruptionBudget",
            nodes=tuple(sorted({each.node for each in entries})),
            subjects=tuple(sorted({each.pod for each in entries})),
            message=message,
            next=f"kubectl -n {namespace} describe pdb {name}",
        )


def _never(outcome: wave_simulation.Outcome) -> Iterable[rollout_answer.Blocker]:
    """Work that ran before and does not start again within the horizon."""
    for each in outcome.displaced:
        if each.is_lost or each.start is not None or _went_on(each, outcome):
            continue
        reason = next((outcome.reasons[pod] for pod in each.pods if pod in outcome.reasons), "")
        yield rollout_answer.Blocker(
            code="NeverFits",
            nodes=tuple(sorted(set(each.pods.values()))),
            subjects=(str(each.gang),),
            message=f"{each.gang} loses its nodes in wave {each.wave} and does not start again by "
            f"{timestamps.to_text(outcome.horizon)}{': ' + reason if reason else ''}",
            next="free room for it, or leave its nodes out",
        )


def _went_on(each: wave_simulation.Displacement, outcome: wave_simulation.Outcome) -> bool:
    """Whether a later wave displaced the same work again: that displacement tells its end."""
    return any(other.gang == each.gang and other.at > each.at for other in outcome.displaced)


def _late_end(
    outcome: wave_simulation.Outcome, policy_: rollout_policy.Policy
) -> datetime.datetime:
    """The end if every wave takes its p90 and begins when the one before has ended."""
    at = outcome.waves[0].start
    for wave in outcome.waves:
        start = rollout_policy.next_start(
            policy_.windows, max(at, wave.start), policy_.durations.late_seconds
        )
        pause = policy_.canary_seconds if wave.is_canary and len(outcome.waves) > 1 else 0
        seconds = policy_.durations.late_seconds + pause
        at = (start or at) + datetime.timedelta(seconds=seconds)
    return at


def _wave(
    replica: Replica, wave: wave_simulation.Wave, outcome: wave_simulation.Outcome
) -> rollout_answer.Wave:
    displaced = [each for each in outcome.displaced if each.wave == wave.number]
    lost = sum(outcome.thrown_away(each) + outcome.waited(each) for each in displaced)
    work = [_moved(each, outcome) for each in displaced]
    return rollout_answer.Wave(
        number=wave.number,
        is_canary=wave.is_canary,
        start=timestamps.to_text(wave.start),
        end=timestamps.to_text(wave.end),
        late_end=timestamps.to_text(wave.late_end),
        units=tuple(unit.name for unit in wave.units),
        nodes=wave.nodes,
        gpus=sum(node_changes.gpu_count(replica, name) for name in wave.nodes),
        work=tuple(sorted(work, key=lambda each: (each.fate, each.work, each.before))),
        lost_gpu_hours=round(lost / HOUR, 2),
    )


def _moved(
    each: wave_simulation.Displacement, outcome: wave_simulation.Outcome
) -> rollout_answer.Moved:
    start = each.start
    seconds = int((start - each.at).total_seconds()) if start is not None else None
    if each.is_lost:
        fate, why = "lost", "no controller creates it again"
    elif start is None:
        fate = "never"
        why = next((outcome.reasons[pod] for pod in each.pods if pod in outcome.reasons), "")
    else:
        fate, why = ("moves" if seconds == 0 else "waits"), ""
    return rollout_answer.Moved(
        work=str(each.gang),
        pods=len(each.pods),
        gpus=each.milli_gpus / gpu_ledger.WHOLE,
        before=tuple(sorted(set(each.pods.values()))),
        after=tuple(sorted({node for _, node in each.starts.values()})),
        start=timestamps.to_text(start) if start is not None else None,
        waits_seconds=seconds,
        lost_seconds=each.lost_seconds,
        fate=fate,
        why=why,
    )


def _slips(
    replica: Replica, outcome: wave_simulation.Outcome, baseline: Starts
) -> Iterable[rollout_answer.Slip]:
    promised = {
        promise.gang for promise in replica.world.promises.values() if promise.start is not None
    }
    for ref, before in sorted(baseline.items()):
        after = outcome.starts.get(ref)
        if after is not None and after <= before:
            continue
        seconds = int((after - before).total_seconds()) if after is not None else None
        yield rollout_answer.Slip(
            work=str(ref),
            gpus=outcome.needs.get(ref, 0) / gpu_ledger.WHOLE,
            before=timestamps.to_text(before),
            after=timestamps.to_text(after) if after is not None else None,
            seconds=seconds,
            is_promised=ref in promised,
        )


def _loss(
    name: str,
    outcome: wave_simulation.Outcome,
    baseline: Starts,
    prices: Mapping[str, Fraction],
) -> rollout_answer.Loss:
    thrown = sum(map(outcome.thrown_away, outcome.displaced))
    waited = sum(map(outcome.waited, outcome.displaced))
    delayed = sum(outcome.delayed(ref, before) for ref, before in baseline.items())
    cost, unpriced = _cost(outcome, prices)
    return rollout_answer.Loss(
        order=name,
        total=round((thrown + waited + delayed) / HOUR, 2),
        thrown_away=round(thrown / HOUR, 2),
        displaced_waits=round(waited / HOUR, 2),
        delayed_starts=round(delayed / HOUR, 2),
        displaced=len(outcome.displaced),
        end=timestamps.to_text(outcome.waves[-1].end),
        cost=cost,
        unpriced=unpriced,
    )


def _cost(
    outcome: wave_simulation.Outcome, prices: Mapping[str, Fraction]
) -> tuple[float | None, tuple[str, ...]]:
    """What displaced work loses, by the price of its GPUs; and the types without a price."""
    if not prices:
        return None, ()
    cost = Fraction(0)
    unpriced: set[str] = set()
    for each in outcome.displaced:
        for type_ in each.types:
            price = gpu_numbers.price_of(type_, prices)
            if price is None:
                unpriced.add(type_)
                continue
            lost = outcome.thrown_away(each) + outcome.waited(each)
            cost += price * lost / HOUR / len(each.types)
    return round(float(cost), 2), tuple(sorted(unpriced))


def _assumptions(policy_: rollout_policy.Policy, elsewhere: Sequence[str]) -> Iterable[str]:
    times = policy_.durations
    yield f"a node is out of service for {times.likely_seconds // 60} minutes ({times.source})"
    if policy_.checkpoint_seconds is None:
        yield "evicted work loses what it did since its start, or since the checkpoint that it states"
    else:
        minutes = policy_.checkpoint_seconds // 60
        yield f"evicted work loses at most {minutes} minutes"
    yield f"restarted work computes again after {policy_.restart_seconds // 60} minutes"
    if policy_.only_gpu_pods:
        yield "only pods that request GPUs leave; other pods stay on their nodes"
    yield "no running work yields to displaced work: it starts in free room, or waits"
    if elsewhere:
        yield f"{len(elsewhere)} nodes outside the roll-out count as unavailable"
