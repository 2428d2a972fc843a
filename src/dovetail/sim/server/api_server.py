"""An API server in memory: `ports.api.Api` over objects of one process, for loops that run without a cluster.

Versions, conflicts, generated names, finalizers, grace periods and the status and binding subresources behave as on a
real server; one contract suite tests both. Time comes from a clock; controllers act only in `settle`. Never authorises,
never starts a controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.kubetypes import codec, field_errors, names, registry
from dovetail.kubetypes.registry import Kind
from dovetail.kubetypes.resource import claims
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.fleet import machines
from dovetail.sim.server import (
    builtin_kinds,
    controllers,
    garbage_collector,
    limit_ranges,
    merge,
    object_store,
    priority_classes,
    served_kinds,
    share_claims,
    watchers,
    write_rules,
)
from dovetail.sim.server.object_store import Change, ObjectStore, Record
from dovetail.sim.server.quotas import quota_ledger
from dovetail.sim.server.served_kinds import ServedKinds, TableKey
from dovetail.sim.virtual_clock import VirtualClock
from dovetail.world.events import ObjectKey

Tree = dict[str, Any]


class StoredObject(NamedTuple):
    """One object as a journal kept it."""

    table: TableKey
    key: ObjectKey
    document: bytes

    @property
    def place(self) -> str:
        """How messages name it."""
        namespace, name = self.key
        return f"{self.table[1]} {namespace}/{name}" if namespace else f"{self.table[1]} {name}"


class Restored(NamedTuple):
    """The state of a server that ran before."""

    revision: int
    objects: list[StoredObject]
    origin: str = "the state"  # the file it was read from


Hook = Callable[[str, Target], None]  # given the verb and its target; may raise a failure

START_OVER: Final = "dovetail up --fresh starts over"
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
        collects_all_kinds: bool = False,
        is_complete: bool = False,
        restored: Restored | None = None,
        on_change: Callable[[Change], None] | None = None,
    ) -> None:
        """Starts with the objects of `restored`, if there are any; `on_change` hears of every change after that.

        `collects_all_kinds` lets the garbage collector notice the absence of owners of every served kind; without it,
        simulations may name owners that they do not store. `is_complete` makes it the cluster of a user: it has what
        every cluster has from the start (system priority classes, a default service account in each namespace), adds
        claims for shares of a GPU as the chart's policy does, and refuses a priority without a class, which simulations
        and tests give their pods.
        """
        self.clock = clock or VirtualClock()
        self.kinds = ServedKinds()
        self.shelf = ObjectStore(self.clock.now)
        self.shelf.listen(self._note_definition)
        if restored is not None:
            self._restore(restored)
        if on_change is not None:
            self.shelf.listen(on_change)
        self.delay_seconds = delay_seconds
        self.before: Hook | None = None  # if it raises, the request is not carried out
        self.after: Hook | None = (
            None  # if it raises, the request was carried out, but its answer is lost
        )
        self._check_selector = check_selector or _check_selector
        owner_kind = (
            self.kinds.owner_kind if collects_all_kinds else garbage_collector.collected_kind
        )
        self._is_complete = is_complete
        self._priority_classes: priority_classes.Classes | None = None  # None: to be read again
        self.shelf.listen(self._note_priority_class)
        self.quotas = quota_ledger.QuotaLedger(self.shelf)
        self.controllers = controllers.Controllers(
            self.shelf,
            owner_kind=owner_kind,
            quotas=self.quotas,
            has_service_accounts=is_complete,
        )
        if is_complete:
            self._add_system_classes()
        for name in (*NAMESPACES, *namespaces):
            if self.shelf.find(registry.NAMESPACE, ("", name)) is None:
                self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # The interface of ports.api.Api

    async def get(self, target: Target) -> bytes:
        """The document."""
        await self._arrive("get", target)
        answer = self.found(target).document
        self._leave("get", target)
        return answer

    async def create(self, target: Target, document: bytes, *, brief: bool = False) -> bytes:
        """Posts to a collection, or a binding or an eviction to a pod."""
        await self._arrive("create", target)
        tree = write_rules.parsed(document)
        match target.subresource:
            case "binding":
                self.bind(target, tree)
                record = None
            case "eviction":
                self._evict(target, tree)
                record = None
            case "":
                record = self.create_object(target, tree)
            case _:
                raise write_rules.not_served()
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
            raise write_rules.not_served()
        record = self.found(target)
        patch_tree = write_rules.parsed(patch)
        if adds:
            patch_tree = merge.as_merge_patch(record.tree, patch_tree)
        stored = self.write(target, write_rules.merged(record.tree, patch_tree))
        self._leave("patch", target)
        return _answer(stored, brief=brief)

    async def protect(
        self, target: Target, finalizer: str, *, uid: str, resource_version: str
    ) -> bytes:
        """Adds a finalizer; returns the metadata."""
        finalizers = [*self.found(target).metadata.finalizers, finalizer]
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
        check_preconditions(target, self.found(target), uid=uid, resource_version=resource_version)
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
        metadata = self.found(target).metadata
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
        return self.found(Target(kind, namespace, name)).tree

    def put(self, tree: Tree, *, namespace: str = "default") -> Any:
        """Creates an object as its owner would, then writes its status if it has one. Returns the struct."""
        kind = self.kind_of(tree)
        metadata: Tree = tree.get("metadata") or {}
        place = (metadata.get("namespace") or namespace) if kind.is_namespaced else ""
        record = self.create_object(Target(kind, place), tree)
        if tree.get("status") and self.kinds.has_status(kind):
            target = Target(kind, place, record.metadata.name, "status")
            changed = write_rules.merged(record.tree, {"status": tree["status"]})
            record = self.write(target, changed)
        return record.struct

    def settle(self, most_writes: int | None = None) -> int:
        """Runs the controllers until they have nothing left to do, or have written this much; returns how much."""
        return self.controllers.settle(most_writes)

    def kind_of(self, tree: Tree) -> Kind:
        """The served kind of a document in its stored version."""
        served = self.kinds.named(str(tree.get("apiVersion")), str(tree.get("kind")))
        if served is None or not served.is_stored_version:
            raise failures.Missing(
                f"no kind {tree.get('kind')} in {tree.get('apiVersion')}",
                status=404,
                reason="NotFound",
            )
        return served.kind

    # Effects, shared with the HTTP front

    def create_object(self, target: Target, tree: Tree, *, is_rehearsal: bool = False) -> Record:
        """Stores a new object of a collection; a rehearsal only checks it."""
        kind = target.kind
        metadata: Tree = tree.get("metadata") or {}
        name = str(metadata.get("name") or "") or self._generated(
            str(metadata.get("generateName") or ""), kind.name
        )
        if kind.is_namespaced:
            self._check_namespace(target, name)
        if self.shelf.find(kind, (target.namespace, name)) is not None:
            raise failures.AlreadyThere(
                f'{write_rules.qualified(kind)} "{name}" already exists',
                status=409,
                reason="AlreadyExists",
            )
        if write_rules.is_kind(kind, registry.POD):
            tree = self._with_priority(tree, name)
            if self._is_complete:
                tree = share_claims.with_claim(tree)
            tree = self._with_limits(tree, target.namespace)
        created = write_rules.created(
            target,
            tree,
            name=name,
            terms=self._terms(target.namespace),
            has_status=self.kinds.has_status(kind),
        )
        self._check_priority_class(kind, created, None)
        self._check_limits(kind, created, target.namespace)
        if self.quotas.has_quotas(target.namespace):
            self._check_quotas(kind, object_store.encoded(kind, created))
        return self.shelf.put(kind, created, is_rehearsal=is_rehearsal)

    def write(self, target: Target, tree: Tree, *, is_rehearsal: bool = False) -> Record:
        """Replaces an object, or its status; a rehearsal only checks it."""
        record = self.found(target)
        changed = write_rules.written(
            target,
            record,
            tree,
            terms=self._terms(target.namespace),
            has_status=self.kinds.has_status(target.kind),
        )
        self._check_priority_class(target.kind, changed, record)
        if not target.subresource and self.quotas.has_quotas(target.namespace):
            self._check_quotas(target.kind, object_store.encoded(target.kind, changed), record)
        return self.shelf.put(target.kind, changed, is_rehearsal=is_rehearsal)

    def _check_priority_class(self, kind: Kind, tree: Tree, old: Record | None) -> None:
        if kind != builtin_kinds.PRIORITY_CLASS:
            return
        misfits = self._classes().misfits(tree, None if old is None else old.tree)
        if not misfits:
            return
        problems = [
            field_errors.FieldProblem(field_errors.INVALID, field, message)
            for field, message in misfits
        ]
        subject = "PriorityClass.scheduling.k8s.io"
        raise write_rules.Invalid(subject, str(tree["metadata"]["name"]), problems)

    def _with_limits(self, tree: Tree, namespace: str) -> Tree:
        """A pod with the requests and limits that the namespace gives its containers."""
        ranges = self._limit_ranges(namespace)
        return (
            limit_ranges.with_defaults(write_rules.with_all_requests(tree), ranges)
            if ranges
            else tree
        )

    def _check_limits(self, kind: Kind, tree: Tree, namespace: str) -> None:
        checks = {
            registry.POD: limit_ranges.pod_refusal,
            registry.VOLUME_CLAIM: limit_ranges.volume_claim_refusal,
        }
        check = checks.get(kind)
        ranges = self._limit_ranges(namespace) if check is not None else []
        refusal = check(tree, ranges) if check is not None and ranges else ""
        if refusal:
            raise write_rules.forbidden(kind, str(tree["metadata"]["name"]), refusal)

    def _limit_ranges(self, namespace: str) -> list[Tree]:
        records = self.shelf.all(builtin_kinds.LIMIT_RANGE, namespace)
        return [record.tree for record in records]

    def _check_quotas(self, kind: Kind, record: Record, old: Record | None = None) -> None:
        refusal = self.quotas.refusal(served_kinds.table_key(kind), record, old)
        if refusal:
            raise write_rules.forbidden(kind, record.metadata.name, refusal)

    def _with_priority(self, tree: Tree, name: str) -> Tree:
        """A pod with the priority of the class it names, or of the default class."""
        spec: Tree = tree.get("spec") or {}
        class_name = str(spec.get("priorityClassName") or "")
        classes = self._classes()
        standing = classes.find(class_name) if class_name else classes.default()
        if standing is None:
            refusal = f"no PriorityClass with name {class_name} was found"
            raise write_rules.forbidden(registry.POD, name, refusal)
        if standing == priority_classes.NO_CLASS and not self._is_complete:
            return tree
        refusal = priority_classes.refusal(spec, standing)
        if refusal:
            raise write_rules.forbidden(registry.POD, name, refusal)
        decided: Tree = {"priority": standing.value, "preemptionPolicy": standing.policy}
        if standing.name:
            decided["priorityClassName"] = standing.name
        return tree | {"spec": spec | decided}

    def _classes(self) -> priority_classes.Classes:
        """The priority classes, read again only after one has changed."""
        if self._priority_classes is None:
            records = self.shelf.all(builtin_kinds.PRIORITY_CLASS)
            self._priority_classes = priority_classes.Classes(record.tree for record in records)
        return self._priority_classes

    def _note_priority_class(self, change: Change) -> None:
        if change.kind == builtin_kinds.PRIORITY_CLASS:
            self._priority_classes = None

    def _add_system_classes(self) -> None:
        for tree in priority_classes.system_trees():
            key = ("", tree["metadata"]["name"])
            if self.shelf.find(builtin_kinds.PRIORITY_CLASS, key) is None:
                self.shelf.put(builtin_kinds.PRIORITY_CLASS, tree)

    def _check_namespace(self, target: Target, name: str) -> None:
        namespace = self.shelf.find(registry.NAMESPACE, ("", target.namespace))
        if namespace is None:
            raise write_rules.not_found(registry.NAMESPACE, target.namespace)
        if namespace.metadata.deletion_timestamp is not None:
            raise write_rules.forbidden(
                target.kind,
                name,
                f"unable to create new content in namespace {target.namespace} because it is being "
                "terminated",
            )

    def _note_definition(self, change: Change) -> None:
        """Serves the kinds of CustomResourceDefinitions while they are stored."""
        if not write_rules.is_kind(change.kind, builtin_kinds.CRD):
            return
        if change.event == watchers.DELETED:
            kind = self.kinds.forget(change.record.tree)
            if kind is not None:
                self.shelf.drop_table(kind)
        else:
            self.kinds.define(change.record.tree)

    def _restore(self, restored: Restored) -> None:
        """Puts back stored objects; definitions first, because they say what the others are.

        Raises StateError if one cannot be what the server stored.
        """
        definitions = served_kinds.table_key(builtin_kinds.CRD)
        ordered = sorted(restored.objects, key=lambda stored: stored.table != definitions)
        for stored in ordered:
            kind = self.kinds.stored_kind(stored.table)
            if kind is None:
                continue  # its definition is gone
            try:
                self._put_back(kind, stored)
            except errors.InputError as error:
                raise errors.StateError(
                    f"{restored.origin}: {stored.place}: {error}; {START_OVER}"
                ) from None
        self.shelf.restored(restored.revision)

    def _put_back(self, kind: Kind, stored: StoredObject) -> None:
        """Puts back one object. Raises InputError if it is damaged."""
        tree = codec.parsed(stored.document)
        record = self.shelf.restore(kind, stored.document)
        struct = record.struct
        is_of_kind = struct.kind == tree.get("kind") == kind.name  # a key may be there twice
        is_of_group = struct.api_version.rpartition("/")[0] == stored.table[0]
        if record.key != stored.key or not is_of_kind or not is_of_group:
            raise errors.InputError(f"the document holds {codec.subject_of(struct)}")
        if kind == builtin_kinds.CRD:
            try:
                self.kinds.define(tree)
            except (AttributeError, TypeError, ValueError, KeyError) as error:
                raise errors.InputError(f"the definition cannot be used: {error}") from None

    def _generated(self, base: str, kind_name: str) -> str:
        if not base:
            message = "Required value: name or generateName is required"
            problem = field_errors.FieldProblem(field_errors.REQUIRED, "metadata.name", message)
            raise write_rules.Invalid(kind_name, "", [problem])
        number = int(machines.derived_uuid("name", base, self.shelf.revision).replace("-", ""), 16)
        suffix = "".join(
            _ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(5)
        )
        return base[: names.MAX_GENERATED_BASE] + suffix

    def bind(self, target: Target, tree: Tree) -> None:
        record = self.found(target._replace(subresource=""))
        self.shelf.put(
            registry.POD, write_rules.bound(target, record, tree, now=self.shelf.stamp())
        )

    def _evict(self, target: Target, tree: Tree) -> None:
        self.found(target._replace(subresource=""))
        options: Tree = tree.get("deleteOptions") or {}
        self.shelf.delete(
            registry.POD, _key(target), grace_seconds=options.get("gracePeriodSeconds")
        )

    def found(self, target: Target) -> Record:
        """The object of a target. Raises Missing."""
        record = self.shelf.find(target.kind, _key(target))
        if record is None:
            raise write_rules.not_found(target.kind, target.name)
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


def check_preconditions(
    target: Target, record: Record, *, uid: str = "", resource_version: str = ""
) -> None:
    """Refuses a deletion that was meant for another object of the name, or for another version."""
    metadata = record.metadata
    for what, expected, have, otherwise in (
        ("UID", uid, metadata.uid, "deleted and then recreated"),
        ("ResourceVersion", resource_version, metadata.resource_version, "modified"),
    ):
        if expected and expected != have:
            raise failures.Conflict(
                f'Operation cannot be fulfilled on {target.kind.name} "{target.name}": '
                f"the {what} in the precondition ({expected}) does not match the {what} in record "
                f"({have}). The object might have been {otherwise}",
                status=409,
                reason="Conflict",
            )


def _key(target: Target) -> ObjectKey:
    return target.namespace, target.name


def _answer(record: Record, *, brief: bool) -> bytes:
    if not brief:
        return record.document
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
