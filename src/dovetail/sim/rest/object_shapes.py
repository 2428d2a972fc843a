"""Refuses objects that an API server would refuse and that controllers could not work with: numbers that are text,
workloads without a template, selectors that select nothing of their own, definitions under another name.

Given the object before and after a write; returns every problem. Only for writes over HTTP: simulations store what they
like. Never fills anything in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dovetail.kubetypes import field_errors, label_selectors, meta, names
from dovetail.kubetypes.field_errors import FieldProblem
from dovetail.kubetypes.registry import Kind
from dovetail.sim.server import write_rules
from dovetail.sim.server.served_kinds import TableKey, table_key

Tree = dict[str, Any]

_COUNTS: Final = (
    "replicas",
    "parallelism",
    "completions",
    "backoffLimit",
    "minReadySeconds",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)
_WITH_SELECTOR: Final = frozenset(
    {
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
    }
)
_WITH_TEMPLATE: Final = _WITH_SELECTOR | {("batch", "jobs")}
_CRONJOBS: Final = ("batch", "cronjobs")
_PODS: Final = ("", "pods")
_VOLUME_CLAIMS: Final = ("", "persistentvolumeclaims")
_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
_REQUIRED: Final = "Required value"
# apimachinery's words for a name that is no DNS subdomain
_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def check(kind: Kind, tree: Tree, old: Tree | None) -> None:
    """Raises Invalid with every problem of an object that is created, or changed from an old one."""
    write_rules.check_type(kind, tree)
    table = table_key(kind)
    problems = [*_problems(table, tree, old)]
    if problems:
        subject = f"{kind.name}.{table[0]}" if table[0] else kind.name
        name = str((tree.get("metadata") or {}).get("name") or "")
        raise write_rules.Invalid(subject, name, problems)


def _problems(table: TableKey, tree: Tree, old: Tree | None) -> Iterator[FieldProblem]:
    spec = tree.get("spec")
    if table == _DEFINITIONS:
        yield from _definition_problems(tree)
    elif table == _PODS:
        if old is None:
            yield from _pod_problems(spec, "spec")
    elif table == _VOLUME_CLAIMS:
        if old is None:
            yield from _volume_claim_problems(spec)
    elif table in _WITH_TEMPLATE:
        yield from _workload_problems(table, spec, old)
    elif table == _CRONJOBS:
        job = (spec or {}).get("jobTemplate") if isinstance(spec, dict) else None
        job_spec = job.get("spec") if isinstance(job, dict) else None
        yield from _template_problems(job_spec, "spec.jobTemplate.spec")


def _workload_problems(table: TableKey, spec: Any, old: Tree | None) -> Iterator[FieldProblem]:
    if not isinstance(spec, dict):
        yield FieldProblem(field_errors.REQUIRED, "spec", _REQUIRED)
        return
    yield from _count_problems(spec)
    yield from _template_problems(spec, "spec")
    if table in _WITH_SELECTOR:
        yield from _selector_problems(spec, old)


def _count_problems(spec: Tree) -> Iterator[FieldProblem]:
    for field in _COUNTS:
        value = spec.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            message = f"Invalid value: {value!r}: must be a whole number"
            yield FieldProblem(field_errors.INVALID, f"spec.{field}", message)
        elif value < 0:
            message = f"Invalid value: {value}: must be greater than or equal to 0"
            yield FieldProblem(field_errors.INVALID, f"spec.{field}", message)


def _template_problems(spec: Any, path: str) -> Iterator[FieldProblem]:
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict):
        yield FieldProblem(field_errors.REQUIRED, f"{path}.template", _REQUIRED)
        return
    yield from _pod_problems(template.get("spec"), f"{path}.template.spec")


def _pod_problems(spec: Any, path: str) -> Iterator[FieldProblem]:
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers:
        yield FieldProblem(field_errors.REQUIRED, f"{path}.containers", _REQUIRED)
        return
    for index, container in enumerate(containers):
        if not isinstance(container, dict) or not container.get("name"):
            place = f"{path}.containers[{index}].name"
            yield FieldProblem(field_errors.REQUIRED, place, _REQUIRED)


def _volume_claim_problems(spec: Any) -> Iterator[FieldProblem]:
    given: Tree = spec if isinstance(spec, dict) else {}
    if not given.get("accessModes"):
        message = f"{_REQUIRED}: at least 1 access mode is required"
        yield FieldProblem(field_errors.REQUIRED, "spec.accessModes", message)
    requests: Tree = (given.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        yield FieldProblem(field_errors.REQUIRED, "spec.resources[storage]", _REQUIRED)
    class_name = given.get("storageClassName")
    if class_name and not names.is_dns_subdomain(str(class_name)):
        message = f'Invalid value: "{class_name}": {_SUBDOMAIN}'
        yield FieldProblem(field_errors.INVALID, "spec.storageClassName", message)


def _selector_problems(spec: Tree, old: Tree | None) -> Iterator[FieldProblem]:
    selector = spec.get("selector")
    if not isinstance(selector, dict) or not selector:
        yield FieldProblem(field_errors.REQUIRED, "spec.selector", _REQUIRED)
        return
    template = spec.get("template") if isinstance(spec.get("template"), dict) else {}
    labels = ((template or {}).get("metadata") or {}).get("labels") or {}
    tests = label_selectors.tests_of(_selector(selector))
    if not label_selectors.passes(tests, labels):
        message = f"Invalid value: {labels!r}: `selector` does not match template `labels`"
        yield FieldProblem(field_errors.INVALID, "spec.template.metadata.labels", message)
    before = (old or {}).get("spec", {}).get("selector")
    if before is not None and before != selector:
        message = f"Invalid value: {selector!r}: field is immutable"
        yield FieldProblem(field_errors.INVALID, "spec.selector", message)


def _selector(tree: Tree) -> meta.LabelSelector:
    requirements = tuple(
        meta.LabelSelectorRequirement(
            key=str(test.get("key")),
            operator=str(test.get("operator")),
            values=tuple(test.get("values") or ()),
        )
        for test in tree.get("matchExpressions") or ()
    )
    return meta.LabelSelector(
        match_labels=tree.get("matchLabels") or {}, match_expressions=requirements
    )


def _definition_problems(tree: Tree) -> Iterator[FieldProblem]:
    spec = tree.get("spec") or {}
    plural = (spec.get("names") or {}).get("plural")
    name = (tree.get("metadata") or {}).get("name")
    if name != f"{plural}.{spec.get('group')}":
        message = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        yield FieldProblem(field_errors.INVALID, "metadata.name", message)
    stored = [version for version in spec.get("versions") or () if version.get("storage")]
    if len(stored) != 1:
        message = "Invalid value: must have exactly one version marked as storage version"
        yield FieldProblem(field_errors.INVALID, "spec.versions", message)
