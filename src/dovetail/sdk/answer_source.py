"""What `Cluster` asks, wherever the cluster is: the objects themselves, or a dashboard that looks at them.

Two sources implement it: `read_cluster.ReadCluster` and `dashboard.Dashboard`. Results are plain structs; `Cluster`
shows them. A source may be used by several threads.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from dovetail.answer.capacity.room_left import Capacity
    from dovetail.answer.right_size.right_size_answer import Answer as RightSizes
    from dovetail.answer.what_if.what_if_answer import Answer as WhatIf
    from dovetail.answer.when import Expectation
    from dovetail.answer.why.why_answer import Why
    from dovetail.ask.right_size_asked import RecordedWork
    from dovetail.ask.shapes_asked import ShapeAsked
    from dovetail.sdk.change_list import Changes
    from dovetail.tables.items.claim_items import ClaimItem
    from dovetail.tables.items.device_items import DeviceItem
    from dovetail.tables.items.gpu_items import GpuNodeItem
    from dovetail.tables.items.node_items import NodeItem
    from dovetail.tables.items.pod_items import PodItem
    from dovetail.tables.items.queue_items import QueueItem
    from dovetail.tables.work.gpu_holdings import UsageRow
    from dovetail.tables.work.work_items import WorkItem

Tree = dict[str, Any]
Documents = Callable[[Sequence[Any]], list[Tree]]  # the objects behind some of the rows


class Wanted(NamedTuple):
    """Which rows of a list are asked for. No namespace means all of them."""

    namespace: str | None = None
    node: str | None = None
    labels: str = ""


class Source(Protocol):
    """Where answers come from."""

    @property
    def name(self) -> str: ...
    @property
    def now(self) -> datetime.datetime: ...
    @property
    def namespace(self) -> str: ...
    @property
    def problems(self) -> tuple[str, ...]: ...

    def refresh(self) -> None: ...

    def gpus(self, wanted: Wanted) -> tuple[list[GpuNodeItem], Documents]: ...
    def devices(self, wanted: Wanted) -> tuple[list[DeviceItem], Documents]: ...
    def nodes(self, wanted: Wanted) -> tuple[list[NodeItem], Documents]: ...
    def pods(self, wanted: Wanted) -> tuple[list[PodItem], Documents]: ...
    def claims(self, wanted: Wanted) -> tuple[list[ClaimItem], Documents]: ...
    def queues(self, wanted: Wanted) -> tuple[list[QueueItem], Documents]: ...

    def work(self, wanted: Wanted) -> list[WorkItem]: ...
    def usage(self, by: Sequence[str], wanted: Wanted) -> tuple[list[UsageRow], float]: ...
    def why(self, name: str, namespace: str) -> Why: ...
    def why_waiting(self, namespace: str | None) -> list[Why]: ...
    def when(self, name: str | None, namespace: str | None) -> list[Expectation]: ...
    def what_if(
        self,
        changes: Changes,
        *,
        namespace: str,
        horizon: str,
        prices: Mapping[str, Fraction] | None,
    ) -> WhatIf: ...
    def capacity(self, shape: ShapeAsked, *, gang: int | None, level: str) -> Capacity: ...
    def right_sizes(
        self, recorded: RecordedWork, prices: Mapping[str, Fraction] | None
    ) -> RightSizes: ...
