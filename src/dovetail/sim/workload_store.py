"""Lets the workload controllers act on the in-memory API server: the store they need, and the changes they follow.

Given a `SimApi`. Observes the kinds that controllers read, and no others: slices and leases of large fleets would cost
much and decide nothing. `settle` is called after changes, and runs the server's own controllers too. Never sleeps: the
caller calls again at `next_wake_up`.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from dovetail import timestamps
from dovetail.kubetypes import registry
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.controllers import controller_actions, object_index, workload_controllers
from dovetail.sim.server import watchers, write_rules
from dovetail.sim.server.api_server import SimApi, check_preconditions
from dovetail.sim.server.object_store import Change, Record

Tree = dict[str, Any]

COMPONENT: Final = "workload-controller"
SLICE: Final = 100  # tasks between two turns of the event loop
OBSERVED_GROUPS: Final = frozenset({object_index.APPS, object_index.BATCH})
OBSERVED_CORE: Final = frozenset({"Pod", "Node", "PersistentVolumeClaim", "ReplicationController"})


class WorkloadStore:
    """The store of one server, and its controllers."""

    def __init__(self, api: SimApi) -> None:
        self._api = api
        self._controllers = workload_controllers.WorkloadControllers(self)
        for _, table in api.shelf.tables():
            if is_observed(table.kind):
                for record in table.all():
                    self._controllers.observe(record.tree)
        api.shelf.listen(self._note)

    def settle(self) -> bool:
        """Runs all controllers for a while. False if they have more to do at once.

        Their own changes call for another turn, so one pass is enough here.
        """
        self._api.settle()
        self._controllers.settle(self._api.shelf.now(), limit=SLICE)
        return self._controllers.is_idle

    @property
    def next_wake_up(self) -> datetime.datetime | None:
        """When `settle` has something to do even if nothing changes."""
        return self._controllers.next_wake_up

    # What the controllers need of a store

    def create(self, tree: Tree) -> Tree:
        """Stores a new object."""
        kind = self._api.kind_of(tree)
        namespace = str(tree["metadata"].get("namespace") or "")
        return self._api.create_object(Target(kind, namespace), tree).tree

    def patch(self, key: object_index.Key, patch: Tree) -> Tree:
        """Applies a JSON merge patch to metadata and spec; a uid in it must be the object's."""
        target, record = self._found(key)
        uid = str((patch.get("metadata") or {}).get("uid") or "")
        check_preconditions(target, record, uid=uid)
        return self._api.write(target, write_rules.merged(record.tree, patch)).tree

    def set_status(self, key: object_index.Key, status: Tree, *, uid: str) -> Tree:
        """Replaces the status."""
        target, record = self._found(key)
        check_preconditions(target, record, uid=uid)
        changed = record.tree | {"status": status}
        return self._api.write(target._replace(subresource="status"), changed).tree

    def delete(self, key: object_index.Key, *, uid: str, propagation: str) -> None:
        """Deletes as a request with this propagation policy does."""
        target, record = self._found(key)
        check_preconditions(target, record, uid=uid)
        self._api.shelf.delete(target.kind, record.key, propagation=propagation)

    def record(self, event: controller_actions.Record) -> None:
        """Stores an event about an object; one that is refused is dropped."""
        metadata = event.about["metadata"]
        namespace = str(metadata.get("namespace") or "default")
        now = self._api.shelf.now()
        regarding = {
            "apiVersion": event.about["apiVersion"],
            "kind": event.about["kind"],
            "namespace": str(metadata.get("namespace") or ""),
            "name": metadata["name"],
            "uid": metadata.get("uid") or "",
        }
        tree = {
            "apiVersion": registry.EVENT.api_version,
            "kind": registry.EVENT.name,
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": namespace},
            "eventTime": timestamps.to_micro_text(now),
            "reportingController": COMPONENT,
            "reportingInstance": COMPONENT,
            "action": event.reason,
            "reason": event.reason,
            "regarding": regarding,
            "note": event.message,
            "type": event.type,
        }
        try:
            self._api.create_object(Target(registry.EVENT, namespace), tree)
        except failures.ApiFailure:
            return

    def _note(self, change: Change) -> None:
        if is_observed(change.kind):
            is_deleted = change.event == watchers.DELETED
            self._controllers.observe(change.record.tree, is_deleted=is_deleted)

    def _found(self, key: object_index.Key) -> tuple[Target, Record]:
        kind = self._kind(key.group, key.kind)
        if kind is None:
            raise failures.Missing(f"no kind {key.kind} in {key.group}", status=404)
        target = Target(kind, key.namespace, key.name)
        return target, self._api.found(target)

    def _kind(self, group: str, name: str) -> registry.Kind | None:
        for resource in self._api.kinds.all():
            kind = resource.kind
            if kind.name == name and object_index.group_of(kind.api_version) == group:
                return kind
        return None


def is_observed(kind: registry.Kind) -> bool:
    """Whether controllers look at objects of the kind."""
    group = object_index.group_of(kind.api_version)
    return group in OBSERVED_GROUPS or (not group and kind.name in OBSERVED_CORE)
