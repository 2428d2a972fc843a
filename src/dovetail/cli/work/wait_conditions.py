"""What `dovetail wait --for` can wait for: a condition, `started`, `finished`, `delete`, `create`, a path.

Given the text of the option, returns a test of a piece of work as it is now. Never reads a cluster, never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import click

from dovetail import errors
from dovetail.cli.work import work_targets
from dovetail.tables import path_templates

KINDS: Final = (
    "condition=NAME[=VALUE], started, finished, delete, create or jsonpath={PATH}[=VALUE]"
)
WORDS: Final = (
    "started",
    "finished",
    "delete",
    "create",
    "condition=",
    "jsonpath=",
)  # it begins so
_ENDINGS: Final = ("Complete", "Failed")  # conditions of a Job

Tree = dict[str, Any]


class Verdict(Enum):
    """Whether what is waited for has come."""

    NOT_YET = "not yet"
    MET = "met"
    FAILED = "failed"  # it will not come any more


class Condition(NamedTuple):
    """What to wait for. The test is given the work, or None where it does not exist."""

    text: str
    test: Callable[[work_targets.Work | None], Verdict]
    is_deletion: bool = False


def condition_of(text: str) -> Condition:
    """What the text of --for means. Raises a usage error otherwise."""
    name, _, value = text.partition("=")
    match name:
        case "delete" | "create" | "started" | "finished" if value:
            raise click.BadParameter(f'"{text}": {name} takes no value', param_hint="--for")
        case "delete":
            return Condition("condition delete", _is_gone, is_deletion=True)
        case "create":
            return Condition("condition create", _exists)
        case "started":
            return Condition("start", _has_started)
        case "finished":
            return Condition("end", _has_finished)
        case "condition" if value:
            return _of_condition(value)
        case "jsonpath" if value:
            return _of_path(value)
    raise click.BadParameter(f'"{text}": expected {KINDS}', param_hint="--for")


def _of_condition(text: str) -> Condition:
    name, _, value = text.partition("=")
    wanted = (value or "True").lower()

    def test(work: work_targets.Work | None) -> Verdict:
        trees = _trees(work)
        if not trees:
            return Verdict.NOT_YET
        return _met(all(_value_of(tree, name).lower() == wanted for tree in trees))

    return Condition(f"condition {name}", test)


def _of_path(text: str) -> Condition:
    template, closing, value = text.partition("}")
    path_text = template + closing
    try:
        path_templates.printed(path_text, {})
    except errors.DovetailError as error:
        raise click.BadParameter(str(error), param_hint="--for") from None
    wanted = value.removeprefix("=")

    def test(work: work_targets.Work | None) -> Verdict:
        trees = _trees(work)
        shown = [path_templates.printed(path_text, tree) for tree in trees]
        if not value:
            return _met(bool(shown) and all(shown))
        return _met(bool(shown) and all(each == wanted for each in shown))

    return Condition(f"condition {path_text}", test)


def _is_gone(work: work_targets.Work | None) -> Verdict:
    return _met(work is None or (work.target is None and not work.pods))


def _exists(work: work_targets.Work | None) -> Verdict:
    return _met(work is not None)


def _has_started(work: work_targets.Work | None) -> Verdict:
    """All pods run or have ended. Work that ended without them has started as well."""
    if work is None:
        return Verdict.NOT_YET
    if _has_finished(work) is not Verdict.NOT_YET:
        return Verdict.MET
    phases = [(pod.get("status") or {}).get("phase") for pod in work.pods]
    started = sum(phase == "Running" or phase in work_targets.ENDED for phase in phases)
    return _met(started == len(phases) and started >= _wanted_pods(work))


def _has_finished(work: work_targets.Work | None) -> Verdict:
    """The work has ended: for a Job its conditions say so, else its pods."""
    if work is None:
        return Verdict.NOT_YET
    if work.tree is not None and not work.is_pod:
        for name in _ENDINGS:
            if _value_of(work.tree, name) == "True":
                return Verdict.MET if name == "Complete" else Verdict.FAILED
        if work.target is not None and work.target.kind.name == work_targets.JOB.name:
            return Verdict.NOT_YET
    phases = [(pod.get("status") or {}).get("phase") for pod in work.pods]
    if not phases or not all(phase in work_targets.ENDED for phase in phases):
        return Verdict.NOT_YET
    return Verdict.FAILED if "Failed" in phases else Verdict.MET


def _wanted_pods(work: work_targets.Work) -> int:
    """How many pods there will be, as far as the object says."""
    spec = (work.tree or {}).get("spec") or {}
    for field in ("parallelism", "replicas"):
        if isinstance(spec.get(field), int):
            return int(spec[field])
    return 1


def _trees(work: work_targets.Work | None) -> Sequence[Tree]:
    """The objects that conditions are read from: the object itself, or the pods of a gang by label."""
    if work is None:
        return ()
    return (work.tree,) if work.tree is not None else work.pods


def _value_of(tree: Tree, name: str) -> str:
    for condition in (tree.get("status") or {}).get("conditions") or ():
        if str(condition.get("type", "")).lower() == name.lower():
            return str(condition.get("status", ""))
    return ""


def _met(is_met: bool) -> Verdict:
    return Verdict.MET if is_met else Verdict.NOT_YET
