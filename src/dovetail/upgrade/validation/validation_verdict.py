"""Judges whether a node may take work again: valid, not yet, or invalid, with a reason for each check.

Given the checks, the node's facts, its record from before, the target and how long the node has had. What may still
come is waited for until the time is over. A check that cannot be judged is listed, and holds the node back where it is
required. Never unfences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from dovetail.answer.partitioning import partition_nodes
from dovetail.kubetypes.custom import stack_upgrades
from dovetail.quantity import dotted_versions
from dovetail.upgrade.validation.validation_checks import Check, Checks, Subject
from dovetail.upgrade.validation.validation_facts import Baseline, NodeFacts


class Reason(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a check does not pass: what it needs, what is there, what to do."""

    check: str
    need: str
    have: str
    next: str

    def __str__(self) -> str:
        return f"{self.check}: needs {self.need}; has {self.have}; next: {self.next}"


class Valid(msgspec.Struct, frozen=True, tag="valid", rename="camel"):
    """Work may return. `unknown` lists checks that nothing could judge."""

    unknown: tuple[Reason, ...] = ()


class NotYet(msgspec.Struct, frozen=True, tag="notYet", rename="camel"):
    """Something may still come."""

    missing: tuple[Reason, ...]


class Invalid(msgspec.Struct, frozen=True, tag="invalid", rename="camel"):
    """The node stays fenced."""

    reasons: tuple[Reason, ...]


Verdict = Valid | NotYet | Invalid


