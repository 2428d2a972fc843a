"""Decides with queues and gangs: who starts in what is free, who moves, who gives back, who yields, who is taken back.

The steps of a policy in their order, on one stage. Given a world inside a trial; leaves a draft of the plan. Called by
`cycle.decide` wherever there is more than pods alone.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import msgspec

from dovetail.model import durations, gangs, plan, pods, policy, queuetree
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import draft, likeness, order, ready, refuse, ties
from dovetail.schedule.backfill import promises
from dovetail.schedule.claims import Needs
from dovetail.schedule.gangs import roster
from dovetail.schedule.gangs.jobs import Job, Lone, State
from dovetail.schedule.gangs.placing import Placer
from dovetail.schedule.gangs.stage import Given, Stage, Yielded
from dovetail.schedule.queues import amounts, fairshare, gate, history, numbers, power, precedence
from dovetail.schedule.queues.accounts import Accounts
from dovetail.schedule.queues.precedence import Line
from dovetail.schedule.queues.tariff import Tariff
from dovetail.schedule.yielding import overtime, rules, stale
from dovetail.schedule.yielding.search import Solver
from dovetail.world.world import World


class Batch:
    """One decision about queues and gangs."""

    def __init__(
        self,
        world: World,
        policy_: policy.Policy,
        now: plan.Instant | None,
        budget: policy.Budget,
        *,
        among: Collection[str] | None,
        spared: Collection[str],
        toward: Mapping[str, str],
        aside: Collection[gangs.GangKey] = (),
    ) -> None:
        known = queuetree.usable(world.queues)
        named = {name for queue in known.values() for name in queue.spec.resources}
        tariff = Tariff(world, policy_.batch, named, has_power=power.has_caps(world))
        listed = roster.of(world, policy_)
        jobs = listed.jobs(world, known, aside)
        self._refused = listed.reasons()  # by job, why it is not considered
        accounts = Accounts(known, enforces=policy_.batch.enforces_quota, capacity=tariff.capacity())
        self._stage = Stage(
            world, policy_, budget, now=now, jobs=jobs, accounts=accounts, tariff=tariff, bills=listed.bills
        )
        for job in listed.left_out(world, known, aside):
            self._stage.charge_left_out(job)
        most = 0
        saturated = _saturated(policy_.batch, now)
        for job in jobs.values():
            job.priced_by(self._price)
            job.is_aged = saturated is not None and job.created <= saturated
            most = max(most, len(job.pods))
        self._steps = policy_.steps
        self._pods_left = max(budget.pods, most) if budget.pods is not None else None  # no gang is too large for a turn
        self._is_cut = False
        self._among = frozenset(among) if among is not None else None
        self._spared = frozenset(spared)
        self._stage.toward = toward
        self._wake: datetime.datetime | None = None
        self._promises: promises.Promises | None = None
        self._pending = {job.id: job for job in jobs.values() if job.has_waiting}
        self._note_waiting()
        weight, half_life = policy_.batch.usage_weight, policy_.batch.usage_half_life_seconds
        used = history.parts(known, accounts.capacity, half_life=half_life) if weight > 0 else None
        fairshare.divide(accounts, usage=used, usage_weight=weight)

    def _note_waiting(self) -> None:
        """Notes for every queue what it waits for; what costs the same is counted first."""
        counts: Counter[tuple[str, int]] = Counter()
        costs: dict[int, amounts.Amounts] = {}
        for job in self._pending.values():
            for id_, state in job.state.items():
                if state is State.WAITING and job.id not in self._refused:
                    most = self._stage.waits_for(id_)[1]
                    costs[id(most)] = most
                    counts[job.queue, id(most)] += 1
        for (queue, cost), count in counts.items():
            total = {name: amount * count for name, amount in costs[cost].items()}
            self._stage.accounts.wait(queue, total)

    def _price(self, id_: str) -> amounts.Amounts:
        """What a pod that waits costs at most."""
        return self._stage.waits_for(id_)[1]

    # The steps

    def decide(self) -> plan.Plan:
        """Everything. What was kept for those it is about is theirs no longer: they are given anew what is best."""
        crowd = self._stage.world.crowd
        try:
            with crowd.disregarding([id_ for id_ in crowd.expected() if self._is_about(id_)]):
                return self._decided()
        finally:
            for job in self._stage.jobs.values():
                job.priced_by(None)  # jobs outlive the decision, and must not keep its world alive

    def _is_about(self, id_: str) -> bool:
        return self._stage.knows(id_) and (self._among is None or id_ in self._among)

    def _decided(self) -> plan.Plan:
        """Step by step."""
        stage = self._stage
        placer = Placer(stage)
        self._promises = promises.begun(stage, placer)
        if self._promises is not None:
            stage.guards.append(self._promises)
        for step in self._steps:
            if self._is_cut:
                break
            match step:
                case policy.Step.ALLOCATE:
                    self._allocate(placer)
                case policy.Step.CONSOLIDATE:
                    self._make_yield(placer, rules.Consolidation(stage))
                case policy.Step.RECLAIM:
                    self._make_yield(placer, rules.Reclaim(stage))
                case policy.Step.PREEMPT:
                    self._make_yield(placer, rules.Preemption(stage))
                case policy.Step.STALE:
                    self._wake_by(stale.take_back(stage))
                case policy.Step.OVERTIME:
                    self._wake_by(overtime.end(stage, self._spared))
        self._wake_by(placer.wake)
        return self._plan()

    def _waiting(self) -> Line:
        """Jobs that may start something, in order."""
        return Line(self._stage.accounts, (job for job in self._waiters() if self._may_start(job)))

    def _waiters(self) -> Iterable[Job]:
        """Jobs of which anything may wait; a decision may take back what it gave."""
        return (self._pending | self._stage.withdrawn).values()

    def _may_start(self, job: Job) -> bool:
        if job.id in self._refused:
            return False
        ids = job.next_pods()
        if not job.can_reach_minimum():
            self._refuse(job, Reason(code=ReasonCode.GANG_INCOMPLETE, detail=_too_few(job)))
            return False
        if ids and not job.gang.is_known and self._is_unseen(job):
            self._refuse(
                job,
                Reason(
                    code=ReasonCode.GANG_INCOMPLETE, detail=f"its {gangs.owner_name(_key(job))} has not been seen yet"
                ),
            )
            return False
        return bool(ids) and self._may_speak_of(ids)

    def _may_speak_of(self, ids: Iterable[str]) -> bool:
        """Whether the decision was asked about all of these pods."""
        return self._among is None or self._among.issuperset(ids)

    def _is_unseen(self, job: Job) -> bool:
        """Whether its owner may still turn up; when that is over is a time to ask again. Native groups must exist."""
        if gangs.source_of(_key(job)) in gangs.NATIVE:
            return True
        if self._stage.now is None or job.created is order.NEVER:
            return False
        until = durations.later(job.created, gangs.UNKNOWN_SECONDS)
        if self._stage.now >= until:
            return False
        self._wake_by(until)
        return True

    def _allocate(self, placer: Placer) -> None:
        line = self._waiting()
        for job in line:
            ids = job.next_pods()
            if not ids or not self._may_speak_of(ids):  # what is beyond a minimum may not be asked about
                continue
            reason = self._gate(job, ids)
            if reason is not None:
                self._refuse(job, reason)
                if self._promises is not None:
                    self._promises.closed(job)
                continue
            if self._pods_left is not None and self._pods_left < len(ids):
                self._is_cut = True  # what is free is not all given yet: nobody yields this time
                self._put_off(job)
                continue
            refusal = placer.step(job, ids)
            if refusal is None:
                for id_ in ids:
                    self._stage.refusals.pop(id_, None)
                if self._pods_left is not None:
                    self._pods_left -= len(ids)
                if job.next_pods():
                    line.put_back(job)
            else:
                self._refuse_with(job, refusal)
                if self._promises is not None:
                    self._promises.blocked(job, ids)

    def _put_off(self, job: Job) -> None:
        for id_, state in job.state.items():
            if state is State.WAITING:
                self._stage.refusals[id_] = refuse.of_pod(job.pods[id_], (_NO_TURN,), is_undecided=True)

    def _gate(self, job: Job, ids: Collection[str]) -> Reason | None:
        costs = [self._stage.waits_for(id_)[0] for id_ in ids]
        least = costs[0] if len(costs) == 1 else amounts.total(costs)
        account = self._stage.accounts.by_name[job.queue]
        return gate.refusal(account, least, is_fixed=not job.is_preemptible)

    def _make_yield(self, placer: Placer, ruling: rules.Rules) -> None:
        """One way of making room, for everybody who still waits."""
        with self._stage.later():  # entered once: it is as large as all that was decided so far
            self._yield(placer, ruling)

    def _yield(self, placer: Placer, ruling: rules.Rules) -> None:
        waiting: dict[str, list[Job]] = {}
        for job in self._waiters():
            if self._may_start(job):
                waiting.setdefault(job.queue, []).append(job)
        solver = Solver(self._stage, placer, ruling, spared=self._spared, waiting=waiting)
        failed: dict[Hashable, Reason] = {}
        line = self._waiting()
        for job in line:
            ids = job.next_pods()
            if not ids or not self._may_speak_of(ids):
                continue
            kind = self._likeness(job, ids)
            reason = failed.get(kind) or solver.solve(job)
            if reason is None:
                failed.clear()  # others lost what they had, and somebody may fit beside it
                for id_ in ids:
                    self._stage.refusals.pop(id_, None)
                line.key_all()  # others lost what they had
                if job.next_pods():
                    line.put_back(job)
            else:
                failed[kind] = reason
                self._refuse(job, reason, keeps_known=True)

    def _likeness(self, job: Job, ids: Sequence[str]) -> Hashable:
        """Equal for jobs of which one cannot make room where the other cannot; the job's own where that is unsure."""
        if not isinstance(job, Lone) or job.gang.may_evict_after:
            return job.id
        pod = job.pods[ids[0]]
        needs = ready.needs(pod, self._stage.books)
        if not isinstance(needs, Needs) or ties.of(pod, self._stage.world) is not None:
            return job.id
        own = likeness.pod_key(pod, needs, self._stage.world.images)
        return job.queue, job.priority, job.is_preemptible, pod.spec.preemption_policy, own

    # What is told

    def _refuse(self, job: Job, reason: Reason, *, keeps_known: bool = False) -> None:
        for id_, state in job.state.items():
            if state in (State.WAITING, State.GATED) and not (keeps_known and id_ in self._stage.refusals):
                self._stage.refusals[id_] = refuse.of_pod(job.pods[id_], (reason,))

    def _refuse_with(self, job: Job, refusal: plan.Refusal) -> None:
        """One pod found no place; the others of its gang wait for it."""
        detail = f"pod {refusal.pod.name} of its gang finds no place: {refusal.summary}"
        reason = Reason(code=ReasonCode.GANG_WAITS, detail=detail)
        for id_, state in job.state.items():
            if state is State.WAITING:
                is_it = id_ == refusal.pod.uid or len(job.pods) == 1
                self._stage.refusals[id_] = refusal if is_it else refuse.of_pod(job.pods[id_], (reason,))

    def _wake_by(self, when: datetime.datetime | None) -> None:
        if when is not None and (self._wake is None or when < self._wake):
            self._wake = when

    def _refusals(self) -> list[plan.Refusal]:
        """Every pod that was asked about and waits, the most important first."""
        found: list[tuple[precedence.Key, order.Rank, plan.Refusal]] = []
        for job in self._waiters():
            reason = self._refused.get(job.id)
            key: precedence.Key | None = None
            for id_, state in job.state.items():
                if state in (State.WAITING, State.GATED) and self._may_speak_of((id_,)):
                    pod = job.pods[id_]
                    told = refuse.of_pod(pod, (reason,)) if reason is not None else self._stage.refusals.get(id_)
                    key = key or precedence.job_key(job)
                    found.append((key, order.rank(pod), told if told is not None else self._unasked(pod)))
        return [refusal for _, _, refusal in sorted(found, key=lambda one: one[:2])]

    def _unasked(self, pod: pods.Pod) -> plan.Refusal:
        """Gates and claims say why, else it is another's turn."""
        needs = ready.needs(pod, self._stage.books)
        return refuse.of_pod(pod, needs if not isinstance(needs, Needs) else (_UNASKED,))

    def _starts_together(self, job: Job) -> bool:
        """Whether what starts of a job is nothing without the rest of it; what is beyond a minimum starts alone."""
        return len(job.pods) > 1 and not job.is_satisfied(job.root, without=self._stage.given)

    def _plan(self) -> plan.Plan:
        stage = self._stage
        made = draft.Draft()
        for id_, one in stage.given.items():
            if one.is_now:
                ref = gang_ref(one.job) if self._starts_together(one.job) else None
                made.start(one.pod, one.found, one.needs, books=stage.books, gang=ref)
            elif id_ not in stage.yielded:
                made.nominate(one.pod, one.found.node, gang_ref(one.job))
        for id_, why in stage.yielded.items():
            made.evict(_eviction(why, id_, stage.given.get(id_)))
        promised = self._promises.told() if self._promises is not None else ()
        if self._promises is not None:
            self._wake_by(self._promises.wake_at())
        said = {id_: one for one in promised for id_ in stage.jobs[str(one.gang)].pods}
        for refusal in self._refusals():
            made.wait(promises.added(refusal, said.get(refusal.pod.uid)))
        told = numbers.numbers(stage.accounts, stage.jobs.values())
        return msgspec.structs.replace(made.finish(wake_at=self._wake), promises=promised, queues=told)


