"""Runs the controllers of a cluster in memory: a queue of owners, a heap of wake-up times, and a store to act on.

Given a store and every change of its objects (`observe`), reconciles the owners that changes concern, and only those,
until none is left (`settle`). Failures are retried with a delay that doubles. Time is an argument, so that it runs
under a real clock and under a virtual one: the caller settles after changes and at `next_wake_up`. Never sleeps,
never scans.
"""

from __future__ import annotations

import collections
import datetime
import heapq
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, assert_never

from dovetail.ports import failures
from dovetail.sim.controllers import (
    affected_owners,
    controller_actions,
    object_index,
    pod_templates,
    workload_defaults,
)
from dovetail.sim.controllers.apps import daemon_set, deployment, replica_set, stateful_set
from dovetail.sim.controllers.batch import cron_job, job
from dovetail.sim.controllers.controller_actions import Action, Outcome, Situation, Steps
from dovetail.sim.controllers.object_index import (
    APPS,
    BATCH,
    Change,
    Key,
    ObjectIndex,
    key_of,
    uid_of,
)

Tree = dict[str, Any]

BASE_DELAY_SECONDS: Final = 0.005  # workqueue.DefaultTypedControllerRateLimiter
MAX_DELAY_SECONDS: Final = 1000.0
NAME_ATTEMPTS: Final = 8  # generated names tried before a creation fails; apiserver storage/names

RECONCILERS: Final[dict[tuple[str, str], Callable[[Situation], Steps]]] = {
    (APPS, "Deployment"): deployment.reconcile,
    (APPS, "ReplicaSet"): replica_set.reconcile,
    (APPS, "StatefulSet"): stateful_set.reconcile,
    (APPS, "DaemonSet"): daemon_set.reconcile,
    (BATCH, "Job"): job.reconcile,
    (BATCH, "CronJob"): cron_job.reconcile,
}
BROKEN_INPUT: Final = (LookupError, TypeError, ValueError, AttributeError)


class Store(Protocol):
    """What the controllers need of an API server. Every write returns the object as stored, or raises an ApiFailure."""

    def create(self, tree: Tree) -> Tree:
        """Stores a new object; `metadata.name` is set."""
        ...

    def patch(self, key: Key, patch: Tree) -> Tree:
        """Applies a JSON merge patch to metadata and spec; a uid in it must be the object's."""
        ...

    def set_status(self, key: Key, status: Tree, *, uid: str) -> Tree:
        """Replaces the status."""
        ...

    def delete(self, key: Key, *, uid: str, propagation: str) -> None:
        """Deletes as a request with this propagation policy does."""
        ...

    def record(self, event: controller_actions.Record) -> None:
        """Reports an event; the store may drop it."""
        ...


class Task(NamedTuple):
    """One thing to do about one object."""

    job: str  # reconcile or release
    key: Key


