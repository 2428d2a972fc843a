"""Writes of whole objects and of their status: create, update, patch, apply, delete.

Given a served kind, its address and decoded bodies; converts between versions, keeps field owners, validates fields
and hands the rules over to `sim.server`. A rehearsal (dryRun) does everything but store. Never answers HTTP itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from dovetail.kubetypes.registry import Kind
from dovetail.ports.api import Target
from dovetail.sim.rest import object_shapes, request_options, status_answers
from dovetail.sim.rest.encoding import content_types, conversions
from dovetail.sim.rest.patching import field_owners, field_validation, patches, schema_rules
from dovetail.sim.rest.request_options import DeleteOptions, WriteOptions
from dovetail.sim.rest.request_paths import Address
from dovetail.sim.server import (
    api_server,
    builtin_kinds,
    priority_classes,
    write_rules,
)
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.server.object_store import Record
from dovetail.sim.server.served_kinds import Served, table_key

Tree = dict[str, Any]


class Written(NamedTuple):
    """An object after a write."""

    record: Record
    is_new: bool = False
    warnings: tuple[str, ...] = ()


class Deleted(NamedTuple):
    """An object after a deletion; `is_gone` says whether nothing kept it."""

    record: Record
    is_gone: bool


class ObjectWrites:
    """Writes to one server."""

    def __init__(self, api: SimApi) -> None:
        self._api = api

    def create(self, served: Served, at: Address, tree: Tree, options: WriteOptions) -> Written:
        """A new object of a collection."""
        warnings = field_validation.warnings(served, tree, options.field_validation)
        write_rules.check_type(served.kind, conversions.stored(served, tree))
        stored = conversions.stored(served, schema_rules.shaped(served, tree, None))
        object_shapes.check(served.kind, stored, None)
        if options.names_manager:
            stored = field_owners.created(
                stored,
                field_owners.Manager(options.manager, field_owners.UPDATE, served.kind.api_version),
                now=self._api.shelf.stamp(),
                schema=_schema(served),
            )
        target = Target(served.kind, at.namespace)
        record = self._api.create_object(target, stored, is_rehearsal=options.is_rehearsal)
        return Written(record, is_new=True, warnings=tuple(warnings))

    def replace(self, served: Served, at: Address, tree: Tree, options: WriteOptions) -> Written:
        """An object, or its status, sent whole."""
        warnings = field_validation.warnings(served, tree, options.field_validation)
        target = target_of(served.kind, at)
        record = self._api.found(target)
        stored = self._shaped(served, at, tree, record)
        written = self._write(served, target, record, stored, options)
        return Written(written, warnings=tuple(warnings))

    def patch(
        self, served: Served, at: Address, body: bytes, media: str, options: WriteOptions
    ) -> Written:
        """A patch of an object or of its status."""
        if media == content_types.APPLY_PATCH:
            return self._apply(served, at, body, options)
        target = target_of(served.kind, at)
        record = self._api.found(target)
        live = conversions.tree(served, record.tree)
        changed = _patched(served, live, body, media)
        warnings = field_validation.warnings(served, changed, options.field_validation)
        stored = self._shaped(served, at, changed, record)
        written = self._write(served, target, record, stored, options)
        return Written(written, warnings=tuple(warnings))

    def _shaped(self, served: Served, at: Address, tree: Tree, record: Record) -> Tree:
        """A custom resource in the shape its definition says, in the stored version."""
        write_rules.check_type(served.kind, conversions.stored(served, tree))
        old = conversions.tree(served, record.tree)
        shaped = schema_rules.shaped(served, tree, old, subresource=at.subresource)
        return conversions.stored(served, shaped)

    def _write(
        self, served: Served, target: Target, record: Record, tree: Tree, options: WriteOptions
    ) -> Record:
        if not target.subresource and record.document.find(b'"managedFields"') >= 0:
            manager = field_owners.Manager(
                options.manager, field_owners.UPDATE, served.kind.api_version
            )
            tree = field_owners.updated(
                record.tree, tree, manager, now=self._api.shelf.stamp(), schema=_schema(served)
            )
        if not target.subresource:
            object_shapes.check(served.kind, tree, record.tree)
        return self._api.write(target, tree, is_rehearsal=options.is_rehearsal)

    def _apply(self, served: Served, at: Address, body: bytes, options: WriteOptions) -> Written:
        """Server-side apply; creates the object if it is not there."""
        wanted = request_options.tree_of(body)
        warnings = field_validation.warnings(served, wanted, options.field_validation)
        wanted = conversions.stored(served, wanted)
        metadata = dict(wanted.get("metadata") or {})
        if metadata.pop("managedFields", None):
            raise status_answers.bad("metadata.managedFields must be nil")
        metadata.setdefault("name", at.name)
        wanted = wanted | {"metadata": metadata}
        target = target_of(served.kind, at)
        live = self._api.shelf.find(served.kind, (at.namespace, at.name))
        if live is None and at.subresource:
            raise write_rules.not_found(served.kind, at.name)

        manager = field_owners.Manager(
            options.manager, field_owners.APPLY, served.kind.api_version, at.subresource
        )
        tree = field_owners.applied(
            None if live is None else live.tree,
            wanted,
            manager,
            force=options.force,
            now=self._api.shelf.stamp(),
            schema=_schema(served),
        )
        tree = self._shaped_applied(served, at, tree, live)
        if not at.subresource:
            object_shapes.check(served.kind, tree, None if live is None else live.tree)
        if live is None:
            collection = Target(served.kind, at.namespace)
            record = self._api.create_object(collection, tree, is_rehearsal=options.is_rehearsal)
            return Written(record, is_new=True, warnings=tuple(warnings))
        record = self._api.write(target, tree, is_rehearsal=options.is_rehearsal)
        return Written(record, warnings=tuple(warnings))

    def _shaped_applied(self, served: Served, at: Address, tree: Tree, live: Record | None) -> Tree:
        if live is not None:
            return self._shaped(served, at, conversions.tree(served, tree), live)
        new_tree = conversions.tree(served, tree)
        return conversions.stored(served, schema_rules.shaped(served, new_tree, None))

    # Deletion

    def delete(self, kind: Kind, at: Address, options: DeleteOptions) -> Deleted:
        """One object."""
        target = target_of(kind, at)
        record = self._api.found(target)
        return self._delete(target, record, options)

    def delete_all(self, kind: Kind, records: list[Record], options: DeleteOptions) -> None:
        """Many objects of a kind."""
        for record in records:
            target = Target(kind, *record.key)
            if self._api.shelf.find(kind, record.key) is not None:
                self._delete(target, record, options)

    def _delete(self, target: Target, record: Record, options: DeleteOptions) -> Deleted:
        api_server.check_preconditions(
            target, record, uid=options.uid, resource_version=options.resource_version
        )
        self._refuse_protected(target)
        if options.is_rehearsal:
            return Deleted(record, is_gone=False)
        shelf = self._api.shelf
        last = shelf.delete(
            target.kind,
            record.key,
            grace_seconds=options.grace_seconds,
            propagation=options.policy,
        )
        is_gone = shelf.find(target.kind, record.key) is None
        return Deleted(last or record, is_gone)

    def _refuse_protected(self, target: Target) -> None:
        """The namespaces and priority classes a cluster cannot do without."""
        is_class = target.kind == builtin_kinds.PRIORITY_CLASS
        if is_class and priority_classes.is_system(target.name):
            refusal = "this is a system priority class and cannot be deleted"
            raise write_rules.forbidden(target.kind, target.name, refusal)
        is_namespace = table_key(target.kind) == ("", "namespaces")
        if is_namespace and target.name in api_server.NAMESPACES:
            refusal = "this namespace may not be deleted"
            raise write_rules.forbidden(target.kind, target.name, refusal)


def target_of(kind: Kind, at: Address) -> Target:
    """The object of an address, in the stored version."""
    return Target(kind, at.namespace, at.name, at.subresource)


def _schema(served: Served) -> Any:
    """The schema that says how lists of a custom resource are merged; None for built-in kinds."""
    if is_kubernetes(served):
        return None
    return dict(served.resource.schemas).get(served.kind.api_version) or {}


def is_kubernetes(served: Served) -> bool:
    """Whether a kind is Kubernetes' own, so that strategic merge patches know its lists."""
    group = table_key(served.kind)[0]
    return not served.resource.is_custom and ("." not in group or group.endswith(".k8s.io"))


def _patched(served: Served, live: Tree, body: bytes, media: str) -> Tree:
    accepted: tuple[str, ...] = content_types.PATCHES
    if not is_kubernetes(served):
        accepted = tuple(name for name in accepted if name != content_types.STRATEGIC_PATCH)
    if media not in accepted:
        raise status_answers.unsupported_media(", ".join(accepted))
    patch = _decoded(body)
    if media == content_types.JSON_PATCH:
        return patches.json_patched(live, patch)
    if not isinstance(patch, dict):
        raise status_answers.bad("error decoding patch: expected an object")
    if media == content_types.STRATEGIC_PATCH:
        return patches.strategic(live, patch)
    merged: Tree = write_rules.merged(live, patch)
    return merged


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise status_answers.bad(f"error decoding patch: {error}") from None
