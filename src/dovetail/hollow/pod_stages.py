"""The life cycle of a bound pod on a hollow node: stages as data, one step at a time.

Given a pod, the stages and the time, returns what happens to it next and in how many seconds: it becomes Running,
Succeeded or Failed, or a terminating pod is deleted. State in, instruction out. Never writes, never reads a clock; a
range of seconds is resolved by the pod's uid, so the same pod always takes the same time.
"""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from dovetail import errors, timestamps
from dovetail.kubetypes import untyped
from dovetail.kubetypes.core import pods
from dovetail.manifest import yaml_text
from dovetail.quantity import durations

RUN_SECONDS: Final = "dovetail.dev/run-seconds"  # annotation of a pod: how long it runs
EXIT_CODE: Final = "dovetail.dev/exit-code"  # annotation of a pod: anything but 0 fails
PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TERMINATED_EXIT_CODE: Final = 143  # of a process that ended on SIGTERM
MAX_EXIT_CODE: Final = 255

_RANK: Final = {"": 0, PENDING: 0, RUNNING: 1, SUCCEEDED: 2, FAILED: 2}
_EVER: Final = 10**9  # seconds: practically infinite, and still within the range of dates

Seconds = Annotated[float, msgspec.Meta(ge=0, le=_EVER)]
ExitCode = Annotated[int, msgspec.Meta(ge=0, le=MAX_EXIT_CODE)]


class ContainerEnd(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How one container ends, where it differs from the rest of the pod."""

    name: str
    exit_code: ExitCode = 0
    reason: str = ""


class Stage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A phase, and how long after the previous one it starts: seconds, or a range. The first counts from binding."""

    phase: Literal["Running", "Succeeded", "Failed"]
    # Bounds are checked below: msgspec 0.22 corrupts memory for a union of a bounded number and a fixed tuple.
    after: float | tuple[float, float] = 0
    exit_code: ExitCode | None = None
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerEnd, ...] = ()


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which pods take these steps. Namespace and values are patterns with * and ?; all given ones must match."""

    steps: tuple[Stage, ...]
    namespace: str = "*"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Stages(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The first rule that matches a pod applies; a pod without one runs at once and forever.

    A pod's own annotations about its end take precedence over any rule.
    """

    rules: tuple[Rule, ...] = ()
    terminate_seconds: Seconds = 1  # how long a deleted pod takes to end, within its grace period


class EnterPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The pod enters a phase."""

    phase: str
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerEnd, ...] = ()


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """The pod is deleted for good; first it enters a terminal phase, unless it is in one already."""

    last_phase: EnterPhase | None = None


class Step(NamedTuple):
    """What happens next and how long until then; 0 means now."""

    wait_seconds: float
    action: EnterPhase | Delete


DEFAULT: Final = Stages()
_AT_ONCE: Final = Stage(phase=RUNNING)


def read(text: str, *, file: str) -> Stages:
    """The stages a YAML or JSON document describes. Raises InputError naming file and field."""
    try:
        documents = list(yaml_text.documents(text))
    except yaml_text.TextError as error:
        raise errors.InputError(f"{file}: {error}") from None
    if len(documents) != 1:
        raise errors.InputError(f"{file}: expected one document with stages, got {len(documents)}")

    try:
        stages = msgspec.convert(documents[0].tree, Stages)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{file}: {untyped.path_first(error)}") from None

    if problems := list(problems_of(stages)):
        raise errors.InputError("\n".join(f"{file}: {problem}" for problem in problems))
    return stages


def problems_of(stages: Stages) -> Iterator[str]:
    """What makes stages invalid: field, value, and what was expected."""
    for number, rule in enumerate(stages.rules):
        rank = 0
        for index, stage in enumerate(rule.steps):
            yield from _stage_problems(stage, f"rules[{number}].steps[{index}]", rank)
            rank = _RANK[stage.phase]


def _stage_problems(stage: Stage, path: str, rank_before: int) -> Iterator[str]:
    low, high = stage.after if isinstance(stage.after, tuple) else (stage.after, stage.after)
    if not 0 <= low <= high <= _EVER:
        yield f"{path}.after: expected seconds from 0 to {_EVER}, or two of them with the smaller one first"

    if _RANK[stage.phase] <= rank_before:
        yield f"{path}.phase: {stage.phase} cannot follow; expected Running, then Succeeded or Failed"

    if stage.exit_code is None:
        return
    is_success = stage.exit_code == 0
    if is_success != (stage.phase == SUCCEEDED):
        yield f"{path}.exitCode: {stage.exit_code} does not go with {stage.phase}; 0 is success, others fail"


def next_step(
    pod: pods.Pod, stages: Stages, *, since: datetime.datetime, now: datetime.datetime
) -> Step | None:
    """The next step of a pod that entered its phase (or was bound) at `since`; None if there never is one."""
    if not pod.spec.node_name:
        return None
    if pod.metadata.deletion_timestamp is not None:
        return _terminate(pod, stages, now)
    if pod.status.phase in pods.TERMINAL_PHASES:
        return None

    planned = _next_stage(pod, stages, since=since, now=now)
    overdue = _deadline_step(pod, now)
    steps = [step for step in (planned, overdue) if step is not None]
    if not steps:
        return None
    first = min(steps, key=lambda step: step.wait_seconds)  # of equal ones the planned stage
    return first._replace(wait_seconds=max(0.0, first.wait_seconds))


def _next_stage(
    pod: pods.Pod, stages: Stages, *, since: datetime.datetime, now: datetime.datetime
) -> Step | None:
    """The first planned stage after the pod's present phase."""
    rank = _RANK.get(pod.status.phase, 0)
    for index, stage in enumerate(_plan(pod, stages)):
        if _RANK[stage.phase] > rank:
            after = _resolved(stage.after, pod.metadata.uid, index)
            return Step((since - now).total_seconds() + after, _become(stage))
    return None


