"""What a pod's own status and events say, read once: its conditions, containers, and the events about it.

Given the replica and a pod. Never judges what the words mean.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.evidence.sources import fields, object_events, quoting
from dovetail.answer.why.evidence.sources.fields import Tree
from dovetail.answer.why.evidence.sources.object_events import Event
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods

_STATUS_LISTS: Final = ("initContainerStatuses", "containerStatuses")


class Container(NamedTuple):
    """The state of one container."""

    name: str
    image: str
    state: str  # waiting, running, terminated; empty where none is reported
    reason: str  # of waiting or terminated
    message: str
    last_reason: str  # how the run before ended
    last_message: str
    last_exit_code: int
    restarts: int
    is_ready: bool


class PodState(NamedTuple):
    """A pod with its status and events."""

    pod: pods.Pod
    tree: Tree
    containers: tuple[Container, ...]
    events: tuple[Event, ...]  # newest first

    @property
    def id(self) -> str:
        """Namespace and name."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def node(self) -> str:
        """The node it is bound to; empty while it is not."""
        return self.pod.spec.node_name

    @property
    def created(self) -> datetime.datetime | None:
        """When it was created."""
        return fields.time_at(self.tree, "metadata", "creationTimestamp")

    @property
    def has_started(self) -> bool:
        """Whether a container ran: its devices, sandbox and image were there then."""
        return any(
            each.state in ("running", "terminated") or each.restarts for each in self.containers
        )

    @property
    def scheduled(self) -> Tree:
        """The condition PodScheduled; empty where no scheduler wrote one."""
        return fields.condition(self.tree, "PodScheduled")

    def newest(self, *reasons: str) -> Event | None:
        """The newest event with one of the reasons."""
        return next(object_events.with_reason(self.events, *reasons), None)

    def is_over(self, event: Event, *later_reasons: str) -> bool:
        """Whether a later event with one of the reasons shows that what this one reports has passed."""
        later = self.newest(*later_reasons)
        return later is not None and later.order > event.order


def state_of(replica: Replica, namespace: str, name: str) -> PodState | None:
    """The pod as it is stored; None where it is not."""
    stored = replica.get(object_set.Key(registry.POD.unique_name, namespace, name))
    if stored is None or not isinstance(stored.struct, pods.Pod):
        return None
    return state_of_stored(replica, stored, stored.struct)


def state_of_stored(replica: Replica, stored: codec.Stored, pod: pods.Pod) -> PodState:
    """The state of a pod that was listed."""
    metadata = pod.metadata
    tree = stored.tree
    events = object_events.events_of(
        replica, "Pod", metadata.namespace, metadata.name, uid=metadata.uid
    )
    return PodState(pod, tree, tuple(_containers(tree)), events)


def containers_of(stored: codec.Stored) -> tuple[Container, ...]:
    """The containers alone, without events."""
    return tuple(_containers(stored.tree))


def condition_line(about: str, condition: Tree) -> str:
    """A condition as evidence."""
    reason = fields.text_at(condition, "reason")
    status = fields.text_at(condition, "status")
    source = f"{about}, condition {fields.text_at(condition, 'type')}={status}"
    if reason:
        source += f" ({reason})"
    return quoting.line(source, condition_time(condition), fields.text_at(condition, "message"))


def condition_time(condition: Tree) -> datetime.datetime | None:
    """When the condition last changed."""
    return fields.time_at(condition, "lastTransitionTime")


def _containers(tree: Tree) -> Iterator[Container]:
    for list_name in _STATUS_LISTS:
        for status in fields.trees_at(tree, "status", list_name):
            yield _container(status)


def _container(status: Tree) -> Container:
    states = fields.tree_at(status, "state")
    state = next((name for name in ("terminated", "waiting", "running") if name in states), "")
    now = fields.tree_at(states, state)
    last = fields.tree_at(status, "lastState", "terminated")
    return Container(
        name=fields.text_at(status, "name"),
        image=fields.text_at(status, "image"),
        state=state,
        reason=fields.text_at(now, "reason"),
        message=fields.text_at(now, "message"),
        last_reason=fields.text_at(last, "reason"),
        last_message=fields.text_at(last, "message"),
        last_exit_code=fields.number_at(last, "exitCode"),
        restarts=max(0, fields.number_at(status, "restartCount")),
        is_ready=fields.is_true(status, "ready"),
    )
