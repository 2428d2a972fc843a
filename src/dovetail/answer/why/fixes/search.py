"""Finds the smallest changes with which a pod that waits starts: one rule relaxed, or two where one does not suffice.

Given a replica, a pod and the verdict about it. Rules propose changes for what is in the way; each is tried on the
replica, so that every fix that is returned was seen to work. A pair is returned only where neither part works alone.
Bounded by a number of decisions. Never changes the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail.answer.replica import started_pods
from dovetail.answer.replica import verdict as verdicts
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why import claims_to_come
from dovetail.answer.why.fixes import effects
from dovetail.answer.why.fixes.proposals import Candidate, Case, Intent, Ladder, PodChange
from dovetail.answer.why.fixes.rules import (
    claim_rules,
    gang_rules,
    neighbour_rules,
    node_rules,
    placement_rules,
    priority_rules,
    queue_rules,
    resource_rules,
    volume_rules,
)
from dovetail.answer.why.fixes.trials import Trial, Trials
from dovetail.answer.why.why_answer import Fix, Who

MOST_SHOWN: Final = 8
SINGLES_PART: Final = 0.7  # of all decisions; the others are for pairs
MOST_RUNGS: Final = 6  # tried one after the other, where more of them need not help more
MOST_FIRST: Final = 6  # changes that remove an obstacle, and are tried together with another
MOST_SECOND: Final = 10  # changes tried in addition to each of these
_WHO: Final = {who: rank for rank, who in enumerate(Who)}
_RULES: Final = (
    placement_rules.ladders,
    neighbour_rules.ladders,
    resource_rules.ladders,
    claim_rules.ladders,
    volume_rules.ladders,
    gang_rules.ladders,
    queue_rules.ladders,
    priority_rules.ladders,
    node_rules.ladders,
)


def search(
    replica: Replica, pod_id: str, verdict: verdicts.Verdict | None = None
) -> tuple[Fix, ...]:
    """The fixes for a pod that does not start, the best first; none for a pod that does."""
    if pod_id not in replica.world.pods:
        return ()
    node = replica.world.pods[pod_id].spec.node_name
    if node in replica.world.nodes:
        return ()
    if verdict is not None and verdict.starts and not verdict.is_bound:
        return ()
    # Pods that still lack their claims compete as soon as a controller has made these.
    with replica.edited(list(claims_to_come.edits(replica))):
        return _searched(replica, pod_id, verdict)


def _searched(replica: Replica, pod_id: str, verdict: verdicts.Verdict | None) -> tuple[Fix, ...]:
    node = replica.world.pods[pod_id].spec.node_name
    trials = Trials(replica, pod_id)
    if verdict is None and not node and verdicts.verdict(replica, pod_id, trials.base).starts:
        return ()
    # When a fix is carried out, everything that starts now has started: fixes are tried after that.
    started = started_pods.edits(replica, trials.base, without=trials.members)
    with replica.edited(started):
        trials = Trials(replica, pod_id) if started else trials
        # So have the pods for which others leave or move: what they are about to take is not for the fix.
        coming = started_pods.coming(replica, trials.base, without=trials.members)
        if not coming:
            return _Search(trials).fixes()
        with replica.edited(coming):
            return _Search(Trials(replica, pod_id)).fixes()


def hits(trials: Trials) -> list[Hit]:
    """The sets of candidates that work, the best first."""
    return _Search(trials).hits()


class Hit(NamedTuple):
    """Candidates that work together, and none of them alone."""

    candidates: tuple[Candidate, ...]
    trial: Trial


class _Attempt(NamedTuple):
    """A ladder that does not suffice, with the rung that went farthest."""

    ladder: Ladder
    rung: Candidate
    trial: Trial


class _Search:
    """One search."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._hits: list[Hit] = []
        self._working: set[tuple[str, ...]] = set()  # ladders that work alone
        self._failing: set[tuple[str, ...]] = set()  # those that do not
        self._obstacles = _obstacles_of(trials)  # without any change

    def fixes(self) -> tuple[Fix, ...]:
        """What is shown: each change once."""
        fixes: dict[bytes, Fix] = {}
        for hit in self.hits():
            written = msgspec.json.encode(hit.trial.change.patches)
            if written not in fixes and len(fixes) < MOST_SHOWN:
                fixes[written] = self._fix(hit)
        return tuple(fixes.values())

    def hits(self) -> list[Hit]:
        """Single changes; pairs where none of these leaves a user what was asked for."""
        attempts = self._singles()
        if not any(map(_is_welcome, self._hits)):
            self._pairs(attempts)
        return sorted(self._hits, key=_rank)

    def _fix(self, hit: Hit) -> Fix:
        return Fix(
            who=_who(hit),
            title="; ".join(candidate.title for candidate in hit.candidates),
            patch=hit.trial.change.patches,
            effect=effects.effect(self._trials, hit.trial),
        )

    # One change

    def _singles(self) -> list[_Attempt]:
        attempts: list[_Attempt] = []
        for ladder in _ladders(self._trials.base_cases()):
            if self._trials.part_spent > SINGLES_PART:
                break
            if ladder.name in self._working | self._failing or ladder.unless in self._working:
                continue
            attempt = self._climb(ladder, ())
            if isinstance(attempt, Hit):
                self._working.add(ladder.name)
                self._hits.append(attempt)
                continue
            if not self._trials.is_spent:  # otherwise not all of it was tried
                self._failing.add(ladder.name)
            if attempt is not None and self._removes_obstacle(attempt.trial):
                attempts.append(attempt)
        return attempts

    def _removes_obstacle(self, trial: Trial) -> bool:
        return trial.obstacles != self._obstacles

    def _climb(self, ladder: Ladder, others: tuple[Candidate, ...]) -> Hit | _Attempt | None:
        """The first rung that works together with the others, or how far the ladder goes."""
        if not ladder.rungs:
            return None
        if ladder.is_monotone:
            return self._bisected(ladder, others)
        farthest: _Attempt | None = None
        for rung in ladder.rungs[:MOST_RUNGS]:
            rung, trial = self._tried(rung, others)
            if trial is None:
                continue
            if trial.starts:
                return Hit((*others, rung), trial)
            if farthest is None and self._removes_obstacle(trial):
                farthest = _Attempt(ladder, rung, trial)
        return farthest

    def _bisected(self, ladder: Ladder, others: tuple[Candidate, ...]) -> Hit | _Attempt | None:
        """The last rung decides whether any works; then the first that does is narrowed down."""
        last, trial = self._tried(ladder.rungs[-1], others)
        if trial is None:
            return None
        if not trial.starts:
            return _Attempt(ladder, last, trial)
        best = Hit((*others, last), trial)
        low, high = 0, len(ladder.rungs) - 1
        while low < high:
            middle = (low + high) // 2
            rung, trial = self._tried(ladder.rungs[middle], others)
            if trial is not None and trial.starts:
                best, high = Hit((*others, rung), trial), middle
            else:
                low = middle + 1
        return best

    def _tried(
        self, rung: Candidate, others: tuple[Candidate, ...]
    ) -> tuple[Candidate, Trial | None]:
        """The rung with the others; where its role alone does not suffice, in all roles of the workload."""
        trial = self._trials.tried((*others, rung))
        if trial is None or trial.starts or not self._has_roles(rung):
            return rung, trial
        wider = rung._replace(
            title=f"{rung.title}, in all roles",
            changes=tuple(
                change._replace(of_all_roles=True) if isinstance(change, PodChange) else change
                for change in rung.changes
            ),
        )
        wide_trial = self._trials.tried((*others, wider))
        return (
            (wider, wide_trial) if wide_trial is not None and wide_trial.starts else (rung, trial)
        )

    def _has_roles(self, rung: Candidate) -> bool:
        if len(self._trials.members) == 1:
            return False
        world = self._trials.replica.world
        authors = self._trials.workshop.authors
        return any(
            len(authors.of(world.pods[change.member]).templates) > 1
            for change in rung.changes
            if isinstance(change, PodChange) and change.member in world.pods
        )

    # Two changes

    def _pairs(self, attempts: Sequence[_Attempt]) -> None:
        seen: set[frozenset[tuple[str, ...]]] = set()
        working: set[frozenset[tuple[str, ...]]] = set()
        firsts = sorted(attempts, key=lambda attempt: _candidate_rank(attempt.rung))
        for first in firsts[:MOST_FIRST]:
            for ladder in self._seconds(first):
                pair = frozenset((first.ladder.name, ladder.name))
                if len(pair) < 2 or pair in seen or ladder.name in self._working:
                    continue
                if frozenset((first.ladder.name, ladder.unless)) in working:
                    continue
                seen.add(pair)
                hit = self._climb(ladder, (first.rung,))
                if isinstance(hit, Hit) and self._fails_alone(ladder):
                    working.add(pair)
                    self._hits.append(self._tightened(first, hit))

    def _seconds(self, first: _Attempt) -> list[Ladder]:
        """What could be changed in addition."""
        with self._trials.cases_after(first.trial) as cases:
            return _ladders(cases)[:MOST_SECOND]

    def _fails_alone(self, ladder: Ladder) -> bool:
        """Whether the second change needs the first one."""
        if ladder.name in self._failing:
            return True
        if isinstance(self._climb(ladder, ()), Hit):
            self._working.add(ladder.name)
            return False
        if self._trials.is_spent:  # not known: a pair must not hide a single change that works
            return False
        self._failing.add(ladder.name)
        return True

    def _tightened(self, first: _Attempt, hit: Hit) -> Hit:
        """The pair with no more of the first change than the second needs."""
        if not first.ladder.is_monotone:
            return hit
        second = hit.candidates[-1]
        tighter = self._climb(first.ladder, (second,))
        if isinstance(tighter, Hit):
            return Hit((tighter.candidates[-1], second), tighter.trial)
        return hit


