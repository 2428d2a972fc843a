"""Writes the objects of manifests to a server, all or none: local rules, a dry run of every object, then the writes.

Given objects with their places, so that every refusal names file and line. What a dry run cannot check, because it
needs an object of the same files (its namespace, its definition), is written without one. A write that fails after all
is reported with what was written before it. Never prints.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dovetail import timestamps
from dovetail.admission import admit
from dovetail.cli.cluster import settling
from dovetail.kube import object_requests, resource_names
from dovetail.kube.http import transport
from dovetail.kubetypes import codec, field_errors, registry
from dovetail.kubetypes.custom import queues
from dovetail.manifest import manifests
from dovetail.model.queue import queue_tree
from dovetail.ports import api

CREATED: Final = "created"
CONFIGURED: Final = "configured"
UNCHANGED: Final = "unchanged"

CONCURRENCY: Final = 16
ATTEMPTS: Final = 3  # to look at an object between two writes of its controllers
SERVED_SECONDS: Final = 10.0  # for a definition to be served after it was written
POLL_SECONDS: Final = 0.1
_DEFINITION: Final = "CustomResourceDefinition"
PRIORITY_CLASS: Final = registry.Kind(
    "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False, codec.Generic
)
# What others of the same files need comes first, whatever their order there.
_FIRST: Final = {"Namespace": 0, _DEFINITION: 1, "PriorityClass": 2, "DeviceClass": 3}
_LAST: Final = len(_FIRST)

Tree = dict[str, Any]


class Change(NamedTuple):
    """What was done to one object."""

    label: str
    kind: str
    namespace: str
    name: str
    outcome: str
    tree: Tree


class Outcome(NamedTuple):
    """One change per object in the order given, or the problems because of which nothing was written."""

    changes: tuple[Change, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_contested: bool = (
        False  # other field managers own what the files set, and nothing else is wrong
    )


class _Item(NamedTuple):
    """An object on its way to the server."""

    manifest: manifests.ManifestObject
    tree: Tree
    target: api.Target
    label: str
    is_served: bool  # already; else a definition among the objects makes it so


class _Rehearsal(NamedTuple):
    """What a write would do to one object."""

    answer: Tree | object_requests.Refusal
    outcome: str


class Writer:
    """The objects of one command."""

    def __init__(
        self,
        objects: Sequence[manifests.ManifestObject],
        *,
        namespace: str,
        is_creating: bool,
        forces_conflicts: bool = False,
    ) -> None:
        self._objects = tuple(objects)
        self._namespace = namespace
        self._is_creating = is_creating
        self._forces_conflicts = forces_conflicts
        self._new_groups = {
            str((item.stored.tree.get("spec") or {}).get("group") or "")
            for item in objects
            if item.stored.struct.kind == _DEFINITION
        }

    def local_problems(self) -> list[str]:
        """What the rules of an API server say against the objects, as far as they need no server."""
        terms = field_errors.Terms(
            check_selector=_check_selector,
            namespace_has_admin_label=True,  # the server knows
            now=timestamps.to_text(datetime.datetime.now(datetime.UTC)),
        )
        problems = []
        for item in self._objects:
            struct = item.stored.struct
            if not struct.metadata.name and not self._is_creating:
                message = "is required; dovetail create takes generated names"
                problems.append(str(item.problem("metadata.name", message)))
                continue
            if isinstance(struct, codec.Generic) or not struct.metadata.name:
                continue
            verdict = admit.create(struct, terms)
            problems += [str(item.problem(each.field, each.message)) for each in verdict.problems]
        return problems

    def unsent(self) -> tuple[Change, ...]:
        """The objects as they would be sent, for who checks files without a cluster."""
        changes = []
        for item in self._objects:
            struct = item.stored.struct
            group = struct.api_version.rpartition("/")[0]
            word = struct.kind.lower() + (f".{group}" if group else "")
            name = struct.metadata.name
            change = Change(
                f"{word}/{name}",
                struct.kind,
                struct.metadata.namespace,
                name,
                CREATED,
                item.stored.tree,
            )
            changes.append(change)
        return tuple(changes)

    async def write(
        self,
        over: transport.Transport,
        *,
        dry_run: bool,
        settles: bool = False,
        report: settling.Report = settling.report_nothing,
    ) -> Outcome:
        """Checks everything on the server, then writes it. `settles` waits for the scheduler's answer."""
        items, problems = await self._resolved(over)
        namespaces = await self._missing(over, registry.NAMESPACE)
        classes = await self._missing(over, PRIORITY_CLASS)
        checkable = [
            item
            for item in items
            if item.is_served
            and item.target.namespace not in namespaces
            and _priority_class(item.tree) not in classes
        ]
        rehearsals = await self._gathered(checkable, lambda item: self._rehearsed(over, item))
        for item, rehearsal in zip(checkable, rehearsals, strict=True):
            problems += _refused(item, rehearsal.answer)
        if problems:
            refusals = [each.answer for each in rehearsals]
            return Outcome(problems=tuple(problems), is_contested=_are_contested(refusals))

        known = {id(item): each for item, each in zip(checkable, rehearsals, strict=True)}
        if dry_run:
            return Outcome(self._rehearsed_changes(items, known))
        outcome = await self._written(over, items, known)
        if settles and not outcome.problems:
            places = {change.namespace for change in outcome.changes if change.namespace}
            kinds = {change.kind for change in outcome.changes}
            await settling.wait_for_answers(over, sorted(places), kinds=kinds, report=report)
        warnings = await self._queue_warnings(over, outcome.changes)
        return outcome._replace(warnings=warnings)

    def _rehearsed_changes(
        self, items: Sequence[_Item], known: dict[int, _Rehearsal]
    ) -> tuple[Change, ...]:
        """What would be done, in the order given; what could not be tried would be created."""
        changes = {}
        for item in items:
            rehearsal = known.get(id(item), _Rehearsal(item.tree, CREATED))
            changes[id(item.manifest)] = _change(item, rehearsal.answer, rehearsal)
        return tuple(changes[id(manifest)] for manifest in self._objects)

    async def _resolved(self, over: transport.Transport) -> tuple[list[_Item], list[str]]:
        """The objects with their kinds on the server, in the order of writing; what it does not serve is a problem."""
        versions = [item.stored.struct.api_version for item in self._objects]
        served = await resource_names.served_types(over, versions)
        items: list[_Item] = []
        unserved: list[manifests.ManifestObject] = []
        for manifest in self._objects:
            struct = manifest.stored.struct
            resource = served.of_type(struct.api_version, struct.kind)
            group = struct.api_version.rpartition("/")[0]
            is_served = resource is not None
            if resource is None and group in self._new_groups:
                resource = self._defined(struct)
            if resource is None:
                unserved.append(manifest)
                continue
            items.append(self._item(manifest, resource, is_served=is_served))
        items.sort(key=lambda item: _FIRST.get(item.target.kind.name, _LAST))
        if not unserved:
            return items, []
        everything = await resource_names.discover(over)
        return items, [_unserved(manifest, everything) for manifest in unserved]

    def _defined(self, struct: codec.Object) -> resource_names.Resource | None:
        """The kind as a definition among the objects describes it."""
        group, _, version = struct.api_version.rpartition("/")
        for item in self._objects:
            spec: Tree = item.stored.tree.get("spec") or {}
            names: Tree = spec.get("names") or {}
            if item.stored.struct.kind != _DEFINITION or spec.get("group") != group:
                continue
            if names.get("kind") == struct.kind:
                is_namespaced = spec.get("scope") != "Cluster"
                plural = str(names.get("plural") or "")
                api_version = f"{group}/{version}"
                kind = registry.Kind(api_version, struct.kind, plural, is_namespaced, codec.Generic)
                return resource_names.Resource(kind)
        return None

    def _item(
        self,
        manifest: manifests.ManifestObject,
        resource: resource_names.Resource,
        *,
        is_served: bool,
    ) -> _Item:
        tree = manifest.stored.tree
        metadata: Tree = tree.get("metadata") or {}
        namespace = ""
        if resource.kind.is_namespaced:
            namespace = str(metadata.get("namespace") or self._namespace)
            tree = tree | {"metadata": metadata | {"namespace": namespace}}
        name = "" if self._is_creating else str(metadata.get("name") or "")
        target = api.Target(resource.kind, namespace, name)
        return _Item(manifest, tree, target, resource.label, is_served)

    async def _missing(self, over: transport.Transport, kind: registry.Kind) -> set[str]:
        """Objects of a kind among ours that do not exist yet: what needs them cannot be tried before."""
        structs = [item.stored.struct for item in self._objects]
        names = sorted({each.metadata.name for each in structs if each.kind == kind.name})
        trees = [await object_requests.read(over, api.Target(kind, "", name)) for name in names]
        return {name for name, tree in zip(names, trees, strict=True) if tree is None}

    async def _gathered(self, items: Sequence[_Item], request: Any) -> list[Any]:
        """The answers to one request per object, a few at a time."""
        slots = asyncio.Semaphore(CONCURRENCY)

        async def limited(item: _Item) -> Any:
            async with slots:
                return await request(item)

        return await asyncio.gather(*map(limited, items))

    async def _rehearsed(self, over: transport.Transport, item: _Item) -> _Rehearsal:
        """What a write would do. Looked at again where it would change something: a controller may have written."""
        rehearsal = await self._rehearsed_once(over, item)
        for _ in range(ATTEMPTS - 1):
            if rehearsal.outcome != CONFIGURED:
                break
            rehearsal = await self._rehearsed_once(over, item)
        return rehearsal

    async def _rehearsed_once(self, over: transport.Transport, item: _Item) -> _Rehearsal:
        before = None if self._is_creating else await object_requests.read(over, item.target)
        answer = await self._request(over, item, is_rehearsal=True)
        if before is None or isinstance(answer, object_requests.Refusal):
            return _Rehearsal(answer, CREATED)
        if _wanted(answer) == _wanted(before):
            return _Rehearsal(before, UNCHANGED)
        return _Rehearsal(answer, CONFIGURED)

    async def _request(
        self, over: transport.Transport, item: _Item, *, is_rehearsal: bool = False
    ) -> Tree | object_requests.Refusal:
        target, tree = item.target, item.tree
        if self._is_creating:
            return await object_requests.create(over, target, tree, is_rehearsal=is_rehearsal)
        return await object_requests.apply(
            over, target, tree, is_rehearsal=is_rehearsal, is_forced=self._forces_conflicts
        )

    async def _written(
        self,
        over: transport.Transport,
        items: Sequence[_Item],
        known: dict[int, _Rehearsal],
    ) -> Outcome:
        """Writes in order, objects of one rank side by side; stops at the first rank with a refusal."""
        changes: dict[int, Change] = {}
        problems: list[str] = []
        for rank in range(_LAST + 1):
            ranked = [item for item in items if _FIRST.get(item.target.kind.name, _LAST) == rank]
            answers = await self._gathered(ranked, lambda item: self._sent(over, item, known))
            for item, answer in zip(ranked, answers, strict=True):
                refused = _refused(item, answer)
                problems += refused
                if not refused:
                    changes[id(item.manifest)] = _change(item, answer, known.get(id(item)))
            if problems:
                done = f"written before that: {len(changes)} of {len(items)} objects"
                return Outcome(problems=(*problems, done) if changes else tuple(problems))
        ordered = [changes[id(manifest)] for manifest in self._objects]
        return Outcome(tuple(ordered))

    async def _sent(
        self, over: transport.Transport, item: _Item, known: dict[int, _Rehearsal]
    ) -> Tree | object_requests.Refusal:
        """The answer to the write; nothing is sent where nothing would change."""
        rehearsal = known.get(id(item))
        if rehearsal is not None and rehearsal.outcome == UNCHANGED:
            return rehearsal.answer
        return await self._request_when_served(over, item)

    async def _request_when_served(
        self, over: transport.Transport, item: _Item
    ) -> Tree | object_requests.Refusal:
        """The answer; a kind that was defined just now may need a moment to be served."""
        group = item.target.kind.api_version.rpartition("/")[0]
        until = asyncio.get_running_loop().time() + SERVED_SECONDS
        while True:
            answer = await self._request(over, item)
            is_missing = isinstance(answer, object_requests.Refusal) and answer.status == 404
            is_late = asyncio.get_running_loop().time() > until
            if not is_missing or group not in self._new_groups or is_late:
                return answer
            await asyncio.sleep(POLL_SECONDS)

    async def _queue_warnings(
        self, over: transport.Transport, changes: Sequence[Change]
    ) -> tuple[str, ...]:
        """Problems of the applied queues within the tree of all queues."""
        applied = {change.name for change in changes if change.kind == registry.QUEUE.name}
        applied &= {
            change.name for change in changes if change.label.startswith("queue.dovetail.dev/")
        }
        if not applied:
            return ()
        trees = await object_requests.listed(over, registry.QUEUE)
        structs = [codec.decode(tree).struct for tree in trees]
        by_name = {
            queue.metadata.name: queue for queue in structs if isinstance(queue, queues.Queue)
        }
        problems = sorted(queue_tree.problems(by_name).items())
        return tuple(
            f"queue {name}: {problem.message}" for name, problem in problems if name in applied
        )


