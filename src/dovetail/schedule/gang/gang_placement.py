"""Places the next pods of a gang, all of them or none: topology domains from the tightest, then nodes, then devices.

A member that finds no place is tried before the others the next time, so that they do not take what only it can
use. Where that is not enough, other nodes are tried for the members before it, up to a bound. Given a transaction;
everything is an attempt on it. Never chooses which job is next.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from dovetail.model import gangs, plan
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.quantity import durations
from dovetail.schedule import pod_order, refusal_summary
from dovetail.schedule.gang import topology_domains
from dovetail.schedule.gang.capacity_bound import FreeCapacity
from dovetail.schedule.gang.jobs import PLACED, Job, SinglePodJob, State, Team
from dovetail.schedule.gang.topology_domains import Choice, Path
from dovetail.schedule.gang.transaction import Transaction
from dovetail.schedule.queue import amounts

Within = Collection[str] | None
MOST_SEARCHED: Final = 16  # pods of a group for which combinations of nodes are tried at all
MOST_TRIES: Final = 100  # placements made in that search


class _Constraint(NamedTuple):
    """A group with a topology constraint, and what it leaves to choose from."""

    job: Job
    team: Team
    wish: gangs.TopologyRequest
    choice: Choice
    present: Collection[str]  # nodes of its members that are placed already


class Placer:
    """Places steps of gangs on one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._topologies = topology_domains.TopologyIndex(
            transaction.world.topologies, transaction.world.nodes
        )
        self._capacity = FreeCapacity(transaction)
        self.wake: datetime.datetime | None = None  # when an unmet constraint is next relaxed

    def step(self, job: Job, ids: Sequence[str]) -> plan.Refusal | None:
        """Places these pods of a job, or none of them and why."""
        if isinstance(job, SinglePodJob):
            return self._place(job, ids[0], within=None)
        with self._transaction.attempt() as attempt:
            refusal = self._place_team(job, job.root, list(ids), within=None)
            if refusal is None:
                self._wait_together(job, ids)
                attempt.commit()
            return refusal

    def _wait_together(self, job: Job, pod_ids: Sequence[str]) -> None:
        """Where a group has to wait for one of its pods, no pod of this step starts before that one."""
        transaction = self._transaction
        if (
            transaction.is_after_evictions
            or not transaction.has_leaving_capacity
            or not job.has_nominated
        ):
            return
        transaction.steps.spend(job.size // 8)
        if any(self._must_wait(job, team) for team in _pod_teams(job.root)):
            for pod_id in pod_ids:
                if transaction.placements[pod_id].is_now:
                    transaction.postpone(pod_id)

    def _must_wait(self, job: Job, team: Team) -> bool:
        states = [job.state[pod_id] for pod_id in team.pods]
        starting = sum(state in (State.ACTIVE, State.STARTING) for state in states)
        return State.NOMINATED in states and starting < team.min

    # Groups and domains

    def _place_team(
        self, job: Job, team: Team, pod_ids: Sequence[str], *, within: Within
    ) -> plan.Refusal | None:
        """Places these pods of a group, or none of them and why."""
        wish = team.wish
        if wish is None:
            return self._place_members(job, team, pod_ids, within=within)

        is_relaxed = self._is_relaxed(job, wish)
        choice = topology_domains.choice(wish, self._topologies, is_relaxed=is_relaxed)
        if isinstance(choice, Reason):
            return refusal_summary.of_pod(job.pods[pod_ids[0]], (choice,))

        self._transaction.steps.spend(job.size // 8)
        placed_on = (self._node_of(job, pod_id) for pod_id in sorted(team.members()))
        present = [node for node in placed_on if node is not None]
        constraint = _Constraint(job, team, wish, choice, present)
        if wish.segment or wish.spread:
            return self._in_several_domains(constraint, pod_ids, within=within)
        return self._in_one_domain(constraint, pod_ids, within=within)

    def _in_one_domain(
        self, constraint: _Constraint, pod_ids: Sequence[str], *, within: Within
    ) -> plan.Refusal | None:
        """All pods in one domain: first one with nodes kept for them, then the fullest that could hold them.

        Narrow levels come before wide ones. Among domains the fullest is first, which leaves the empty ones whole for
        gangs that need them.
        """
        job, choice = constraint.job, constraint.choice
        refusal: plan.Refusal | None = None
        tried = 0
        kept_nodes = frozenset(
            filter(None, (self._transaction.kept_for(job, uid) for uid in pod_ids))
        )
        for depth in choice.depths:
            domains = topology_domains.candidates(
                choice, depth, present=constraint.present, within=within
            )
            for nodes in self._fullest_first(domains, preferred=kept_nodes):
                tried += 1
                if nodes is not None and not self._capacity.could_hold(nodes, pod_ids):
                    continue
                refusal = self._try(job, constraint.team, pod_ids, within=nodes)
                if refusal is None:
                    return None
        return self._unmet(constraint, pod_ids[0], tried, refusal)

    def _fullest_first(
        self, domains: Iterable[frozenset[str] | None], *, preferred: frozenset[str]
    ) -> list[frozenset[str] | None]:
        """Domains with preferred nodes first, then those with the least free capacity, then by name."""

        def rank(nodes: frozenset[str] | None) -> tuple[bool, int, int, list[str]]:
            if nodes is None:
                return True, 0, 0, []
            gpus, cpus = self._capacity.free(nodes)
            return nodes.isdisjoint(preferred), gpus, cpus, sorted(nodes)

        return sorted(domains, key=rank)

    def _in_several_domains(
        self, constraint: _Constraint, pod_ids: Sequence[str], *, within: Within
    ) -> plan.Refusal | None:
        """In several domains, which may have to be in one domain of a wider level."""
        choice, wish = constraint.choice, constraint.wish
        refusal: plan.Refusal | None = None
        present = frozenset(constraint.present)
        # Segments only prefer to be near each other, so placed members do not restrict them.
        binding = constraint.present if wish.spread else ()
        for depth in choice.around:
            domains = topology_domains.candidates(choice, depth, present=binding, within=within)
            for nodes in self._fullest_first(domains, preferred=present):
                with self._transaction.attempt() as attempt:
                    if wish.segment:
                        refusal = self._by_segment(constraint, pod_ids, within=nodes)
                    else:
                        refusal = self._spread_evenly(constraint, pod_ids, within=nodes)
                    if refusal is None:
                        attempt.commit()
                        return None
        if refusal is not None:
            return refusal
        return self._unmet(constraint, pod_ids[0], 0, None)

    def _by_segment(
        self, constraint: _Constraint, pod_ids: Sequence[str], *, within: Within
    ) -> plan.Refusal | None:
        """Segment by segment, each in one domain."""
        size = constraint.wish.segment or len(pod_ids)
        segments = topology_domains.segments(
            pod_ids, size, chosen=constraint.choice, present=constraint.present
        )
        for segment in segments:
            of_segment = constraint._replace(present=segment.present)
            refusal = self._in_one_domain(of_segment, segment.ids, within=within)
            if refusal is not None:
                return refusal
        return None

    def _spread_evenly(
        self, constraint: _Constraint, pod_ids: Sequence[str], *, within: Within
    ) -> plan.Refusal | None:
        """Pod by pod, each in the domain with the fewest members, among equal ones the emptiest."""
        job, choice = constraint.job, constraint.choice
        level = choice.level
        assert level is not None
        allowed = None if within is None else frozenset(within)
        nodes_by_path: dict[Path, frozenset[str]] = {}
        for domain in choice.domains.at(level):
            nodes = domain.nodes if allowed is None else domain.nodes & allowed
            if nodes:
                nodes_by_path[domain.path] = nodes

        count = Counter(choice.domains.of(node, level) for node in constraint.present)
        for pod_id in pod_ids:
            free = {path: self._capacity.free(nodes) for path, nodes in nodes_by_path.items()}
            ranked = sorted(
                free, key=lambda path: (count[path], [-amount for amount in free[path]], path)
            )
            options: list[Within] = [nodes_by_path[path] for path in ranked]
            if choice.required is None:
                options.append(within)
            refusal = self._in_first_domain(constraint, pod_id, options)
            if refusal is not None:
                return refusal
            count[choice.domains.of(self._node_of(job, pod_id) or "", level)] += 1
        return None

    def _in_first_domain(
        self, constraint: _Constraint, pod_id: str, options: Sequence[Within]
    ) -> plan.Refusal | None:
        """Places the pod in the first of these domains that takes it; a refusal if none does."""
        refusal: plan.Refusal | None = None
        for nodes in options:
            if nodes is not None and not self._capacity.could_hold(nodes, (pod_id,)):
                continue
            refusal = self._try(constraint.job, constraint.team, (pod_id,), within=nodes)
            if refusal is None:
                return None
        return self._unmet(constraint, pod_id, len(options), refusal)

    def _is_relaxed(self, job: Job, wish: gangs.TopologyRequest) -> bool:
        now = self._transaction.now
        if wish.relax_after_seconds is None or now is None or job.created is pod_order.NEVER:
            return False
        return now >= durations.later(job.created, wish.relax_after_seconds)

    def _unmet(
        self, constraint: _Constraint, pod_id: str, tried: int, last: plan.Refusal | None
    ) -> plan.Refusal:
        """Why no domain would do; and when the constraint is relaxed, if it will be."""
        job, wish = constraint.job, constraint.wish
        if last is not None and refusal_summary.is_to_be_continued(last):
            return last
        if wish.relax_after_seconds is not None and not self._is_relaxed(job, wish):
            relaxed_at = durations.later(job.created, wish.relax_after_seconds)
            self.wake = relaxed_at if self.wake is None else min(self.wake, relaxed_at)

        detail = _no_domain(wish, tried)
        if last is not None:
            detail += f"; in the last one: {last.summary}"
        reason = Reason(code=ReasonCode.TOPOLOGY, detail=detail)
        return refusal_summary.of_pod(job.pods[pod_id], (reason,))

    def _node_of(self, job: Job, pod_id: str) -> str | None:
        if job.state[pod_id] not in PLACED:
            return None
        placement = self._transaction.placements.get(pod_id)
        return placement.choice.node if placement is not None else self._transaction.node_of(pod_id)

    def _try(
        self, job: Job, team: Team, pod_ids: Sequence[str], *, within: Within
    ) -> plan.Refusal | None:
        with self._transaction.attempt() as attempt:
            refusal = self._place_members(job, team, pod_ids, within=within)
            if refusal is None:
                attempt.commit()
            return refusal

    # Pods and nodes

    def _place_members(
        self, job: Job, team: Team, pod_ids: Sequence[str], *, within: Within
    ) -> plan.Refusal | None:
        """The pods of a group, or group by group; the group with the largest pod first."""
        if not team.holds_groups:
            return self._place_pods(job, pod_ids, within=within)

        parts = job.by_team(team, pod_ids)
        if len(parts) > 1:
            gpus_of = _gpus_by_pod(job)
            parts.sort(key=lambda part: -max(map(gpus_of, part[0].members()), default=0))
        for child, child_ids in parts:
            refusal = self._place_team(job, child, child_ids, within=within)
            if refusal is not None:
                return refusal
        return None

    def _place_pods(
        self, job: Job, pod_ids: Sequence[str], *, within: Within
    ) -> plan.Refusal | None:
        """All pods of a group, the largest first: what is left between large pods is for the small ones.

        A pod that fails goes first the next time. Each kind of pod does so once, so there are at most as many rounds as
        kinds; then combinations of nodes are searched.
        """
        order = list(pod_ids)
        if len(order) > 1:
            gpus_of = _gpus_by_pod(job)
            order.sort(key=lambda pod_id: -gpus_of(pod_id))

        failed_kinds: set[Hashable] = set()
        while True:
            failure = self._place_in_order(job, order, within=within)
            if failure is None:
                return None
            failed_id, refusal = failure

            kind = self._transaction.kind_of(job, failed_id)
            index = order.index(failed_id)
            kinds_before = {self._transaction.kind_of(job, pod_id) for pod_id in order[:index]}
            if kinds_before <= {kind}:  # it could not come any earlier
                return refusal
            if kind in failed_kinds:
                is_placed = self._search_combinations(job, order, within=within)
                return None if is_placed else refusal
            failed_kinds.add(kind)
            order.remove(failed_id)
            order.insert(0, failed_id)

    def _place_in_order(
        self, job: Job, order: Sequence[str], *, within: Within
    ) -> tuple[str, plan.Refusal] | None:
        """Places all pods, or none of them: the first that has no place, and why."""
        with self._transaction.attempt() as attempt:
            for pod_id in order:
                refusal = self._place(job, pod_id, within=within)
                if refusal is not None:
                    return pod_id, refusal
            attempt.commit()
        return None

    def _search_combinations(self, job: Job, order: Sequence[str], *, within: Within) -> bool:
        """Whether all pods fit once earlier ones go to other nodes than their best.

        Depth first, with a bound on placements: the search is exponential in the worst case, and exact only below the
        bound.
        """
        if len(order) > MOST_SEARCHED:
            return False
        tries = iter(range(MOST_TRIES))
        world = self._transaction.world

        def place_from(index: int) -> bool:
            if index == len(order):
                return True
            pod_id, allowed = order[index], within
            while next(tries, None) is not None:
                with self._transaction.attempt() as attempt:
                    if self._place(job, pod_id, within=allowed) is not None:
                        return False
                    node = self._node_of(job, pod_id)
                    if place_from(index + 1):
                        attempt.commit()
                        return True
                allowed = {*(world.nodes if allowed is None else allowed)} - {node}
            return False

        return place_from(0)

    def _place(self, job: Job, pod_id: str, *, within: Within) -> plan.Refusal | None:
        """Places a pod now, else once leaving pods are gone. The refusal is the one of now."""
        transaction = self._transaction
        refusal = transaction.place(job, pod_id, within=within)
        if (
            refusal is None
            or transaction.is_after_evictions
            or not transaction.has_leaving_capacity
        ):
            return refusal
        with transaction.after_evictions():
            is_placed = transaction.place(job, pod_id, within=within) is None
        return None if is_placed else refusal


def _no_domain(wish: gangs.TopologyRequest, tried: int) -> str:
    level = wish.required or wish.preferred or ""
    place = f"topology {wish.topology} down to {level}" if wish.topology else level
    what = f"a lot of {wish.segment} pods" if wish.segment else "it"
    return f"none of {tried} domains of {place} has room for {what}"


def _gpus_by_pod(job: Job) -> Callable[[str], int]:
    """What a pod of the job costs at most, in thousandths of GPUs."""
    assert job.prices is not None
    prices = job.prices
    return lambda pod_id: prices(pod_id).get(amounts.GPU, 0)


def _pod_teams(team: Team) -> list[Team]:
    """The groups of pods in a tree of groups."""
    if not team.holds_groups:
        return [team]
    return [leaf for child in team.teams for leaf in _pod_teams(child)]
