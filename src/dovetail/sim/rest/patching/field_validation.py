"""Field validation: which fields of a document its kind does not know, for fieldValidation=Strict and Warn.

Known are the fields of kinds with structs, of the workload kinds down to their pod templates, and of custom resources
by their schema. Documents of other kinds pass. Given plain trees; returns paths in upstream's spelling. Never refuses
by itself what it cannot judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dovetail.kubetypes import codec, untyped
from dovetail.kubetypes.core import pods
from dovetail.ports import failures
from dovetail.sim.rest import status_answers
from dovetail.sim.server.schemas import structural_values
from dovetail.sim.server.served_kinds import Served, TableKey, table_key

Tree = dict[str, Any]

STRICT: Final = "Strict"
WARN: Final = "Warn"
IGNORE: Final = "Ignore"

_ROOT: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_WORKLOAD: Final = frozenset({"replicas", "selector", "template", "minReadySeconds"})
_JOB: Final = frozenset(
    {
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "podFailurePolicy",
        "successPolicy",
        "backoffLimit",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "selector",
        "manualSelector",
        "template",
        "ttlSecondsAfterFinished",
        "completionMode",
        "suspend",
        "podReplacementPolicy",
        "managedBy",
        "scheduling",
    }
)
# The fields of a spec in apps/v1 and batch/v1 of Kubernetes 1.37.
_SPECS: Final[dict[TableKey, frozenset[str]]] = {
    ("apps", "deployments"): _WORKLOAD
    | {"strategy", "revisionHistoryLimit", "paused", "progressDeadlineSeconds"},
    ("apps", "replicasets"): _WORKLOAD,
    ("apps", "statefulsets"): _WORKLOAD
    | {
        "volumeClaimTemplates",
        "serviceName",
        "podManagementPolicy",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "ordinals",
    },
    ("apps", "daemonsets"): (_WORKLOAD - {"replicas"}) | {"updateStrategy", "revisionHistoryLimit"},
    ("batch", "jobs"): _JOB,
    ("batch", "cronjobs"): frozenset(
        {
            "schedule",
            "timeZone",
            "startingDeadlineSeconds",
            "concurrencyPolicy",
            "suspend",
            "jobTemplate",
            "successfulJobsHistoryLimit",
            "failedJobsHistoryLimit",
        }
    ),
}


def warnings(served: Served, tree: Tree, mode: str) -> list[str]:
    """The warnings to send with the answer. Raises what a strict request is refused with."""
    if mode == IGNORE:
        return []
    problems = [f'unknown field "{path}"' for path in unknown_fields(served, tree)]
    if problems and mode == STRICT:
        raise _strict_error(served, problems)
    return problems


def _strict_error(served: Served, problems: list[str]) -> failures.Refused:
    kind, version = served.kind.name, served.api_version.rpartition("/")[2]
    return status_answers.bad(
        f'{kind} in version "{version}" cannot be handled as a {kind}: '
        f"strict decoding error: {', '.join(problems)}"
    )


def unknown_fields(served: Served, tree: Tree) -> list[str]:
    """The paths of all fields the kind does not have."""
    schema = dict(served.resource.schemas).get(served.api_version)
    if schema:
        return structural_values.pruned(schema, tree).unknown
    table = table_key(served.kind)
    if table in _SPECS:
        return [*_of_workload(table, tree)]
    if served.kind.struct in codec.KINDS.values() and served.is_stored_version:
        return _of_struct(served.kind.struct, tree, "")
    return []


def _of_struct(struct: Any, tree: Tree, path: str) -> list[str]:
    misfits = [misfit for misfit in untyped.misfits(struct, tree) if misfit.is_unknown_field]
    return [path + misfit.path for misfit in misfits]


def _of_workload(table: TableKey, tree: Tree) -> Iterator[str]:
    yield from (name for name in tree if name not in _ROOT)
    spec = tree.get("spec")
    if not isinstance(spec, dict):
        return
    yield from (f"spec.{name}" for name in spec if name not in _SPECS[table])
    path = "spec"
    if table == ("batch", "cronjobs"):
        spec = (spec.get("jobTemplate") or {}).get("spec")
        path = "spec.jobTemplate.spec"
        if not isinstance(spec, dict):
            return
        yield from (f"{path}.{name}" for name in spec if name not in _JOB)
    template = spec.get("template")
    if isinstance(template, dict):
        yield from (
            f"{path}.template.{name}" for name in template if name not in ("metadata", "spec")
        )
        pod = {name: template[name] for name in ("spec",) if isinstance(template.get(name), dict)}
        yield from _of_struct(pods.Pod, pod, f"{path}.template.")
