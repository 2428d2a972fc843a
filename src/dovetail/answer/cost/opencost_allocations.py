"""The account in the form of OpenCost's allocation API, for programs that read that already.

Given records and the parameters of a request. One map of rows per step; GPU figures are ours, those of CPU, memory and
so on are zero because they are not recorded. Values have five decimals. What GPUs cost while no work held them is
`__idle__`, as a row or shared among rows by their cost. Never rounds before the end.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.answer.cost import cost_keys, cost_ledger, cost_window
from dovetail.answer.cost.cost_ledger import CURRENCY, GPU_HOUR, Key, Line, Row
from dovetail.answer.cost.cost_window import Window, moment_of
from dovetail.model.accounting import records

DIGITS: Final = 5
DEFAULT_KEYS: Final = "cluster,node,namespace,pod"
# OpenCost's names for common labels, with its default labels, and ours for its keys.
_ALIASES: Final = {
    "department": "label:department",
    "environment": "label:env",
    "owner": "label:owner",
    "product": "label:app",
    "team": "label:team",
    "gpuType": "product",
}
_NODE_MARK: Final = "node of idle"
_STATE_MARKS: Final = ("free or held", "shown or not")
_MARKS: Final = (_NODE_MARK, *_STATE_MARKS)
_WORK: Final = "work"
_SHOWN: Final = "shown"
_LEFT_OUT: Final = "left out"
_NOT_RECORDED: Final = ("container", "service", "annotation:")


class Properties(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the allocations of a row have in common."""

    cluster: str = ""
    node: str = ""
    namespace: str = ""
    controller: str = ""
    controllerKind: str = ""
    pod: str = ""
    labels: dict[str, str] = {}


class AllocationWindow(msgspec.Struct, frozen=True):
    """The step of a row."""

    start: datetime.datetime
    end: datetime.datetime


class GpuAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs a row is about, as far as they are alike."""

    GPUDevice: str = ""
    GPUModel: str = ""
    GPUUUID: str = ""
    IsGPUShared: bool = False
    GPUUsageAverage: float | None = None
    GPURequestAverage: float = 0.0


class AllocationItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One row, with OpenCost's fields."""

    name: str
    properties: Properties
    window: AllocationWindow
    start: datetime.datetime
    end: datetime.datetime
    minutes: float
    cpu_cores: float = 0.0
    cpu_core_request_average: float = 0.0
    cpu_core_usage_average: float = 0.0
    cpu_core_hours: float = 0.0
    cpu_cost: float = 0.0
    cpu_cost_adjustment: float = 0.0
    cpu_cost_idle: float = 0.0
    cpu_efficiency: float = 0.0
    gpu_count: float = 0.0
    gpu_hours: float = 0.0
    gpu_cost: float = 0.0
    gpu_cost_adjustment: float = 0.0
    gpu_cost_idle: float = 0.0
    gpu_efficiency: float | None = None  # None: not measured
    gpu_allocation: GpuAllocation = GpuAllocation()
    network_transfer_bytes: float = 0.0
    network_receive_bytes: float = 0.0
    network_cost: float = 0.0
    network_cross_zone_cost: float = 0.0
    network_cross_region_cost: float = 0.0
    network_internet_cost: float = 0.0
    network_cost_adjustment: float = 0.0
    load_balancer_cost: float = 0.0
    load_balancer_cost_adjustment: float = 0.0
    pv_bytes: float = 0.0
    pv_byte_hours: float = 0.0
    pv_cost: float = 0.0
    pvs: None = None
    pv_cost_adjustment: float = 0.0
    ram_bytes: float = 0.0
    ram_byte_request_average: float = 0.0
    ram_byte_usage_average: float = 0.0
    ram_byte_hours: float = 0.0
    ram_cost: float = 0.0
    ram_cost_adjustment: float = 0.0
    ram_cost_idle: float = 0.0
    ram_efficiency: float = 0.0
    external_cost: float = 0.0
    shared_cost: float = 0.0
    total_cost: float = 0.0
    total_efficiency: float | None = None
    raw_allocation_only: None = None
    partial: tuple[str, ...] = ()  # ours: why the figures are not complete


