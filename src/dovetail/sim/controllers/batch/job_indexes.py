"""Completion indexes of an Indexed Job: sets of numbers, and the text that a Job's status keeps them in.

Given texts such as "1,3-5,7" and pods; returns sets and texts. Unreadable parts of a text count as absent. Never
writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from dovetail.sim.controllers import owner_references, tree_fields

Tree = dict[str, Any]

INDEX: Final = "batch.kubernetes.io/job-completion-index"  # annotation and label
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"


def index_of(pod: Tree) -> int | None:
    """The completion index of a pod."""
    text = owner_references.annotations_of(pod).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def indexes_of(pods: Iterable[Tree]) -> set[int]:
    """The completion indexes of pods."""
    indexes = map(index_of, pods)
    return {index for index in indexes if index is not None}


def failure_count(pod: Tree) -> int:
    """How often the pod's index had failed before, failures that a policy ignored left out."""
    return _annotated_number(pod, FAILURES)


def absolute_failure_count(pod: Tree) -> int:
    """How often the pod's index had failed before."""
    return _annotated_number(pod, FAILURES) + _annotated_number(pod, IGNORED_FAILURES)


def parsed(text: str | None, completions: int) -> set[int]:
    """The indexes of a text, below the number of completions."""
    indexes: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            continue
        end = int(last) if dash else int(first)
        indexes.update(range(int(first), min(end, completions - 1) + 1))
    return indexes


def written(indexes: Collection[int]) -> str:
    """The indexes as a text: runs of three and more are ranges."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(map(_written_run, runs))


def first_missing(present: Collection[int], *, count: int, completions: int) -> list[int]:
    """The lowest indexes that are not present, at most `count` of them."""
    missing: list[int] = []
    for index in range(completions):
        if len(missing) >= count:
            break
        if index not in present:
            missing.append(index)
    return missing


def latest_failures(pods: Iterable[Tree], ended_at: Any) -> dict[int, Tree]:
    """The pod that failed last, per index; `ended_at` gives the end of a pod."""
    latest: dict[int, Tree] = {}
    for pod in pods:
        index = index_of(pod)
        if index is None:
            continue
        rank = (absolute_failure_count(pod), ended_at(pod))
        rival = latest.get(index)
        if rival is None or rank >= (absolute_failure_count(rival), ended_at(rival)):
            latest[index] = pod
    return latest


def duplicates(pods: Iterable[Tree], completions: int, order: Any) -> tuple[list[Tree], list[Tree]]:
    """Pods that an Indexed Job must not have, and the others: of each index, the last in `order` stays."""
    by_index: dict[int, list[Tree]] = {}
    surplus = []
    for pod in pods:
        index = index_of(pod)
        if index is None or index >= completions:
            surplus.append(pod)
        else:
            by_index.setdefault(index, []).append(pod)
    staying = []
    for index in sorted(by_index):
        pods_of_index = by_index[index]
        *extra, last = pods_of_index if len(pods_of_index) == 1 else order(pods_of_index)
        surplus.extend(extra)
        staying.append(last)
    return surplus, staying


def with_environment(spec: Tree) -> Tree:
    """A pod's spec whose containers know their index as JOB_COMPLETION_INDEX."""
    lists = [name for name in ("initContainers", "containers") if spec.get(name)]
    changed = {name: [_with_index(container) for container in spec[name]] for name in lists}
    return spec | changed


def _with_index(container: Tree) -> Tree:
    variables = tree_fields.entries(container, "env")
    if any(variable.get("name") == "JOB_COMPLETION_INDEX" for variable in variables):
        return container
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return container | {"env": variables}


def _written_run(run: list[int]) -> str:
    match run:
        case [index]:
            return str(index)
        case [first, last]:
            return f"{first},{last}"
        case _:
            return f"{run[0]}-{run[-1]}"


def _annotated_number(pod: Tree, annotation: str) -> int:
    text = owner_references.annotations_of(pod).get(annotation, "")
    return int(text) if text.isdecimal() else 0
