"""Fills in what an API server would: the defaults of apps/v1 and batch/v1, and the labels of a Job's pods.

Given an owner as a tree, returns it with every field its controller reads; fields that are set stay. Objects of other
kinds come back as they are. Meant for controllers, which must not depend on who stored the object, and for servers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dovetail.sim.controllers import tree_fields
from dovetail.sim.controllers.object_index import APPS, BATCH, group_of

Tree = dict[str, Any]

MAX_INT32: Final = 2_147_483_647
CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID_LABEL: Final = "controller-uid"
OLD_JOB_NAME_LABEL: Final = "job-name"


def with_defaults(tree: Tree) -> Tree:
    """The object with the defaults of its kind. A Job must have its uid, because its selector contains it."""
    fill = _BY_KIND.get((group_of(tree["apiVersion"]), tree["kind"]))
    if fill is None:
        return tree
    spec = fill(dict(tree_fields.mapping(tree, "spec")))
    filled = tree | {"spec": spec}
    return _with_job_labels(filled) if fill is _job else filled


def _deployment(spec: Tree) -> Tree:
    defaults = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
    strategy = dict(tree_fields.mapping(spec, "strategy"))
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        limits = {"maxUnavailable": "25%", "maxSurge": "25%"}
        strategy["rollingUpdate"] = limits | _present(strategy.get("rollingUpdate"))
    return defaults | _present(spec) | {"strategy": strategy}


def _replica_set(spec: Tree) -> Tree:
    return {"replicas": 1} | _present(spec)


def _stateful_set(spec: Tree) -> Tree:
    defaults = {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady"}
    strategy = dict(spec.get("updateStrategy") or {"rollingUpdate": {}})
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    # A user who names the type alone gets no limits: then new pods below the old count keep the old revision.
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        limits = {"partition": 0, "maxUnavailable": 1}
        strategy["rollingUpdate"] = limits | _present(strategy["rollingUpdate"])
    retention = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    retention |= _present(spec.get("persistentVolumeClaimRetentionPolicy"))
    return (
        defaults
        | _present(spec)
        | {"updateStrategy": strategy, "persistentVolumeClaimRetentionPolicy": retention}
    )


def _daemon_set(spec: Tree) -> Tree:
    strategy = dict(tree_fields.mapping(spec, "updateStrategy"))
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        limits = {"maxUnavailable": 1, "maxSurge": 0}
        strategy["rollingUpdate"] = limits | _present(strategy.get("rollingUpdate"))
    return {"revisionHistoryLimit": 10} | _present(spec) | {"updateStrategy": strategy}


def _job(spec: Tree) -> Tree:
    present = _present(spec)
    has_own_limits = "backoffLimitPerIndex" in present
    has_failure_policy = "podFailurePolicy" in present
    defaults = {
        "parallelism": 1,
        "backoffLimit": MAX_INT32 if has_own_limits else 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "Failed" if has_failure_policy else "TerminatingOrFailed",
        "manualSelector": False,
    }
    if "parallelism" not in present:
        defaults["completions"] = 1
    return defaults | present


def _cron_job(spec: Tree) -> Tree:
    defaults = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    return defaults | _present(spec)


def _with_job_labels(job: Tree) -> Tree:
    """A job whose selector and template name its uid, unless the user chose the selector."""
    spec = job["spec"]
    name, uid = job["metadata"]["name"], job["metadata"].get("uid")
    if spec["manualSelector"] or not uid:
        return job
    labels = {
        CONTROLLER_UID_LABEL: uid,
        JOB_NAME_LABEL: name,
        OLD_CONTROLLER_UID_LABEL: uid,
        OLD_JOB_NAME_LABEL: name,
    }
    template = dict(tree_fields.mapping(spec, "template"))
    metadata = dict(tree_fields.mapping(template, "metadata"))
    metadata["labels"] = tree_fields.mapping(metadata, "labels") | labels
    template["metadata"] = metadata
    selector = spec.get("selector") or {"matchLabels": {CONTROLLER_UID_LABEL: uid}}
    own_metadata = job["metadata"]
    if not own_metadata.get("labels"):
        own_metadata = own_metadata | {"labels": metadata["labels"]}
    changes = {"selector": selector, "template": template}
    return job | {"metadata": own_metadata, "spec": spec | changes}


def _present(fields: Tree | None) -> Tree:
    """The fields that are set; null means unset."""
    return {name: value for name, value in (fields or {}).items() if value is not None}


_BY_KIND: Final[dict[tuple[str, str], Callable[[Tree], Tree]]] = {
    (APPS, "Deployment"): _deployment,
    (APPS, "ReplicaSet"): _replica_set,
    (APPS, "StatefulSet"): _stateful_set,
    (APPS, "DaemonSet"): _daemon_set,
    (BATCH, "Job"): _job,
    (BATCH, "CronJob"): _cron_job,
}
