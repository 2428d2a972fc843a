"""Results that several resources are made of, computed once per version for all users.

Given a question. What takes long on a large cluster is also kept over some versions: the longer it took, the longer it
is used again, never beyond a minute. What needs no replica is then made again beside the answers, which go on with the
last result for a while. Never hides anything: that is done for each user.
"""

from __future__ import annotations

import datetime
import logging
import operator
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dovetail.answer import when
from dovetail.answer.capacity import fragmentation, waiting_demand
from dovetail.ask import when_asked
from dovetail.kubetypes import registry
from dovetail.tables import membership
from dovetail.tables.fleet import fleet_memory
from dovetail.tables.items import claim_items, device_items, pod_items, queue_items
from dovetail.tables.timeline import timeline_entries, timelines
from dovetail.tables.work import work_items
from dovetail.web import asked

T = TypeVar("T")

LOG = logging.getLogger("dovetail.dashboard")

QUICK_SECONDS: Final = 0.15  # of processor time: what takes less is computed for every version
TIMES_ITS_COST: Final = 20.0  # for so long a result is used again
LONGEST_SECONDS: Final = 60.0
RENEWED_SECONDS: Final = 120.0  # beyond that an answer waits for a new result
MOST_CLUSTERS: Final = 8  # a process serves one; tests have several


class _Kept(NamedTuple):
    value: Any
    made_at: datetime.datetime
    seconds: float


class _KnownMemberships(NamedTuple):
    tables: tuple[Any, ...]  # of the kinds that they follow from
    value: membership.Memberships


class _Memory:
    """What outlives a version, of one cluster."""

    def __init__(self) -> None:
        self.fleet = fleet_memory.FleetMemory()
        self.kept: dict[str, _Kept] = {}
        self.last_unusable: dict[str, float] | None = None
        self.memberships: _KnownMemberships | None = None
        self._renewing: set[str] = set()

    def made(self, name: str, now: datetime.datetime, make: Callable[[], T]) -> T:
        """What `make` returns; kept if that took long."""
        began = time.thread_time()
        value = make()
        seconds = time.thread_time() - began
        if seconds >= QUICK_SECONDS:
            lasting = min(seconds * TIMES_ITS_COST, LONGEST_SECONDS)
            self.kept[name] = _Kept(value, now, lasting)
        else:
            self.kept.pop(name, None)
        return value

    def renew(self, name: str, now: datetime.datetime, make: Callable[[], Any]) -> None:
        """Makes it on a thread of its own, unless one does already."""
        with _LOCK:
            if name in self._renewing:
                return
            self._renewing.add(name)

        def work() -> None:
            try:
                self.made(name, now, make)
            except Exception:  # the answer that needs it next fails in the open
                LOG.warning("dashboard.renewal.failed", extra={"result": name}, exc_info=True)
                self.kept.pop(name, None)
            finally:
                with _LOCK:
                    self._renewing.discard(name)

        threading.Thread(target=work, name=f"renew {name}", daemon=True).start()


_MEMORIES: dict[str, _Memory] = {}
_LOCK: Final = threading.Lock()


def fleet(question: asked.Asked) -> fleet_memory.FleetMap:
    """The picture of all GPUs."""

    def make() -> fleet_memory.FleetMap:
        memory = _memory(question).fleet
        return memory.at(question.view.objects, question.version, memberships(question))

    return question.memo("fleet", make)


def memberships(question: asked.Asked) -> membership.Memberships:
    """The gang and queue of every pod. Those of the last version, where nothing changed that they follow from."""

    def make() -> membership.Memberships:
        memory, objects = _memory(question), question.view.objects
        kinds = (registry.POD, *membership.KINDS)
        tables = tuple(objects.by_kind.get(kind.unique_name) for kind in kinds)
        known = memory.memberships
        is_same = known is not None and all(map(operator.is_, known.tables, tables))
        if known is None or not is_same:
            known = _KnownMemberships(tables, membership.Memberships(objects))
            memory.memberships = known
        return known.value

    return question.memo("memberships", make)


def pods(question: asked.Asked) -> tuple[pod_items.PodItem, ...]:
    """All pods."""
    objects = question.view.objects
    return question.memo("pods", lambda: pod_items.items_of(objects, memberships(question)))


def claims(question: asked.Asked) -> tuple[claim_items.ClaimItem, ...]:
    """All claims."""
    return question.memo("claims", lambda: claim_items.items_of(question.view.objects))


