"""Trees of jobs and of queues as the rules tell of them, for the second reading: slow, plain, no code of the engine.

Given a document of one node. Says who is next, what queues are due and hold, and whose turn it is. Never decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Document = dict[str, Any]
Amounts = dict[str, float]
Key = tuple[Any, ...]

ENDLESS = math.inf
RESOURCES = ("gpu", "cpu", "memory")
UNITS = {"gpu": 1.0, "cpu": 0.001, "memory": 1.0}  # the smallest part of a share
START, NOMINATED, TAKEN = "start", "nominated now", "taken"
PLACED = frozenset({"running", "bound", START, NOMINATED})
ON_NODE = ("running", "bound")
HAIR = 1e-9


def together(amounts: Sequence[Amounts]) -> Amounts:
    return {name: sum(amount[name] for amount in amounts) for name in RESOURCES}


class Groups:
    """The trees of jobs, and where pods stand: who is next, who goes first."""

    def __init__(self, document: Document) -> None:
        self.jobs = {job["name"]: job for job in document["jobs"]}
        self.pods = {pod["name"]: pod for job in document["jobs"] for pod in job["pods"]}
        self.job_of = {pod["name"]: job["name"] for job in document["jobs"] for pod in job["pods"]}
        self.state = {name: pod["state"] for name, pod in self.pods.items()}

    def asked(self, pods: Sequence[str]) -> Amounts:
        return together(
            [{name: self.pods[pod]["request"].get(name, 0) for name in RESOURCES} for pod in pods]
        )

    def children(self, job: str, group: str | None) -> list[str]:
        return [item["name"] for item in self.jobs[job]["groups"] if item.get("parent") == group]

    def members(self, job: str, group: str) -> list[str]:
        jobs = [pod for pod in self.jobs[job]["pods"] if pod["group"] == group]
        jobs.sort(
            key=lambda p: (
                p.get("order_priority") is None,
                -(p.get("order_priority") or 0),
                p["name"],
            )
        )
        return [pod["name"] for pod in jobs]

    def least(self, job: str, group: str | None) -> int:
        result = self.jobs[job]["min_groups"] if group is None else self._group(job, group)["min"]
        return int(result)

    def holds_pods(self, job: str, group: str | None) -> bool:
        return group is not None and self._group(job, group)["kind"] == "pods"

    def _group(self, job: str, group: str) -> Document:
        document: Document = next(
            item for item in self.jobs[job]["groups"] if item["name"] == group
        )
        return document

    def count(self, job: str, group: str | None, gone: set[str]) -> int:
        if group is not None and self.holds_pods(job, group):
            return sum(
                self.state[pod] in PLACED and pod not in gone for pod in self.members(job, group)
            )
        return sum(self.is_met(job, child, gone) for child in self.children(job, group))

    def is_met(self, job: str, group: str | None, gone: set[str]) -> bool:
        return self.count(job, group, gone) >= self.least(job, group)

    def rank(self, job: str, group: str, gone: set[str]) -> Key:
        count, least = self.count(job, group, gone), self.least(job, group)
        return count >= least, least <= 0, count / least if least > 0 else 0, group

    def fullness(self, job: str, gone: set[str]) -> int:
        """0 below its minimum, 1 at it, 2 above."""

        def is_above(group: str | None) -> bool:
            if self.count(job, group, gone) > self.least(job, group):
                return True
            return not self.holds_pods(job, group) and any(map(is_above, self.children(job, group)))

        return 0 if not self.is_met(job, None, gone) else 2 if is_above(None) else 1

    def next_pods(self, job: str, state: str = "pending", group: str | None = None) -> list[str]:
        lacking = self.least(job, group) - self.count(job, group, set())
        if group is not None and self.holds_pods(job, group):
            waiting = [pod for pod in self.members(job, group) if self.state[pod] == state]
            return waiting[: max(1, lacking)] if lacking <= len(waiting) else []
        ranked = sorted(self.children(job, group), key=lambda child: self.rank(job, child, set()))
        if lacking <= 0:
            return next(
                (names for child in ranked if (names := self.next_pods(job, state, child))), []
            )
        unmet = [child for child in ranked if not self.is_met(job, child, set())]
        able = [names for child in unmet if (names := self.next_pods(job, state, child))]
        return [pod for result in able[:lacking] for pod in result] if len(able) >= lacking else []

    def can_be_met(self, job: str, group: str | None = None) -> bool:
        if group is not None and self.holds_pods(job, group):
            able = PLACED | {"pending"}
            return sum(self.state[pod] in able for pod in self.members(job, group)) >= self.least(
                job, group
            )
        return sum(
            self.can_be_met(job, child) for child in self.children(job, group)
        ) >= self.least(job, group)

    def goes_next(self, job: str, gone: set[str]) -> list[str]:
        """A pod beyond a minimum, else a group beyond it, else all that run."""
        on_nodes = [
            name for name in self.pods if self.job_of[name] == job and self.state[name] in ON_NODE
        ]
        running = [pod for pod in on_nodes if pod not in gone]
        return self._surplus(job, None, gone, running) or running

    def _surplus(
        self, job: str, group: str | None, gone: set[str], running: list[str]
    ) -> list[str]:
        has_more = self.count(job, group, gone) > self.least(job, group)
        if group is not None and self.holds_pods(job, group):
            return (
                [pod for pod in self.members(job, group) if pod in running][-1:] if has_more else []
            )
        last_first = sorted(
            self.children(job, group), key=lambda item: self.rank(job, item, gone), reverse=True
        )
        for child in last_first:
            if names := self._surplus(job, child, gone, running):
                return names
        for child in last_first if has_more else ():
            below = [pod for pod in running if child in self._above(job, self.pods[pod]["group"])]
            if below and self.is_met(job, child, gone):
                return below
        return []

    def _above(self, job: str, group: str | None) -> Iterator[str]:
        while group is not None:
            yield group
            group = self._group(job, group).get("parent")


class Shares(Groups):
    """What queues are due and hold, and whose turn it is."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        node = document["nodes"][0]
        self.queues = {queue["name"]: queue for queue in document["queues"]}
        self.enforces = document["settings"].get("quota_enforced", True)
        self.total = {
            "gpu": node["gpu"]["count"],
            **{name: node["allocatable"][name] for name in ("cpu", "memory")},
        }
        self.slots = node["allocatable"].get("pods", 110)
        self.fair: dict[str, Amounts] = {}
        self.allocatable: dict[str, Amounts] = {}

    def lineage(self, queue: str | None) -> Iterator[str]:
        while queue is not None:
            yield queue
            queue = self.queues[queue].get("parent")

    def below(self, parent: str | None) -> list[str]:
        return [name for name, queue in self.queues.items() if queue.get("parent") == parent]

    def bound(self, field: str, queue: str, name: str) -> float:
        value = self.queues[queue][field].get(name)
        return ENDLESS if value is None or not self.enforces else float(value)

    def charged(self, queue: str, *, fixed: bool = False) -> Amounts:
        return self._of_queue(queue, PLACED, lambda job: not (fixed and job["preemptible"]))

    def _of_queue(
        self, queue: str, among: frozenset[str], counts: Callable[[Document], bool]
    ) -> Amounts:
        jobs = {
            name
            for name, job in self.jobs.items()
            if queue in self.lineage(job["queue"]) and counts(job)
        }
        return self.asked(
            [pod for pod, job in self.job_of.items() if job in jobs and self.state[pod] in among]
        )

    def wanted(self, queue: str) -> Amounts:
        """What a queue holds and waits for; what would not fit the empty node is no demand."""
        hopeless = {pod for job in self.jobs for pod in self._hopeless(job)}
        jobs = {name for name, job in self.jobs.items() if queue in self.lineage(job["queue"])}
        among = PLACED | {"pending"}
        named = [
            pod for pod, job in self.job_of.items() if job in jobs and self.state[pod] in among
        ]
        return self.asked([pod for pod in named if pod not in hopeless])

    def _hopeless(self, job: str) -> list[str]:
        """Waiting pods that do not fit the empty node: those too large alone, or all if those it needs next are."""
        waiting = [
            pod
            for pod, owner in self.job_of.items()
            if owner == job and self.state[pod] == "pending"
        ]
        never = [pod for pod in waiting if not self._fits_empty([pod])]
        needed = self.next_pods(job)
        is_over = not self._fits_empty(needed) or not set(never).isdisjoint(needed)
        return waiting if is_over else never

    def _fits_empty(self, pods: Sequence[str]) -> bool:
        asked = self.asked(pods)
        return all(asked[name] <= self.total[name] for name in RESOURCES)

    def divide(self) -> None:
        """What every queue is due, from the top down."""
        self.fair = {queue: {} for queue in self.queues}
        self.allocatable = {queue: {} for queue in self.queues}
        for name in RESOURCES:
            self._down(self.below(None), name, self.total[name])

    def _down(self, siblings: list[str], name: str, total: float) -> None:
        want = {
            queue: min(
                self.bound("limit", queue, name),
                self.wanted(queue)[name],
            )
            for queue in siblings
        }
        quota = {queue: self.bound("quota", queue, name) for queue in siblings}
        share = {
            sibling: min(total if quota[sibling] == ENDLESS else quota[sibling], want[sibling])
            for sibling in siblings
        }
        left = total - sum(share.values())
        if left > 0:
            self._share_out(name, left, want, share)
        for queue in siblings:
            limit = self.bound("limit", queue, name)
            self.fair[queue][name] = share[queue]
            due = limit if quota[queue] == ENDLESS else min(limit, max(quota[queue], share[queue]))
            self.allocatable[queue][name] = due
            self._down(self.below(queue), name, share[queue])

    def _share_out(self, name: str, left: float, want: Amounts, share: Amounts) -> None:
        unit, owed = UNITS[name], dict.fromkeys(share, 0.0)
        for priority in sorted({self.queues[item]["priority"] for item in share}, reverse=True):
            again = True
            while again and left > HAIR:
                again = False
                band = [
                    item
                    for item in share
                    if self.queues[item]["priority"] == priority and share[item] < want[item]
                ]
                weight = {item: self.queues[item]["over_quota_weight"][name] for item in band}
                pool, heavy = left, sum(weight.values())
                for claim in band if heavy else ():
                    offer, lacks = pool * weight[claim] / heavy, want[claim] - share[claim]
                    given = lacks if lacks <= offer else math.floor(offer / unit + HAIR) * unit
                    owed[claim] = max(offer - given, 0) if lacks > offer else 0
                    again |= lacks < offer
                    share[claim] += given
                    left -= given
        claims = [item for item in owed if owed[item] > HAIR]
        for claim in sorted(
            claims, key=lambda q: (-self.queues[q]["priority"], -owed[q], self._age(q))
        ):
            given = max(min(unit, left, want[claim] - share[claim]), 0)
            share[claim] += given
            left -= given

    def _age(self, queue: str) -> int:
        return int(self.queues[queue]["creation_order"])

    def turn(self, queue: str, job: Amounts, less: Amounts | None = None) -> Key:
        """Lower comes first."""
        held = self.charged(queue)
        if less is not None:
            held = {name: held[name] - less[name] for name in RESOURCES}
        due = self.allocatable[queue]
        more = {name: held[name] + job[name] for name in RESOURCES}
        return (
            any(held[name] > self.fair[queue][name] + HAIR for name in RESOURCES),
            not all(more[name] <= self.bound("quota", queue, name) for name in RESOURCES),
            -self.queues[queue]["priority"],
            any(due[name] == 0 and held[name] > 0 for name in RESOURCES),
            max(self._part(due[name], name, more[name]) for name in RESOURCES),
            max(self._part(due[name], name, held[name]) for name in RESOURCES),
            tuple(due[name] for name in RESOURCES),
            self._age(queue),
            queue,
        )

    def _part(self, due: float, name: str, held: float) -> float:
        if due == ENDLESS:
            return held / self.total[name] if self.total[name] else 0
        return held / due if due else 1000 * held / UNITS[name]

    def first(self, jobs: set[str], state: Callable[[str], str]) -> str:
        """Whose turn it is: the first queue at every level, then the first job."""

        def ranked(parent: str | None) -> list[tuple[Key, str]]:
            result = [
                (queue, job) for queue in self.below(parent) if (job := head(queue)) is not None
            ]
            return [
                (self.turn(queue, self.asked(self.next_pods(job, state(job)))), job)
                for queue, job in result
            ]

        def head(queue: str) -> str | None:
            own = [job for job in jobs if self.jobs[job]["queue"] == queue]
            if own:
                return min(own, key=lambda job: self.job_key(job, set()))
            below = ranked(queue)
            return min(below)[1] if below else None

        return min(ranked(None))[1]

    def job_key(self, job: str, gone: set[str]) -> Key:
        return -self.jobs[job]["priority"], self.fullness(job, gone), -self.jobs[job]["age_s"], job

    def passes(self, job: str, pods: Sequence[str]) -> bool:
        """Whether all queues above have room for so much more."""
        expected = {name: amount for name, amount in self.asked(pods).items() if amount > 0}
        above = [*self.lineage(self.jobs[job]["queue"])]
        limits = all(
            self.charged(item)[name] + much <= self.bound("limit", item, name)
            for item in above
            for name, much in expected.items()
        )
        return limits and (self.jobs[job]["preemptible"] or self.is_within_quota(job, pods))

    def is_within_quota(self, job: str, pods: Sequence[str]) -> bool:
        expected = {name: amount for name, amount in self.asked(pods).items() if amount > 0}
        return all(
            self.charged(item, fixed=True)[name] + much <= self.bound("quota", item, name)
            for item in self.lineage(self.jobs[job]["queue"])
            for name, much in expected.items()
        )

    def pair(self, mine: str, other: str) -> tuple[str, str]:
        """The two queues just below the lowest one both belong to."""
        ours, theirs = [*self.lineage(mine)][::-1], [*self.lineage(other)][::-1]
        place = 0
        while place < min(len(ours), len(theirs)) - 1 and ours[place] == theirs[place]:
            place += 1
        return ours[place], theirs[place]
