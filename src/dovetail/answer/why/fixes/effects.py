"""Says what happens with a fix: where the pod starts, with what, and who yields for it.

Given a trial that worked. Never tries anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.fixes.trials import Trial, Trials
from dovetail.kubetypes import registry
from dovetail.model import plan

SHOWN: Final = 3  # of each: nodes, pods that leave


def effect(trials: Trials, trial: Trial) -> str:
    """What happens then."""
    parts = [_start(trial)]
    assert trial.verdict is not None
    if trial.verdict.evictions:
        parts.append(_evictions(trials.replica, trial.verdict.evictions))
    displaced = [str(ref) for ref in trials.displaced(trial)]
    if displaced:
        parts.append(f"{_listed(displaced)} {'wait' if len(displaced) > 1 else 'waits'} instead")
    restarted = trial.change.restarted
    if restarted:
        were = "pods that run start" if len(restarted) > 1 else "a pod that runs starts"
        parts.append(f"{were} again: {_listed(restarted)}")
    deleted = [
        str(patch.object).partition(" ")[2]
        for patch in trial.change.patches
        if patch.delete and patch.object.kind == registry.POD.name
    ]
    removed = [name for name in deleted if not _comes_back(trials.replica, trial, name)]
    if removed:
        parts.append(f"ends {_listed(removed)}")
    return "; ".join(parts)


def _start(trial: Trial) -> str:
    assert trial.verdict is not None
    after = " once the pods there are gone" if trial.verdict.evictions else ""
    placed = [
        placement for placement in trial.decided.placements if placement.pod.uid in trial.members
    ]
    if len(placed) > 1:
        nodes = sorted({placement.node for placement in placed})
        where = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {_listed(nodes)}"
        return f"{len(placed)} pods of the gang start on {where}"
    where = f"node {trial.verdict.node}" if trial.verdict.node else "a node"
    return f"starts on {where}{_devices(trial.verdict.placement)}{after}"


def _devices(placement: plan.Placement | None) -> str:
    if placement is None:
        return ""
    results = [result for given in placement.allocations for result in given.result.devices.results]
    if placement.made is not None:
        results += placement.made.result.devices.results
    if not results:
        return ""
    names = [result.device for result in results]
    return f" with {_listed(names)}" if len(names) <= SHOWN else f" with {len(names)} devices"


def _evictions(replica: Replica, evictions: Sequence[plan.Eviction]) -> str:
    by_rule: Counter[str] = Counter()
    names = []
    for eviction in evictions:
        by_rule[eviction.rule.value] += 1
        names.append(_victim(replica, eviction))
    verb = "moves" if all(eviction.moves_to for eviction in evictions) else "evicts"
    return f"{verb} {_listed(names)}"


def _victim(replica: Replica, eviction: plan.Eviction) -> str:
    pod = replica.world.pods.get(eviction.pod.uid)
    priority = 0 if pod is None else pod.spec.priority or 0
    return f"{eviction.pod} (priority {priority})"


def _comes_back(replica: Replica, trial: Trial, name: str) -> bool:
    namespace, _, pod_name = name.partition("/")
    pod = replica.pod(namespace, pod_name)
    return pod is not None and pod.metadata.uid in trial.change.new_ids


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:SHOWN])
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
