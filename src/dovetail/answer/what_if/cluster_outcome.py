"""What a cluster comes to: what runs once everything that can start now has started, and what starts by a later time.

Given a replica, whose objects a simulation carries forward: the engine decides, its plan is carried out, again until
nothing changes, evictions and grace periods of up to two minutes included. Then time goes on to the horizon with the
runtimes that work states. Never decides by itself, never changes the replica.
"""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

import msgspec

from dovetail.answer import simulate
from dovetail.answer.replica.replica import Replica
from dovetail.answer.what_if import gpu_numbers
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.model import gangs, plan, policy
from dovetail.quantity import durations
from dovetail.schedule.gang import jobs
from dovetail.world import events
from dovetail.world.world import World

# What the change leads to by itself counts as now: a gang that lost a pod is evicted after a grace of a minute.
PRESENT_SECONDS: Final = 120
MOST_TURNS_NOW: Final = 500  # decisions until the cluster has come to rest at the present time
MOST_TURNS_LATER: Final = 1_000  # decisions from there to the horizon
MOST_STOPS: Final = 96  # times on the way there; a quarter of an hour apart in a day
# Running pods times waiting gangs. Beyond it, later starts are worked out without evictions: who yields is searched
# again after every end, and pods that can evict others do so now.
MOST_SEARCHED: Final = 1_000
EVICTING: Final = frozenset({policy.Step.CONSOLIDATE, policy.Step.RECLAIM, policy.Step.PREEMPT})

PodName = tuple[str, str]  # namespace, name


class Running(NamedTuple):
    """A pod on a node."""

    pod: plan.PodRef
    gang: plan.GangRef
    node: str
    gpus: int  # thousandths


class Outcome(NamedTuple):
    """What a cluster comes to."""

    running: dict[PodName, Running]  # once nothing more can start now
    waiting: dict[
        plan.GangRef, tuple[str, ...]
    ]  # pods of gangs below their minimum, at the beginning
    still_waiting: dict[plan.GangRef, tuple[str, ...]]  # of those, once nothing more can start now
    starts: dict[plan.GangRef, plan.Instant]  # first start of a gang, to the horizon
    pending: tuple[PodName, ...]  # once nothing more can start now
    evictions: tuple[plan.Eviction, ...]  # now
    numbers: gpu_numbers.GpuNumbers
    queues: dict[str, queues.QueueStatus]
    nodes: int
    needs: dict[plan.GangRef, int]  # what gangs that wait at the beginning request, in thousandths
    computed_until: datetime.datetime


def outcome_of(replica: Replica, *, horizon_seconds: int) -> Outcome:
    """What the replica comes to, as it is now."""
    simulation = simulate.Simulation(
        replica.facts(),
        replica.policy,
        replica.now,
        promises=tuple(replica.world.promises.values()),
    )
    world = simulation.world
    world.budget_protection.put(replica.budgets())
    stock = gpu_numbers.Stock(world, replica.policy)
    waiting = waiting_gangs(world, replica.policy)
    needs = {ref: sum(stock.needed(pod) for pod in _pending_members(world, ref)) for ref in waiting}

    present = durations.later(replica.now, PRESENT_SECONDS)
    simulation.settle(present, most_turns=MOST_TURNS_NOW)
    running = _running(world, gpu_numbers.Stock(world, replica.policy))
    still_waiting = waiting_gangs(world, replica.policy)
    pending = sorted((pod.metadata.namespace, pod.metadata.name) for pod in world.pending())
    evictions = tuple(simulation.evicted)
    numbers = gpu_numbers.Stock(world, replica.policy).numbers()
    queue_numbers = dict(sorted(simulation.plan.queues.items()))
    node_count = len(world.nodes)

    until = durations.later(replica.now, horizon_seconds)
    searched = len(world.running()) * len(still_waiting)
    reached = simulation.run_while_pending(
        until,
        most_turns=MOST_TURNS_LATER,
        most_stops=MOST_STOPS,
        policy_=replica.policy if searched <= MOST_SEARCHED else _without_evictions(replica.policy),
    )
    starts = {
        plan.GangRef(*key): started.at
        for key, started in simulation.started.items()
        if started.at <= until
    }
    return Outcome(
        running=running,
        waiting=waiting,
        still_waiting=still_waiting,
        starts=starts,
        pending=tuple(pending),
        evictions=evictions,
        numbers=numbers,
        queues=queue_numbers,
        nodes=node_count,
        needs=needs,
        computed_until=reached,
    )


def waiting_gangs(world: World, policy_: policy.Policy) -> dict[plan.GangRef, tuple[str, ...]]:
    """Gangs below their minimum that have pods to start, with the names of these; in order."""
    names = policy_.scheduler_names
    pending: dict[plan.GangRef, tuple[str, ...]] = {}
    for key in _gangs_of_pending(world):
        members = {
            pod_id: (world.pods[pod_id], group)
            for pod_id, group in world.gangs.members(key).items()
        }
        if names and not any(pod.spec.scheduler_name in names for pod, _ in members.values()):
            continue
        job = jobs.job_of(world.gangs.definition(key), members, queue="")
        pending_names = [
            job.pods[pod_id].metadata.name
            for pod_id, state in job.state.items()
            if state in (jobs.State.WAITING, jobs.State.GATED)
        ]
        if pending_names and not job.is_satisfied(job.root):
            pending[plan.GangRef(*key)] = tuple(sorted(pending_names))
    return dict(sorted(pending.items()))


def _without_evictions(policy_: policy.Policy) -> policy.Policy:
    steps = tuple(step for step in policy_.steps if step not in EVICTING)
    return msgspec.structs.replace(policy_, steps=steps)


def _gangs_of_pending(world: World) -> list[gangs.GangKey]:
    keys: dict[gangs.GangKey, None] = {}
    for pod in world.pending():
        member = world.gangs.of(events.pod_id(pod))
        if member is not None:
            keys[member.gang] = None
    return sorted(keys)


def _pending_members(world: World, ref: plan.GangRef) -> list[pods.Pod]:
    members = (world.pods[pod_id] for pod_id in world.gangs.members((ref.namespace, ref.name)))
    return [
        pod
        for pod in members
        if not pod.spec.node_name and pod.status.phase not in pods.TERMINAL_PHASES
    ]


def _running(world: World, stock: gpu_numbers.Stock) -> dict[PodName, Running]:
    running: dict[PodName, Running] = {}
    for pod_id, (node, _) in world.running().items():
        pod = world.pods[pod_id]
        member = world.gangs.of(pod_id) or gangs.lone_membership(pod)
        ref = plan.pod_ref(pod)
        running[ref.namespace, ref.name] = Running(
            ref, plan.GangRef(*member.gang), node, stock.held(pod)
        )
    return dict(sorted(running.items()))