def _change(item: _Item, tree: Any, rehearsal: _Rehearsal | None) -> Change:
    metadata: Tree = tree.get("metadata") or {}
    name = str(metadata.get("name") or "")
    outcome = CREATED if rehearsal is None else rehearsal.outcome
    return Change(
        f"{item.label}/{name}",
        item.target.kind.name,
        str(metadata.get("namespace") or ""),
        name,
        outcome,
        tree,
    )


def _priority_class(tree: Tree) -> str:
    spec = tree.get("spec")
    return str(spec.get("priorityClassName") or "") if isinstance(spec, dict) else ""


def _wanted(tree: Tree) -> Tree:
    """What a manifest can change. Controllers write the rest, maybe between our two looks at the object."""
    metadata: Tree = tree.get("metadata") or {}
    kept = {name: metadata.get(name) or {} for name in ("labels", "annotations")}
    body = {name: value for name, value in tree.items() if name not in ("metadata", "status")}
    return body | {"metadata": kept}


def _refused(item: _Item, answer: Any) -> list[str]:
    if not isinstance(answer, object_requests.Refusal):
        return []
    return [str(item.manifest.problem(fault.field, fault.message)) for fault in answer.faults]


def _are_contested(answers: Sequence[Tree | object_requests.Refusal]) -> bool:
    """Whether all refusals are about fields of other managers."""
    refusals = [each for each in answers if isinstance(each, object_requests.Refusal)]
    return bool(refusals) and all(refusal.is_contested for refusal in refusals)


def _unserved(manifest: manifests.ManifestObject, served: resource_names.Resources) -> str:
    struct = manifest.stored.struct
    group = struct.api_version.rpartition("/")[0]
    scheduler = manifests.CONVERTED.get((group, struct.kind))
    hint = ""
    if versions := served.versions_of(group, struct.kind):
        hint = f"; it does in {' and '.join(versions)}"
    elif scheduler:
        hint = f"; `dovetail migrate {scheduler}` converts it"
    elif "." in group and not served.has_group(group):
        hint = "; apply its CustomResourceDefinition first"
    elif near := served.near_kind(struct.kind, group):
        hint = f"; did you mean {near}?"
    message = f'the cluster serves no "{struct.kind}" in {struct.api_version}{hint}'
    return str(manifest.problem("kind", message))


def _check_selector(expression: str) -> field_errors.ExpressionFault | None:
    """What the expression engine says against a device selector."""
    from dovetail.cel import selectors  # only objects with selectors need the engine

    return selectors.problem(expression)
