"""The pods of a Job: built from its template with the tracking finalizer, and with an index where the Job has them.

Given a Job; returns pods, and yields the actions that create one, delete one, or let one go. Never counts.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from dovetail.kubetypes import names
from dovetail.ports import failures
from dovetail.sim.controllers import controller_actions, pod_templates, tree_fields
from dovetail.sim.controllers.batch import job_indexes
from dovetail.sim.controllers.controller_actions import Action, Outcome, Steps
from dovetail.sim.controllers.object_index import uid_of

Tree = dict[str, Any]
Failure = failures.ApiFailure | None

FINALIZER: Final = "batch.kubernetes.io/job-tracking"


class Predecessor(NamedTuple):
    """The failed pod that a pod of an index replaces, if any, and whether its failure counts."""

    pod: Tree | None
    is_counted: bool


def is_tracked(pod: Tree) -> bool:
    """Whether the pod still has to be counted."""
    return FINALIZER in tree_fields.entries(pod["metadata"], "finalizers")


def new_pod(job: Tree) -> Tree:
    """A pod of a Job without indexes."""
    pod = pod_templates.pod_from_template(job["spec"]["template"], job)
    return pod | {"metadata": _tracked(pod["metadata"])}


def new_indexed_pod(job: Tree, index: int, predecessor: Predecessor | None) -> Tree:
    """The pod of an index. A predecessor is given where indexes have backoff limits of their own."""
    name = job["metadata"]["name"]
    end = f"-{index}-"
    base = f"{name[: names.MAX_GENERATED_BASE - len(end)]}{end}"
    pod = pod_templates.pod_from_template(job["spec"]["template"], job, generate_name=base)
    metadata = _tracked(pod["metadata"])
    metadata["labels"] = metadata["labels"] | {job_indexes.INDEX: str(index)}
    annotations = tree_fields.mapping(metadata, "annotations") | {job_indexes.INDEX: str(index)}
    if predecessor is not None:
        annotations |= _failure_counts(predecessor)
    metadata["annotations"] = annotations
    spec = job_indexes.with_environment(pod["spec"]) | {"hostname": f"{name}-{index}"}
    return pod | {"metadata": metadata, "spec": spec}


def created(job: Tree, pod: Tree) -> Generator[Action, Outcome, Failure]:
    """Creates a pod and reports how that went."""
    outcome = yield controller_actions.Create(pod)
    if isinstance(outcome, failures.ApiFailure):
        yield controller_actions.warning(job, "FailedCreate", f"Error creating: {outcome}")
        return outcome
    name = controller_actions.stored(outcome)["metadata"]["name"]
    yield controller_actions.normal(job, "SuccessfulCreate", f"Created pod: {name}")
    return None


def ended(job: Tree, pod: Tree) -> Generator[Action, Outcome, Failure]:
    """Deletes a pod and reports how that went; a pod that is gone is no failure."""
    try:
        yield from controller_actions.deleted(pod)
    except failures.ApiFailure as failure:
        yield controller_actions.warning(job, "FailedDelete", f"Error deleting: {failure}")
        return failure
    message = f"Deleted pod: {pod['metadata']['name']}"
    yield controller_actions.normal(job, "SuccessfulDelete", message)
    return None


def untracked(pod: Tree) -> Steps:
    """Removes the finalizer from a pod; one that is gone needs nothing."""
    finalizers = [name for name in pod["metadata"]["finalizers"] if name != FINALIZER]
    metadata = {"uid": uid_of(pod), "finalizers": finalizers or None}
    outcome = yield controller_actions.Patch(pod, {"metadata": metadata})
    if isinstance(outcome, failures.ApiFailure) and not isinstance(outcome, failures.Missing):
        raise outcome


def all_restarts(pod: Tree) -> int:
    """How often the containers of a pod were restarted, together."""
    status = tree_fields.mapping(pod, "status")
    statuses = [
        *tree_fields.entries(status, "containerStatuses"),
        *tree_fields.entries(status, "initContainerStatuses"),
    ]
    return sum(tree_fields.number(entry, "restartCount") for entry in statuses)


def _tracked(metadata: Tree) -> Tree:
    finalizers = tree_fields.entries(metadata, "finalizers")
    if FINALIZER in finalizers:
        return dict(metadata)
    return metadata | {"finalizers": [*finalizers, FINALIZER]}


def _failure_counts(predecessor: Predecessor) -> dict[str, str]:
    """The annotations that carry the failures of an index from pod to pod."""
    pod = predecessor.pod
    if pod is None:
        return {job_indexes.FAILURES: "0"}
    counted = job_indexes.failure_count(pod)
    ignored = job_indexes.absolute_failure_count(pod) - counted
    if predecessor.is_counted:
        counted += 1
    else:
        ignored += 1
    annotations = {job_indexes.FAILURES: str(counted)}
    return annotations | ({job_indexes.IGNORED_FAILURES: str(ignored)} if ignored else {})