def _ladders(cases: Sequence[Case]) -> list[Ladder]:
    """What the rules propose, first what is easiest to accept."""
    ladders = [ladder for case in cases for rule in _RULES for ladder in rule(case) if ladder.rungs]
    return sorted(ladders, key=lambda ladder: _candidate_rank(ladder.rungs[0]))


def _obstacles_of(trials: Trials) -> frozenset[tuple[str, str, int, int]]:
    members = set(trials.members)
    return frozenset(
        (
            obstacle.reason.code.value,
            obstacle.reason.subject,
            obstacle.nodes,
            obstacle.reason.have or 0,
        )
        for refusal in trials.base.refusals
        if refusal.pod.uid in members
        for obstacle in refusal.obstacles
    )


def _who(hit: Hit) -> Who:
    """Who can carry out all of it."""
    return max((candidate.who for candidate in hit.candidates), key=lambda who: _WHO[who])


def _rank(hit: Hit) -> tuple[object, ...]:
    """Who can do it, how many rules change, how far from what was meant, how much is written."""
    intents = sorted((candidate.intent for candidate in hit.candidates), reverse=True)
    return (
        _WHO[_who(hit)],
        len(hit.candidates),
        intents,
        len(hit.trial.change.patches),
        hit.candidates[0].title,
    )


def _is_welcome(hit: Hit) -> bool:
    """Whether the author of the pod can do it, and gives up nothing by it."""
    return _who(hit) is Who.USER and hit.candidates[0].intent <= Intent.ALLOWED


def _candidate_rank(candidate: Candidate) -> tuple[int, int]:
    return _WHO[candidate.who], candidate.intent
