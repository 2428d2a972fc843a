"""Decides with queues and gangs: who starts in what is free, who moves, who gives back, who yields, who is taken back.

The steps of a policy in their order, on one stage. Given a world inside a trial; leaves a draft of the plan. Called by
`cycle.decide` wherever there is more than pods alone.
"""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from dovetail.model import durations, gangs, plan, pods, policy, queuetree
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import draft, likeness, order, ready, refusals, refuse, steps, ties
from dovetail.schedule.backfill import promises
from dovetail.schedule.claims import Needs
from dovetail.schedule.gangs import roster
from dovetail.schedule.gangs.jobs import Job, Lone, State
from dovetail.schedule.gangs.placing import Placer
from dovetail.schedule.gangs.stage import Given, Stage, Yielded
from dovetail.schedule.queues import amounts, fairshare, gate, history, hopeless, numbers, power, precedence
from dovetail.schedule.queues.accounts import NO_QUEUE, Accounts
from dovetail.schedule.queues.precedence import Line
from dovetail.schedule.queues.tariff import Tariff
from dovetail.schedule.steps import HAVING_TURNS, LOOK, PLACE, PLACES, YIELDING, SpentError, Steps
from dovetail.schedule.yielding import behind, overtime, rules, stale
from dovetail.schedule.yielding.atonce import AtOnce
from dovetail.schedule.yielding.search import Solver
from dovetail.world.world import World

