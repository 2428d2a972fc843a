"""An API server in memory: `ports.api.Api` over objects of one process, for loops that run without a cluster.

Versions, conflicts, generated names, finalizers, grace periods and the status and binding subresources behave as on a
real server; one contract suite tests both. Time comes from a clock; controllers act only in `settle`. Never authorises,
never starts a controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from dovetail.kubetypes import codec, field_errors, names, registry
from dovetail.kubetypes.registry import Kind
from dovetail.kubetypes.resource import claims
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.fleet import machines
from dovetail.sim.server import controllers, merge, watchers, write_rules
from dovetail.sim.server.object_store import ObjectStore, Record
from dovetail.sim.virtual_clock import VirtualClock
from dovetail.world.events import ObjectKey

Tree = dict[str, Any]
Hook = Callable[[str, Target], None]  # given the verb and its target; may raise a failure

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")  # built in
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery's safe letters and digits


class SimApi:
    """One cluster in memory."""

    def __init__(
        self,
        clock: clocks.Clock | None = None,
        *,
        namespaces: Iterable[str] = (),
        delay_seconds: float = 0.0,
        check_selector: field_errors.CheckExpression | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.shelf = ObjectStore(self.clock.now)
        self.delay_seconds = delay_seconds
        self.before: Hook | None = None  # if it raises, the request is not carried out
        self.after: Hook | None = (
            None  # if it raises, the request was carried out, but its answer is lost
        )
        self._check_selector = check_selector or _check_selector
        for name in (*NAMESPACES, *namespaces):
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # The interface of ports.api.Api

    async def get(self, target: Target) -> bytes:
        """The document."""
        await self._arrive("get", target)
        answer = codec.encode_tree(self._found(target).tree)
        self._leave("get", target)
        return answer

    async def create(self, target: Target, document: bytes, *, brief: bool = False) -> bytes:
        """Posts to a collection, or a binding or an eviction to a pod."""
        await self._arrive("create", target)
        tree = write_rules.parsed(document)
        match target.subresource:
            case "binding":
                self._bind(target, tree)
                record = None
            case "eviction":
                self._evict(target, tree)
                record = None
            case "":
                record = self._create(target, tree)
            case _:
                raise failures.Missing(
                    f"{target}: no such subresource", status=404, reason="NotFound"
                )
        self._leave("create", target)
        if record is None:
            return (
                b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
            )
        return _answer(record, brief=brief)

    async def patch(
        self, target: Target, patch: bytes, *, brief: bool = False, adds: bool = False
    ) -> bytes:
        """Patches an object or its status (JSON merge patch); with `adds`, keyed lists keep their other items."""
        await self._arrive("patch", target)
        if target.subresource not in ("", "status"):
            raise failures.Missing(f"{target}: no such subresource", status=404, reason="NotFound")
        record = self._found(target)
        patch_tree = write_rules.parsed(patch)
        if adds:
            patch_tree = merge.as_merge_patch(record.tree, patch_tree)
        tree = write_rules.patched(target, record, patch_tree, terms=self._terms(target.namespace))
        stored = self.shelf.put(target.kind, tree)
        self._leave("patch", target)
        return _answer(stored, brief=brief)

    async def protect(
        self, target: Target, finalizer: str, *, uid: str, resource_version: str
    ) -> bytes:
        """Adds a finalizer; returns the metadata."""
        finalizers = [*self._found(target).metadata.finalizers, finalizer]
        metadata = {"uid": uid, "resourceVersion": resource_version, "finalizers": finalizers}
        return await self.patch(target, msgspec.json.encode({"metadata": metadata}), brief=True)

    async def delete(
        self,
        target: Target,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Deletes, if the uid and the version still match those given."""
        await self._arrive("delete", target)
        metadata = self._found(target).metadata
        for what, expected, have in (
            ("uid", uid, metadata.uid),
            ("version", resource_version, metadata.resource_version),
        ):
            if expected and expected != have:
                message = (
                    f"{target}: the {what} of the request is {expected}, the object's is {have}"
                )
                raise failures.Conflict(message, status=409, reason="Conflict")
        self.shelf.delete(target.kind, _key(target), grace_seconds=grace_seconds)
        self._leave("delete", target)

    async def evict(
        self,
        target: Target,
        *,
        uid: str,
        grace_seconds: int | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        """Evicts a pod; a rehearsal only checks whether it could be. There are no disruption budgets here."""
        place = target._replace(subresource="eviction")
        await self._arrive("rehearse" if is_rehearsal else "create", place)
        metadata = self._found(target).metadata
        if metadata.uid != uid:
            raise failures.Conflict(
                f"{target}: the uid of the request is {uid}, the pod's is {metadata.uid}",
                status=409,
            )
        if not is_rehearsal:
            self.shelf.delete(registry.POD, _key(target), grace_seconds=grace_seconds)
        self._leave("rehearse" if is_rehearsal else "create", place)

    # For tests and simulations

    def follow(self, kind: Kind, sink: watchers.Sink) -> watchers.Subscription:
        """Sends the sink all objects of a kind and then every change, at once and in order."""
        return self.shelf.follow(kind, sink)

    def subscribe(self, kind: Kind, callback: watchers.Callback) -> watchers.Subscription:
        """Calls back with (ADDED, MODIFIED or DELETED; struct) on every change from now on."""
        return self.shelf.subscribe(kind, callback)

    def all(self, kind: Kind) -> list[Any]:
        """Every object of a kind, by namespace and name."""
        return [record.struct for record in self.shelf.all(kind)]

    def find(self, kind: Kind, name: str, *, namespace: str = "") -> Any:
        """One object, or None."""
        record = self.shelf.find(kind, (namespace, name))
        return None if record is None else record.struct

    def tree(self, kind: Kind, name: str, *, namespace: str = "") -> Tree:
        """One object as a plain tree, with the fields that structs lack. It must exist."""
        return write_rules.parsed(
            codec.encode_tree(self._found(Target(kind, namespace, name)).tree)
        )

    def put(self, tree: Tree, *, namespace: str = "default") -> Any:
        """Creates an object as its owner would, then writes its status if it has one. Returns the struct."""
        kind = kind_of(tree)
        metadata: Tree = tree.get("metadata") or {}
        place = (metadata.get("namespace") or namespace) if kind.is_namespaced else ""
        record = self._create(Target(kind, place), tree)
        if tree.get("status") and kind.name in write_rules.WITH_STATUS:
            target = Target(kind, place, record.metadata.name, "status")
            changed = write_rules.patched(
                target, record, {"status": tree["status"]}, terms=self._terms(place)
            )
            record = self.shelf.put(kind, changed)
        return record.struct

    def settle(self) -> int:
        """Runs the controllers until they have nothing left to do; returns how many objects they wrote."""
        return controllers.settle(self.shelf)

    # Effects

    def _create(self, target: Target, tree: Tree) -> Record:
        kind = target.kind
        if (
            kind.is_namespaced
            and self.shelf.find(registry.NAMESPACE, ("", target.namespace)) is None
        ):
            raise failures.Missing(
                f'namespaces "{target.namespace}" not found', status=404, reason="NotFound"
            )
        metadata: Tree = tree.get("metadata") or {}
        name = str(metadata.get("name") or "") or self._generated(
            str(metadata.get("generateName") or "")
        )
        if self.shelf.find(kind, (target.namespace, name)) is not None:
            raise failures.AlreadyThere(
                f'{kind.plural} "{name}" already exists', status=409, reason="AlreadyExists"
            )
        created = write_rules.created(target, tree, name=name, terms=self._terms(target.namespace))
        return self.shelf.put(kind, created)

    def _generated(self, base: str) -> str:
        if not base:
            raise failures.Refused(
                "metadata.name: name or generateName is required", status=422, reason="Invalid"
            )
        number = int(machines.derived_uuid("name", base, self.shelf.revision).replace("-", ""), 16)
        suffix = "".join(
            _ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(5)
        )
        return base[: names.MAX_GENERATED_BASE] + suffix

    def _bind(self, target: Target, tree: Tree) -> None:
        record = self._found(target._replace(subresource=""))
        self.shelf.put(
            registry.POD, write_rules.bound(target, record, tree, now=self.shelf.stamp())
        )

    def _evict(self, target: Target, tree: Tree) -> None:
        self._found(target._replace(subresource=""))
        options: Tree = tree.get("deleteOptions") or {}
        self.shelf.delete(
            registry.POD, _key(target), grace_seconds=options.get("gracePeriodSeconds")
        )

    def _found(self, target: Target) -> Record:
        record = self.shelf.find(target.kind, _key(target))
        if record is None:
            raise failures.Missing(
                f'{target.kind.plural} "{target.name}" not found', status=404, reason="NotFound"
            )
        return record

    def _terms(self, namespace: str) -> field_errors.Terms:
        place = self.shelf.find(registry.NAMESPACE, ("", namespace)) if namespace else None
        labels = {} if place is None else place.metadata.labels
        return field_errors.Terms(
            check_selector=self._check_selector,
            namespace_has_admin_label=labels.get(claims.ADMIN_NAMESPACE_LABEL) == "true",
            namespace=namespace,
            now=self.shelf.stamp(),
        )

    async def _arrive(self, verb: str, target: Target) -> None:
        if self.delay_seconds:
            await self.clock.sleep(self.delay_seconds)
        else:
            await asyncio.sleep(0)  # other tasks run between two requests, as with a real server
        if self.before is not None:
            self.before(verb, target)

    def _leave(self, verb: str, target: Target) -> None:
        if self.after is not None:
            self.after(verb, target)


SERVED: Final = (*registry.WORLD, *registry.RECORDS, registry.POD_GROUP)
_BY_NAME: Final = {(kind.api_version, kind.name): kind for kind in SERVED}


def kind_of(tree: Tree) -> Kind:
    """The served kind of a document."""
    kind = _BY_NAME.get((str(tree.get("apiVersion")), str(tree.get("kind"))))
    if kind is None:
        raise failures.Missing(
            f"no kind {tree.get('kind')} in {tree.get('apiVersion')}", status=404, reason="NotFound"
        )
    return kind


def _key(target: Target) -> ObjectKey:
    return target.namespace, target.name


def _answer(record: Record, *, brief: bool) -> bytes:
    if not brief:
        return codec.encode_tree(record.tree)
    return codec.encode_tree(
        {
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": record.tree["metadata"],
        }
    )


def _check_selector(expression: str) -> field_errors.ExpressionFault | None:
    from dovetail.cel import selectors  # only objects with selectors need the engine

    return selectors.problem(expression)
