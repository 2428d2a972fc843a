"""A cluster that a dashboard looks at: its HTTP interface answers, nothing is worked out here.

Given the dashboard's address and a token. A dashboard follows its cluster, so each answer is its newest; `now` is the
time of the latest. It shows what the token's user may see. What it does not offer is refused, never guessed. Never
changes anything.
"""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from dovetail import errors
from dovetail.answer.capacity.room_left import Capacity
from dovetail.answer.what_if.what_if_answer import Answer as WhatIf
from dovetail.answer.when import Expectation
from dovetail.answer.why.why_answer import Why
from dovetail.ask import right_size_asked, shapes_asked
from dovetail.ports import failures
from dovetail.sdk import given_work, http_json
from dovetail.sdk.answer_source import Documents, Tree, Wanted
from dovetail.sdk.change_list import VERBS, WORK, Changes
from dovetail.tables.gpus import gpu_tiles
from dovetail.tables.items.claim_items import ClaimItem
from dovetail.tables.items.device_items import DeviceItem
from dovetail.tables.items.gpu_items import GpuNodeItem
from dovetail.tables.items.node_items import NodeItem
from dovetail.tables.items.pod_items import PodItem
from dovetail.tables.items.queue_items import QueueItem
from dovetail.tables.work.gpu_holdings import UsageRow
from dovetail.tables.work.work_items import WorkItem

T = TypeVar("T")
PAGE: Final = 5000  # items, the most of one page
MOST_PAGES: Final = 1000
PENDING: Final = "Pending"


class _Session(msgspec.Struct, frozen=True, rename="camel"):
    cluster: str = ""
    as_of: datetime.datetime | None = None


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    items: list[Any]
    next: str | None = None
    as_of: datetime.datetime | None = None


class _FleetGpu(msgspec.Struct, frozen=True):
    state: str


