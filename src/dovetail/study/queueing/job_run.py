"""Runs a list of jobs through the engine in virtual time: jumps from event to event and asks `decide` at each.

Given a fleet, jobs and the assumptions of a study. Jobs end after their true duration, which the engine does not know;
an interrupted job goes on from its last checkpoint. Chance (failures, lost nodes) comes from the seed. Returns what
happened to every job. Never places a pod itself, never reads a clock.
"""

from __future__ import annotations

import datetime
import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from dovetail.answer import simulate
from dovetail.kubetypes.core import nodes
from dovetail.model import gangs, plan, policy
from dovetail.sim.fleet import fleet_spec
from dovetail.study.queueing import (
    job_attempts,
    job_list,
    job_log,
    node_room,
    past_runtimes,
    study_file,
    study_objects,
)

SCHEDULER: Final = "dovetail"
MOST_TURNS_AT_ONCE: Final = 50  # decisions at one time, where evictions and starts alternate
HOUR: Final = 3600
LONE_POD: Final = "pod"  # the source of a gang of one, whose name is the pod's

Progress = Callable[[int, int], None]  # jobs that ended, of all


class EngineRun:
    """One run."""

    def __init__(
        self,
        fleet: fleet_spec.Fleet,
        jobs: Sequence[job_list.Job],
        *,
        study: study_file.Study,
        seed: int = 0,
        policy_: policy.Policy = policy.DEFAULT,
        past: past_runtimes.PastRuntimes | None = None,
    ) -> None:
        trees = study_objects.fleet_trees(fleet)
        trees += [study_objects.queue_tree(queue) for queue in study.queues]
        self.log = job_log.Log(jobs)
        self._study = study
        self._jobs = {job.name: job for job in jobs}
        self._random = random.Random(seed)  # noqa: S311 (a study, not a secret)
        self._attempts = job_attempts.JobAttempts(jobs, study=study, seed=seed, log=self.log)
        self._past = past_runtimes.PastRuntimes() if past is None else past
        self._pods_left = {job.name: job.pods for job in jobs}
        self._arrivals = list(reversed(jobs))
        self._serial = itertools.count()
        self._losses: list[tuple[int, int, nodes.Node, bool]] = []
        self._sim = simulate.Simulation(
            study_objects.structs(trees),
            _with_promises(policy_, study.promises),
            study_objects.BEGINNING,
            seconds=self._seconds,
            decided=self._decided,
        )
        self._node_numbers = {
            name: number for number, name in enumerate(sorted(self._sim.world.nodes))
        }
        self._gpus_by_node = [self._gpus_of(name) for name in self._node_numbers]
        self._room = node_room.GpuNodes(self._gpus_by_node)
        self._nodes_of_pods: dict[str, int] = {}
        self._plan_losses()

    def run(self, progress: Progress | None = None) -> job_log.Log:
        """Until all jobs have ended, or those that wait can never start."""
        while True:
            self._submit_due()
            self._decide()
            self.log.decided(self._now, self._room.counts())
            next_second = self._next_second()
            if next_second is None:
                return self.log
            self._advance(next_second)
            if progress is not None:
                progress(self.log.ended, len(self._jobs))

    # Time

    @property
    def _now(self) -> int:
        return round((self._sim.now - study_objects.BEGINNING).total_seconds())

    def _next_second(self) -> int | None:
        if self.log.ended == len(self._jobs):
            return None
        seconds = [job.submit_seconds for job in self._arrivals[-1:]]
        next_time = self._sim.next_time()
        if next_time is not None:
            elapsed = next_time - study_objects.BEGINNING
            seconds.append(-(-elapsed // datetime.timedelta(seconds=1)))
        is_work_left = bool(seconds)
        if self._losses and is_work_left:
            seconds.append(self._losses[0][0])
        elif self._losses and any(not is_lost for *_, is_lost in self._losses):
            seconds.append(self._losses[0][0])  # a node under repair may be what jobs wait for
        if not seconds:
            return None
        step = self._study.decision_seconds or 1
        return max(-(-min(seconds) // step) * step, self._now)

    def _advance(self, second: int) -> None:
        time = study_objects.BEGINNING + datetime.timedelta(seconds=second)
        for end, pod_id in self._sim.advance(time):
            self._pod_ended(pod_id, round((end - study_objects.BEGINNING).total_seconds()))
        while self._losses and self._losses[0][0] <= second:
            _, _, node, is_lost = heapq.heappop(self._losses)
            self._lose(node) if is_lost else self._repair(node)

    def _submit_due(self) -> None:
        while self._arrivals and self._arrivals[-1].submit_seconds <= self._now:
            job = self._arrivals.pop()
            if self._study.predicts_runtimes and job.expected_seconds is None:
                predicted = self._past.predict(job)
                job = msgspec.structs.replace(job, expected_seconds=predicted)
            self.log.submit(job.name)
            self._sim.submit(*study_objects.pods_of(job, scheduler=SCHEDULER))

    def _decide(self) -> None:
        """Until nothing changes. Where nothing waits there is nothing to decide: no work of a study has a limit."""
        for _ in range(MOST_TURNS_AT_ONCE):
            if not self._sim.world.pending():
                return
            before = self.log.starts
            is_changed = self._sim.turn()
            self._note_starts()
            if not is_changed and before == self.log.starts:
                return

    # Jobs

    def _note_starts(self) -> None:
        plan_ = self._sim.plan
        started = [(placement.pod.uid, placement.node) for placement in plan_.placements]
        # Pods that move start in the same turn, without a placement of their own.
        moved = [eviction for eviction in plan_.evictions if eviction.moves_to]
        started += [(eviction.pod.uid, eviction.moves_to) for eviction in moved]
        restarted: list[job_list.Job] = []
        for pod_id, node in started:
            job = self._jobs[_job_name(pod_id)]
            self._nodes_of_pods[pod_id] = self._node_numbers[node]
            self._room.take([self._node_numbers[node]], job.gpus_per_pod)
            if not self._attempts.is_running(job):
                self._attempts.start(job, self._now)
                restarted.append(job)
        for job in restarted:
            end = self._sim.now + datetime.timedelta(seconds=self._attempts.seconds(job))
            self._expect_ends(job, end)

    def _expect_ends(self, job: job_list.Job, end: datetime.datetime | None) -> None:
        """All pods of a job that hold GPUs end together, also those that stayed while others moved."""
        for number in range(job.pods):
            if f"{job.name}-{number}" in self._nodes_of_pods:
                self._sim.set_end(f"{job.name}-{number}", end)

    def _seconds(self, gang: gangs.Gang, by_queue: int | None) -> int:
        """How long a pod that starts now stays."""
        source, _, name = gang.metadata.name.partition("/")
        return self._attempts.seconds(self._jobs[_job_name(name) if source == LONE_POD else name])

    def _pod_ended(self, pod_id: str, second: int) -> None:
        job = self._jobs[_job_name(pod_id)]
        self._release(pod_id)
        self._pods_left[job.name] -= 1
        if self._pods_left[job.name]:
            return
        self._pods_left[job.name] = job.pods
        if not self._attempts.fails(job):
            self._attempts.end(job, second)
            self._past.add(job)
            return
        self._attempts.interrupt(job, second, job_log.FAILED)
        self._sim.submit(*study_objects.pods_of(job, scheduler=SCHEDULER))

    def _decided(self, decided: plan.Plan, now: datetime.datetime) -> None:
        for eviction in decided.evictions:
            job = self._jobs[_job_name(eviction.pod.uid)]
            self._release(eviction.pod.uid)
            if self._attempts.is_running(job):
                what = job_log.MOVED if eviction.moves_to else job_log.EVICTED
                self._attempts.interrupt(job, self._now, what)
                self._expect_ends(job, None)  # what stays waits for what left

    def _release(self, pod_id: str) -> None:
        """The pod's GPUs are free, if it held any."""
        node = self._nodes_of_pods.pop(pod_id, None)
        if node is not None:
            self._room.release([node], self._jobs[_job_name(pod_id)].gpus_per_pod)

    # Nodes

    def _gpus_of(self, name: str) -> int:
        return self._sim.world.nodes[name].status.allocatable[study_objects.GPU].value()

    def _plan_losses(self) -> None:
        if self._study.node_loss is None:
            return
        for name in sorted(self._sim.world.nodes):
            self._plan_loss(self._sim.world.nodes[name])

    def _plan_loss(self, node: nodes.Node) -> None:
        assert self._study.node_loss is not None
        mean_seconds = self._study.node_loss.mean_hours * HOUR
        second = self._now + max(1, int(self._random.expovariate(1 / mean_seconds)))
        heapq.heappush(self._losses, (second, next(self._serial), node, True))

    def _lose(self, node: nodes.Node) -> None:
        assert self._study.node_loss is not None
        world = self._sim.world
        on_node = sorted(
            pod_id
            for pod_id in world.running()
            if world.pods[pod_id].spec.node_name == node.metadata.name
        )
        for name in sorted({_job_name(pod_id) for pod_id in on_node}):
            self._displace(self._jobs[name])
        self._sim.withdraw(node)
        number = self._node_numbers[node.metadata.name]
        self._room.take([number], self._gpus_by_node[number])
        back = self._now + self._study.node_loss.repair_seconds
        heapq.heappush(self._losses, (back, next(self._serial), node, False))

    def _displace(self, job: job_list.Job) -> None:
        """All pods of the job: one that loses a member cannot go on."""
        if self._attempts.is_running(job):
            self._attempts.interrupt(job, self._now, job_log.NODE_LOST)
        for number in range(job.pods):
            self._release(f"{job.name}-{number}")
            self._sim.displace(f"{job.name}-{number}")

    def _repair(self, node: nodes.Node) -> None:
        self._sim.submit(node)
        number = self._node_numbers[node.metadata.name]
        self._room.release([number], self._gpus_by_node[number])
        self._plan_loss(node)


def _with_promises(policy_: policy.Policy, promises: int | None) -> policy.Policy:
    if promises is None:
        return policy_
    batch = msgspec.structs.replace(policy_.batch, promises=promises)
    return msgspec.structs.replace(policy_, batch=batch)


def _job_name(pod_id: str) -> str:
    return pod_id.rpartition("-")[0]