ALLOCATED: Final = 0.75  # of all steps may be spent before somebody yields; a quarter is left for that
TOP: Final = 0.25  # of all steps are for the most important, while a round is under way
MOST_PER_POD: Final = 32  # steps that a pod of a gang may need to be placed; twelve are the rule
MOST_PER_YIELD: Final = 128  # and where others have to yield to it


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
        jobs = listed.jobs(world, known, aside, among=among, is_bounded=budget.steps is not None)
        self._listed = listed
        self._refused = listed.reasons()  # by job, why it is not considered
        accounts = Accounts(known, enforces=policy_.batch.enforces_quota, capacity=tariff.capacity())
        self._stage = Stage(
            world,
            policy_,
            budget,
            now=now,
            jobs=jobs,
            accounts=accounts,
            tariff=tariff,
            bills=listed.bills,
            among=among,
        )
        for job in listed.left_out(world, known, aside):
            self._stage.charge_left_out(job)
        self._charge_doubts()
        saturated = _saturated(policy_.batch, now)
        for job in jobs.values():
            job.priced_by(self._price)
            job.is_aged = saturated is not None and job.created <= saturated
        self._stage.toward = toward
        self._among = frozenset(among) if among is not None else None
        self._spared = frozenset(spared)
        self._begin_turn(world, policy_, budget, has_kept=bool(toward))
        self._pending = {job.id: job for job in jobs.values() if job.has_waiting}
        for job in self._pending.values():
            job.is_kept = not world.queues and any(pod.status.nominated_node_name for pod in job.pods.values())
        self._note_waiting()
        weight, half_life = policy_.batch.usage_weight, policy_.batch.usage_half_life_seconds
        used = history.parts(known, accounts.capacity, half_life=half_life) if weight > 0 else None
        fairshare.divide(accounts, usage=used, usage_weight=weight)

    def _begin_turn(self, world: World, policy_: policy.Policy, budget: policy.Budget, *, has_kept: bool) -> None:
        """Nothing is decided yet; where decisions are bounded, the round of which this is one goes on."""
        self._steps = policy_.steps
        self._most_pods = self._pods_left = budget.pods
        self._is_cut = False  # somebody had no turn
        self._end = 1.0  # the part of all steps after which the step under way is over
        self._is_all_given = False  # everybody had a turn at what is free: others may have to yield now
        # Pods alone are asked about in batches: who had no turn is in the next, and needs no round for that.
        self._is_in_rounds = bool(world.queues or not world.gangs.is_trivial) and not has_kept
        self._rounds = self._listed.rounds if budget.steps is not None and self._is_in_rounds else steps.Rounds()
        self._is_changed = self._rounds.begin(world.changes)
        self._left: set[str] = set()  # jobs that have no turn in this decision and had none in the round
        self._wake: datetime.datetime | None = None
        self._promises: promises.Promises | None = None
        self._hopeless: set[str] = set()  # pods that wait and fit no node, were all of them empty
        self._at_once: AtOnce | None = None  # where no queue exists
        self._is_plain = not world.queues and world.gangs.is_trivial

    def _charge_doubts(self) -> None:
        """Devices a removed pod may still be using are its queue's, which cannot be made to give them back."""
        world, accounts = self._stage.world, self._stage.accounts
        for name, doubt in world.doubts.items():
            cost = self._stage.tariff.of_claim(("", name), world.held[name])
            queue = doubt.queue if doubt.queue in accounts.by_name else NO_QUEUE
            accounts.charge(queue, cost, is_fixed=True)

    def _note_waiting(self) -> None:
        """Notes for every queue what it waits for; what costs the same is counted first."""
        counts: Counter[tuple[str, int]] = Counter()
        costs: dict[int, amounts.Amounts] = {}
        stage = self._stage
        is_bounded = stage.steps.most is not None
        judged = hopeless.Hopeless(stage.world, stage.policy, stage.search.spending) if stage.world.queues else None
        for job in self._pending.values():
            if job.id in self._refused:
                continue
            waits = {id_: stage.waits_for(id_) for id_, state in job.state.items() if state is State.WAITING}
            if judged is not None:
                least = {id_: one[0] for id_, one in waits.items()}
                self._hopeless |= judged.of(job, least, stage.accounts.capacity)
            for id_, (_, most) in waits.items():
                is_demand = id_ not in self._hopeless and id_ not in stage.unpriced
                if is_demand:
                    costs[id(most)] = most
                    counts[job.queue, id(most)] += 1
                if is_bounded and isinstance(job, Lone):
                    self._listed.note_asked(job, most if is_demand else None)
        for (queue, cost), count in counts.items():
            total = {name: amount * count for name, amount in costs[cost].items()}
            self._stage.accounts.wait(queue, total)
        for queue, most, count in self._listed.asked_unseen():
            self._stage.accounts.wait(queue, {name: amount * count for name, amount in most.items()})

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
        if not stage.world.queues and policy.Step.PREEMPT in self._steps:
            self._at_once = AtOnce(stage, placer, spared=self._spared, likeness=self._likeness)
        for step in self._steps:
            if self._is_cut and not self._is_all_given:
                break
            match step:
                case policy.Step.ALLOCATE:
                    with self._at_once or contextlib.nullcontext():
                        self._allocate(placer)
                case policy.Step.CONSOLIDATE if not self._is_plain:
                    self._make_yield(placer, rules.Consolidation(stage), step)
                case policy.Step.RECLAIM:
                    self._make_yield(placer, rules.Reclaim(stage), step)
                case policy.Step.PREEMPT if self._at_once is None:
                    self._make_yield(placer, rules.Preemption(stage), step)
                case policy.Step.STALE:
                    self._wake_by(stale.take_back(stage))
                case policy.Step.OVERTIME:
                    self._wake_by(overtime.end(stage, self._spared))
        self._wake_by(placer.wake)
        if self._at_once is not None:
            self._wake_by(self._at_once.wake)
        return self._plan()

    def _end_turn(self) -> None:
        """A decision that ended early is carried on at once; so is a round in which something changed meanwhile."""
        if self._stage.steps.most is None:
            return
        if any(self._lacks(step) for step in self._steps if step in HAVING_TURNS):
            self._is_cut = True
        if self._is_cut:
            self._rounds.go_on()
        is_over = not self._is_cut and not self._rounds.end()
        if self._is_in_rounds and not is_over and self._stage.now is not None:
            self._wake_by(self._stage.now)

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
        if any(id_ in self._stage.unpriced for id_ in ids):
            refusals.unpriced(self._stage, job)
            return False
        if not job.can_reach_minimum():
            refusals.too_few(self._stage, job)
            return False
        if ids and not job.gang.is_known and self._is_unseen(job):
            refusals.of_job(
                self._stage,
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
        """Gives out what is free. A bounded decision begins with the most important if anything changed.

        Then it goes on with those whom the decisions of this round have not reached: whatever changes, and however
        often, everybody has a turn in every round.
        """
        count, rounds = self._stage.steps, self._rounds
        if count.most is None:
            self._give_out(placer, self._waiting(), end=ALLOCATED)
            return
        if self._is_changed:
            top = min(count.spent / count.most + TOP, ALLOCATED)
            self._give_out(placer, self._waiting(), end=top if rounds.is_under_way else ALLOCATED)
        if rounds.is_under_way and (rest := self._unlooked(policy.Step.ALLOCATE)):
            self._give_out(placer, Line(self._stage.accounts, rest), end=ALLOCATED)
        self._left = {job.id for job in self._unlooked(policy.Step.ALLOCATE)}
        if self._left or self._lacks(policy.Step.ALLOCATE):
            self._is_cut = True
        self._is_all_given = not self._is_cut
        for job in self._pending.values():  # whoever may start nothing needs no turn
            if job.id not in self._left and not self._has_looked(job, policy.Step.ALLOCATE):
                for step in HAVING_TURNS:
                    self._looked_at(job, step)

    def _unlooked(self, step: policy.Step) -> list[Job]:
        """Those who may start something and had no turn in this round."""
        waiting = [job for job in self._waiters() if not self._has_looked(job, step)]
        return [job for job in waiting if self._may_start(job)]

    def _give_out(self, placer: Placer, line: Line, *, end: float) -> None:
        """In order, until so large a part of all steps is used up. The first may always be tried."""
        count = self._stage.steps
        is_first = True
        for job in line:
            ids = job.next_pods()
            if not ids or not self._may_speak_of(ids):  # what is beyond a minimum may not be asked about
                continue
            if not is_first and count.is_beyond(end):
                refusals.put_off(self._stage, job)
                return
            count.spend(LOOK)
            reason = self._gate(job, ids)
            if reason is not None:
                self._looked_at(job, policy.Step.ALLOCATE)
                refusals.of_job(self._stage, job, reason)
                if self._promises is not None:
                    self._promises.closed(job)
                continue
            left = count.left(end)
            is_too_many = left is not None and not is_first and left < len(ids) * PLACE
            if is_too_many or not self._may_take(len(ids)):
                self._is_cut = True
                refusals.put_off(self._stage, job)
                continue
            try:
                with count.at_most(_allowed(count, left, len(ids), is_first=is_first)):
                    refusal = (self._at_once or placer).step(job, ids)
            except SpentError:
                if not is_first:
                    refusals.put_off(self._stage, job)
                    return
                refusal = refuse.of_pod(job.pods[ids[0]], (refusals.CUT_SHORT,), is_undecided=True)
            is_first = False
            self._became(job, ids, refusal, line)

    def _may_take(self, count: int) -> bool:
        """Whether so many pods may start beside those that do; what one gang needs may be more than half of all."""
        if self._most_pods is None or self._pods_left is None or count <= self._pods_left:
            return True
        half = self._most_pods // 2
        return count > half and self._most_pods - self._pods_left <= half

    def _became(self, job: Job, ids: Sequence[str], refusal: plan.Refusal | None, line: Line) -> None:
        """What became of a job that was tried."""
        if refusal is None:
            for id_ in ids:
                self._stage.refusals.pop(id_, None)
            if self._pods_left is not None:
                self._pods_left -= len(ids)
            if job.next_pods():
                line.put_back(job)
            return
        self._looked_at(job, policy.Step.ALLOCATE)
        refusals.behind_member(self._stage, job, refusal)
        if self._promises is not None and not refuse.is_to_be_continued(refusal):
            self._promises.blocked(job, ids)

    def _looked_at(self, job: Job, step: policy.Step) -> None:
        self._rounds.look(job, PLACES[step])

    def _lacks(self, step: policy.Step) -> bool:
        """Whether anybody whom this decision does not even see had no turn."""
        return self._is_in_rounds and self._listed.lacks(step)

    def _has_looked(self, job: Job, step: policy.Step) -> bool:
        return self._rounds.has_looked(job, PLACES[step])

    def _gate(self, job: Job, ids: Collection[str]) -> Reason | None:
        costs = [self._stage.waits_for(id_)[0] for id_ in ids]
        least = costs[0] if len(costs) == 1 else amounts.total(costs)
        account = self._stage.accounts.by_name[job.queue]
        return gate.refusal(account, least, is_fixed=not job.is_preemptible, why=job.fixed_by)

    def _make_yield(self, placer: Placer, ruling: rules.Rules, step: policy.Step) -> None:
        """One way of making room, for everybody who still waits; for those who had no turn in this round if bounded."""
        count = self._stage.steps
        asking: list[Job] | None = None
        if count.most is not None:
            listed: list[policy.Step] = [one for one in self._steps if one in YIELDING]
            before = listed[: listed.index(step)]
            asking = [job for job in self._unlooked(step) if all(self._has_looked(job, one) for one in before)]
            if not asking:
                return
            if count.is_beyond(1):
                self._is_cut = True
                return
            used = count.spent / count.most
            self._end = used + (1 - used) / (len(listed) - len(before))
        with self._stage.later():  # entered once: it is as large as all that was decided so far
            self._yield(placer, ruling, asking, step)
        if self._is_cut and not self._is_in_rounds:
            self._left |= {job.id for job in self._unlooked(step)}

    def _yield(self, placer: Placer, ruling: rules.Rules, asking: list[Job] | None, step: policy.Step) -> None:
        waiting: dict[str, list[Job]] = {}
        for job in self._waiters():
            if self._may_start(job):
                waiting.setdefault(job.queue, []).append(job)
        solver = Solver(self._stage, placer, ruling, spared=self._spared, waiting=waiting)
        failed: dict[Hashable, Reason] = {}
        line = self._waiting() if asking is None else Line(self._stage.accounts, asking)
        count = self._stage.steps
        is_first = True
        for job in line:
            ids = job.next_pods()
            if not ids or not self._may_speak_of(ids):
                continue
            if not is_first and count.is_beyond(self._end):
                self._is_cut = True
                return
            count.spend(LOOK)
            kind = self._likeness(job, ids)
            try:
                with count.at_most(_bound(count, self._end, len(ids), is_first=is_first)):
                    reason = failed.get(kind) or solver.solve(job)
            except SpentError:
                if not is_first:
                    self._is_cut = True
                    return
                reason = refusals.CUT_SHORT
            self._wake_by(solver.wake)
            is_first = False
            if reason is None:
                failed.clear()  # others lost what they had, and somebody may fit beside it
                for id_ in ids:
                    self._stage.refusals.pop(id_, None)
                line.key_all()  # others lost what they had
                if job.next_pods():
                    line.put_back(job)
            else:
                failed[kind] = reason
                self._looked_at(job, step)
                if reason is refusals.CUT_SHORT:
                    refusals.undecided(self._stage, job, reason)
                else:
                    refusals.of_job(self._stage, job, reason, keeps_known=True)

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
                    is_kept = bool(pod.status.nominated_node_name) and self._is_unfinished(job)
                    if is_kept or (job.id in self._left and (told is None or not self._is_in_rounds)):
                        told = refuse.of_pod(pod, (refusals.NO_TURN,), is_undecided=True)
                    elif told is None and self._had_turn_before(job):
                        continue
                    key = key or precedence.job_key(job)
                    found.append((key, order.rank(pod), told if told is not None else self._unasked(pod)))
        return [refusal for _, _, refusal in sorted(found, key=lambda one: one[:2])]

    def _is_unfinished(self, job: Job) -> bool:
        """Whether a job has no turn in some step of a bounded decision: a node kept for it is not given up for that."""
        if self._stage.steps.most is None or not self._is_cut:
            return False
        return not all(self._has_looked(job, step) for step in self._steps if step in HAVING_TURNS)

    def _had_turn_before(self, job: Job) -> bool:
        """Whether an earlier decision of this round said why a job waits, and nothing is to be added."""
        return self._rounds.is_under_way and self._has_looked(job, policy.Step.ALLOCATE)

    def _explained(self, refusal: plan.Refusal, waits_behind: behind.Behind) -> plan.Refusal:
        is_refused = self._stage.knows(refusal.pod.uid) and self._stage.job_of(refusal.pod.uid).id in self._refused
        if is_refused and refusal.pod.uid not in self._hopeless:
            return refusal
        return refusals.explained(self._stage, refusal, waits_behind, hopeless=self._hopeless)

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
        together: dict[str, plan.GangRef | None] = {}  # by job, the gang that what starts of it is nothing without
        for id_, one in stage.given.items():
            if one.is_now:
                if one.job.id not in together:
                    together[one.job.id] = gang_ref(one.job) if self._starts_together(one.job) else None
                ref = together[one.job.id]
                made.start(one.pod, one.found, one.needs, books=stage.books, gang=ref)
            elif id_ not in stage.yielded:
                made.nominate(one.pod, one.found.node, gang_ref(one.job))
        for id_, why in stage.yielded.items():
            made.evict(_eviction(why, id_, stage.given.get(id_)))
        promised = self._promises.told() if self._promises is not None else ()
        if self._promises is not None:
            self._wake_by(self._promises.wake_at())
        said = {id_: one for one in promised for id_ in stage.jobs[str(one.gang)].pods}
        waits_behind = behind.Behind(stage)
        for refusal in self._refusals():
            refusal = self._explained(refusal, waits_behind)
            made.wait(promises.added(refusal, said.get(refusal.pod.uid)))
        self._end_turn()
        told = numbers.numbers(stage.accounts, stage.jobs.values(), unseen=self._listed.unseen())
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


def _allowed(count: Steps, left: int | None, pods_: int, *, is_first: bool) -> int | None:
    """Steps one job may be tried for; the first of a line as many as its pods may need."""
    if left is None or count.most is None:
        return None
    return max(left, round(count.most * TOP), pods_ * MOST_PER_POD) if is_first else left


def _bound(count: Steps, end: float, pods_: int, *, is_first: bool) -> int | None:
    """Steps the search for those who yield to one job may take; the first of a line as many as its pods may need."""
    left = count.left(end)
    if left is None or count.most is None:
        return None
    most = round(count.most * TOP)
    return max(most, pods_ * MOST_PER_YIELD) if is_first else min(left, most)


_UNASKED = Reason(code=ReasonCode.GANG_WAITS, detail="waits for its turn")
