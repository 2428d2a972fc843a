"""Decides where the next pods of a gang go, all of them or none: domains from the tightest, then nodes, then devices.

A member that finds no place is tried before the others the next time, so that what only it can use is not taken from
it; where that is not enough, other nodes are tried for those before it, up to a bound. Given a stage; everything is an
attempt on it. Never chooses who is next.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final

from dovetail.model import durations, plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule import order, refuse
from dovetail.schedule.gangs import topology
from dovetail.schedule.gangs.jobs import PLACED, Job, Lone, State, Team
from dovetail.schedule.gangs.roominess import Roominess
from dovetail.schedule.gangs.stage import Stage
from dovetail.schedule.gangs.topology import Choice
from dovetail.schedule.queues import amounts

Within = Collection[str] | None
MOST_SEARCHED: Final = 16  # pods of a group for whom combinations of nodes are tried, once the plain order failed
MOST_TRIES: Final = 100  # places given meanwhile


class Placer:
    """Places steps of gangs on one stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._atlas = topology.Atlas(stage.world.topologies, stage.world.nodes)
        self.wake: datetime.datetime | None = None  # when a wish that is not met is next relaxed
        self._roominess = Roominess(stage)

    def step(self, job: Job, ids: Sequence[str]) -> plan.Refusal | None:
        """Places these pods of a job, or none of them and why."""
        if isinstance(job, Lone):
            return self._one(job, ids[0], within=None)
        with self._stage.attempt() as attempt:
            refusal = self._team(job, job.root, list(ids), within=None)
            if refusal is None:
                self._wait_together(job, ids)
                attempt.commit()
            return refusal

    def _wait_together(self, job: Job, ids: Sequence[str]) -> None:
        """Where a group has to wait for one of its pods, nothing of this step starts before it."""
        stage = self._stage
        if stage.is_later or not stage.frees_later or not job.has_nominated:
            return
        stage.steps.spend(job.size // 8)
        if any(self._must_wait(job, team) for team in _pod_teams(job.root)):
            for id_ in ids:
                if stage.given[id_].is_now:
                    stage.postpone(id_)

    def _must_wait(self, job: Job, team: Team) -> bool:
        states = [job.state[id_] for id_ in team.pods]
        starting = sum(state in (State.ACTIVE, State.STARTING) for state in states)
        return State.NOMINATED in states and starting < team.min

    def _team(self, job: Job, team: Team, mine: Sequence[str], *, within: Within) -> plan.Refusal | None:
        """Places these pods of a group, or none of them and why."""
        if team.wish is None:
            return self._inside(job, team, mine, within=within)
        chosen = topology.choice(team.wish, self._atlas, is_relaxed=self._is_relaxed(job, team))
        if isinstance(chosen, Reason):
            return refuse.of_pod(job.pods[mine[0]], (chosen,))
        self._stage.steps.spend(job.size // 8)
        present = [node for id_ in sorted(team.members()) if (node := self._node_of(job, id_)) is not None]
        if team.wish.segment or team.wish.spread:
            return self._apart(job, team, mine, chosen=chosen, present=present, within=within)
        return self._near(job, team, mine, chosen=chosen, present=present, within=within)

    def _near(
        self, job: Job, team: Team, mine: Sequence[str], *, chosen: Choice, present: Collection[str], within: Within
    ) -> plan.Refusal | None:
        """All in one domain: one where room is kept for them, then the tightest."""
        refusal: plan.Refusal | None = None
        tried = 0
        kept = frozenset(node for id_ in mine if (node := self._stage.kept_for(job, id_)))
        for depth in chosen.depths:
            found = topology.candidates(chosen, depth, present=present, within=within)
            for nodes in sorted(found, key=lambda one: (one is None or one.isdisjoint(kept), *self._room(one))):
                tried += 1
                if nodes is not None and not self._roominess.could_hold(nodes, mine):
                    continue
                refusal = self._try(job, team, mine, within=nodes)
                if refusal is None:
                    return None
        return self._unmet(job, mine[0], team, tried, refusal)

    def _apart(
        self, job: Job, team: Team, mine: Sequence[str], *, chosen: Choice, present: Collection[str], within: Within
    ) -> plan.Refusal | None:
        """In several domains, which may have to be in one of a wider level."""
        assert team.wish is not None
        refusal: plan.Refusal | None = None
        there = frozenset(present)
        for depth in chosen.around:
            held = present if team.wish.spread else ()  # lots only prefer to be near each other
            found = topology.candidates(chosen, depth, present=held, within=within)
            for nodes in sorted(found, key=lambda one: (one is None or one.isdisjoint(there), *self._room(one))):
                with self._stage.attempt() as attempt:
                    if team.wish.segment:
                        refusal = self._lots(job, team, mine, chosen=chosen, present=present, within=nodes)
                    else:
                        refusal = self._even(job, team, mine, chosen=chosen, present=present, within=nodes)
                    if refusal is None:
                        attempt.commit()
                        return None
        return refusal if refusal is not None else self._unmet(job, mine[0], team, 0, None)

    def _lots(
        self, job: Job, team: Team, mine: Sequence[str], *, chosen: Choice, present: Collection[str], within: Within
    ) -> plan.Refusal | None:
        """Lot by lot, each in one domain."""
        size = team.wish.segment if team.wish is not None else None
        for lot in topology.lots(mine, size or len(mine), chosen=chosen, present=present):
            refusal = self._near(job, team, lot.ids, chosen=chosen, present=lot.present, within=within)
            if refusal is not None:
                return refusal
        return None

    def _even(
        self, job: Job, team: Team, mine: Sequence[str], *, chosen: Choice, present: Collection[str], within: Within
    ) -> plan.Refusal | None:
        """Pod by pod, each in the domain that has the fewest of them, of equal ones the emptiest."""
        assert chosen.level is not None
        inside = None if within is None else frozenset(within)
        domains = {
            one.path: one.nodes if inside is None else one.nodes & inside for one in chosen.domains.at(chosen.level)
        }
        count = Counter(chosen.domains.of(node, chosen.level) for node in present)
        for id_ in mine:
            free = {path: self._roominess.free(nodes) for path, nodes in domains.items() if nodes}
            ranked = sorted(free, key=lambda path: (count[path], [-amount for amount in free[path]], path))
            offers: list[Within] = [domains[path] for path in ranked]
            if chosen.required is None:
                offers.append(within)
            if (refusal := self._first(job, team, id_, offers)) is not None:
                return refusal
            count[chosen.domains.of(self._node_of(job, id_) or "", chosen.level)] += 1
        return None

    def _first(self, job: Job, team: Team, id_: str, among: Sequence[Within]) -> plan.Refusal | None:
        """Into the first of these domains that takes the pod; a refusal if none does."""
        last: plan.Refusal | None = None
        for nodes in among:
            if nodes is not None and not self._roominess.could_hold(nodes, (id_,)):
                continue
            if (last := self._try(job, team, (id_,), within=nodes)) is None:
                return None
        return self._unmet(job, id_, team, len(among), last)

    def _is_relaxed(self, job: Job, team: Team) -> bool:
        wish, now = team.wish, self._stage.now
        if wish is None or wish.relax_after_seconds is None or now is None or job.created is order.NEVER:
            return False
        return now >= self._relaxes_at(job, wish.relax_after_seconds)

    def _relaxes_at(self, job: Job, seconds: int) -> datetime.datetime:
        return durations.later(job.created, seconds)

    def _unmet(self, job: Job, id_: str, team: Team, tried: int, last: plan.Refusal | None) -> plan.Refusal:
        assert team.wish is not None
        if last is not None and refuse.is_to_be_continued(last):
            return last
        if team.wish.relax_after_seconds is not None and not self._is_relaxed(job, team):
            at = self._relaxes_at(job, team.wish.relax_after_seconds)
            self.wake = at if self.wake is None else min(self.wake, at)
        level = team.wish.required or team.wish.preferred or ""
        place = f"topology {team.wish.topology} down to {level}" if team.wish.topology else level
        what = f"a lot of {team.wish.segment} pods" if team.wish.segment else "it"
        detail = f"none of {tried} domains of {place} has room for {what}"
        if last is not None:
            detail += f"; in the last one: {last.summary}"
        return refuse.of_pod(job.pods[id_], (Reason(code=ReasonCode.TOPOLOGY, detail=detail),))

    def _node_of(self, job: Job, id_: str) -> str | None:
        if job.state[id_] not in PLACED:
            return None
        given = self._stage.given.get(id_)
        return given.found.node if given is not None else self._stage.node_of(id_)

    def _room(self, nodes: frozenset[str] | None) -> tuple[int, int, list[str]]:
        """The fullest first."""
        if nodes is None:
            return 0, 0, []
        return *self._roominess.free(nodes), sorted(nodes)

    def _try(self, job: Job, team: Team, ids: Sequence[str], *, within: Within) -> plan.Refusal | None:
        with self._stage.attempt() as attempt:
            refusal = self._inside(job, team, ids, within=within)
            if refusal is None:
                attempt.commit()
            return refusal

    def _inside(self, job: Job, team: Team, ids: Sequence[str], *, within: Within) -> plan.Refusal | None:
        if not team.holds_groups:
            return self._pods(job, ids, within=within)
        parts = job.by_team(team, ids)
        if len(parts) > 1:
            size = self._size(job)
            parts.sort(key=lambda part: -max(map(size, part[0].members()), default=0))
        for child, mine in parts:
            if (refusal := self._team(job, child, mine, within=within)) is not None:
                return refusal
        return None

    def _size(self, job: Job) -> Callable[[str], int]:
        """The larger come first: what is left between them is for the smaller."""
        assert job.prices is not None
        prices = job.prices
        return lambda id_: prices(id_).get(amounts.GPU, 0)

    def _pods(self, job: Job, ids: Sequence[str], *, within: Within) -> plan.Refusal | None:
        """All pods of a group; one that fails goes first the next time, each of them once."""
        size = self._size(job)
        line = sorted(ids, key=lambda id_: -size(id_)) if len(ids) > 1 else list(ids)
        failed: set[Hashable] = set()
        while True:
            with self._stage.attempt() as attempt:
                for id_ in line:
                    if (refusal := self._one(job, id_, within=within)) is not None:
                        break
                else:
                    attempt.commit()
                    return None
            kind = self._stage.kind_of(job, id_)
            ahead = {self._stage.kind_of(job, other) for other in line[: line.index(id_)]}
            if ahead <= {kind}:  # it could not come any earlier
                return refusal
            if kind in failed:
                return None if self._elsewhere(job, line, within=within) else refusal
            failed.add(kind)
            line.remove(id_)
            line.insert(0, id_)

    def _elsewhere(self, job: Job, line: Sequence[str], *, within: Within) -> bool:
        """Whether other nodes for those who come first leave room for the rest: depth first, a few tries."""
        tries = iter(range(MOST_TRIES))

        def follow(place: int) -> bool:
            if place == len(line):
                return True
            allowed = within
            while next(tries, None) is not None:
                with self._stage.attempt() as attempt:
                    if self._one(job, line[place], within=allowed) is not None:
                        return False
                    node = self._node_of(job, line[place])
                    if follow(place + 1):
                        attempt.commit()
                        return True
                allowed = {*(self._stage.world.nodes if allowed is None else allowed)} - {node}
            return False

        return len(line) <= MOST_SEARCHED and follow(0)

    def _one(self, job: Job, id_: str, *, within: Within) -> plan.Refusal | None:
        stage = self._stage
        refusal = stage.place(job, id_, within=within)
        if refusal is None or stage.is_later or not stage.frees_later:
            return refusal
        with stage.later():
            return refusal if stage.place(job, id_, within=within) is not None else None


def _pod_teams(team: Team) -> list[Team]:
    if not team.holds_groups:
        return [team]
    return [one for child in team.teams for one in _pod_teams(child)]
