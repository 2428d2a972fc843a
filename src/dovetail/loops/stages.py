"""How a bound pod walks through its life on a node without a kubelet: stages as data, one step at a time.

Given a pod, the stages and the time, says what happens to it next and in how many seconds: it becomes Running,
Succeeded or Failed, or a terminating one is let go. State in, instruction out. Never writes, never looks at a clock;
a span of seconds is resolved by the pod's uid, so the same pod always takes the same time.
"""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from dovetail import errors
from dovetail.model import durations, pods, yaml_text

RUN_SECONDS: Final = "dovetail.dev/run-seconds"  # annotation of a pod: how long it runs
EXIT_CODE: Final = "dovetail.dev/exit-code"  # annotation of a pod: what it ends with; anything but 0 fails
PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TERMINAL: Final = (SUCCEEDED, FAILED)
TERMINATED_EXIT_CODE: Final = 143  # of a process that ended on SIGTERM
MAX_EXIT_CODE: Final = 255

_RANK: Final = {"": 0, PENDING: 0, RUNNING: 1, SUCCEEDED: 2, FAILED: 2}
_EVER: Final = 10**9  # seconds; longer than anybody waits, and still a time a calendar can hold

Seconds = Annotated[float, msgspec.Meta(ge=0, le=_EVER)]
ExitCode = Annotated[int, msgspec.Meta(ge=0, le=MAX_EXIT_CODE)]


class ContainerEnd(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How one container ends, where it differs from the others."""

    name: str
    exit_code: ExitCode = 0
    reason: str = ""


class Stage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A phase, and how long after the one before it comes: seconds, or a span. The first counts from binding."""

    phase: Literal["Running", "Succeeded", "Failed"]
    # Bounds are checked below: msgspec 0.22 corrupts memory where a bounded number and a fixed tuple make a union.
    after: float | tuple[float, float] = 0
    exit_code: ExitCode | None = None
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerEnd, ...] = ()


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Which pods walk like this. Namespace and values are patterns with * and ?; all that is named must match."""

    steps: tuple[Stage, ...]
    namespace: str = "*"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Stages(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The first rule that matches a pod counts; a pod without one runs at once and for ever.

    What a pod's own annotations say about its end comes before any rule.
    """

    rules: tuple[Rule, ...] = ()
    terminate_seconds: Seconds = 1  # how long a pod takes to end when told to, if it is given so long


class Become(msgspec.Struct, frozen=True, kw_only=True):
    """The pod enters a phase."""

    phase: str
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerEnd, ...] = ()


class LetGo(msgspec.Struct, frozen=True, kw_only=True):
    """The pod has ended and is deleted for good; first it enters a phase, unless it has ended before."""

    first: Become | None = None


class Step(NamedTuple):
    """What happens next and how long until then; 0 means now."""

    wait_seconds: float
    action: Become | LetGo


DEFAULT: Final = Stages()
_AT_ONCE: Final = Stage(phase=RUNNING)


def read(text: str, *, file: str) -> Stages:
    """The stages a YAML or JSON document describes. Raises InputError naming file and field."""
    try:
        found = list(yaml_text.documents(text))
    except yaml_text.TextError as error:
        raise errors.InputError(f"{file}: {error}") from None
    if len(found) != 1:
        raise errors.InputError(f"{file}: expected one document with stages, got {len(found)}")
    try:
        stages = msgspec.convert(found[0].tree, Stages)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{file}: {_readable(error)}") from None
    if problems := list(problems_of(stages)):
        raise errors.InputError("\n".join(f"{file}: {problem}" for problem in problems))
    return stages


def problems_of(stages: Stages) -> Iterator[str]:
    """What keeps stages from being played: field, what was given, what was expected."""
    for number, rule in enumerate(stages.rules):
        rank = 0
        for index, stage in enumerate(rule.steps):
            where = f"rules[{number}].steps[{index}]"
            low, high = stage.after if isinstance(stage.after, tuple) else (stage.after, stage.after)
            if not 0 <= low <= high <= _EVER:
                yield f"{where}.after: expected seconds from 0 to {_EVER}, or two of them with the smaller one first"
            if _RANK[stage.phase] <= rank:
                yield f"{where}.phase: {stage.phase} cannot follow; expected Running, then Succeeded or Failed"
            rank = _RANK[stage.phase]
            if stage.exit_code is not None and (stage.exit_code == 0) != (stage.phase == SUCCEEDED):
                yield f"{where}.exitCode: {stage.exit_code} does not go with {stage.phase}; 0 is success, others fail"


