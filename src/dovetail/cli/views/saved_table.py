"""Kinds without a table of ours in a saved cluster: which kind a word means, and the columns kubectl shows of it.

Given the objects of a snapshot. Built-in kinds have the columns of the in-memory API server, other kinds name and age.
Returns listings and trees. Never reads a file, never prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dovetail import errors
from dovetail.cli.cluster import resource_arguments
from dovetail.kube import resource_names
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import api_events
from dovetail.sim.rest.printing import printer_columns, tables
from dovetail.sim.server import builtin_kinds, served_kinds
from dovetail.tables import listing, text

NAMESPACE: Final = "namespace"
_BUILT_IN: Final = {(row.kind.group, row.kind.name): row for row in builtin_kinds.TABLE}

Tree = dict[str, Any]


def resource_of(word: str, objects: object_set.ObjectSet) -> resource_names.Resource:
    """The kind that a word means. Raises InputError for one that is neither built in nor in the snapshot."""
    served = resource_names.Resources([*_present(objects), *map(_resource, builtin_kinds.TABLE)])
    resource = served.of_word(resource_arguments.OWN_WORDS.get(word.lower(), word))
    if resource is not None:
        return resource
    near = served.near(word)
    hint = f"; did you mean {near}?" if near else ""
    raise errors.InputError(f'there is no resource "{word}" in the snapshot{hint}')


def objects_of(
    resource: resource_names.Resource, objects: object_set.ObjectSet, *, namespace: str | None
) -> Iterator[codec.Stored]:
    """The objects of one kind, of one namespace or of all."""
    kind = object_set.unique_kind(resource.kind.api_version, resource.kind.name)
    return objects.listed(kind, namespace=namespace if resource.kind.is_namespaced else None)


def listed(resource: resource_names.Resource, query: listing.Query) -> listing.Listing:
    """The objects of one kind that the query selects."""
    row = _BUILT_IN.get((resource.group, resource.kind.name))
    if row is not None and row.columns:
        printer = tables.custom_printer(row.columns)
    else:
        printer = printer_columns.printer_of(served_kinds.table_key(resource.kind))
    in_namespace = objects_of(resource, query.objects, namespace=query.namespace)
    shown = [stored for stored in in_namespace if query.wants(stored)]
    shown.sort(key=_order)
    trees = [stored.tree for stored in shown]
    has_namespace = resource.kind.is_namespaced and query.namespace is None
    rows = [
        _row(resource, tree, printer.cells(tree, query.now), has_namespace=has_namespace)
        for tree in trees
    ]
    narrow = [number for number, column in enumerate(printer.columns) if not column.priority]
    wide = [number for number, column in enumerate(printer.columns) if column.priority]
    return listing.Listing(
        (*((NAMESPACE,) if has_namespace else ()), *(printer.columns[n].name for n in narrow)),
        tuple(printer.columns[number].name for number in wide),
        tuple(_split(row, narrow, wide, has_namespace=has_namespace) for row in rows),
        lambda: trees,
    )


def event_trees(objects: object_set.ObjectSet, about: Tree) -> list[Tree]:
    """The events about an object, as core v1 writes them."""
    metadata = about["metadata"]
    trees = []
    for stored in objects.listed(registry.EVENT.name):
        event = stored.struct
        if not isinstance(event, api_events.Event):
            continue
        regarding = event.regarding
        same_object = (regarding.kind, regarding.name) == (about["kind"], metadata["name"])
        namespace = metadata.get("namespace") or ""
        if same_object and namespace in ("", regarding.namespace or event.metadata.namespace):
            trees.append(api_events.to_core(stored.tree))
    return trees


def _present(objects: object_set.ObjectSet) -> Iterator[resource_names.Resource]:
    """The kinds that the snapshot holds and that are not built in. Their plural is guessed as kubectl does."""
    for kinds in objects.by_kind.values():
        struct = next(iter(kinds.values())).struct
        group = struct.api_version.rpartition("/")[0]
        if (group, struct.kind) in _BUILT_IN:
            continue
        is_namespaced = any(each.struct.metadata.namespace for each in kinds.values())
        kind = registry.Kind(
            struct.api_version, struct.kind, plural_of(struct.kind), is_namespaced, codec.Generic
        )
        yield resource_names.Resource(kind, struct.kind.lower())


def plural_of(kind: str) -> str:
    """The plural in lower case, by the rule that Kubernetes' own generators use."""
    word = kind.lower()
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def _resource(row: builtin_kinds.Resource) -> resource_names.Resource:
    return resource_names.Resource(row.kind, row.singular, row.short_names)


def _order(stored: codec.Stored) -> tuple[str, Any]:
    metadata = stored.struct.metadata
    return metadata.namespace, text.natural(metadata.name)


def _row(
    resource: resource_names.Resource, tree: Tree, cells: list[Any], *, has_namespace: bool
) -> listing.Row:
    name = f"{resource.label}/{tree['metadata']['name']}"
    texts = tuple("" if cell is None else str(cell) for cell in cells)
    namespace = (str(tree["metadata"].get("namespace") or ""),) if has_namespace else ()
    return listing.Row(name, (*namespace, *texts))


def _split(
    row: listing.Row, narrow: list[int], wide: list[int], *, has_namespace: bool
) -> listing.Row:
    """The row with its cells sorted into narrow and wide ones."""
    first = int(has_namespace)
    cells = row.cells[first:]
    shown = (*row.cells[:first], *(cells[number] for number in narrow))
    return listing.Row(row.name, shown, tuple(cells[number] for number in wide))
