"""Clusters where priority decides: who starts, where, and who has to go, by us and by kube-scheduler's preemption."""

from __future__ import annotations

import random

from tests.fuzz import findings
from tests.generators import preemptions
from tests.schedule import preempting
from tests.support import oracle as oracles


def cases(rng: random.Random, count: int) -> list[int]:
    """Seeds of so many clusters."""
    return [rng.getrandbits(32) for _ in range(count)]


def run(oracle: oracles.Oracle, batch: list[int], *, tally: findings.Tally, seed: int) -> None:
    """Puts every cluster to both sides, pod by pod and then all pods in one decision; counts pods."""
    for number in batch:
        case = preemptions.case(random.Random(number))
        for compare in (preempting.compare_singly, preempting.compare_together):
            seen = preempting.Tally()
            compare(case, oracle, seen)
            tally.counts[findings.AGREE] += (
                sum(seen.outcomes.values()) - len(seen.differences) - seen.heard_late
            )
            tally.counts[findings.EXPLAINED] += seen.heard_late
            for difference in seen.differences:
                _note(difference, tally=tally, seed=seed)


def _note(difference: preempting.Difference, *, tally: findings.Tally, seed: int) -> None:
    kind = f"we say it {difference.ours.kind}"
    tally.counts[kind] += 1
    if tally.wants(kind, difference.ours.kind, difference.theirs.partition("(")[0]):
        case = {"objects": difference.objects, "pod": difference.pod}
        ours = str(difference.ours)
        tally.add(
            findings.Finding(
                what="preemption",
                kind=kind,
                seed=seed,
                case=case,
                ours=ours,
                theirs=difference.theirs,
            )
        )
