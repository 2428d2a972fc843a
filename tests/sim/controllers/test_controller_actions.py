"""A reconciliation driven by hand: what it is given, what it asks for, and how it takes the answers."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.ports import failures
from dovetail.sim.controllers import controller_actions, object_index, workload_defaults
from dovetail.sim.controllers.apps import replica_set
from tests.sim.controllers.tiny_store import BEGINNING, workload

Tree = dict[str, Any]


def situation(replicas: int) -> controller_actions.Situation:
    tree = workload("ReplicaSet", replicas=replicas)
    tree["metadata"] |= {"namespace": "default", "uid": "u1", "generation": 1}
    owner = workload_defaults.with_defaults(tree)
    return controller_actions.Situation(owner, object_index.ObjectIndex(), BEGINNING)


def test_actions_come_one_by_one_and_the_status_last() -> None:
    steps = replica_set.reconcile(situation(1))
    create = next(steps)
    assert isinstance(create, controller_actions.Create)
    assert "name" not in create.tree["metadata"]
    stored = create.tree | {"metadata": create.tree["metadata"] | {"name": "web-x"}}
    event = steps.send(stored)
    assert event == controller_actions.normal(
        situation(1).owner, "SuccessfulCreate", "Created pod: web-x"
    )
    status = steps.send(None)
    assert isinstance(status, controller_actions.SetStatus)
    with pytest.raises(StopIteration):
        steps.send(status.target)


class Quota:
    """A store with room for a few pods, that notes what it is asked for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.creations = 0
        self.statuses: list[Tree] = []

    def answer(self, action: controller_actions.Action) -> controller_actions.Outcome:
        if isinstance(action, controller_actions.SetStatus):
            self.statuses.append(action.status)
            return action.target
        if not isinstance(action, controller_actions.Create):
            return None
        self.creations += 1
        if self.creations > self.room:
            return failures.Refused("exceeded quota", status=403)
        return action.tree | {"metadata": {"name": f"web-{self.creations}"}}

    def drive(self, steps: controller_actions.Steps) -> None:
        action = next(steps)
        while True:
            action = steps.send(self.answer(action))


def test_batches_double_and_stop_at_a_failure() -> None:
    quota = Quota(room=4)
    with pytest.raises(failures.Refused):
        quota.drive(replica_set.reconcile(situation(100)))
    assert quota.creations == 1 + 2 + 4
    (status,) = quota.statuses
    (condition,) = status["conditions"]
    assert (condition["type"], condition["message"]) == ("ReplicaFailure", "exceeded quota")