class WorkloadControllers:
    """All controllers of one cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._objects = ObjectIndex()
        self._observed: collections.deque[tuple[Tree, bool]] = collections.deque()
        self._queue: dict[Task, None] = {}
        self._wake_ups: list[tuple[datetime.datetime, Task]] = []
        self._due: dict[Task, datetime.datetime] = {}  # the entry of the heap that counts
        self._attempts: dict[Task, int] = {}
        self._memories: dict[str, Any] = {}
        self._serials: collections.Counter[str] = collections.Counter()

    # What callers use

    def observe(self, tree: Tree, *, is_deleted: bool = False) -> None:
        """Notes an object that was created, changed or deleted. Cheap; may be called while controllers act."""
        self._observed.append((tree, is_deleted))

    def settle(self, now: datetime.datetime, *, limit: int | None = None) -> int:
        """Acts until nothing is left to do at this time, or for `limit` tasks. Returns the number of tasks done."""
        self._enqueue_due(now)
        count = 0
        while limit is None or count < limit:
            self._apply_observed()
            if not self._queue:
                break
            task = next(iter(self._queue))
            del self._queue[task]
            self._perform(task, now)
            count += 1
        return count

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do until the next change or wake-up."""
        return not self._queue and not self._observed

    @property
    def next_wake_up(self) -> datetime.datetime | None:
        """When `settle` has something to do even if nothing changes."""
        while self._wake_ups and not self._counts(self._wake_ups[0]):
            heapq.heappop(self._wake_ups)
        return self._wake_ups[0][0] if self._wake_ups else None

    # The queue

    def _apply_observed(self) -> None:
        while self._observed:
            tree, is_deleted = self._observed.popleft()
            change = self._objects.remove(key_of(tree)) if is_deleted else self._objects.put(tree)
            if change is not None:
                self._enqueue_affected(change)

    def _enqueue_affected(self, change: Change) -> None:
        for key in affected_owners.owners_of(change, self._objects):
            self._queue.setdefault(Task("reconcile", key))
        for key in job.pods_to_release(change, self._objects):
            self._queue.setdefault(Task("release", key))
        if change.new is None:
            self._forget(change.tree)

    def _forget(self, tree: Tree) -> None:
        uid = uid_of(tree)
        self._memories.pop(uid, None)
        self._serials.pop(uid, None)
        self._attempts.pop(Task("reconcile", key_of(tree)), None)

    def _enqueue_due(self, now: datetime.datetime) -> None:
        while self._wake_ups and self._wake_ups[0][0] <= now:
            entry = heapq.heappop(self._wake_ups)
            if self._counts(entry):
                self._queue.setdefault(entry[1])
                del self._due[entry[1]]

    def _wake(self, task: Task, moment: datetime.datetime) -> None:
        """Keeps the earliest time: the task asks again for later ones when it is done."""
        due = self._due.get(task)
        if due is None or moment < due:
            self._due[task] = moment
            heapq.heappush(self._wake_ups, (moment, task))

    def _counts(self, entry: tuple[datetime.datetime, Task]) -> bool:
        moment, task = entry
        return self._due.get(task) == moment

    # One task

    def _perform(self, task: Task, now: datetime.datetime) -> None:
        tree = self._objects.find(task.key)
        if tree is None:
            self._attempts.pop(task, None)
            return
        try:
            self._drive(self._steps(task, tree, now), task=task, tree=tree, now=now)
        except failures.ApiFailure:
            self._retry(task, now)
        except BROKEN_INPUT as error:
            # An object that cannot be read must not stop the others; it is tried again when it changes.
            message = f"{task.job}: {type(error).__name__}: {error}"
            self._store.record(controller_actions.warning(tree, "UnreadableObject", message))
        else:
            self._attempts.pop(task, None)

    def _steps(self, task: Task, tree: Tree, now: datetime.datetime) -> Steps:
        match task.job:
            case "release":
                return job.release(tree, self._objects)
            case _:
                owner = workload_defaults.with_defaults(tree)
                memory = self._memories.get(uid_of(tree))
                situation = Situation(owner, self._objects, now, memory)
                return RECONCILERS[task.key[:2]](situation)

    def _drive(self, steps: Steps, *, task: Task, tree: Tree, now: datetime.datetime) -> None:
        outcome: Outcome = None
        while True:
            try:
                action = steps.send(outcome)
            except StopIteration:
                return
            try:
                outcome = self._act(action, task=task, tree=tree, now=now)
            except failures.ApiFailure as failure:
                outcome = failure

    def _act(self, action: Action, *, task: Task, tree: Tree, now: datetime.datetime) -> Outcome:
        match action:
            case controller_actions.Create(new_tree):
                return self._create(new_tree, owner_uid=uid_of(tree))
            case controller_actions.Patch(target, patch):
                return self._store.patch(key_of(target), patch)
            case controller_actions.SetStatus(target, status):
                return self._store.set_status(key_of(target), status, uid=uid_of(target))
            case controller_actions.Delete(target, propagation):
                self._store.delete(key_of(target), uid=uid_of(target), propagation=propagation)
            case controller_actions.Record():
                self._store.record(action)
            case controller_actions.WakeAt(moment):
                self._wake(task, max(moment, now + datetime.timedelta(microseconds=1)))
            case controller_actions.Remember(value):
                self._memories[uid_of(tree)] = value
            case _:
                assert_never(action)
        return None

    def _create(self, tree: Tree, *, owner_uid: str) -> Tree:
        metadata = tree["metadata"]
        if metadata.get("name"):
            return self._store.create(tree)
        for _ in range(NAME_ATTEMPTS - 1):
            try:
                return self._store.create(self._named(tree, owner_uid))
            except failures.AlreadyThere:
                continue
        return self._store.create(self._named(tree, owner_uid))

    def _named(self, tree: Tree, owner_uid: str) -> Tree:
        """The object with the next of its owner's names that no object has."""
        base = tree["metadata"]["generateName"]
        group = object_index.group_of(tree["apiVersion"])
        namespace = tree["metadata"].get("namespace") or ""
        while True:
            name = pod_templates.generated_name(base, owner_uid, self._serials[owner_uid])
            self._serials[owner_uid] += 1
            if self._objects.find(Key(group, tree["kind"], namespace, name)) is None:
                return tree | {"metadata": tree["metadata"] | {"name": name}}

    def _retry(self, task: Task, now: datetime.datetime) -> None:
        attempts = self._attempts.get(task, 0)
        self._attempts[task] = attempts + 1
        delay = min(BASE_DELAY_SECONDS * 2 ** min(attempts, 32), MAX_DELAY_SECONDS)
        self._wake(task, now + datetime.timedelta(seconds=delay))
