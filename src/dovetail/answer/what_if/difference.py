"""Compares two outcomes of a cluster: who starts, who no longer does, who starts earlier or later, who yields.

Given the outcome as things are and the one with the changes. Every list is sorted. Never asks the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

from dovetail import timestamps
from dovetail.answer.what_if import gpu_numbers
from dovetail.answer.what_if import what_if_answer as answers
from dovetail.answer.what_if.cluster_outcome import Outcome, PodName, Running
from dovetail.kubetypes.custom import queues
from dovetail.model import plan
from dovetail.model.queue import queue_resources
from dovetail.quantity import quantity
from dovetail.world.devices import gpu_ledger

ENDS, LOST, WAITS = "ends", "is lost", "waits"


def state_of(
    outcome: Outcome,
    all_queues: Mapping[str, queues.Queue],
    prices: Mapping[str, Fraction],
) -> answers.State:
    """One side in numbers."""
    numbers = outcome.numbers
    cost: float | None = None
    unpriced: tuple[str, ...] = ()
    if prices:
        exact, unpriced = gpu_numbers.cost_per_hour(numbers, prices)
        cost = round(float(exact), 4)
    return answers.State(
        nodes=outcome.nodes,
        gpus={
            type_: answers.GpuType(
                nodes=counted.nodes,
                total=_gpus(counted.total),
                used=_gpus(counted.used),
                free=_gpus(counted.free),
                cordoned=_gpus(counted.cordoned),
            )
            for type_, counted in numbers.by_type.items()
        },
        waiting_jobs=len(outcome.waiting),
        starting_jobs=len(started_now(outcome)),
        starting_by_horizon=sum(ref in outcome.starts for ref in outcome.waiting),
        waiting=answers.Waiting(
            jobs=len(outcome.still_waiting),
            pods=numbers.waiting_pods,
            gpus=_gpus(numbers.waiting),
        ),
        evictions=len(outcome.evictions),
        stranded_gpus=_gpus(numbers.stranded),
        queues={
            name: _queue_numbers(all_queues.get(name), status)
            for name, status in outcome.queues.items()
            if name
        },
        cost_per_hour=cost,
        unpriced_types=unpriced,
        computed_until=timestamps.to_text(outcome.computed_until),
    )


def difference(
    before: Outcome,
    after: Outcome,
    sides: tuple[answers.State, answers.State],
    *,
    new_pods: Collection[PodName],
    ended_pods: Collection[PodName],
) -> answers.Difference:
    """What the changes do; `new_pods` are those of given files, `ended_pods` those of work that is over."""
    starting = (started_now(before), started_now(after))
    new_refs = {ref for ref in after.waiting if _has_any(ref, after.waiting[ref], new_pods)}
    started = [ref for ref in sorted(starting[1] - starting[0]) if ref not in new_refs]
    # Work that is over does not wait any more, and work that ran before was not waiting.
    started = [ref for ref in started if ref in before.waiting]
    no_longer = [ref for ref in sorted(starting[0] - starting[1]) if ref in after.waiting]
    earlier, later = _shifted(before, after)
    yielding = ({_key(entry): entry for entry in _evicted(before)},
                {_key(entry): entry for entry in _evicted(after)})  # fmt: skip
    costs = (sides[0].cost_per_hour, sides[1].cost_per_hour)
    return answers.Difference(
        starts=tuple(_job(after, ref) for ref in started),
        no_longer_starts=tuple(_job(before, ref) for ref in no_longer),
        earlier=earlier,
        later=later,
        evicted=tuple(entry for key, entry in yielding[1].items() if key not in yielding[0]),
        spared=tuple(entry for key, entry in yielding[0].items() if key not in yielding[1]),
        moved=_moved(before, after),
        stopped=_stopped(before, after, ended_pods),
        new_work=tuple(_new(after, ref) for ref in sorted(new_refs)),
        nodes=after.nodes - before.nodes,
        total_gpus=_gpus(after.numbers.total("total") - before.numbers.total("total")),
        free_gpus=_gpus(after.numbers.total("free") - before.numbers.total("free")),
        waiting_jobs=len(after.still_waiting) - len(before.still_waiting),
        waiting_pods=after.numbers.waiting_pods - before.numbers.waiting_pods,
        waiting_gpus=_gpus(after.numbers.waiting - before.numbers.waiting),
        stranded_gpus=_gpus(after.numbers.stranded - before.numbers.stranded),
        cost_per_hour=None
        if costs[0] is None or costs[1] is None
        else round(costs[1] - costs[0], 4),
    )


def started_now(outcome: Outcome) -> set[plan.GangRef]:
    """Gangs that waited at the beginning and do not wait once everything that can start now has started."""
    return {ref for ref in outcome.waiting if ref not in outcome.still_waiting}


def _job(outcome: Outcome, ref: plan.GangRef) -> answers.Job:
    names = set(outcome.waiting[ref])
    placed = [running for running in _members(outcome, ref) if running.pod.name in names]
    nodes = Counter(running.node for running in placed)
    return answers.Job(
        work=str(ref),
        pods=len(placed),
        gpus=_gpus(sum(running.gpus for running in placed)),
        nodes=dict(sorted(nodes.items())),
    )


def _new(outcome: Outcome, ref: plan.GangRef) -> answers.NewJob:
    start = outcome.starts.get(ref)
    is_now = ref not in outcome.still_waiting
    nodes = Counter(running.node for running in _members(outcome, ref)) if is_now else Counter()
    return answers.NewJob(
        work=str(ref),
        pods=len(outcome.waiting[ref]),
        gpus=_gpus(outcome.needs.get(ref, 0)),
        start=None if start is None else timestamps.to_text(start),
        nodes=dict(sorted(nodes.items())),
    )


def _members(outcome: Outcome, ref: plan.GangRef) -> list[Running]:
    return [running for running in outcome.running.values() if running.gang == ref]


def _shifted(
    before: Outcome, after: Outcome
) -> tuple[tuple[answers.Shifted, ...], tuple[answers.Shifted, ...]]:
    """Work that waits on both sides and starts at different times."""
    earlier: list[answers.Shifted] = []
    later: list[answers.Shifted] = []
    for ref in sorted(before.waiting.keys() & after.waiting.keys()):
        old, new = before.starts.get(ref), after.starts.get(ref)
        if old == new:
            continue
        seconds = None if old is None or new is None else abs(int((new - old).total_seconds()))
        entry = answers.Shifted(
            work=str(ref),
            before=None if old is None else timestamps.to_text(old),
            after=None if new is None else timestamps.to_text(new),
            seconds=seconds,
        )
        is_earlier = old is None or (new is not None and new < old)
        (earlier if is_earlier else later).append(entry)
    return tuple(earlier), tuple(later)


def _evicted(outcome: Outcome) -> Iterable[answers.Evicted]:
    """Each pod once: the first eviction counts."""
    seen: set[PodName] = set()
    for eviction in sorted(outcome.evictions, key=lambda eviction: eviction.pod):
        name = (eviction.pod.namespace, eviction.pod.name)
        if name in seen:
            continue
        seen.add(name)
        running = outcome.running.get(name)
        is_waiting = any(
            eviction.pod.name in names and ref.namespace == eviction.pod.namespace
            for ref, names in outcome.still_waiting.items()
        )
        yield answers.Evicted(
            pod=str(eviction.pod),
            work=str(eviction.gang),
            rule=str(eviction.rule),
            beneficiary=None if eviction.beneficiary is None else str(eviction.beneficiary),
            node="" if running is None else running.node,
            is_lost=running is None and not is_waiting,
        )


def _key(entry: answers.Evicted) -> tuple[str, str]:
    return entry.pod, entry.rule


def _moved(before: Outcome, after: Outcome) -> tuple[answers.Moved, ...]:
    """Pods that ran before anything was decided and run elsewhere with the changes."""
    waiting = {(ref.namespace, name) for ref, names in before.waiting.items() for name in names}
    moved: list[answers.Moved] = []
    for name, old in before.running.items():
        new = after.running.get(name)
        if new is not None and new.node != old.node and name not in waiting:
            moved.append(
                answers.Moved(pod=str(old.pod), work=str(old.gang), before=old.node, after=new.node)
            )
    return tuple(moved)


def _stopped(
    before: Outcome, after: Outcome, ended_pods: Collection[PodName]
) -> tuple[answers.Stopped, ...]:
    stopped: list[answers.Stopped] = []
    waiting = {name for names in _names(after.still_waiting) for name in names}
    for name, old in before.running.items():
        if name in after.running:
            continue
        why = ENDS if name in ended_pods else WAITS if name in waiting else LOST
        stopped.append(
            answers.Stopped(pod=str(old.pod), work=str(old.gang), node=old.node, why=why)
        )
    return tuple(stopped)


def _names(waiting: Mapping[plan.GangRef, tuple[str, ...]]) -> Iterable[list[PodName]]:
    for ref, names in waiting.items():
        yield [(ref.namespace, name) for name in names]


def _has_any(ref: plan.GangRef, names: Iterable[str], wanted: Collection[PodName]) -> bool:
    return any((ref.namespace, name) in wanted for name in names)


def _queue_numbers(queue: queues.Queue | None, status: queues.QueueStatus) -> answers.QueueNumbers:
    shares = queue.spec.resources if queue is not None else {}
    wanted = queue_resources.read(queue_resources.GPU)
    share = next(
        (share for name, share in shares.items() if queue_resources.read(name) == wanted),
        queues.Share(),
    )
    numbers = status.resources.get(queue_resources.GPU, queues.ShareStatus())
    return answers.QueueNumbers(
        quota=None if share.quota is None else str(share.quota),
        limit=None if share.limit is None else str(share.limit),
        weight=share.weight,
        charged=_amount(numbers.charged),
        requested=_amount(numbers.requested),
        fair_share=_amount(numbers.fair_share),
        running=status.running,
        pending=status.pending,
    )


def _amount(text: str) -> float:
    return quantity.parse(text).milli_value() / 1000 if text else 0.0


def _gpus(milli: int) -> float:
    return milli / gpu_ledger.WHOLE
