"""What a controller may ask for: the actions that a reconciliation yields, and what it is answered.

A reconciliation is a generator. It is given a situation (one owner, the objects around it, the time), yields actions
one by one, and receives the outcome of each: the object as stored, a failure of `ports.failures`, or None. It ends by
returning, or by raising a failure, which means: try again later. Nothing here acts.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator
from typing import Any, Final, NamedTuple

from dovetail.ports import failures
from dovetail.sim.controllers import object_index

Tree = dict[str, Any]

BACKGROUND: Final = "Background"  # metav1.DeletionPropagation
FOREGROUND: Final = "Foreground"


class Create(NamedTuple):
    """Creates an object. Without a name, the driver makes one from `metadata.generateName`."""

    tree: Tree


class Patch(NamedTuple):
    """Applies a JSON merge patch to metadata and spec of an object."""

    target: Tree
    patch: Tree


class SetStatus(NamedTuple):
    """Replaces the status of an object."""

    target: Tree
    status: Tree


class Delete(NamedTuple):
    """Deletes an object, if it still has the uid of `target`."""

    target: Tree
    propagation: str = BACKGROUND


class Record(NamedTuple):
    """Reports an event about an object."""

    about: Tree
    type: str  # Normal or Warning
    reason: str
    message: str


class WakeAt(NamedTuple):
    """Reconciles the owner again at this time, even if nothing changes until then."""

    time: datetime.datetime


class Remember(NamedTuple):
    """Keeps a value for the next reconciliation of the owner; it is lost with the process."""

    value: Any


Action = Create | Patch | SetStatus | Delete | Record | WakeAt | Remember
Outcome = Tree | failures.ApiFailure | None
Steps = Generator[Action, Outcome, None]


class Situation(NamedTuple):
    """All that one reconciliation is given."""

    owner: Tree  # with the defaults of its kind filled in
    objects: object_index.ObjectIndex  # as they were before the first action
    now: datetime.datetime
    memory: Any = None  # the value of the last Remember


def stored(outcome: Outcome) -> Tree:
    """The object of a write that must have succeeded. Raises its failure otherwise."""
    if isinstance(outcome, failures.ApiFailure):
        raise outcome
    assert outcome is not None, "a write answers with an object or a failure"
    return outcome


def written(target: Tree, patch: Tree) -> Generator[Action, Outcome, Tree]:
    """Patches an object and returns it as stored."""
    return stored((yield Patch(target, patch)))


def deleted(target: Tree, propagation: str = BACKGROUND) -> Generator[Action, Outcome, bool]:
    """Deletes an object; False if it was gone already."""
    outcome = yield Delete(target, propagation)
    if isinstance(outcome, failures.Missing):
        return False
    if isinstance(outcome, failures.ApiFailure):
        raise outcome
    return True


def normal(about: Tree, reason: str, message: str) -> Record:
    """An event of type Normal."""
    return Record(about, "Normal", reason, message)


def warning(about: Tree, reason: str, message: str) -> Record:
    """An event of type Warning."""
    return Record(about, "Warning", reason, message)
