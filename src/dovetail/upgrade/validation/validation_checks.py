"""The checks that a node passes before work returns to it, as data: the defaults, and files of an administrator.

Given text and its name. Unknown fields and checks, and values that cannot be read, are refused with their place. Never
reads a cluster, never judges one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.manifest import yaml_text

SETTLE_SECONDS: Final = 600  # as long as the GPU Operator waits for its validator
MOST_CHECKS: Final = 50  # ours


class Subject(StrEnum):
    """What a check looks at."""

    GPU_COUNT = "gpu-count"
    DRIVER = "driver"
    TOOLKIT = "toolkit"
    SLICE = "slice"
    ALLOCATABLE = "allocatable"
    PREPARE = "prepare"  # the node agent plans a claim and writes nothing
    DCGM = "dcgm"
    NCCL = "nccl"


IN_JOBS: Final = frozenset({Subject.DCGM, Subject.NCCL})  # a Job runs them on the node
# Without these a node is not what it was: that nothing states them is no reason to go on.
_REQUIRED: Final = frozenset(
    {Subject.GPU_COUNT, Subject.DRIVER, Subject.SLICE, Subject.ALLOCATABLE} | IN_JOBS
)


class Check(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One check. Without `expect`, the target of the upgrade counts, else the node as it was before."""

    check: Subject
    expect: str = ""
    required: bool | None = None  # False: a check that cannot be judged does not hold the node back
    level: int = 1  # of dcgmi diag
    min_gigabytes_per_second: float = 0.0  # bus bandwidth of NCCL's all-reduce
    image: str = ""  # of the Job

    @property
    def is_required(self) -> bool:
        """Whether the node waits while the check cannot be judged."""
        return self.check in _REQUIRED if self.required is None else self.required


class Checks(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The checks of a node, and how long it may take until they pass."""

    checks: tuple[Check, ...]
    settle_seconds: int = SETTLE_SECONDS


DEFAULTS: Final = Checks(
    checks=tuple(Check(check=subject) for subject in Subject if subject not in IN_JOBS)
)

_FIELDS: Final = {
    Subject.DCGM: ("level", "image"),
    Subject.NCCL: ("minGigabytesPerSecond", "image"),
    Subject.SLICE: (),
    Subject.PREPARE: (),
}
_EVERYWHERE: Final = ("check", "required")


def read(text: str, name: str) -> Checks:
    """The checks of a file: YAML with a list `checks`, and `settleSeconds`. Raises InputError with the place."""
    tree = _tree(text, name)
    if not isinstance(tree, dict) or not isinstance(tree.get("checks"), list):
        raise errors.InputError(f"{name}: expected a list `checks`")
    for field in tree:
        if field not in ("checks", "settleSeconds"):
            raise errors.InputError(
                f"{name}: unknown field {field!r}; known: checks, settleSeconds"
            )
    entries = tree["checks"]
    if not entries or len(entries) > MOST_CHECKS:
        raise errors.InputError(
            f"{name}: checks: {len(entries)} of them; expected 1 to {MOST_CHECKS}"
        )
    seconds = tree.get("settleSeconds", SETTLE_SECONDS)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 1:
        raise errors.InputError(f"{name}: settleSeconds: {seconds!r}: expected seconds, 1 or more")
    checks = [_check(entry, f"{name}: checks[{at}]") for at, entry in enumerate(entries)]
    _refuse_twice(checks, name)
    return Checks(checks=tuple(checks), settle_seconds=seconds)


def _tree(text: str, name: str) -> Any:
    try:
        documents = list(yaml_text.documents(text))
    except yaml_text.TextError as error:
        raise errors.InputError(f"{name}: {error}") from None
    if len(documents) != 1:
        raise errors.InputError(f"{name}: {len(documents)} documents; expected one")
    return documents[0].tree


def _check(entry: Any, place: str) -> Check:
    if isinstance(entry, str):
        entry = {"check": entry}
    if not isinstance(entry, dict):
        raise errors.InputError(f"{place}: expected the name of a check, or fields")
    subject = _subject(entry.get("check"), place)
    allowed = (*_EVERYWHERE, *_FIELDS.get(subject, ("expect",)))
    for field in entry:
        if field not in allowed:
            raise errors.InputError(
                f"{place}: {subject} has no field {field!r}; known: {', '.join(allowed)}"
            )
    expected = entry.get("expect", "")
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        entry = entry | {"expect": str(expected)}
    try:
        check = msgspec.convert(entry, type=Check)
    except msgspec.ValidationError as error:
        raise errors.InputError(f"{place}: {error}") from None
    _refuse_values(check, place)
    return check


def _subject(value: Any, place: str) -> Subject:
    try:
        return Subject(value)
    except ValueError:
        known = ", ".join(Subject)
        raise errors.InputError(f"{place}: check: {value!r}: expected one of {known}") from None


def _refuse_values(check: Check, place: str) -> None:
    if check.check in IN_JOBS and not check.image:
        raise errors.InputError(
            f"{place}: image is missing: {check.check} runs in a Job on the node"
        )
    if check.check is Subject.DCGM and not 1 <= check.level <= 4:
        raise errors.InputError(f"{place}: level: {check.level}: dcgmi diag has levels 1 to 4")
    if check.check is Subject.NCCL and check.min_gigabytes_per_second <= 0:
        raise errors.InputError(
            f"{place}: minGigabytesPerSecond: expected a number above 0, such as 150"
        )
    counts = (Subject.GPU_COUNT, Subject.ALLOCATABLE)
    if check.check in counts and check.expect and not check.expect.isdecimal():
        raise errors.InputError(f"{place}: expect: {check.expect!r}: expected a number of GPUs")


def _refuse_twice(checks: list[Check], name: str) -> None:
    seen: set[Subject] = set()
    for at, check in enumerate(checks):
        if check.check in seen:
            raise errors.InputError(f"{name}: checks[{at}]: {check.check} stands there twice")
        seen.add(check.check)
