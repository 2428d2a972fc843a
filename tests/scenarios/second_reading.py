"""A second reading of the rules scenarios assume, slow and plain, that shares no code with the engine.

For clusters of one node and whole GPUs, where no choice of a node or a device can change who starts: then a scenario
has one right answer. Given a document; says in which state every pod ends. One rule is the engine's own: no pod yields
if another job would get the room next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.scenarios.second_shares import (
    ENDLESS,
    HAIR,
    NOMINATED,
    ON_NODE,
    PLACED,
    RESOURCES,
    START,
    TAKEN,
    Amounts,
    Document,
    Key,
    Shares,
    together,
)

Portion = tuple[str, list[str]]  # a job, and pods of it that go together


def is_understood(document: Document) -> bool:
    """Whether the scenario is of the kind that is read here."""
    if len(document["nodes"]) != 1 or document["topologies"] or document.get("claims"):
        return False
    node = document["nodes"][0]
    pods = [pod for job in document["jobs"] for pod in job["pods"]]
    strange = (
        "affinity",
        "anti_affinity",
        "allowed_nodes",
        "missing_volume_claims",
        "legacy_mig",
        "claims",
    )
    parts = ("gpu_fraction", "gpu_memory_mib", "mig")
    return (
        node["gpu"]["mig"] == "none"
        and not node.get("numa")
        and not any(job.get("topology") for job in document["jobs"])
        and not any(pod.get(key) for pod in pods for key in strange)
        and not any(pod["request"].get(key) for pod in pods for key in parts)
    )


def states(document: Document) -> dict[str, str]:
    """By pod, the state in which it ends."""
    reading = Reading(document)
    run = document["run"]
    is_single = run["mode"] == "single"
    for _ in range(1 if is_single else run["cycles_until"] + run["cycles_stable"]):
        reading.decide(run["actions"])
        if not is_single:
            reading.rest()
    messages = {START: "bound", NOMINATED: "nominated"}
    return {pod: messages.get(state, state) for pod, state in reading.state.items()}


class Reading(Shares):
    """One scenario, read action by action."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.grace = document["settings"].get("stale_grace_s", 0)
        self.multiplier = document["settings"].get("reclaim_saturation_multiplier", 1)
        self.started: dict[str, float | None] = {
            name: job.get("started_s_ago") for name, job in self.jobs.items()
        }
        self.waiting: set[str] = set()  # jobs that could start something as an action began

    def decide(self, actions: list[str]) -> None:
        self.divide()
        for action in actions:
            match action:
                case "allocate":
                    self._in_turn(lambda job: self._start(job))
                case "stale_gang_eviction":
                    self._take_back()
                case _:
                    self._in_turn(lambda job, kind=action: self._make_room(kind, job))  # type: ignore[misc]

    def rest(self) -> None:
        """What the next cycle finds."""
        for name, job in self.jobs.items():
            states = {self.state[pod["name"]] for pod in job["pods"]}
            if START in states and states.isdisjoint(ON_NODE):
                self.started[name] = 0
        for pod, state in self.state.items():
            stays = self.jobs[self.job_of[pod]].get("after_eviction") == "stays_terminating"
            if state in (START, "bound"):
                self.state[pod] = "running"
            elif state in (NOMINATED, "nominated") or (state == "terminating" and not stays):
                self.state[pod] = "pending"

    def _in_turn(self, act: Callable[[str], bool]) -> None:
        jobs = {job for job in self.jobs if self.can_be_met(job) and self.next_pods(job)}
        self.waiting = set(jobs)
        while jobs:
            job = self.first(jobs, lambda item: "pending")
            if not act(job) or not self.next_pods(job):
                jobs.discard(job)

    # Room

    def _fits(self, pod: str, *, later: bool) -> bool:
        """Whether there is room, now or once those who end are gone."""
        holding = {*ON_NODE, START, "terminating_stuck", NOMINATED if later else "terminating"}
        there = [one for one, state in self.state.items() if state in holding]
        held, asked = self.asked(there), self.asked([pod])
        has_room = all(
            held[name] + asked[name] <= self.total[name] for name in RESOURCES if asked[name] > 0
        )
        return has_room and len(there) < self.slots

    def _start(self, job: str) -> bool:
        before = dict(self.state)
        pods = self.next_pods(job)
        if not self.passes(job, pods):
            return False
        for pod in pods:
            if not self._fits(pod, later=True):
                self.state = before
                return False
            self.state[pod] = START if self._fits(pod, later=False) else NOMINATED
        if any(self._waits(job, group["name"]) for group in self.jobs[job]["groups"]):
            self.state.update(dict.fromkeys(pods, NOMINATED))
        return True

    def _waits(self, job: str, group: str) -> bool:
        states = [self.state[pod] for pod in self.members(job, group)]
        return NOMINATED in states and sum(
            state in (*ON_NODE, START) for state in states
        ) < self.least(job, group)

    def _take_back(self) -> None:
        alive = PLACED | {"terminating", "terminating_stuck"}
        for name, job in self.jobs.items():
            states = {self.state[pod["name"]] for pod in job["pods"]}
            grace = self.grace if job.get("stale_grace_s") is None else job["stale_grace_s"]
            is_over = 0 <= grace <= (job.get("stale_for_s") or 0)
            if (
                "succeeded" in states
                or not states & alive
                or self.is_met(name, None, set())
                or not is_over
            ):
                continue
            for pod in (item["name"] for item in job["pods"]):
                if self.state[pod] in PLACED:
                    self.state[pod] = "terminating" if self.state[pod] in ON_NODE else "pending"

    # Yielding

    def _make_room(self, kind: str, job: str) -> bool:
        """Victims one after the other, until a plan is accepted."""
        if not self._may_ask(kind, job):
            return False
        pods, chosen = self.next_pods(job), list[Portion]()
        for portion in self._victims(kind, job):
            chosen.append(portion)
            if self._try(kind, job, pods, chosen):
                return True
        return False

    def _may_ask(self, kind: str, job: str) -> bool:
        messages, pods = self.jobs[job], self.next_pods(job)
        asked = self.asked(pods)
        if not pods or messages["age_s"] < messages.get("may_evict_after_s", 0):
            return False
        if kind == "consolidation":
            free = self.total["gpu"] - self.charged_everywhere()["gpu"]
            return bool(messages["preemptible"]) and free >= asked["gpu"]
        if kind == "reclaim":
            held, due = self.charged(messages["queue"]), self.fair[messages["queue"]]
            if any(held[name] + asked[name] > due[name] + HAIR for name in RESOURCES):
                return False
        return bool(messages["preemptible"]) or self.is_within_quota(job, pods)

    def charged_everywhere(self) -> Amounts:
        held = PLACED | {"terminating_stuck"}
        return self.asked([pod for pod, state in self.state.items() if state in held])

    def _is_victim(self, kind: str, job: str, other: str) -> bool:
        mine, theirs = self.jobs[job], self.jobs[other]
        runs = any(self.state[pod["name"]] in ON_NODE for pod in theirs["pods"])
        if job == other or not theirs["preemptible"] or not runs:
            return False
        if kind == "preempt":
            return bool(theirs["queue"] == mine["queue"] and theirs["priority"] < mine["priority"])
        return kind != "reclaim" or (
            theirs["queue"] != mine["queue"] and self._offers(job, theirs["queue"])
        )

    def _offers(self, job: str, queue: str) -> bool:
        """A job that stays within its own quota evicts nothing in a queue below its quota."""
        mine, other = self.pair(self.jobs[job]["queue"], queue)
        asked = self.asked(self.next_pods(job))
        if not self._is_within(mine, asked):
            return True
        held = self.charged(other)
        quota = {name: self.bound("quota", other, name) for name in RESOURCES if asked[name] > 0}
        finite = {name: much for name, much in quota.items() if much < ENDLESS}
        exceeds = any(held[name] > much for name, much in finite.items())
        return exceeds or not any(held[name] < much for name, much in finite.items())

    def _is_within(self, queue: str, more: Amounts) -> bool:
        held = self.charged(queue)
        return all(
            held[name] + more[name] <= self.bound("quota", queue, name) for name in RESOURCES
        )

    def _victims(self, kind: str, job: str) -> Iterator[Portion]:
        """In the reverse of the order in which they would start."""
        gone: dict[str, set[str]] = {
            item: set() for item in self.jobs if self._is_victim(kind, job, item)
        }
        lost = {queue: self.asked([]) for queue in self.queues}

        def last(parent: str | None) -> tuple[Key, str] | None:
            return max(
                (item for queue in self.below(parent) if (item := keyed(queue))), default=None
            )

        def keyed(queue: str) -> tuple[Key, str] | None:
            own = [
                item
                for item in gone
                if self.jobs[item]["queue"] == queue and self.goes_next(item, gone[item])
            ]
            result = max(own, key=lambda item: self.job_key(item, gone[item])) if own else None
            if result is None:
                below = last(queue)
                result = below[1] if below else None
            if result is None:
                return None
            cost = self.asked(self.goes_next(result, gone[result]))
            return self.turn(queue, cost, together([lost[queue], cost])), result

        while (following := last(None)) is not None:
            victim = following[1]
            pods = self.goes_next(victim, gone[victim])
            gone[victim] |= set(pods)
            for queue in self.lineage(self.jobs[victim]["queue"]):
                lost[queue] = together([lost[queue], self.asked(pods)])
            if self.is_met(victim, None, gone[victim]) or not self._is_young(kind, job, victim):
                yield victim, pods

    def _is_young(self, kind: str, job: str, victim: str) -> bool:
        started, queue = self.started[victim], self.jobs[victim]["queue"]
        if kind == "consolidation" or started is None:
            return False
        upwards = [*self.lineage(queue)]
        if kind == "reclaim":
            _, branch = self.pair(self.jobs[job]["queue"], queue)
            upwards = [*self.lineage(branch)]
        field = f"{kind}_min_runtime_s"
        least = next((much for upward in upwards if (much := self.queues[upward].get(field, 0))), 0)
        return started < least

    def _try(self, kind: str, job: str, pods: list[str], chosen: list[Portion]) -> bool:
        """Evicts on paper, places every pending job in the usual order, and keeps it if that is fair."""
        before = dict(self.state)
        self.state.update({pod: TAKEN for _, taken in chosen for pod in taken})
        is_placed = self._refill(job, pods, {victim for victim, _ in chosen}, before)
        gone = [
            (victim, left)
            for victim, taken in chosen
            if (left := [p for p in taken if self.state[p] == TAKEN])
        ]
        is_right = is_placed and not (kind == "consolidation" and gone)
        if is_right and kind == "reclaim":
            is_right = self._is_fair(job, pods, gone)
        if is_right and gone and kind != "consolidation":
            is_right = self._starts_next(job, pods, gone, before)
        if not is_right:
            self.state = before
            return False
        self.state.update({pod: "terminating" for _, left in gone for pod in left})
        return True

    def _refill(self, job: str, pods: list[str], victims: set[str], before: dict[str, str]) -> bool:
        jobs = {job, *victims}
        while jobs:
            item = self.first(jobs, lambda name: "pending" if name == job else TAKEN)
            turn = pods if item == job else self.next_pods(item, TAKEN)
            is_in = self._seat(
                item, turn, lambda pod: NOMINATED if self.job_of[pod] == job else before[pod]
            )
            if item == job and not is_in:
                return False
            if item == job or not is_in:
                jobs.discard(item)
        return True

    def _seat(self, job: str, pods: list[str], state: Callable[[str], str]) -> bool:
        before = dict(self.state)
        if not pods or not self.passes(job, pods):
            return False
        for pod in pods:
            if not self._fits(pod, later=True):
                self.state = before
                return False
            self.state[pod] = state(pod)
        return True

    def _is_fair(self, job: str, pods: list[str], gone: list[Portion]) -> bool:
        mine = self.jobs[job]["queue"]
        return self._are_due(mine, gone) and self._stays_behind(mine, self.asked(pods), gone)

    def _are_due(self, mine: str, gone: list[Portion]) -> bool:
        left = {queue: self.charged(queue) for queue in self.queues}

        def change(portion: Portion, sign: int) -> None:
            for queue in self.lineage(self.jobs[portion[0]]["queue"]):
                cost = self.asked(portion[1])
                left[queue] = {name: left[queue][name] + sign * cost[name] for name in RESOURCES}

        for item in gone:
            change(item, 1)
        for item in gone:
            ours, other = self.pair(mine, self.jobs[item[0]]["queue"])
            held, due = left[other], self.allocatable[other]
            is_over = any(held[name] > due[name] + HAIR for name in RESOURCES)
            is_above = any(held[name] > self.bound("quota", other, name) for name in RESOURCES)
            if not is_over and not (is_above and self._is_within(ours, self.asked([]))):
                return False
            change(item, -1)
        return True

    def _stays_behind(self, mine: str, asked: Amounts, gone: list[Portion]) -> bool:
        cost = together([asked, *(self.asked(pods) for _, pods in gone)])
        losing = {queue for victim, _ in gone for queue in self.lineage(self.jobs[victim]["queue"])}
        for queue in self.lineage(mine):
            for other in losing & {*self.below(self.queues[queue].get("parent"))} - {queue}:
                for name in RESOURCES:
                    ratio = self._ratio(queue, name)
                    is_asked = cost[name] > 0 and self.fair[other][name] > 0 and ratio > 1
                    if is_asked and ratio * self.multiplier >= self._ratio(other, name):
                        return False
        return True

    def _ratio(self, queue: str, name: str) -> float:
        held, due = self.charged(queue)[name], self.fair[queue][name]
        return held / due if due else ENDLESS if held else 0

    def _starts_next(
        self, job: str, pods: list[str], gone: list[Portion], before: dict[str, str]
    ) -> bool:
        """Whether the job would get the room if all waiting jobs of these queues were decided next."""
        after, self.state = self.state, dict(before)
        try:
            return self._has_turn(job, pods, gone)
        finally:
            self.state = after

    def _has_turn(self, job: str, pods: list[str], gone: list[Portion]) -> bool:
        victims = {victim for victim, _ in gone}
        queues = {self.jobs[item]["queue"] for item in (job, *victims)}
        others = {item for item in self.waiting - victims if self.jobs[item]["queue"] in queues}
        if not any(self.next_pods(other) for other in others - {job}):
            return True
        self.state.update({pod: TAKEN for _, left in gone for pod in left})
        jobs = {job, *victims, *others}
        while jobs:
            item = self.first(jobs, lambda name: TAKEN if name in victims else "pending")
            turn = (
                pods
                if item == job
                else self.next_pods(item, TAKEN if item in victims else "pending")
            )
            is_in = self._seat(item, turn, lambda pod: NOMINATED)
            if item == job:
                return is_in
            if not is_in:
                jobs.discard(item)
        return False