def _deadline_step(pod: pods.Pod, now: datetime.datetime) -> Step | None:
    """The end of a pod at its active deadline."""
    deadline = _deadline(pod)
    if deadline is None:
        return None
    failed = EnterPhase(phase=FAILED, exit_code=TERMINATED_EXIT_CODE, reason="DeadlineExceeded")
    return Step((deadline - now).total_seconds(), failed)


def phase_since(pod: pods.Pod) -> datetime.datetime | None:
    """When the pod entered its phase, or was bound, by the object itself: in whole seconds."""
    if pod.status.phase == RUNNING and pod.status.start_time:
        return timestamps.parse(pod.status.start_time)

    for condition in pod.status.conditions:
        is_bound = condition.type == "PodScheduled" and condition.status == "True"
        if is_bound and condition.last_transition_time:
            return timestamps.parse(condition.last_transition_time)
    return None


def _plan(pod: pods.Pod, stages: Stages) -> tuple[Stage, ...]:
    """The stages of this pod: its rule's, with the end its annotations ask for."""
    steps = _rule_steps(pod, stages)
    own_end = _own_end(pod.metadata.annotations)
    if own_end is None:
        return steps
    running = [stage for stage in steps if stage.phase == RUNNING]
    return (*running, own_end)


def _rule_steps(pod: pods.Pod, stages: Stages) -> tuple[Stage, ...]:
    for rule in stages.rules:
        if _matches(rule, pod):
            return rule.steps
    return (_AT_ONCE,)


def _own_end(annotations: Mapping[str, str]) -> Stage | None:
    """The end a pod's annotations ask for; an unreadable annotation fails the pod."""
    seconds, code = annotations.get(RUN_SECONDS), annotations.get(EXIT_CODE)
    if seconds is None and code is None:
        return None

    after = _number(seconds or "0")
    if after is None:
        return _bad(RUN_SECONDS, seconds, "a number of seconds")
    if code is not None and not _is_exit_code(code):
        return _bad(EXIT_CODE, code, f"a whole number from 0 to {MAX_EXIT_CODE}")

    exit_code = int(code or 0)
    return Stage(phase=FAILED if exit_code else SUCCEEDED, after=after, exit_code=exit_code)


def _is_exit_code(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= MAX_EXIT_CODE


def _bad(annotation: str, value: str | None, expected: str) -> Stage:
    message = f'annotation {annotation}: expected {expected}, got "{value}"'
    return Stage(phase=FAILED, reason="InvalidAnnotation", message=message)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= _EVER else None


def _matches(rule: Rule, pod: pods.Pod) -> bool:
    metadata = pod.metadata
    return (
        fnmatch.fnmatchcase(metadata.namespace, rule.namespace)
        and _all_match(rule.labels, metadata.labels)
        and _all_match(rule.annotations, metadata.annotations)
    )


def _all_match(patterns: Mapping[str, str], values: Mapping[str, str]) -> bool:
    return all(
        name in values and fnmatch.fnmatchcase(values[name], pattern)
        for name, pattern in patterns.items()
    )


def _resolved(after: float | tuple[float, float], uid: str, index: int) -> float:
    if not isinstance(after, tuple):
        return after
    digest = hashlib.sha256(f"{uid}/{index}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return after[0] + share * (after[1] - after[0])


def _deadline(pod: pods.Pod) -> datetime.datetime | None:
    """When the node must stop a started pod."""
    seconds, started = pod.spec.active_deadline_seconds, pod.status.start_time
    if seconds is None or not started:
        return None
    return durations.later(timestamps.parse(started), min(seconds, _EVER))


def _become(stage: Stage) -> EnterPhase:
    code = stage.exit_code if stage.exit_code is not None else int(stage.phase == FAILED)
    return EnterPhase(
        phase=stage.phase,
        exit_code=code,
        reason=stage.reason,
        message=stage.message,
        containers=stage.containers,
    )


def _terminate(pod: pods.Pod, stages: Stages, now: datetime.datetime) -> Step | None:
    """Deletes a terminating pod; one that is still running takes its time within the grace period."""
    metadata = pod.metadata
    assert metadata.deletion_timestamp is not None
    grace = metadata.deletion_grace_period_seconds or 0
    if pod.status.phase in pods.TERMINAL_PHASES:
        # Without grace only finalizers still hold it; they are not the node's business.
        return Step(0.0, Delete()) if grace else None

    deleted = durations.earlier(timestamps.parse(metadata.deletion_timestamp), grace)
    wait = (deleted - now).total_seconds() + min(grace, stages.terminate_seconds)
    failed = EnterPhase(phase=FAILED, exit_code=TERMINATED_EXIT_CODE)
    return Step(max(0.0, wait), Delete(last_phase=failed))
