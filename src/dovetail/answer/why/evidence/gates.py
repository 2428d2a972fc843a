"""Scheduling gates of a pod and who removes each: Kueue, KAI, Dovetail, or the program that added it.

Given the pod's spec, so a gate that is listed still holds. For a gate of Kueue its Workload says why. Never removes a
gate.
"""

from __future__ import annotations

from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.evidence import kueue_conditions, observation
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import owner_chain, quoting
from dovetail.answer.why.evidence.sources.pod_state import PodState

# The domain in front of a gate's name belongs to the program that removes the gate.
_OWNERS: Final = (
    ("kueue.x-k8s.io/topology", "Kueue, after it assigned a topology domain"),
    ("kueue.x-k8s.io/elastic-job", "Kueue, after it admitted the larger size of the job"),
    ("kueue.x-k8s.io", "Kueue, when it admits the workload"),
    ("kai.scheduler", "KAI"),
    ("scheduling.run.ai", "KAI"),
    ("dovetail.dev", "Dovetail"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    ("jobset.x-k8s.io", "JobSet"),
    ("grove.io", "Grove, when its gang may start"),
    ("karmada.io", "Karmada"),
)


def gated(replica: Replica, state: PodState) -> Observed | None:
    """What the pod's gates wait for."""
    pod = state.pod
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if not gates:
        return None
    line = quoting.line(f"Pod {state.id}, spec.schedulingGates", None, ", ".join(gates))
    if any(_domain(gate) == kueue_conditions.GROUP for gate in gates):
        uids = owner_chain.owner_uids(replica, pod)
        held = kueue_conditions.observed_workload(
            replica, pod.metadata.namespace, uids, pod.metadata.labels
        )
        if held is not None:
            return held._replace(evidence=(line, *held.evidence))

    owners = "; ".join(
        f"{quoting.words(gate, 63)}: removed by {_remover(gate)}" for gate in gates[:3]
    )
    sentence = f"no scheduler looks at it before its gates are removed: {owners}"
    return observation.observed_cause(CauseCode.GATED, sentence, line)


def _domain(gate: str) -> str:
    return gate.partition("/")[0]


def _remover(gate: str) -> str:
    for prefix, owner in _OWNERS:
        if gate == prefix or gate.startswith(prefix + "/") or _domain(gate).endswith("." + prefix):
            return owner
    return "the program that added it"
