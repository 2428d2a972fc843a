"""An API server in memory: `ports.api.Api` over objects that one process keeps, for loops that run without a cluster.

Versions, conflicts, generated names, finalizers, grace, the status and binding subresources behave as on a real server,
which one suite of tests asks of both. Time comes from a clock; controllers act only when told to `settle`. Never
authorises, never starts a controller by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from dovetail.model import claims, kinds, objects
from dovetail.model.kinds import Kind
from dovetail.model.validation import fields
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim import caretaking, machines, merge, rulings, watching
from dovetail.sim.clock import VirtualClock
from dovetail.sim.shelf import Record, Shelf
from dovetail.world.events import ObjectKey

Tree = dict[str, Any]
Hook = Callable[[str, Target], None]  # get, create, patch or delete, and of what; may raise a failure

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")  # there from the beginning
MAX_GENERATED_BASE: Final = 58  # what apimachinery keeps of a name before it appends five characters
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery's safe letters and digits


class SimApi:
    """One cluster in memory."""

    def __init__(
        self,
        clock: clocks.Clock | None = None,
        *,
        namespaces: Iterable[str] = (),
        delay_seconds: float = 0.0,
        check_selector: fields.CheckExpression | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.shelf = Shelf(self.clock.now)
        self.delay_seconds = delay_seconds
        self.before: Hook | None = None  # raises: the request was not carried out
        self.after: Hook | None = None  # raises: it was carried out, and nobody learns of it
        self._check_selector = check_selector or _check_selector
        for name in (*NAMESPACES, *namespaces):
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # What loops ask: ports.api.Api

    async def get(self, target: Target) -> bytes:
        """The document."""
        await self._arrive("get", target)
        answer = objects.encode_tree(self._found(target).tree)
        self._leave("get", target)
        return answer

    async def create(self, target: Target, document: bytes, *, brief: bool = False) -> bytes:
        """Posts to a collection, or a binding or an eviction to a pod."""
        await self._arrive("create", target)
        tree = rulings.parsed(document)
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
                raise failures.Missing(f"{target}: no such subresource", status=404, reason="NotFound")
        self._leave("create", target)
        if record is None:
            return b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
        return _answer(record, brief=brief)

    async def patch(self, target: Target, patch: bytes, *, brief: bool = False, adds: bool = False) -> bytes:
        """A JSON merge patch of an object or of its status; one that only adds leaves other items of keyed lists."""
        await self._arrive("patch", target)
        if target.subresource not in ("", "status"):
            raise failures.Missing(f"{target}: no such subresource", status=404, reason="NotFound")
        record = self._found(target)
        given = rulings.parsed(patch)
        if adds:
            given = merge.completed(record.tree, given)
        tree = rulings.patched(target, record, given, terms=self._terms(target.namespace))
        kept = self.shelf.put(target.kind, tree)
        self._leave("patch", target)
        return _answer(kept, brief=brief)

    async def protect(self, target: Target, finalizer: str, *, uid: str, resource_version: str) -> bytes:
        """Adds a finalizer; its metadata then."""
        finalizers = [*self._found(target).metadata.finalizers, finalizer]
        metadata = {"uid": uid, "resourceVersion": resource_version, "finalizers": finalizers}
        return await self.patch(target, msgspec.json.encode({"metadata": metadata}), brief=True)

    async def delete(
        self, target: Target, *, uid: str = "", resource_version: str = "", grace_seconds: int | None = None
    ) -> None:
        """Deletes, only if the uid and version are still these where given."""
        await self._arrive("delete", target)
        metadata = self._found(target).metadata
        for what, wanted, have in (
            ("uid", uid, metadata.uid),
            ("version", resource_version, metadata.resource_version),
        ):
            if wanted and wanted != have:
                message = f"{target}: the {what} asked for is {wanted}, the object's is {have}"
                raise failures.Conflict(message, status=409, reason="Conflict")
        self.shelf.delete(target.kind, _key(target), grace_seconds=grace_seconds)
        self._leave("delete", target)

    async def evict(
        self, target: Target, *, uid: str, grace_seconds: int | None = None, is_rehearsal: bool = False
    ) -> None:
        """Asks for a pod to end; a rehearsal only asks whether it could. Nothing here has a disruption budget."""
        place = target._replace(subresource="eviction")
        await self._arrive("rehearse" if is_rehearsal else "create", place)
        found = self._found(target).metadata
        if found.uid != uid:
            raise failures.Conflict(f"{target}: the uid asked for is {uid}, the pod's is {found.uid}", status=409)
        if not is_rehearsal:
            self.shelf.delete(kinds.POD, _key(target), grace_seconds=grace_seconds)
        self._leave("rehearse" if is_rehearsal else "create", place)

    # What tests ask

    def follow(self, kind: Kind, sink: watching.Sink) -> watching.Subscription:
        """Tells the sink everything there is of a kind and then every change, at once and in order."""
        return self.shelf.follow(kind, sink)

    def subscribe(self, kind: Kind, callback: watching.Callback) -> watching.Subscription:
        """Tells (ADDED, MODIFIED or DELETED; struct) for every change from now on. `queue.put` makes a feed of it."""
        return self.shelf.subscribe(kind, callback)

    def all(self, kind: Kind) -> list[Any]:
        """Every object of a kind, by namespace and name."""
        return [record.struct for record in self.shelf.all(kind)]

    def find(self, kind: Kind, name: str, *, namespace: str = "") -> Any:
        """One object, or None."""
        record = self.shelf.find(kind, (namespace, name))
        return None if record is None else record.struct

    def tree(self, kind: Kind, name: str, *, namespace: str = "") -> Tree:
        """One object as a plain tree, fields without a struct included. It must be there."""
        return rulings.parsed(objects.encode_tree(self._found(Target(kind, namespace, name)).tree))

    def put(self, tree: Tree, *, namespace: str = "default") -> Any:
        """Creates an object at once, as its owner would; a status beside it is written after it. The struct."""
        kind = kind_of(tree)
        given: Tree = tree.get("metadata") or {}
        place = (given.get("namespace") or namespace) if kind.is_namespaced else ""
        record = self._create(Target(kind, place), tree)
        if tree.get("status") and kind.name in rulings.WITH_STATUS:
            target = Target(kind, place, record.metadata.name, "status")
            changed = rulings.patched(target, record, {"status": tree["status"]}, terms=self._terms(place))
            record = self.shelf.put(kind, changed)
        return record.struct

    def settle(self) -> int:
        """Lets the controllers of claims and of orphans do all they can; how many objects they wrote."""
        return caretaking.settle(self.shelf)

    # Effects

    def _create(self, target: Target, tree: Tree) -> Record:
        kind = target.kind
        if kind.is_namespaced and self.shelf.find(kinds.NAMESPACE, ("", target.namespace)) is None:
            raise failures.Missing(f'namespaces "{target.namespace}" not found', status=404, reason="NotFound")
        metadata: Tree = tree.get("metadata") or {}
        name = str(metadata.get("name") or "") or self._generated(str(metadata.get("generateName") or ""))
        if self.shelf.find(kind, (target.namespace, name)) is not None:
            raise failures.AlreadyThere(f'{kind.plural} "{name}" already exists', status=409, reason="AlreadyExists")
        made = rulings.created(target, tree, name=name, terms=self._terms(target.namespace))
        return self.shelf.put(kind, made)

    def _generated(self, base: str) -> str:
        if not base:
            raise failures.Refused("metadata.name: name or generateName is required", status=422, reason="Invalid")
        number = int(machines.derived_uuid("name", base, self.shelf.revision).replace("-", ""), 16)
        suffix = "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(5))
        return base[:MAX_GENERATED_BASE] + suffix

    def _bind(self, target: Target, tree: Tree) -> None:
        record = self._found(target._replace(subresource=""))
        self.shelf.put(kinds.POD, rulings.bound(target, record, tree, now=self.shelf.stamp()))

    def _evict(self, target: Target, tree: Tree) -> None:
        self._found(target._replace(subresource=""))
        options: Tree = tree.get("deleteOptions") or {}
        self.shelf.delete(kinds.POD, _key(target), grace_seconds=options.get("gracePeriodSeconds"))

    def _found(self, target: Target) -> Record:
        record = self.shelf.find(target.kind, _key(target))
        if record is None:
            raise failures.Missing(f'{target.kind.plural} "{target.name}" not found', status=404, reason="NotFound")
        return record

    def _terms(self, namespace: str) -> fields.Terms:
        place = self.shelf.find(kinds.NAMESPACE, ("", namespace)) if namespace else None
        labels = {} if place is None else place.metadata.labels
        return fields.Terms(
            check_selector=self._check_selector,
            namespace_has_admin_label=labels.get(claims.ADMIN_NAMESPACE_LABEL) == "true",
            namespace=namespace,
            now=self.shelf.stamp(),
        )

    async def _arrive(self, verb: str, target: Target) -> None:
        if self.delay_seconds:
            await self.clock.sleep(self.delay_seconds)
        else:
            await asyncio.sleep(0)  # others go on between two requests, as they do with a real server
        if self.before is not None:
            self.before(verb, target)

    def _leave(self, verb: str, target: Target) -> None:
        if self.after is not None:
            self.after(verb, target)


SERVED: Final = (
    *kinds.WATCHED,
    *kinds.OURS,
    kinds.NAMESPACE,
    kinds.TEMPLATE,
    kinds.LEASE,
    kinds.EVENT,
    kinds.INTENT,
    kinds.POD_GROUP,
)
_BY_NAME: Final = {(kind.api_version, kind.name): kind for kind in SERVED}


def kind_of(tree: Tree) -> Kind:
    """The served kind of a document."""
    found = _BY_NAME.get((str(tree.get("apiVersion")), str(tree.get("kind"))))
    if found is None:
        raise failures.Missing(f"no kind {tree.get('kind')} in {tree.get('apiVersion')}", status=404, reason="NotFound")
    return found


def _key(target: Target) -> ObjectKey:
    return target.namespace, target.name


def _answer(record: Record, *, brief: bool) -> bytes:
    if not brief:
        return objects.encode_tree(record.tree)
    return objects.encode_tree(
        {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": record.tree["metadata"]}
    )


def _check_selector(expression: str) -> fields.ExpressionFault | None:
    from dovetail.cel import selectors  # only objects with selectors need the engine

    return selectors.problem(expression)