class _FleetNode(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    gpus: tuple[_FleetGpu, ...]
    type: str = ""
    pool: str = ""
    rack: str = ""
    clique: str = ""
    memory_bytes: int | None = None


class _Fleet(msgspec.Struct, frozen=True, rename="camel"):
    nodes: tuple[_FleetNode, ...]
    as_of: datetime.datetime | None = None


class Dashboard:
    """The source of `Cluster.connect(url=...)`."""

    def __init__(self, url: str, token: str | None) -> None:
        self._connection = http_json.Connection(url, token)
        self._now = datetime.datetime.now(datetime.UTC)
        self._cluster = ""
        self.refresh()

    @property
    def name(self) -> str:
        return f"{self._cluster} (dashboard {self._connection.address})"

    @property
    def now(self) -> datetime.datetime:
        return self._now

    @property
    def namespace(self) -> str:
        return "default"

    @property
    def problems(self) -> tuple[str, ...]:
        return ()

    def refresh(self) -> None:
        """The dashboard reads by itself; this only asks how far it is."""
        session = _converted(self._connection.get("/session"), _Session)
        self._cluster = session.cluster
        self._note(session.as_of)

    # Tables

    def gpus(self, wanted: Wanted) -> tuple[list[GpuNodeItem], Documents]:
        _refuse_labels(wanted)
        fleet = _converted(self._connection.get("/fleet", {"node": wanted.node}), _Fleet)
        self._note(fleet.as_of)
        named = [node for node in fleet.nodes if wanted.node in (None, node.name)]
        return [_gpu_node(node) for node in named], _no_objects

    def devices(self, wanted: Wanted) -> tuple[list[DeviceItem], Documents]:
        _refuse_labels(wanted)
        return self._listed("/devices", {"node": wanted.node}, DeviceItem), _no_objects

    def nodes(self, wanted: Wanted) -> tuple[list[NodeItem], Documents]:
        _unsupported("nodes(): gpus() has those with GPUs")

    def pods(self, wanted: Wanted) -> tuple[list[PodItem], Documents]:
        params = {
            "namespace": wanted.namespace,
            "node": wanted.node,
            "labels": wanted.labels or None,
        }
        return self._listed("/pods", params, PodItem), _no_objects

    def claims(self, wanted: Wanted) -> tuple[list[ClaimItem], Documents]:
        if wanted.node is not None:
            _unsupported("claims of one node; filter by devices instead")
        return self._listed("/claims", {"namespace": wanted.namespace}, ClaimItem), _no_objects

    def queues(self, wanted: Wanted) -> tuple[list[QueueItem], Documents]:
        return self._listed("/queues", {}, QueueItem), _no_objects

    # Questions

    def work(self, wanted: Wanted) -> list[WorkItem]:
        params = {"namespace": wanted.namespace, "labels": wanted.labels or None}
        return self._listed("/workloads", params, WorkItem)

    def usage(self, by: Sequence[str], wanted: Wanted) -> tuple[list[UsageRow], float]:
        _unsupported("usage(): its overview counts GPUs that are touched, not how much of each")

    def why(self, name: str, namespace: str) -> Why:
        kind, _, object_name = name.rpartition("/")
        parts = [
            urllib.parse.quote(part, safe="") for part in (namespace, kind or "pod", object_name)
        ]
        return _converted(self._connection.get("/why/" + "/".join(parts)), Why)

    def why_waiting(self, namespace: str | None) -> list[Why]:
        """One question for each pod that waits."""
        pods, _ = self.pods(Wanted(namespace))
        waiting = [pod for pod in pods if pod.status == PENDING and not pod.node]
        return [self.why(f"pod/{pod.name}", pod.namespace) for pod in waiting]

    def when(self, name: str | None, namespace: str | None) -> list[Expectation]:
        return self._listed("/when", {"name": name, "namespace": namespace}, Expectation)

    def what_if(
        self,
        changes: Changes,
        *,
        namespace: str,
        horizon: str,
        prices: Mapping[str, Fraction] | None,
    ) -> WhatIf:
        body = _body_of(changes)
        body |= {"horizon": horizon, "namespace": namespace}
        body["prices"] = {name: _decimal(price) for name, price in (prices or {}).items()}
        return _converted(self._connection.post("/what-if", body), WhatIf)

    def right_sizes(
        self, recorded: right_size_asked.RecordedWork, prices: Mapping[str, Fraction] | None
    ) -> NoReturn:
        _unsupported("right sizes: read the cluster itself")

    def capacity(self, shape: shapes_asked.ShapeAsked, *, gang: int | None, level: str) -> Capacity:
        if shape.like:
            _unsupported("capacity(like=...): describe the shape")
        params: dict[str, str | int | None] = {
            "gpus": shape.gpus,
            "type": shape.gpu_type or None,
            "mig": shape.mig or None,
            "gpuMemory": shape.gpu_memory or None,
            "cpu": shape.cpu or None,
            "memory": shape.memory or None,
            "queue": shape.queue or None,
            "priority": shape.priority or None,
            "gang": gang,
            "level": level or None,
            "namespace": shape.namespace,
        }
        return _converted(self._connection.get("/capacity", params), Capacity)

    # Inside

    def _listed(self, path: str, params: http_json.Params, item: type[T]) -> list[T]:
        """All pages of a list."""
        items: list[T] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            answer = self._connection.get(path, {**params, "limit": PAGE, "cursor": cursor})
            page = _converted(answer, _Page)
            items += _converted(page.items, list[item])  # type: ignore[valid-type]
            self._note(page.as_of)
            cursor = page.next
            if cursor is None:
                return items
        raise failures.Unavailable(f"{path}: the list has no end after {MOST_PAGES} pages")

    def _note(self, as_of: datetime.datetime | None) -> None:
        if as_of is not None:
            self._now = as_of


def _gpu_node(node: _FleetNode) -> GpuNodeItem:
    states = tuple(gpu.state for gpu in node.gpus)
    return GpuNodeItem(
        node=node.name,
        gpu=node.type,
        gpus=len(states),
        free=states.count(gpu_tiles.FREE),
        tiles="".join(gpu_tiles.TILES.get(state, "?") for state in states),
        states=states,
        memory_bytes=node.memory_bytes or 0,
        pool=node.pool,
        clique=node.clique,
        rack=node.rack,
    )


def _body_of(changes: Changes) -> dict[str, Any]:
    """The changes as a dashboard takes them: by verb, in the order of VERBS, manifests last."""
    order = (*VERBS, WORK)
    positions = [order.index(verb) for verb, _ in changes]
    if positions != sorted(positions):
        _unsupported(f"changes in another order than {', '.join(order)}")
    body: dict[str, Any] = {
        verb: [text for each, text in changes if each == verb] for verb in VERBS
    }
    given = [work for verb, work in changes if verb == WORK]
    texts = [
        content.decode(errors="replace")
        for number, work in enumerate(given, start=1)
        for _, content in given_work.contents(work, given_work.name_of(work, number))
    ]
    body["manifest"] = "\n---\n".join(texts)
    return body


def _decimal(price: Fraction) -> str:
    return f"{float(price):.12g}"


def _converted(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise failures.Unavailable(
            f"the dashboard's answer is not one that this version understands: {error}"
        ) from None


def _refuse_labels(wanted: Wanted) -> None:
    if wanted.labels:
        _unsupported("labels of nodes; filter the rows instead")


def _unsupported(what: str) -> NoReturn:
    raise errors.InputError(f"a dashboard does not offer {what}")


def _no_objects(rows: Sequence[Any]) -> list[Tree]:
    _unsupported("the Kubernetes objects behind rows")