class AllocationReply(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenCost answers."""

    code: int
    data: tuple[dict[str, AllocationItem], ...]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are formed, beyond what is asked of the account."""

    include_idle: bool = False
    share_idle: bool = False
    idle_by_node: bool = False
    accumulate_by: str = ""  # empty: every step for itself


def keys_of(aggregate: str) -> cost_keys.Keys:
    """The keys of OpenCost's parameter. Raises InputError for those that are not recorded."""
    words = [word.strip() for word in (aggregate or DEFAULT_KEYS).split(",") if word.strip()]
    for word in words:
        if word.startswith(_NOT_RECORDED):
            raise errors.InputError(
                f'aggregate: "{word[:80]}" is not recorded; known: {", ".join(cost_keys.NAMES)}'
            )
    return cost_keys.parse([_ALIASES.get(word, word) for word in words])


def allocations(account: cost_ledger.Ledger, shape: Shape, now: records.Millis) -> AllocationReply:
    """The rows of every step, or of the steps together, of the account of a marked question."""
    steps = tuple(step.window for step in account.steps)
    buckets: list[tuple[Window, tuple[int, ...]]] = [
        (step, (index,)) for index, step in enumerate(steps)
    ]
    if shape.accumulate_by:
        buckets = list(cost_window.buckets(steps, shape.accumulate_by))
    data = []
    for window, indexes in buckets:
        rows: dict[Key, _Sum] = {}
        for index in indexes:
            _add_step(rows, account.steps[index], account.subjects, shape)
        named = {_name(key): summed for key, summed in sorted(rows.items())}
        data.append({name: _item(name, summed, window, now) for name, summed in named.items()})
    return AllocationReply(code=200, data=tuple(data))


class _Sum:
    """A row, what it is about, and what was shared onto it."""

    def __init__(self, *, is_idle: bool) -> None:
        self.row = Row()
        self.subjects: list[cost_keys.Subject] = []
        self.shared_idle = Fraction(0)
        self.is_idle = is_idle


def marked(question: cost_ledger.Question, shape: Shape) -> cost_ledger.Question:
    """The same question with three keys more: the node, free or held, and whether the row is shown.

    Idle is shared among all rows, also those that a filter or missing rights leave out.
    """
    keep = question.keep

    def mark(subject: cost_keys.Subject) -> str:
        return _SHOWN if keep is None or keep(subject) else _LEFT_OUT

    def kind(subject: cost_keys.Subject) -> str:
        return cost_keys.IDLE if subject.owner is None else _WORK

    def node(subject: cost_keys.Subject) -> str:
        return _node(subject) if shape.idle_by_node else ""

    keys = cost_keys.Keys(
        (*question.keys.names, *_MARKS),
        (*question.keys.reads, node, kind, mark),
        computed=frozenset(_STATE_MARKS if shape.idle_by_node else _MARKS),
    )
    return question._replace(keys=keys, keep=None)


def _add_step(
    rows: dict[Key, _Sum],
    step: cost_ledger.Step,
    subjects: Mapping[Key, Sequence[cost_keys.Subject]],
    shape: Shape,
) -> None:
    """Adds the rows of one step; free capacity as rows of its own, shared among the others, or not at all."""
    idle: dict[str, int] = {}  # by node, or of all
    work: dict[str, int] = {}
    for key, row in step.rows.items():
        node, kind, _ = key[-len(_MARKS) :]
        sums = idle if kind == cost_keys.IDLE else work
        group = node if shape.idle_by_node else ""
        sums[group] = sums.get(group, 0) + sum(row.money)
    for key, row in step.rows.items():
        node, kind, mark = key[-len(_MARKS) :]
        is_idle = kind == cost_keys.IDLE
        group = node if shape.idle_by_node else ""
        is_waiting = not any(row.gpu_time)
        if mark != _SHOWN or is_waiting or (is_idle and not _has_idle_rows(shape)):
            continue
        name = key[: -len(_MARKS)]
        if is_idle:
            name = (group, cost_keys.IDLE) if group else (cost_keys.IDLE,)
        summed = rows.setdefault(name, _Sum(is_idle=is_idle))
        summed.row.merge(row)
        summed.subjects += subjects[key]
        if shape.share_idle and work.get(group):
            summed.shared_idle += Fraction(idle.get(group, 0) * sum(row.money), work[group])


def _has_idle_rows(shape: Shape) -> bool:
    return shape.include_idle and not shape.share_idle


def _name(key: Key) -> str:
    return "/".join(key) or "all"


def _item(name: str, summed: _Sum, window: Window, now: records.Millis) -> AllocationItem:
    row = summed.row
    known = window.until(max(now, window.start + 1))
    hours = known.hours
    gpu_hours = sum(row.gpu_time) / GPU_HOUR
    cost = float((sum(row.money) + summed.shared_idle) / CURRENCY)
    measured = row.gpu_time[Line.USED] + row.gpu_time[Line.IDLE]
    efficiency = row.gpu_time[Line.USED] / measured if measured else None
    count = gpu_hours / hours if hours else 0.0
    return AllocationItem(
        name=name,
        properties=_properties(summed),
        window=AllocationWindow(moment_of(window.start), moment_of(window.end)),
        start=moment_of(window.start),
        end=moment_of(known.end),
        minutes=_rounded(hours * 60),
        gpu_count=_rounded(count),
        gpu_hours=_rounded(gpu_hours),
        gpu_cost=_rounded(cost),
        gpu_cost_idle=_rounded(float(summed.shared_idle / CURRENCY)),
        gpu_efficiency=None if efficiency is None else _rounded(efficiency),
        gpu_allocation=_gpu(summed, count, efficiency),
        total_cost=_rounded(cost),
        total_efficiency=None if efficiency is None else _rounded(efficiency),
        partial=tuple(sorted(row.reasons)),
    )


def _properties(summed: _Sum) -> Properties:
    first = summed.subjects[0]
    if summed.is_idle:
        return Properties(
            cluster=first.cluster, node=_common(_node(each) for each in summed.subjects)
        )
    owners = [each.owner for each in summed.subjects if each.owner is not None]
    labels = dict(sorted(_all_labels(owners)))
    return Properties(
        cluster=first.cluster,
        node=_common(_node(each) for each in summed.subjects),
        namespace=_common(owner.namespace for owner in owners),
        controller=_common(owner.controller for owner in owners),
        controllerKind=_common(owner.controller_kind.lower() for owner in owners),
        pod=_common(owner.pod for owner in owners),
        labels=labels,
    )


def _all_labels(owners: Sequence[records.Owner]) -> set[tuple[str, str]]:
    """The labels that all have."""
    common = set(owners[0].labels.items())
    for owner in owners[1:]:
        common &= owner.labels.items()
    return common


def _gpu(summed: _Sum, count: float, efficiency: float | None) -> GpuAllocation:
    assets = [each.asset for each in summed.subjects if each.asset is not None]
    forms = [each.allocation.form for each in summed.subjects if each.allocation is not None]
    is_shared = any(form in (records.Form.SHARE, records.Form.REPLICA) for form in forms)
    return GpuAllocation(
        GPUModel=_common(asset.product for asset in assets),
        GPUUUID=_common(asset.asset for asset in assets),
        IsGPUShared=is_shared,
        GPUUsageAverage=None if efficiency is None else _rounded(efficiency * count),
        GPURequestAverage=_rounded(count),
    )


def _node(subject: cost_keys.Subject) -> str:
    return "" if subject.asset is None else subject.asset.node


def _common(values: Any) -> str:
    """What all values are, or nothing."""
    different = set(values)
    return str(different.pop()) if len(different) == 1 else ""


def _rounded(value: float) -> float:
    return round(value, DIGITS)
