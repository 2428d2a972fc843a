"""A cluster in which work arrives, runs for its true time and ends: for stories about promises."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from dovetail.answer import simulate
from dovetail.model import gangs, plan, policy, workload_annotations
from dovetail.world.events import Object
from tests.schedule import build

NOON = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "owner",
    "uid": "owner",
    "controller": True,
}


class Work(NamedTuple):
    """Pods of one gang, with what they say and what is true."""

    name: str
    pods: int
    gpus: int
    seconds: int | None  # the truth; None: it never ends
    states: int | None  # what it says
    at: int = 0  # minutes after noon
    priority: int = 0
    most: int | None = None
    queue: str = ""
    is_bounded: bool = True  # what it says is also the longest it may take, unless it names another; else nothing is


def after(minutes: float) -> datetime.datetime:
    """So long after noon."""
    return NOON + datetime.timedelta(minutes=minutes)


def facts_of(work: Work) -> list[Object]:
    """The pods of a work and their claims."""
    objects: list[Object] = []
    labels: dict[str, str] = {}
    if work.pods > 1:
        labels = {gangs.GANG_LABEL: work.name, gangs.MIN_LABEL: str(work.pods)}
    if work.queue:
        labels[gangs.QUEUE_LABEL] = work.queue
    notes: dict[str, str] = {}
    if work.states is not None:
        notes[workload_annotations.EXPECTED_RUNTIME] = str(work.states)
    most = work.states if work.most is None and work.is_bounded else work.most
    if most is not None:
        notes[workload_annotations.MAX_RUNTIME] = str(most)
    for number in range(work.pods):
        name = f"{work.name}-{number}"
        metadata: dict[str, Any] = {
            "labels": labels,
            "annotations": notes,
            "ownerReferences": [OWNER],
        }
        stamp = after(work.at).strftime("%Y-%m-%dT%H:%M:%SZ")
        uses = (name,) if work.gpus else ()
        objects += [build.claim(name, work.gpus)] if work.gpus else []
        objects.append(
            build.pod(name, uses=uses, priority=work.priority, metadata=metadata, created=stamp)
        )
    return objects


class TimedCluster:
    """The course of a cluster, in minutes after noon."""

    def __init__(self, *facts: Object, nodes: int = 1, gpus: int = 4, promises: int = 4) -> None:
        self._truth: dict[str, int | None] = {}
        self.promised: dict[str, list[plan.Promise]] = {}
        self.hours: dict[
            str, list[float]
        ] = {}  # of each promise, when it was made, in minutes after noon
        self.turns: dict[str, list[int]] = {}  # of each promise, the decision that made it
        machines: list[Object] = [build.gpu_class()]
        for index in range(nodes):
            machines += [build.node(f"n{index}"), build.gpu_slice(f"n{index}", gpus)]
        self.course = simulate.Simulation(
            [*machines, *facts],
            policy.Policy(batch=policy.Batch(promises=promises)),
            NOON,
            seconds=self._seconds,
            decided=self._decided,
        )

    def _seconds(self, gang: gangs.Gang, by_queue: int | None) -> int | None:
        return self._truth[short(gang.metadata.name)]

    def _decided(self, decided: plan.Plan, now: datetime.datetime) -> None:
        for promise in decided.promises:
            self.promised.setdefault(short(promise.gang.name), []).append(promise)
            self.hours.setdefault(short(promise.gang.name), []).append(
                (now - NOON).total_seconds() / 60
            )
            self.turns.setdefault(short(promise.gang.name), []).append(self.course.turns)

    def arrive(self, *works: Work) -> TimedCluster:
        """They arrive at their times; in between the cluster goes on."""
        for work in sorted(works, key=lambda item: item.at):
            if after(work.at) > self.course.now:
                self.course.run(after(work.at))
            self._truth[work.name] = work.seconds
            self.course.submit(*facts_of(work))
        return self

    def go_on(self, until: float | None = None) -> TimedCluster:
        self.course.run(None if until is None else after(until))
        return self

    def lose(self, node: str) -> TimedCluster:
        """A node is gone, with all that ran there."""
        world = self.course.world
        for id_, (where, _) in [*world.running().items()]:
            if where == node:
                self.course.end(id_)
        self.course.withdraw(world.nodes[node])
        return self

    def started(self, name: str) -> float | None:
        """Minutes after noon."""
        for key, item in self.course.started.items():
            if short(key[1]) == name:
                return (item.at - NOON).total_seconds() / 60
        return None

    def starts(self, name: str) -> list[float]:
        """The hours promised to a work, one after the other, in minutes after noon."""
        result: list[float] = []
        for item in self.promised.get(name, ()):
            assert item.start is not None, item.cause
            minutes = (item.start - NOON).total_seconds() / 60
            if not result or result[-1] != minutes:
                result.append(minutes)
        return result

    def devices(self, name: str) -> set[str]:
        return {device for seat in self.promised[name][-1].seats for device in seat.devices}


def short(name: str) -> str:
    """A work by the name of its gang."""
    source, _, rest = name.partition("/")
    return rest.rsplit("-", 1)[0] if source == "pod" else rest
