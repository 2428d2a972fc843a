"""The ground a decision is tried on: the world in a trial, jobs with their states, accounts, and what was given so far.

Everything is done inside an attempt and taken back with it unless it is kept. What stands on room that is not free yet
is seen only `later`: there pods that leave are gone, and pods nominated for their room are in. Never chooses.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from dovetail.cel.effort import UNBOUNDED, TooExpensive, Unfinished
from dovetail.model import claims, plan, pods, policy, reservations
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import likeness, ready, refuse, ties
from dovetail.schedule.claims import Books, Needs, left_to
from dovetail.schedule.gangs import keeping
from dovetail.schedule.gangs.jobs import PLACED, Job, State
from dovetail.schedule.placement import SELECTORS_LEFT, Found, Search, too_expensive
from dovetail.schedule.queues import amounts, gate
from dovetail.schedule.queues.accounts import Accounts
from dovetail.schedule.queues.amounts import Amounts
from dovetail.schedule.queues.bills import Bills
from dovetail.schedule.queues.power import Caps
from dovetail.schedule.queues.tariff import FREE, Price, Tariff
from dovetail.schedule.steps import MOVED, PLACE, Steps
from dovetail.world.events import ObjectKey, pod_id
from dovetail.world.trial import Trial, UndoLog
from dovetail.world.world import World


class Given(NamedTuple):
    """A node given to a pod in this decision."""

    job: Job
    pod: pods.Pod  # as it would be placed: without the node it may still be on
    found: Found
    needs: Needs
    is_now: bool  # else once others are gone


class Yielded(NamedTuple):
    """A pod that has to go."""

    job: Job
    rule: plan.Rule
    beneficiary: Job | None
    detail: str


class Stage:
    """One decision in the making."""

    def __init__(
        self,
        world: World,
        policy_: policy.Policy,
        budget: policy.Budget,
        *,
        now: plan.Instant | None,
        jobs: Mapping[str, Job],
        accounts: Accounts,
        tariff: Tariff,
        bills: Bills | None = None,
        among: Collection[str] | None = None,
    ) -> None:
        self.world = world
        self.policy = policy_
        self.now = now
        self.jobs = jobs
        self.accounts = accounts
        self.tariff = tariff
        self._caps = Caps(world)
        self.books = Books(world)
        self.search = Search(world, policy_, budget, among=among)
        self.unpriced: dict[str, Reason] = {}  # pods whose selectors take too much, for now or for ever
        self.steps = Steps(budget.steps)
        self.given: dict[str, Given] = {}
        self._kept: Counter[str] = Counter()  # by node, pods nominated for it
        self.yielded: dict[str, Yielded] = {}
        self.guards: list[keeping.Guard] = []
        self.toward: Mapping[str, str] = {}  # by pod, a node that is kept for it
        self.is_later = False
        self.refusals: dict[str, plan.Refusal] = {}
        self._leaving = [id_ for job in jobs.values() for id_, state in job.state.items() if state is State.LEAVING]
        self._left: list[ObjectKey] | None = None
        self._job_of = {id_: job for job in jobs.values() for id_ in job.pods}
        self._waits: dict[str, tuple[Amounts, Amounts]] = {}
        self._running: list[Job] | None = None
        self._charges: dict[str, Amounts] = {}  # by pod, what it costs beside its claims
        self._claim_users: dict[ObjectKey, tuple[int, str, bool, Amounts]] = {}
        self._undo = UndoLog()
        self.withdrawn: dict[str, Job] = {}  # jobs of which something waits again
        self._bills = bills or Bills()
        self._bills.bring_up(world, tariff)
        self._charge_running()

    @property
    def jobs_by_pod(self) -> Mapping[str, Job]:
        """The job of every pod that is part of the decision."""
        return self._job_of

    def kept_for(self, job: Job, id_: str) -> str:
        """The node that is kept for a pod that waits, if any is."""
        pod = job.pods[id_]
        return "" if pod.spec.node_name else self.toward.get(id_) or pod.status.nominated_node_name

    def knows(self, id_: str) -> bool:
        """Whether the pod is one of those that are decided about."""
        return id_ in self._job_of

    def job_of(self, id_: str) -> Job:
        """The job of a pod."""
        return self._job_of[id_]

    def node_of(self, id_: str) -> str:
        """The node a pod is on, or is on its way to."""
        named = self._job_of[id_].pods[id_].spec.node_name
        return named or self.world.assumed[id_].node

    def waits_for(self, id_: str) -> tuple[Amounts, Amounts]:
        """The least and the most a waiting pod may cost; nothing at all where it is unpriced."""
        known = self._waits.get(id_)
        if known is None:
            known = self._waits[id_] = self._priced(id_)
        return known

    def _priced(self, id_: str) -> Price:
        pod = self._job_of[id_].pods[id_]
        spending = self.search.spending
        try:
            self.tariff.effort = spending.effort(id_)
            try:
                return self._bills.waiting(id_, pod, world=self.world, tariff=self.tariff)
            except TooExpensive as error:
                spending.refuse(id_, str(error))
            except Unfinished:
                self.unpriced[id_] = SELECTORS_LEFT
            finally:
                self.tariff.effort = UNBOUNDED
                spending.settle(id_, is_answered=None)
        except TooExpensive as error:
            self.unpriced[id_] = too_expensive(error)
        return FREE

    def kind_of(self, job: Job, id_: str) -> Hashable:
        """Equal for pods of which one finds no place where the other does not, as far as can be told."""
        pod = stand_in(job.pods[id_])
        needs = ready.needs(pod, self.books)
        if not isinstance(needs, Needs):
            return id_
        return likeness.pod_key(pod, needs, self.world.images)

    def running_jobs(self) -> list[Job]:
        """Jobs that ran when the decision began, and may be made to yield; some may have nothing left that runs."""
        if self._running is None:
            self._running = [
                job
                for job in self.jobs.values()
                if (job.is_preemptible or job.idle_since is not None) and job.has_active
            ]
        return self._running

    # Trying

    @contextmanager
    def attempt(self) -> Iterator[Trial]:
        """Everything done inside is taken back unless committed."""
        with self.world.trial() as trial, self._undo.trial(trial):
            yield trial

    @contextmanager
    def later(self) -> Iterator[None]:
        """The world once those who leave are gone, with the pods in that were nominated for their room."""
        if self.is_later:
            yield
            return
        self.steps.spend((len(self._leaving) + len(self.yielded)) * MOVED)
        self.is_later = True
        try:
            with self.world.trial():
                for key in self._leftovers():
                    self.world.unclaim(key)
                for id_ in (*self._leaving, *self.yielded):
                    self.world.vacate(id_)
                for one in self.given.values():
                    if not one.is_now:
                        self.world.assume(one.pod, one.found.node, one.found.taken(one.pod))
                yield
        finally:
            self.is_later = False

    @property
    def frees_later(self) -> bool:
        """Whether anybody leaves, or left and has not given all back."""
        return bool(self._leaving or self.yielded or self._leftovers())

    def _leftovers(self) -> list[ObjectKey]:
        """Claims that hold devices for pods that ended. To give them back takes a moment; nobody yields for it."""
        if self._left is None:
            claims_ = self.world.claims.items()
            self._left = [key for key, claim in claims_ if claim.status.allocation is not None and self._is_left(claim)]
        return self._left

    def _is_left(self, claim: claims.ResourceClaim) -> bool:
        users = claim.status.reserved_for
        if users and users[0].uid in self.world.running():
            return False  # as most are
        if any(map(reservations.is_group, users)):
            names = self.policy.scheduler_names
            giver = left_to(claim, self.world)
            return giver is not None and (not names or giver in names)
        if users:
            return all(self.world.is_over(user, claim.metadata.namespace) for user in users)
        owners = [one.uid for one in claim.metadata.owner_references if one.controller and one.kind == "Pod"]
        return claim.metadata.deletion_timestamp is not None or any(uid not in self.world.pods for uid in owners)

    def _note(self, undo: Callable[[], object]) -> None:
        self._undo.note(undo)

    # Giving

    def place(self, job: Job, id_: str, *, within: Collection[str] | None = None) -> plan.Refusal | None:
        """Gives a pod the best node now, or, where all is later, then. A refusal if there is none."""
        pod = stand_in(job.pods[id_])
        if node := self.toward.get(id_):
            pod = _nominated(pod, node)
        needs = self._needs(job, pod)
        if not isinstance(needs, Needs):
            return refuse.of_pod(pod, needs)
        found = self._affordable(job, pod, needs, within)
        if isinstance(found, plan.Refusal):
            return found
        self._give(Given(job, pod, found, needs, not self.is_later), id_)
        self.world.assume(pod, found.node, found.taken(pod), volumes=found.volumes if not self.is_later else ())
        self.search.placed(found)
        return None

    def _affordable(
        self, job: Job, pod: pods.Pod, needs: Needs, within: Collection[str] | None
    ) -> Found | plan.Refusal:
        """The best node whose price the queue may pay: another type of GPU, or rack, may do where one does not."""
        over = self._caps.shut(self.waits_for(pod_id(pod))[0])
        first = over[0] if over is not None else None
        while True:
            if over is not None:
                within = (self.world.nodes.keys() if within is None else set(within)) - over[1]
            found = self._found(job, pod, needs, within) if over is None or within else refuse.of_pod(pod, (over[0],))
            if isinstance(found, plan.Refusal):
                return found if first is None or not within else refuse.beside(found, first)
            if found.made is not None:
                self.tariff.introduce(found.taken(pod), found.made.claim)
            over = self._over(job, pod, found.node, found.taken(pod))
            if over is None:
                return found
            first = first or over[0]

    def _found(self, job: Job, pod: pods.Pod, needs: Needs, within: Collection[str] | None) -> Found | plan.Refusal:
        """The best node on which nobody loses what is kept for them; else for whom nodes that would do are kept."""
        kept: Counter[Reason] = Counter()
        while True:
            before = self.search.worked
            found = self.search.find(pod, needs, within=within)
            self.steps.spend(PLACE + self.search.worked - before)
            if isinstance(found, plan.Refusal):
                return refuse.kept_back(found, kept)
            if not self.is_later and not self._leaves_promises(pod, found, needs):
                kept[self._nominated_on(found.node)] += 1
            elif (guard := next((one for one in self.guards if not one.allows(job, pod, found)), None)) is not None:
                kept[guard.kept_for(job, found.node)] += 1
            else:
                return found
            within = (self.world.nodes.keys() if within is None else set(within)) - {found.node}

    def _nominated_on(self, node: str) -> Reason:
        names = sorted({one.job.id for one in self.given.values() if not one.is_now and one.found.node == node})
        return Reason(code=ReasonCode.NOMINATED, subject=", ".join(names[:3]))

    def _leaves_promises(self, pod: pods.Pod, found: Found, needs: Needs) -> bool:
        """Whether the pods nominated for the node still fit once those who leave are gone, be it on other devices."""
        if found.node not in self._kept:
            return True
        with self.later():
            # Devices of a claim that others leave behind are free then: whoever takes the claim up keeps them.
            left = {one.key: one.allocation for one in needs.held if self.world.allocation(one.key) is None}
            taken = {key: one for key, one in left.items() if one is not None} | found.taken(pod)
            self.world.assume(pod, found.node, taken)
            if self.world.sound(found.node, taken) is None:
                return True
            kept = {id_: one for id_, one in self.given.items() if not one.is_now and one.found.node == found.node}
            others = keeping.exchanged(self.world, self.search, tariff=self.tariff, nominated=kept)
        for id_, other in (others or {}).items():
            self._note(functools.partial(self.given.__setitem__, id_, self.given[id_]))
            self.given[id_] = self.given[id_]._replace(found=other)
        return others is not None

    def _give(self, given: Given, id_: str) -> None:
        before = given.job.state[id_]
        self._put_given(id_, given)
        self._note(lambda: self._drop_given(id_))
        self.mark(given.job, id_, State.STARTING if given.is_now else State.NOMINATED, before=before)
        self.charge(given.job, id_, given.found.node, given.found.taken(given.pod))

    def _put_given(self, id_: str, given: Given) -> None:
        self.given[id_] = given
        if not given.is_now:
            self._kept[given.found.node] += 1

    def _drop_given(self, id_: str) -> Given:
        given = self.given.pop(id_)
        if not given.is_now:
            self._kept[given.found.node] -= 1
            if not self._kept[given.found.node]:
                del self._kept[given.found.node]
        return given

    def postpone(self, id_: str) -> None:
        """What was given now is given later: somebody it belongs with has to wait."""
        given = self.given[id_]
        assert given.is_now
        self.world.forget(given.pod)
        self._drop_given(id_)
        self._put_given(id_, given._replace(is_now=False))
        self._note(lambda: self._put_given(id_, given))
        self._note(lambda: self._drop_given(id_))  # undone before the other
        self.mark(given.job, id_, State.NOMINATED, before=State.STARTING)

    def withdraw(self, id_: str) -> None:
        """What was given to a pod in this decision is taken back."""
        given = self._drop_given(id_)
        self._note(lambda: self._put_given(id_, given))
        if given.is_now:
            self.world.forget(given.pod)
        taken = given.found.taken(given.pod)
        self._uncharge(given.job, id_, taken)
        self._note(lambda: self._recharge_at(given.job, id_, given.found.node, taken))
        self.mark(given.job, id_, State.WAITING, before=given.job.state[id_])
        self.withdrawn[given.job.id] = given.job

    def _needs(self, job: Job, pod: pods.Pod) -> Needs | tuple[Reason, ...]:
        needs = ready.needs(pod, self.books)
        if not isinstance(needs, Needs) or not self.policy.batch.claims_need_queue:
            return needs
        for one in needs.wanted:
            named = one.claim.metadata.labels.get("dovetail.dev/queue")
            if named != job.queue and not _is_own(one.claim, pod):
                detail = f"is labelled for queue {named}" if named else "is labelled for no queue"
                return (Reason(code=ReasonCode.CLAIM_QUEUE, subject=f"claim {one.name}", detail=detail),)
        return needs

    def _over(
        self, job: Job, pod: pods.Pod, node: str, taken: Mapping[ObjectKey, claims.AllocationResult]
    ) -> tuple[Reason, frozenset[str]] | None:
        """Whether the pod, as placed, is more than its queue or the rack may take; and on which nodes that is so."""
        account = self.accounts.by_name[job.queue]
        if job.is_preemptible and not account.is_bounded and self._caps.are_none:
            return None
        cost = dict(self.tariff.of_room(pod, node))
        for key, allocation in taken.items():
            amounts.add(cost, self.tariff.of_claim(key, allocation))
        reason = gate.refusal(account, cost, is_fixed=not job.is_preemptible, why=job.fixed_by)
        return self._caps.refusal(node, cost) if reason is None else (reason, self.tariff.alike(node))

    def mark(self, job: Job, id_: str, state: State, *, before: State) -> None:
        """A pod is doing something else."""
        job.mark(id_, state)
        self._note(lambda: job.mark(id_, before))

    # Yielding

    def take_off(self, job: Job, id_: str, why: Yielded) -> None:
        """A running pod has to go, unless it finds room again. Only where all is later."""
        assert self.is_later
        self.steps.spend(MOVED)
        self.release(job, id_, why, state=State.TAKEN)
        self.world.vacate(id_)
        if id_ in self.world.assumed:  # taken off before in this step, and put back
            self.world.forget(job.pods[id_])

    def release(self, job: Job, id_: str, why: Yielded, *, state: State = State.LEAVING) -> None:
        """A running pod has to go: it is charged no more, and holds its node until it is gone."""
        self.uncharge(job, id_)
        self.yielded[id_] = why
        self._note(lambda: self.yielded.pop(id_))
        self.mark(job, id_, state, before=job.state[id_])

    def put_back(self, job: Job, id_: str, *, is_untouched: bool = False) -> bool:
        """Lets a pod that was taken off stay after all, on its node and its devices, if nobody took them.

        Where nothing was given away since, what it wishes of its neighbours is not asked again: it stays as it was.
        """
        self.steps.spend(MOVED)
        pod = job.pods[id_]
        node = pod.spec.node_name
        held = {key: found for key in self.world.claims_used(pod) if (found := self._old(key)) is not None}
        if node not in self.world.nodes or self._over(job, pod, node, held) is not None:
            return False
        as_new = stand_in(pod)
        tied = ties.of(as_new, self.world) if not is_untouched else None
        if tied is not None and (not isinstance(tied, ties.Ties) or tied.misfit(self.world.nodes[node]) is not None):
            return False
        with self.world.trial() as trial:
            self.world.assume(as_new, node, held)
            if not is_untouched and self.world.sound(node, held) is not None:
                return False
            trial.commit()
        why = self.yielded.pop(id_)
        self._note(lambda: self.yielded.__setitem__(id_, why))
        self.mark(job, id_, State.ACTIVE, before=State.TAKEN)
        self.charge(job, id_, node, held)
        return True

    def _old(self, key: ObjectKey) -> claims.AllocationResult | None:
        claim = self.world.claims.get(key)
        return claim.status.allocation if claim is not None and self.world.allocation(key) is None else None

    # Accounts

    def _charge_running(self) -> None:
        """Charges everybody who has a node, as `charge` would: what costs the same is counted first."""
        world, claim_users = self.world, self._claim_users
        counts: Counter[tuple[str, bool, int]] = Counter()
        costs: dict[int, Amounts] = {}
        for job in self.jobs.values():
            is_fixed = not job.is_preemptible
            for id_, state in job.state.items():
                if state not in PLACED:
                    continue
                pod = job.pods[id_]
                bill = None
                if state is State.ACTIVE and id_ not in world.assumed:
                    bill = self._bills.of(id_, pod, world=world, tariff=self.tariff)
                if bill is None or any(key in claim_users for key, _, _ in bill.claims):
                    self.charge(job, id_, self.node_of(id_), {})  # the long way: something is shared, or on its way
                    continue
                self._charges[id_] = bill.room
                costs[id(bill.room)] = bill.room
                counts[job.queue, is_fixed, id(bill.room)] += 1
                for key, _, price in bill.claims:
                    claim_users[key] = (1, job.queue, is_fixed, price)
                    costs[id(price)] = price
                    counts[job.queue, is_fixed, id(price)] += 1
        for (queue, is_fixed, cost), count in counts.items():
            total = {name: amount * count for name, amount in costs[cost].items()}
            self.accounts.charge(queue, total, is_fixed=is_fixed)

    def charge_left_out(self, job: Job) -> None:
        """Charges a job that is no part of the decision for what it holds, as far as that can be told."""
        for id_, state in job.state.items():
            if state is State.ACTIVE:
                with contextlib.suppress(Exception):  # a fault of ours in its price may be why it is set aside
                    self.charge(job, id_, job.pods[id_].spec.node_name, {})

    def charge(self, job: Job, id_: str, node: str, allocations: Mapping[ObjectKey, claims.AllocationResult]) -> None:
        """The pod's queue pays for it; a claim is paid for once, by the first that uses it."""
        cost = self.tariff.of_room(job.pods[id_], node)
        self._charges[id_] = cost
        is_fixed = not job.is_preemptible
        self.accounts.charge(job.queue, cost, is_fixed=is_fixed)
        for key in self._claims_of(job.pods[id_], allocations):
            users, queue, fixed, price = self._claim_users.get(key, (0, job.queue, is_fixed, {}))
            if not users:
                found = allocations.get(key) or self.world.allocation(key)
                price = self.tariff.of_claim(key, found) if found is not None else {}
                self.accounts.charge(queue, price, is_fixed=fixed)
            self._claim_users[key] = (users + 1, queue, fixed, price)
        self._note(lambda: self._uncharge(job, id_, allocations))

    def uncharge(self, job: Job, id_: str) -> None:
        """The pod's queue no longer pays for it."""
        pod = job.pods[id_]
        kept = {key: found for key in self.world.claims_used(pod) if (found := self.world.allocation(key)) is not None}
        self._uncharge(job, id_, kept)
        self._note(lambda: self._recharge(job, id_, kept))

    def _recharge(self, job: Job, id_: str, kept: Mapping[ObjectKey, claims.AllocationResult]) -> None:
        self._recharge_at(job, id_, job.pods[id_].spec.node_name, kept)

    def _recharge_at(self, job: Job, id_: str, node: str, taken: Mapping[ObjectKey, claims.AllocationResult]) -> None:
        log, self._undo = self._undo, UndoLog()
        self.charge(job, id_, node, taken)
        self._undo = log

    def _uncharge(self, job: Job, id_: str, allocations: Mapping[ObjectKey, claims.AllocationResult]) -> None:
        self.accounts.charge(job.queue, self._charges.pop(id_), is_fixed=not job.is_preemptible, sign=-1)
        for key in self._claims_of(job.pods[id_], allocations):
            users, queue, fixed, price = self._claim_users.pop(key)
            if users > 1:
                self._claim_users[key] = (users - 1, queue, fixed, price)
            else:
                self.accounts.charge(queue, price, is_fixed=fixed, sign=-1)

    def _claims_of(
        self, pod: pods.Pod, allocations: Mapping[ObjectKey, claims.AllocationResult]
    ) -> tuple[ObjectKey, ...]:
        used = self.world.claims_used(pod)
        if allocations.keys() <= set(used):
            return used
        return tuple(dict.fromkeys((*used, *allocations)))

    def cost_of(self, job: Job, ids: Collection[str]) -> Amounts:
        """What these running pods are charged; claims others share with them are paid on."""
        found: Amounts = {}
        users: dict[ObjectKey, int] = {}
        for id_ in ids:
            amounts.add(found, self._charges.get(id_, {}))
            for key in self.world.claims_used(job.pods[id_]):
                users[key] = users.get(key, 0) + 1
        for key, count in users.items():
            known = self._claim_users.get(key)
            if known is not None and known[0] <= count:
                amounts.add(found, known[3])
        return found

    def held_by(self, job: Job, id_: str) -> list[Amounts]:
        """What a running pod holds: its room and its claims, those it shares with others in full."""
        users = self._claim_users
        claims_ = [users[key][3] for key in self.world.claims_used(job.pods[id_]) if key in users]
        return [self._charges[id_], *claims_] if id_ in self._charges else claims_


def stand_in(pod: pods.Pod) -> pods.Pod:
    """The pod as it would be placed anew."""
    if not pod.spec.node_name:
        return pod
    status = msgspec.structs.replace(pod.status, extended_resource_claim_status=None, nominated_node_name="")
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""), status=status)


def _nominated(pod: pods.Pod, node: str) -> pods.Pod:
    """The pod as if this node were kept for it."""
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


def _is_own(claim: claims.ResourceClaim, pod: pods.Pod) -> bool:
    return any(one.controller and one.uid == pod.metadata.uid for one in claim.metadata.owner_references)
