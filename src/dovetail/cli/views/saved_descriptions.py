"""Describes objects of a saved cluster in words, with the events, claims, pods and slices that say more about them.

Given the objects of a snapshot and what the user named. Returns lines. Never reads a file, never prints.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from dovetail.cli.views import saved_table
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import slices
from dovetail.tables import description, label_option, missing_names


class Wanted(NamedTuple):
    """What the user named: a word for a kind, names or none for all, a namespace, and a test of labels."""

    word: str
    names: tuple[str, ...]
    namespace: str
    test: label_option.Test


class Described(NamedTuple):
    """The lines of each object, and the names that are not there."""

    blocks: list[list[str]]
    missing: list[str]


def described(
    wanted: Wanted, objects: object_set.ObjectSet, *, now: datetime.datetime
) -> Described:
    """The objects that were named, or all of the kind. Raises InputError for a word that means no kind."""
    resource = saved_table.resource_of(wanted.word, objects)
    present = {
        stored.struct.metadata.name: stored
        for stored in saved_table.objects_of(resource, objects, namespace=wanted.namespace)
    }
    everywhere = {
        (stored.struct.metadata.namespace, stored.struct.metadata.name)
        for stored in saved_table.objects_of(resource, objects, namespace=None)
    }
    place = wanted.namespace if resource.kind.is_namespaced else None
    missing = [
        missing_names.sentence(resource.kind.plural, name, place, everywhere)
        for name in wanted.names
        if name not in present
    ]
    chosen = [present[name] for name in wanted.names or present if name in present]
    blocks = []
    for stored in chosen:
        if wanted.test(stored.struct.metadata.labels):
            tree = stored.tree
            related = _related(tree, objects)
            blocks.append(description.lines_of(tree, related, now=now))
    return Described(blocks, missing)


def _related(tree: description.Tree, objects: object_set.ObjectSet) -> description.Related:
    """The objects that say more about this one."""
    events = saved_table.event_trees(objects, tree)
    name, namespace = tree["metadata"]["name"], str(tree["metadata"].get("namespace") or "")
    match tree["apiVersion"], tree["kind"]:
        case "v1", "Pod":
            claims = objects.listed(registry.CLAIM.name, namespace=namespace)
            return description.Related(events=events, claims=[each.tree for each in claims])
        case "v1", "Node":
            return description.Related(
                events=events,
                claims=[each.tree for each in objects.listed(registry.CLAIM.name)],
                pods=[
                    each.tree
                    for each in objects.listed(registry.POD.name)
                    if isinstance(each.struct, pods.Pod) and each.struct.spec.node_name == name
                ],
                slices=[
                    each.tree
                    for each in objects.listed(registry.SLICE.name)
                    if isinstance(each.struct, slices.ResourceSlice)
                    and each.struct.spec.node_name in (name, None, "")
                ],
            )
        case _:
            return description.Related(events=events)
