"""The fix for a pod whose scheduler does not run: the name of one that does.

Given a replica and a pod that the engine would start. Schedulers are known by the pods that they gave nodes to, and
kube-scheduler by its Lease; a name that is nearly the written one comes first. The change is tried like every other.
Never starts a scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.evidence import absent_scheduler
from dovetail.answer.why.fixes import edits, effects, nearest
from dovetail.answer.why.fixes.proposals import Candidate, Intent, PodChange
from dovetail.answer.why.fixes.trials import Trials
from dovetail.answer.why.why_answer import Fix, Who

MOST_NAMES: Final = 3


def fixes(replica: Replica, pod_id: str) -> tuple[Fix, ...]:
    """The first scheduler that would start the pod; none where no other is known."""
    pod = replica.world.pods[pod_id]
    written = pod.spec.scheduler_name
    trials = Trials(replica, pod_id)
    for name in list(_names(replica, written))[:MOST_NAMES]:
        edit = edits.setting(("spec", "schedulerName"), name)
        candidate = Candidate(
            f"schedulerName {written} -> {name}", (PodChange(pod_id, edit),), Intent.CORRECTED
        )
        trial = trials.tried((candidate,))
        if trial is not None and trial.starts:
            effect = effects.effect(trials, trial)
            patch = trial.change.patches
            return (Fix(who=Who.USER, title=candidate.title, patch=patch, effect=effect),)
    return ()


def _names(replica: Replica, written: str) -> Iterator[str]:
    """Other schedulers that gave pods their nodes: one that is nearly called so, then those with most pods."""
    counts: Counter[str] = Counter(dict.fromkeys(replica.policy.scheduler_names, 0))
    for pod in replica.world.pods.values():
        if pod.spec.node_name:
            counts[pod.spec.scheduler_name or absent_scheduler.DEFAULT] += 1
    leases = set(absent_scheduler.renewed_leases(replica))
    for name, program in absent_scheduler.PROGRAMS.items():
        if program in leases:
            counts[name] += 1
    counts.pop(written, None)
    near = nearest.names(written, counts)
    yield from dict.fromkeys([*near, *(name for name, _ in counts.most_common())])
