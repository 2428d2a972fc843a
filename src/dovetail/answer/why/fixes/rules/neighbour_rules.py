"""Proposes changes of what a pod says about other pods: affinity, anti-affinity, spread over a topology.

Given a case. A required term becomes a preference of the same content before it is dropped. Never tries a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.answer.why.fixes import edits, tree_paths
from dovetail.answer.why.fixes.proposals import Candidate, Case, Edit, Intent, Ladder, single
from dovetail.answer.why.fixes.tree_paths import Path, Tree
from dovetail.kubetypes import codec
from dovetail.model.reasons import ReasonCode

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
HEAVIEST: Final = 100  # the weight of a preference, core/v1
_SPREAD: Final[Path] = ("spec", "topologySpreadConstraints")
_SOFT: Final = "ScheduleAnyway"
_MORE_SKEW: Final = 4  # steps by which it is raised before the rule becomes a preference


def ladders(case: Case) -> Iterator[Ladder]:
    """What could be changed about the pod's neighbours."""
    if case.has(ReasonCode.POD_AFFINITY):
        yield from _terms(case, "podAffinity", "pod affinity")
    if case.has(ReasonCode.POD_ANTI_AFFINITY):
        yield from _terms(case, "podAntiAffinity", "pod anti-affinity")
    if case.has(ReasonCode.SPREAD, ReasonCode.SPREAD_LABEL):
        yield from _spread(case)


def _terms(case: Case, field: str, name: str) -> Iterator[Ladder]:
    spec = codec.tree_of(case.pod.spec)
    required = tree_paths.at(spec, ("affinity", field, REQUIRED)) or ()
    for term in required:
        where = str(term.get("topologyKey"))
        candidate = Candidate(
            f"prefer instead of require {name} over {where}",
            case.pod_change(_softened(("spec", "affinity", field), term)),
            Intent.ALLOWED,
        )
        yield single((field, codec.encode_tree(term).decode()), candidate)


def _softened(base: Path, term: Tree) -> Edit:
    """A required term as the heaviest preference."""

    def edit(pod: Tree) -> Tree:
        required = tree_paths.at(pod, (*base, REQUIRED)) or []
        place = next((at for at, own in enumerate(required) if _says(own, term)), None)
        if place is None:
            return pod
        preference = {"weight": HEAVIEST, "podAffinityTerm": required[place]}
        changed = tree_paths.without(pod, (*base, REQUIRED, place))
        if tree_paths.at(changed, (*base, REQUIRED)) == []:
            changed = tree_paths.without(changed, (*base, REQUIRED))
        result: Tree = tree_paths.appended(changed, (*base, PREFERRED), preference)
        return result

    return edit


def _says(own: Tree, term: Tree) -> bool:
    """Whether a term says at least what the other one says."""
    return all(own.get(name) == value for name, value in term.items())


def _spread(case: Case) -> Iterator[Ladder]:
    for place, rule in enumerate(case.pod.spec.topology_spread_constraints):
        if rule.when_unsatisfiable == _SOFT:
            continue
        key = rule.topology_key
        rungs = [
            Candidate(
                f"spread over {key}: maxSkew {rule.max_skew} -> {skew}",
                case.pod_change(_constraint(place, key, {"maxSkew": skew})),
                Intent.LOWERED,
            )
            for skew in range(rule.max_skew + 1, rule.max_skew + 1 + _MORE_SKEW)
        ]
        softer = Candidate(
            f"spread over {key}: prefer it (whenUnsatisfiable: {_SOFT})",
            case.pod_change(_constraint(place, key, {"whenUnsatisfiable": _SOFT})),
            Intent.ALLOWED,
        )
        yield Ladder(("spread", key, str(place)), (*rungs, softer), is_monotone=True)


def _constraint(place: int, key: str, fields: Tree) -> Edit:
    path: Path = (*_SPREAD, place)
    steps = [edits.setting((*path, name), value) for name, value in fields.items()]

    def edit(pod: Tree) -> Tree:
        if tree_paths.at(pod, (*path, "topologyKey")) != key:
            return pod
        changed = edits.in_turn(*steps)(pod)
        if fields.get("whenUnsatisfiable") == _SOFT:  # minDomains is for hard constraints only
            changed = tree_paths.without(changed, (*path, "minDomains"))
        return changed

    return edit