class _Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is judged by."""

    baseline: Baseline | None
    target: Mapping[str, str]
    geometry: Mapping[str, int] | None  # partitions that the node is to have, by profile


class _Waits(msgspec.Struct, frozen=True):
    reason: Reason


class _Fails(msgspec.Struct, frozen=True):
    reason: Reason


class _Unknown(msgspec.Struct, frozen=True):
    reason: Reason


_Outcome = _Waits | _Fails | _Unknown | None  # None: passed
_Judge = Callable[[Check, NodeFacts, _Expected], _Outcome]


def validate(
    checks: Checks,
    facts: NodeFacts,
    *,
    baseline: Baseline | None,
    target: Mapping[str, str],
    waited_seconds: float,
    geometry: Mapping[str, int] | None = None,
) -> Verdict:
    """The verdict. `target` has versions by part, such as driver; parts that stay are not in it.

    With a geometry, its partitions are what slices and the device plugin have to show, not what was there before.
    """
    expected = _Expected(baseline=baseline, target=target, geometry=geometry)
    failed: list[Reason] = []
    missing: list[Reason] = []
    unknown: list[Reason] = []
    for check in checks.checks:
        match _JUDGES[check.check](check, facts, expected):
            case _Fails(reason):
                failed.append(reason)
            case _Waits(reason):
                missing.append(reason)
            case _Unknown(reason) if check.is_required:
                missing.append(reason)
            case _Unknown(reason):
                unknown.append(reason)
            case None:
                pass
    if failed:
        return Invalid(tuple(failed))
    if missing and waited_seconds >= checks.settle_seconds:
        return Invalid(tuple(missing))
    return NotYet(tuple(missing)) if missing else Valid(tuple(unknown))


def _gpu_count(check: Check, facts: NodeFacts, expected: _Expected) -> _Outcome:
    if expected.geometry is not None:
        return None  # slices count partitions then, and these are compared one by one
    count = _count_expected(check, expected.baseline.gpus if expected.baseline else None)
    if count is None:
        return _nothing_recorded(check, f"{facts.gpus} GPUs")
    if facts.gpus == count:
        return None
    return _Waits(
        _reason(
            check,
            need=f"{count} GPUs",
            have=f"{facts.gpus}",
            next_=f"kubectl describe node {facts.node}; look for Xid 79 and lost GPUs",
        )
    )


def _driver(check: Check, facts: NodeFacts, expected: _Expected) -> _Outcome:
    before = expected.baseline.driver if expected.baseline is not None else ""
    need = check.expect or expected.target.get("driver", "") or before
    if not need:
        return _nothing_recorded(check, str(facts.driver))
    if not facts.driver.is_known:
        return _Waits(_version_reason(check, need, f"unknown ({facts.driver.unknown})", facts.node))
    have = facts.driver.value
    if _is_same(have, need):
        return None
    reason = _version_reason(check, need, have, facts.node)
    is_still_old = _is_same(have, before) if before else False
    return _Waits(reason) if is_still_old else _Fails(reason)


def _toolkit(check: Check, facts: NodeFacts, expected: _Expected) -> _Outcome:
    before = expected.baseline.toolkit if expected.baseline is not None else ""
    need = check.expect or expected.target.get("toolkit", "") or before
    if not need:
        return _nothing_recorded(check, str(facts.toolkit))
    if not facts.toolkit.is_known:
        have = f"unknown ({facts.toolkit.unknown})"
        return _Unknown(_version_reason(check, need, have, facts.node))
    if _is_same(facts.toolkit.value, need):
        return None
    return _Waits(_version_reason(check, need, facts.toolkit.value, facts.node))


def _slice(check: Check, facts: NodeFacts, expected: _Expected) -> _Outcome:
    pool = facts.pool
    had = expected.baseline.devices if expected.baseline is not None else 0
    if not pool.slices and expected.baseline is not None and not had:
        return None  # a node of a device plugin never had any
    if pool.is_whole:
        return _differing(check, facts, expected.geometry, pool.partitions)
    return _Waits(
        _reason(
            check,
            need=f"all {pool.expected or 'the'} slices of the pool's newest generation",
            have=f"{pool.slices} of generation {pool.generation}" if pool.slices else "no slice",
            next_=f"look at the logs of the DRA driver's pod on {facts.node}",
        )
    )


def _allocatable(check: Check, facts: NodeFacts, expected: _Expected) -> _Outcome:
    before = expected.baseline.allocatable if expected.baseline is not None else {}
    if expected.geometry is not None:
        is_published = bool(facts.pool.slices) and not before
        counted = None if is_published else expected.geometry
        return _differing(check, facts, counted, _partitions(facts.allocatable))
    have = sum(facts.allocatable.values())
    recorded = sum(before.values()) if expected.baseline is not None else None
    need = _count_expected(check, recorded)
    if need is None:
        return _nothing_recorded(check, f"{have} of a device plugin")
    if have == need:
        return None
    return _Waits(
        _reason(
            check,
            need=f"{need} allocatable GPUs of a device plugin",
            have=f"{have}",
            next_=f"look at the logs of the device plugin's pod on {facts.node}",
        )
    )


def _differing(
    check: Check,
    facts: NodeFacts,
    geometry: Mapping[str, int] | None,
    partitions: Mapping[str, int],
) -> _Outcome:
    """What differs from the geometry; nothing where none is wanted."""
    if geometry is None or dict(geometry) == dict(partitions):
        return None
    next_ = f"look at the logs of the MIG manager's and the device plugin's pods on {facts.node}"
    return _Waits(_reason(check, need=_text(geometry), have=_text(partitions), next_=next_))


def _partitions(allocatable: Mapping[str, int]) -> dict[str, int]:
    """What a device plugin counts, by profile."""
    return {
        partition_nodes.profile_of(name)
        if name.startswith(partition_nodes.MIG_RESOURCE)
        else stack_upgrades.WHOLE: count
        for name, count in allocatable.items()
    }


def _text(partitions: Mapping[str, int]) -> str:
    counts = sorted(partitions.items())
    return ", ".join(f"{count} x {profile}" for profile, count in counts) or "no partition"


def _prepare(check: Check, facts: NodeFacts, _: _Expected) -> _Outcome:
    answer = facts.rehearsal
    need = "the node agent's word that it could prepare a claim"
    if answer is None:
        next_ = "nothing, where another driver than Dovetail's node agent serves the node"
        return _Unknown(_reason(check, need=need, have="no answer", next_=next_))
    if answer.result == "ok":
        return None
    next_ = f"look at the logs of the node agent on {facts.node}"
    have = f"{answer.result}: {answer.message}"
    return _Fails(_reason(check, need=need, have=have, next_=next_))


def _in_job(check: Check, facts: NodeFacts, _: _Expected) -> _Outcome:
    is_dcgm = check.check is Subject.DCGM
    bound = check.min_gigabytes_per_second
    need = f"dcgmi diag -r {check.level} to pass" if is_dcgm else f"{bound:g} GB/s or more"
    result = facts.jobs.get(check.check)
    if result is None:
        next_ = "wait for the Job on the node"
        return _Waits(_reason(check, need=need, have="no result", next_=next_))
    next_ = f"drain {facts.node} for good and test it by hand"
    if not result.is_ok:
        return _Fails(_reason(check, need=need, have=result.message, next_=next_))
    speed = result.gigabytes_per_second
    if not is_dcgm and (speed is None or speed < bound):
        return _Fails(_reason(check, need=need, have=f"{speed:g} GB/s", next_=next_))
    return None


_JUDGES: Final[Mapping[Subject, _Judge]] = {
    Subject.GPU_COUNT: _gpu_count,
    Subject.DRIVER: _driver,
    Subject.TOOLKIT: _toolkit,
    Subject.SLICE: _slice,
    Subject.ALLOCATABLE: _allocatable,
    Subject.PREPARE: _prepare,
    Subject.DCGM: _in_job,
    Subject.NCCL: _in_job,
}


def _count_expected(check: Check, recorded: int | None) -> int | None:
    return int(check.expect) if check.expect else recorded


def _is_same(have: str, need: str) -> bool:
    """Numerically: a slice cannot spell the leading zero of 580.95.05."""
    if dotted_versions.is_version(have) and dotted_versions.is_version(need):
        return dotted_versions.compare(have, need) == 0
    return have == need


def _nothing_recorded(check: Check, have: str) -> _Unknown:
    next_ = "state `expect` in the check, or record the node before the upgrade"
    return _Unknown(_reason(check, need="a value to compare with", have=have, next_=next_))


def _version_reason(check: Check, need: str, have: str, node: str) -> Reason:
    next_ = f"look at the {check.check} pod on {node}"
    return _reason(check, need=f"{check.check} {need}", have=have, next_=next_)


def _reason(check: Check, *, need: str, have: str, next_: str) -> Reason:
    return Reason(check=check.check, need=need, have=have, next=next_)
