"""Converts a Topology of Kueue or KAI: both are lists of node labels, widest first."""

from __future__ import annotations

from dovetail.migrate import field_notes, queue_names
from dovetail.migrate.field_notes import Source, Tree, items


def topology(source: Source, free: queue_names.Names) -> Tree:
    """The converted topology; the fate of every field is noted on the source."""
    name = free.of(source.name, otherwise="topology")
    levels: list[Tree] = []
    for index in range(len(items(source.at("spec", "levels")))):
        level: Tree = {}
        for field in ("nodeLabel", "alias"):
            path = ("spec", "levels", index, field)
            value = source.at(*path)
            if isinstance(value, str) and value:
                level[field] = value
                to = f"Topology {name}: spec.levels[{len(levels)}].{field}"
                source.carried(*path, to=to)
        if "nodeLabel" in level:
            levels.append(level)
    metadata = field_notes.metadata_of(source, name, kind="Topology")
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Topology",
        "metadata": metadata,
        "spec": {"levels": levels},
    }