def devices(question: asked.Asked) -> tuple[device_items.DeviceItem, ...]:
    """All devices."""
    return question.memo("devices", lambda: device_items.items_of(question.view.objects))


def queues(question: asked.Asked) -> tuple[queue_items.QueueItem, ...]:
    """All queues, in tree order."""
    return question.memo("queues", lambda: queue_items.items_of(question.view.objects))


def decided_work(question: asked.Asked) -> tuple[work_items.WorkItem, ...]:
    """All work, as one decision sees it. Asks the engine."""

    def make() -> tuple[work_items.WorkItem, ...]:
        return work_items.decided_items(
            question.replica().world, question.policy, question.view.now
        )

    return question.memo("decided work", make)


def work(question: asked.Asked) -> tuple[work_items.WorkItem, ...]:
    """All work with the starts that are expected. Asks the engine."""

    def make() -> tuple[work_items.WorkItem, ...]:
        items = decided_work(question)
        if not work_items.needs_expectations(items):
            return items
        return work_items.with_expectations(items, expectations(question))

    return question.memo("work", make)


def expectations(question: asked.Asked) -> list[when.Expectation]:
    """When all waiting work starts. Asks the engine, which runs the cluster forward."""
    return _recent(
        question,
        "expectations",
        lambda: when_asked.when(question.view, question.policy),
        is_renewed=True,
    )


def unusable_by_type(question: asked.Asked) -> dict[str, float]:
    """The free GPUs that the observed mix of work cannot use, by type. Asks the engine."""

    def make() -> dict[str, float]:
        replica = question.replica()
        measured = fragmentation.fragmentation(replica, fragmentation.observed_mix(replica))
        world = replica.world
        type_of = {
            fragmentation.type_of(world, node.name): node.type
            for node in fleet(question).nodes
            if node.name in world.nodes
        }
        return {type_of.get(each.name, each.name): each.unusable for each in measured.by_type}

    by_type = _recent(question, "unusable", make)
    _memory(question).last_unusable = by_type
    return by_type


def last_unusable_by_type(question: asked.Asked) -> dict[str, float] | None:
    """What `unusable_by_type` returned last, perhaps of an older version; None before. Takes no time."""
    return _memory(question).last_unusable


def demand(question: asked.Asked) -> list[waiting_demand.Demand]:
    """What waiting pods ask for. Asks the engine."""
    return _recent(question, "demand", lambda: waiting_demand.waiting(question.replica()))


def timeline(question: asked.Asked) -> tuple[timeline_entries.TimelineEntry, ...]:
    """What happened, newest first."""
    objects = question.view.objects
    return question.memo("timeline", lambda: timelines.timeline_of(objects, memberships(question)))


def timeline_of_objects(question: asked.Asked) -> tuple[timeline_entries.TimelineEntry, ...]:
    """What happened as far as objects show it, newest first: for users who may not list events."""
    objects = question.view.objects
    by_kind = {
        kind: table for kind, table in objects.by_kind.items() if kind != registry.EVENT.unique_name
    }
    without = msgspec.structs.replace(objects, by_kind=by_kind)
    return question.memo(
        "timeline of objects", lambda: timelines.timeline_of(without, memberships(question))
    )


def _recent(
    question: asked.Asked, name: str, make: Callable[[], T], *, is_renewed: bool = False
) -> T:
    """What `make` returned a short while ago if that took long, or what it returns now.

    `is_renewed`: it asks for no replica, so that it can be made again while the last result still serves.
    """

    def recall() -> T:
        memory, now = _memory(question), question.view.now
        kept = memory.kept.get(name)
        age_seconds = (now - kept.made_at).total_seconds() if kept is not None else -1.0
        if kept is None or age_seconds < 0:
            return memory.made(name, now, make)
        is_late = age_seconds >= kept.seconds
        if is_late and (not is_renewed or age_seconds >= kept.seconds + RENEWED_SECONDS):
            return memory.made(name, now, make)
        if is_late:
            memory.renew(name, now, make)
        value: T = kept.value
        return value

    return question.memo(name, recall)


def _memory(question: asked.Asked) -> _Memory:
    with _LOCK:
        name = question.view.name
        memory = _MEMORIES.pop(name, None) or _Memory()
        _MEMORIES[name] = memory  # last again
        while len(_MEMORIES) > MOST_CLUSTERS:
            del _MEMORIES[next(iter(_MEMORIES))]
        return memory