def _saturated(batch: policy.Batch, now: plan.Instant | None) -> datetime.datetime | None:
    """Whoever came by then is as old as counts. When that is reached nobody starts by it: no time to be woken at."""
    if now is None or not batch.age_saturation_seconds:
        return None
    return durations.earlier(now, batch.age_saturation_seconds)


def _eviction(why: Yielded, id_: str, moved: Given | None) -> plan.Eviction:
    return plan.Eviction(
        pod=plan.pod_ref(why.job.pods[id_]),
        gang=gang_ref(why.job),
        rule=why.rule if moved is None or why.rule is plan.Rule.STALE else plan.Rule.CONSOLIDATED,
        beneficiary=gang_ref(why.beneficiary) if why.beneficiary is not None else None,
        detail=why.detail,
        moves_to=moved.found.node if moved is not None else "",
        keeps=tuple(moved.found.taken(moved.pod).values()) if moved is not None else (),
    )


def _key(job: Job) -> gangs.GangKey:
    return job.gang.metadata.namespace, job.gang.metadata.name


def gang_ref(job: Job) -> plan.GangRef:
    """The gang of a job."""
    return plan.GangRef(job.gang.metadata.namespace, job.gang.metadata.name)


_NO_TURN = Reason(code=ReasonCode.TO_BE_CONTINUED, detail="the cycle's budget of pods ended before its turn")
_UNASKED = Reason(code=ReasonCode.GANG_WAITS, detail="waits for its turn")


def _too_few(job: Job) -> str:
    there = sum(state in (State.WAITING, State.ACTIVE) for state in job.state.values())
    return f"only {there} of its pods are there and free to start; its minimum cannot be reached"