def next_step(pod: pods.Pod, stages: Stages, *, since: datetime.datetime, now: datetime.datetime) -> Step | None:
    """What happens next to the pod, which entered its phase (or was bound) at `since`; None if nothing ever will."""
    if not pod.spec.node_name:
        return None
    if pod.metadata.deletion_timestamp is not None:
        return _farewell(pod, stages, now)
    if pod.status.phase in TERMINAL:
        return None
    rank = _RANK.get(pod.status.phase, 0)
    planned = next(((index, one) for index, one in enumerate(_plan(pod, stages)) if _RANK[one.phase] > rank), None)
    end = _deadline(pod)
    if planned is None and end is None:
        return None
    at = math.inf
    if planned is not None:
        index, stage = planned
        at = (since - now).total_seconds() + _resolved(stage.after, pod.metadata.uid, index)
    if end is not None and (left := (end - now).total_seconds()) < at:
        late = Become(phase=FAILED, exit_code=TERMINATED_EXIT_CODE, reason="DeadlineExceeded")
        return Step(max(0.0, left), late)
    assert planned is not None
    return Step(max(0.0, at), _become(stage))


def entered(pod: pods.Pod) -> datetime.datetime | None:
    """When the pod entered its phase, or was bound, as the object tells it: to the second."""
    if pod.status.phase == RUNNING and pod.status.start_time:
        return moment(pod.status.start_time)
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return moment(condition.last_transition_time)
    return None


def moment(text: str) -> datetime.datetime:
    """A time as Kubernetes writes it. Nanoseconds are cut to what Python holds."""
    return datetime.datetime.fromisoformat(text)


def _plan(pod: pods.Pod, stages: Stages) -> tuple[Stage, ...]:
    """The stages of this pod: of its rule, with the end its annotations ask for."""
    rule = next((one for one in stages.rules if _matches(one, pod)), None)
    steps = (_AT_ONCE,) if rule is None else rule.steps
    own = _own_end(pod.metadata.annotations)
    if own is None:
        return steps
    return (*(one for one in steps if one.phase == RUNNING), own)


def _own_end(annotations: Mapping[str, str]) -> Stage | None:
    """The end a pod's annotations ask for; what cannot be read fails the pod, as a typing error would."""
    seconds, code = annotations.get(RUN_SECONDS), annotations.get(EXIT_CODE)
    if seconds is None and code is None:
        return None
    after = _number(seconds or "0")
    if after is None:
        return _bad(RUN_SECONDS, seconds, "a number of seconds")
    if code is not None and not (code.isascii() and code.isdigit() and int(code) <= MAX_EXIT_CODE):
        return _bad(EXIT_CODE, code, f"a whole number from 0 to {MAX_EXIT_CODE}")
    exit_code = int(code or 0)
    return Stage(phase=SUCCEEDED if exit_code == 0 else FAILED, after=after, exit_code=exit_code)


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
    return all(name in values and fnmatch.fnmatchcase(values[name], wanted) for name, wanted in patterns.items())


def _resolved(after: float | tuple[float, float], uid: str, index: int) -> float:
    if not isinstance(after, tuple):
        return after
    digest = hashlib.sha256(f"{uid}/{index}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return after[0] + share * (after[1] - after[0])


def _deadline(pod: pods.Pod) -> datetime.datetime | None:
    """When the node must stop a pod that has begun."""
    seconds, began = pod.spec.active_deadline_seconds, pod.status.start_time
    if seconds is None or not began:
        return None
    return durations.later(moment(began), min(seconds, _EVER))


def _become(stage: Stage) -> Become:
    code = stage.exit_code if stage.exit_code is not None else int(stage.phase == FAILED)
    return Become(
        phase=stage.phase, exit_code=code, reason=stage.reason, message=stage.message, containers=stage.containers
    )


def _farewell(pod: pods.Pod, stages: Stages, now: datetime.datetime) -> Step | None:
    metadata = pod.metadata
    assert metadata.deletion_timestamp is not None
    is_over = pod.status.phase in TERMINAL
    grace = metadata.deletion_grace_period_seconds or 0
    if grace == 0 and is_over:
        return None  # only finalizers still hold it; they are not a node's business
    told = durations.earlier(moment(metadata.deletion_timestamp), grace)
    wait = (told - now).total_seconds() + min(grace, stages.terminate_seconds)
    first = None if is_over else Become(phase=FAILED, exit_code=TERMINATED_EXIT_CODE)
    return Step(0.0 if is_over else max(0.0, wait), LetGo(first=first))


def _readable(error: msgspec.ValidationError) -> str:
    """msgspec's message with the path first: `rules[0].steps[1].after: expected ...`."""
    message, _, place = str(error).partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    message = message.replace("`", "").replace("Expected", "expected", 1).replace("Object", "it", 1)
    return f"{path}: {message}" if path else message
