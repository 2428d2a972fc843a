"""Topologies of Kueue and KAI into ours: both are lists of node labels, widest first. Given one; answers ours."""

from __future__ import annotations

from dovetail.model.conversion import names, notes
from dovetail.model.conversion.notes import Source, Tree, items


def topology(source: Source, free: names.Names) -> Tree:
    """Our topology, and an account of the fields."""
    name = free.of(source.name, otherwise="topology")
    made: list[Tree] = []
    for index in range(len(items(source.at("spec", "levels")))):
        level: Tree = {}
        for field in ("nodeLabel", "alias"):
            value = source.at("spec", "levels", index, field)
            if isinstance(value, str) and value:
                level[field] = value
                source.carried("spec", "levels", index, field, to=f"Topology {name}: spec.levels[{len(made)}].{field}")
        if "nodeLabel" in level:
            made.append(level)
    metadata = notes.metadata_of(source, name, kind="Topology")
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Topology",
        "metadata": metadata,
        "spec": {"levels": made},
    }
