"""Finds the fewest who have to yield so that a job starts: scenarios tried one after the other until one is fair.

First sets of victims that share a node with the newest of them, then all on the fewest nodes that hold what is needed,
then everybody. In every scenario victims stay where they were if nobody took their place, else move if they may. Gangs
grow by doubling, keeping the victims found so far. Given a stage and rules; a scenario that fails leaves no trace.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dovetail.model import durations
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.gangs.jobs import Job, State
from dovetail.schedule.gangs.placing import Placer
from dovetail.schedule.gangs.stage import Stage, Yielded
from dovetail.schedule.queues import amounts, gate
from dovetail.schedule.queues.precedence import Line, Victims
from dovetail.schedule.yielding import rules as ruling
from dovetail.schedule.yielding.bounds import Bounds, Portion, Room, nodes_of
from dovetail.schedule.yielding.company import Company
from dovetail.schedule.yielding.losses import Losses
from dovetail.schedule.yielding.rules import Gone, Rules

WIDER: Final = 8  # nodes tried beyond the fewest that could do
MOST_AT_ONCE: Final = 4  # scenarios for a gang as a whole
MOST_SPARED: Final = 16  # victims a scenario is tried without, once it was found


class Offered:
    """Portions in their order, worked out no further than anybody looks."""

    def __init__(self, source: Iterator[Portion]) -> None:
        self._source = source
        self._seen: list[Portion] = []

    def __iter__(self) -> Iterator[Portion]:
        yield from self._seen
        for one in self._source:
            self._seen.append(one)
            yield one


class Solver:
    """Tries scenarios on one stage, under one set of rules."""

    def __init__(
        self,
        stage: Stage,
        placer: Placer,
        rules: Rules,
        *,
        spared: frozenset[str],
        waiting: Mapping[str, Sequence[Job]],
    ) -> None:
        self._stage = stage
        self._waiting = waiting
        self._room = Room(stage)
        self._doubtful: list[Portion] = []  # of the scenario that was tried last
        self._going: list[Portion] = []  # of the same, those who do not stay on their node
        self._is_harmless = False  # of the same, whether everybody stays or moves: it might do as well without them
        self._portions: dict[str, list[Portion]] = {}  # by job, those offered so far
        self._bundles: dict[tuple[str, ...], list[Portion]] = {}  # by pods, those who share devices
        self._losses = Losses(stage)
        self._company = Company(stage)
        self._placer = placer
        self._rules = rules
        self._spared = spared
        self.wake: datetime.datetime | None = None  # when a job may next do what it was too young for

    def solve(self, job: Job) -> Reason | None:
        """Makes others yield so that the next pods of a job start; why not, if that cannot be."""
        ids = job.next_pods()
        if (reason := ruling.may_evict(self._stage, job)) is not None:
            self._wake_by(ruling.may_evict_from(job))
            return reason
        if (reason := self._rules.refusal(job)) is not None:
            return reason
        running = len(self._stage.running_jobs())
        self._stage.steps.spend((len(self._stage.world.nodes) + running + len(ids)) // 8)
        bounds = Bounds(self._stage, self._room, ids)
        if not bounds.could_ever_fit():
            return Reason(code=ReasonCode.GANG_WAITS, detail="even if all who may ever have to yielded, it had no room")
        if self._rules.must_move and not bounds.is_free_in_total():
            return Reason(code=ReasonCode.GANG_WAITS, detail="what is free in total would not do, however others moved")
        offered = Offered(self._offered(job))
        has_room = bool(self._stage.yielded) and self._try(job, ids, (), is_kept=False)
        if has_room and next(iter(offered), None) is None:  # whoever may ask nobody waits until the room is free
            return Reason(code=ReasonCode.GANG_WAITS, detail="there will be room for it once those who yield are gone")
        found = self._carried_out(job, ids, ()) if has_room else self._grown(job, ids, offered, bounds)
        if found is None:
            is_alone = next(iter(offered), None) is None
            detail = "nobody has to yield to it" if is_alone else "no fair way was found to make room for it"
            return Reason(code=ReasonCode.GANG_WAITS, detail=detail)
        self._room.changed((*nodes_of(self._stage, job), *self._nodes_of(found)))
        return None

    def _grown(self, job: Job, ids: Sequence[str], offered: Offered, bounds: Bounds) -> tuple[Portion, ...] | None:
        """A gang as a whole where nodes in a row would do, else pod by pod, doubling."""
        if len(ids) > 1:
            at_once = itertools.islice(_gathered(offered, bounds, len(ids)), MOST_AT_ONCE)
            if (found := self._search(job, ids, at_once, bounds, is_final=True)) is not None:
                return found
        kept: tuple[Portion, ...] = ()
        count = 1
        while True:
            is_final = count >= len(ids)
            scenarios = self._scenarios(offered, kept, bounds, min(count, len(ids)), is_final=is_final)
            found = self._search(job, ids[:count], scenarios, bounds, is_final=is_final)
            if found is None or is_final:
                return found
            kept = found
            count *= 2

    def _nodes_of(self, portions: Sequence[Portion]) -> list[str]:
        """The nodes these are on, and those they were given instead."""
        known = [one.job.pods[id_].spec.node_name for one in portions for id_ in one.ids]
        return known + [node for one in portions for node in nodes_of(self._stage, one.job)]

    def _offered(self, job: Job) -> Iterator[Portion]:
        """Whoever may have to yield, first to last."""
        stage = self._stage
        taken: dict[str, set[str]] = {}
        self._portions = {}
        self._bundles = {}
        listed = list(self._rules.victims(job))
        known = {one.id for one in listed}

        def may(one: Job, going: tuple[str, ...]) -> bool:
            so_far = taken.setdefault(one.id, set())
            so_far.update(going)
            if one.id not in known or not self._spared.isdisjoint(going):
                return False
            # What runs for too short a time, or would be left in part, may lose what is beyond its minimum.
            return one.is_satisfied(one.root, so_far) or not (
                self._stays_in_part(one, so_far) or self._is_young(job, one)
            )

        for one, ids in Victims(
            stage.accounts, listed, cost=stage.cost_of, toll=self._losses.toll, spend=stage.steps.spend
        ):
            left = tuple(id_ for id_ in ids if id_ not in taken.get(one.id, ()))
            together = self._company.of(one, left, may=may) if left else None
            if together is None:
                continue
            portions = [Portion(*entry) for entry in together.values()]
            for portion in portions:
                self._portions.setdefault(portion.job.id, []).append(portion)
                if len(portions) > 1:
                    self._bundles[portion.ids] = portions
            yield from portions

    def _whole(self, chosen: Sequence[Portion]) -> Sequence[Portion]:
        """The same with what their jobs lose before, and with all who share devices with them.

        A minimum goes only after all that is beyond it.
        """
        if not self._bundles and all(len(self._portions[one.job.id]) == 1 for one in chosen):
            return chosen
        found: dict[tuple[str, ...], Portion] = {}
        more = list(chosen)
        while more:
            one = more.pop(0)
            if one.ids not in found:
                found[one.ids] = one
                own = self._portions[one.job.id]
                more += [*own[: own.index(one)], *self._bundles.get(one.ids, ())]
        return list(found.values())

    def _stays_in_part(self, victim: Job, gone: set[str]) -> bool:
        """Whether something of it would be left behind: spared, or given a place in this decision."""
        return not self._spared.isdisjoint(gone) or victim.has_placed(gone)

    def _is_young(self, job: Job, victim: Job) -> bool:
        least = self._rules.min_runtime(job, victim)
        seconds = ruling.seconds_running(self._stage, victim) if least else 0.0
        if seconds >= least:
            return False
        if self._stage.now is not None:
            self._wake_by(durations.later(self._stage.now, least - seconds))
        return True

    def _wake_by(self, moment: datetime.datetime | None) -> None:
        """Time alone changes the answer then."""
        if moment is not None:
            self.wake = moment if self.wake is None else min(self.wake, moment)

    def _search(
        self,
        job: Job,
        ids: Sequence[str],
        scenarios: Iterable[Sequence[Portion]],
        bounds: Bounds,
        *,
        is_final: bool,
    ) -> tuple[Portion, ...] | None:
        tried: set[frozenset[str]] = set()
        for chosen in map(self._whole, scenarios):
            self._stage.steps.spend(1 + len(chosen) // 4)
            pods = [id_ for one in chosen for id_ in one.ids]
            key = frozenset(pods)
            if key in tried or (self._rules.most is not None and len(pods) > self._rules.most):
                continue
            if is_final and not pods:  # room that is free already is for another step to give
                continue
            tried.add(key)
            if not bounds.could_fit(len(ids), pods) or not self._try(job, ids, chosen, is_kept=False):
                continue
            if not is_final:
                return tuple(chosen)
            if self._is_harmless and self._try(job, ids, (), is_kept=False):
                return self._carried_out(job, ids, ())
            if self._rules.must_move or self._starts_next(job, ids):
                return self._carried_out(job, ids, chosen)
        return None

    def _carried_out(self, job: Job, ids: Sequence[str], chosen: Sequence[Portion]) -> tuple[Portion, ...]:
        """Lets go of victims without whom it does as well, then keeps the scenario."""
        left = list(chosen)
        for one in self._last_first(self._doubtful[:MOST_SPARED]):
            bundle = self._bundles.get(one.ids, ())
            fewer = [other for other in left if other != one and other not in bundle]
            if (
                fewer
                and len(self._whole(fewer)) == len(fewer)
                and self._try(job, ids, fewer, is_kept=False)
                and (self._rules.must_move or self._starts_next(job, ids))
            ):
                left = fewer
        is_kept = self._try(job, ids, left, is_kept=True)
        assert is_kept, "the same scenario had another end"
        return tuple(left)

    def _last_first(self, portions: Sequence[Portion]) -> Iterator[Portion]:
        """In their order, but of one job what it would lose last before the rest of it."""
        by_job: dict[str, list[Portion]] = {}
        for one in portions:
            by_job.setdefault(one.job.id, []).append(one)
        for listed in by_job.values():
            yield from sorted(listed, key=self._portions[listed[0].job.id].index, reverse=True)

    def _scenarios(
        self, offered: Offered, kept: tuple[Portion, ...], bounds: Bounds, count: int, *, is_final: bool
    ) -> Iterator[Sequence[Portion]]:
        if kept or not is_final:  # fewer pods may need nobody to yield
            yield kept
        on_node: dict[str, list[Portion]] = {}
        known = {id(one) for one in kept}
        for newest in offered:
            nodes = _nodes(newest)
            for node in nodes:
                on_node.setdefault(node, []).append(newest)
            if id(newest) in known:
                continue
            for node in nodes:
                if bounds.is_ripe(node, on_node[node]):
                    yield _merged(kept, on_node[node])
        everybody = list(offered)
        wide = bounds.by_promise(on_node)
        for many in range(min(count, len(wide)), min(len(wide), count + WIDER) + 1):
            self._stage.steps.spend(len(everybody) // 8)
            near = set(wide[:many])
            yield _merged(kept, [one for one in everybody if not near.isdisjoint(_nodes(one))])
        yield everybody

    def _try(self, job: Job, ids: Sequence[str], chosen: Sequence[Portion], *, is_kept: bool) -> bool:
        stage = self._stage
        with stage.attempt() as attempt, stage.later():
            costs = self._take_off(job, chosen)
            asked = amounts.total(job.prices(id_) for id_ in ids) if job.prices is not None else {}
            if not self._refill(job, ids, chosen):
                return False
            gone = [
                Gone(one.job, left, amounts.total(costs[id_] for id_ in left))
                for one in chosen
                if (left := tuple(i for i in one.ids if i in stage.yielded and i not in stage.given))
            ]
            if (self._rules.must_move and gone) or not self._rules.is_fair(job, gone, asked):
                return False
            if not all(guard.stands(job) for guard in stage.guards):
                return False
            self._doubtful = list(self._unneeded(job, chosen)) if len(chosen) > 1 else []
            self._is_harmless = not gone
            self._going = [
                Portion(one.job, left) for one in chosen if (left := tuple(filter(self._leaves_its_node, one.ids)))
            ]
            if is_kept:
                attempt.commit()
        return True

    def _leaves_its_node(self, id_: str) -> bool:
        given = self._stage.given.get(id_)
        return id_ in self._stage.yielded and (given is None or given.found.node != self._stage.node_of(id_))

    def _unneeded(self, job: Job, chosen: Sequence[Portion]) -> Iterator[Portion]:
        """Victims without whom it might do as well: the job is not where they were, or they find room again."""
        used = set(nodes_of(self._stage, job))
        for one in chosen:
            moved = [self._stage.given[id_] for id_ in one.ids if id_ in self._stage.given]
            if self._rules.must_move:  # all of them find room; who has to move at all is asked of few
                moved = [given for given in moved if given.found.node in _nodes(one)]
            if used.isdisjoint(_nodes(one)) or moved:
                yield one

    def _take_off(self, job: Job, chosen: Sequence[Portion]) -> dict[str, amounts.Amounts]:
        """Takes the victims off their nodes; what each of them was charged."""
        why = self._rules.told(job)
        costs = {}
        for one in chosen:
            note = self._losses.note(one.job)
            for id_ in one.ids:
                costs[id_] = self._stage.cost_of(one.job, (id_,))
                self._stage.take_off(one.job, id_, Yielded(one.job, self._rules.rule, job, why + note))
        return costs

    def _starts_next(self, job: Job, ids: Sequence[str]) -> bool:
        """Whether nobody else who waits in these queues would get the room instead: else it goes round and round.

        Asked right after a scenario was tried, about those who really have to go.
        """
        chosen = self._going
        queues = {job.queue, *(one.job.queue for one in chosen)}
        victims = {one.job.id: one.job for one in chosen}
        others = [one for queue in queues for one in self._waiting.get(queue, ()) if one.id not in victims]
        self._stage.steps.spend(len(others))
        if not any(one is not job and one.next_pods() for one in others):
            return True
        with self._stage.attempt(), self._stage.later():
            self._take_off(job, chosen)
            for one in victims.values():
                one.refill(is_on=True)
            try:
                line = Line(self._stage.accounts, {one.id: one for one in (job, *victims.values(), *others)}.values())
                for one in line:
                    if one is job:
                        return self._seat(job, ids)
                    turn = one.next_pods()
                    if turn and self._seat(one, turn) and one.next_pods():
                        line.put_back(one)
            finally:
                for one in victims.values():
                    one.refill(is_on=False)
        return False

    def _refill(self, job: Job, ids: Sequence[str], chosen: Sequence[Portion]) -> bool:
        """Gives the job its room and the victims what is left, in the order of any other day."""
        others = {one.job.id: one.job for one in chosen}
        for one in others.values():
            one.refill(is_on=True)
        try:
            if self._rules.must_move and not self._seat(job, ids):  # whoever moves loses nothing by coming second
                return False
            line = Line(self._stage.accounts, others.values() if self._rules.must_move else (job, *others.values()))
            for one in line:
                if one is job:
                    if not self._seat(job, ids):
                        return False
                elif self._reseat(one) and one.next_pods():
                    line.put_back(one)
            return True
        finally:
            for one in others.values():
                one.refill(is_on=False)

    def _seat(self, job: Job, ids: Sequence[str]) -> bool:
        least = amounts.total(self._stage.waits_for(id_)[0] for id_ in ids)
        account = self._stage.accounts.by_name[job.queue]
        if gate.refusal(account, least, is_fixed=not job.is_preemptible, why=job.fixed_by) is not None:
            return False
        return self._placer.step(job, ids) is None

    def _reseat(self, victim: Job) -> bool:
        """The next pods of a victim stay, or move; False if that cannot be."""
        ids = victim.next_pods()
        if not ids:
            return False
        if victim.gang.evicts_whole:
            return self._reseat_whole(victim)
        may_move = self._rules.may_move and victim.gang.is_recreated  # nothing would turn up where there is room
        with self._stage.attempt() as attempt:
            moving = [id_ for id_ in ids if not self._stage.put_back(victim, id_)]
            if not moving or (may_move and self._placer.step(victim, moving) is None):
                attempt.commit()
                return True
        if not may_move or len(moving) == len(ids):
            return False
        return self._placer.step(victim, ids) is None

    def _reseat_whole(self, victim: Job) -> bool:
        """All pods of a victim stay, or all move."""
        ids = tuple(id_ for id_, state in victim.state.items() if state is State.TAKEN)
        with self._stage.attempt() as attempt:
            if all(self._stage.put_back(victim, id_) for id_ in ids):
                attempt.commit()
                return True
        may_move = self._rules.may_move and victim.gang.is_recreated
        return may_move and self._placer.step(victim, ids) is None


def _gathered(offered: Offered, bounds: Bounds, count: int) -> Iterator[Sequence[Portion]]:
    """Victims on nodes that would each take one pod more, as soon as there are nodes for all pods; then again."""
    on_node: dict[str, list[Portion]] = {}
    slots: dict[str, int] = {}
    for newest in offered:
        for node in _nodes(newest):
            on_node.setdefault(node, []).append(newest)
            more = bounds.slots_gained(node, on_node[node])
            if more <= slots.get(node, 0):
                continue
            slots[node] = more
            if bounds.slots + sum(slots.values()) >= count:
                yield _merged((), [one for ripe in slots for one in on_node[ripe]])


def _nodes(portion: Portion) -> dict[str, None]:
    if len(portion.ids) == 1:
        return {portion.job.pods[portion.ids[0]].spec.node_name: None}
    return dict.fromkeys(portion.job.pods[id_].spec.node_name for id_ in portion.ids)


def _merged(kept: Sequence[Portion], more: Sequence[Portion]) -> list[Portion]:
    return list({id(one): one for one in (*kept, *more)}.values())
