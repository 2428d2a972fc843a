"""One reconciliation of a Job under way: the status it will have, its pods, and what they mean.

Given a Job and its pods; answers questions about them. The steps of the reconciliation change it: what decides the Job,
how many pods are active, which pods are still to be counted. Never acts.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from dovetail import timestamps
from dovetail.ports import failures
from dovetail.sim.controllers import pod_states, tree_fields
from dovetail.sim.controllers.batch import job_indexes, job_pods, job_policies
from dovetail.sim.controllers.controller_actions import Situation
from dovetail.sim.controllers.object_index import uid_of

Tree = dict[str, Any]
Failure = failures.ApiFailure | None

MAX_PER_SYNC: Final = (
    500  # pods created, deleted or counted at a time: job.MaxPodCreateDeletePerSync
)
# The condition that decides a Job, and the one that ends it.
TARGETS: Final = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


class Sync:
    """One reconciliation under way: the Job with the status it will have, and its pods."""

    def __init__(self, situation: Situation, pods: list[Tree]) -> None:
        self.job: Tree = situation.owner
        self.spec: Tree = situation.owner["spec"]
        self.now: datetime.datetime = situation.now
        self.status: Tree = dict(tree_fields.mapping(situation.owner, "status"))
        self.pods = pods
        self.active_pods = [pod for pod in pods if pod_states.is_active(pod)]
        self.active = len(self.active_pods)
        self.ready = sum(map(pod_states.is_ready, self.active_pods))
        self.terminating = sum(map(pod_states.is_terminating, pods))
        # Most pods of a large Job are neither counted now nor over: the others are chosen once.
        self.tracked = [pod for pod in pods if job_pods.is_tracked(pod)]
        self.ended = [pod for pod in self.tracked if has_succeeded(pod) or self.has_failed(pod)]
        uncounted = tree_fields.mapping(self.status, "uncountedTerminatedPods")
        self.uncounted: dict[str, list[str]] = {
            state: list(uncounted.get(state) or ()) for state in ("succeeded", "failed")
        }
        self.outcome: Tree | None = None  # the condition that decides the Job
        self.failure: Failure = None
        self.succeeded_indexes: set[int] = set()
        self.failed_indexes: set[int] = set()
        self.delayed: dict[int, Tree] = {}  # failed pods kept until their index is tried again

    @property
    def completions(self) -> int:
        """Of an Indexed Job, which always has them."""
        return int(self.spec["completions"])

    @property
    def is_indexed(self) -> bool:
        """Whether every pod has an index of its own."""
        return bool(self.spec["completionMode"] == "Indexed")

    @property
    def limits_indexes(self) -> bool:
        """Whether every index has a backoff limit of its own."""
        return "backoffLimitPerIndex" in self.spec

    @property
    def awaits_ends(self) -> bool:
        """Whether pods are replaced only once they have ended."""
        return bool(self.spec["podReplacementPolicy"] == "Failed")

    def has_failed(self, pod: Tree) -> bool:
        """Whether a pod counts as failed: a deleted one does, unless the Job awaits its end."""
        if pod_states.phase_of(pod) == "Failed":
            return True
        is_over = pod_states.phase_of(pod) == "Succeeded"
        return not self.awaits_ends and pod_states.is_deleted(pod) and not is_over

    def verdict_on(self, pod: Tree) -> job_policies.Verdict:
        """What a failed pod means."""
        return job_policies.verdict_on(pod, self.spec.get("podFailurePolicy"))

    def is_valid(self, pod: Tree) -> bool:
        """Whether a tracked pod is one that the Job counts: in an Indexed Job, one of an index it has."""
        if not self.is_indexed:
            return True
        index = job_indexes.index_of(pod)
        return index is not None and index < self.completions

    def uncounted_pods(self, state: str) -> list[Tree]:
        """The pods that succeeded or failed and are not in the status yet."""
        has_ended = has_succeeded if state == "succeeded" else self.has_failed
        counted = self.uncounted[state]
        return [
            pod
            for pod in self.ended
            if has_ended(pod) and self.is_valid(pod) and uid_of(pod) not in counted
        ]

    def decide(self, type_: str, reason: str, message: str) -> None:
        """Sets the condition that decides the Job."""
        self.outcome = new_condition(type_, "True", reason, message, self.now)


def has_succeeded(pod: Tree) -> bool:
    """Whether a pod ended well."""
    return pod_states.phase_of(pod) == "Succeeded"


def with_condition(conditions: list[Tree], condition: Tree) -> list[Tree]:
    """The conditions with this one in the place of its type, or last."""
    types = [entry["type"] for entry in conditions]
    if condition["type"] not in types:
        return [*conditions, condition]
    place = types.index(condition["type"])
    return [*conditions[:place], condition, *conditions[place + 1 :]]


def new_condition(
    type_: str, state: str, reason: str, message: str, now: datetime.datetime
) -> Tree:
    """A condition of a Job."""
    stamp = timestamps.to_text(now)
    return {
        "type": type_,
        "status": state,
        "reason": reason,
        "message": message,
        "lastProbeTime": stamp,
        "lastTransitionTime": stamp,
    }
