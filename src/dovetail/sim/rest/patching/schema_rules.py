"""Brings a custom resource into the shape of its definition: unknown fields go, defaults come, rules are checked.

Given a served kind, the object as it was sent and as it was stored before; returns the object to store, or raises
Invalid with every problem. Where the status has a path of its own, a write of the object leaves it out, and a write of
the status leaves out the rest. Built-in kinds pass unchanged.
"""

from __future__ import annotations

from typing import Any

from dovetail.sim.server import write_rules
from dovetail.sim.server.schemas import structural_checks, structural_values
from dovetail.sim.server.served_kinds import Served, table_key

Tree = dict[str, Any]


def shaped(served: Served, tree: Tree, old: Tree | None, *, subresource: str = "") -> Tree:
    """The object as it is stored. Both trees are in the served version."""
    schema = dict(served.resource.schemas).get(served.api_version)
    if not schema:
        return tree
    whole = _as_written(served, tree, old, subresource)
    shaped_tree: Tree = structural_values.defaulted(
        schema, structural_values.pruned(schema, whole).tree
    )
    problems = structural_checks.problems(schema, shaped_tree, old)
    if problems:
        group = table_key(served.kind)[0]
        name = str((tree.get("metadata") or {}).get("name") or "")
        raise write_rules.Invalid(f"{served.kind.name}.{group}", name, problems)
    return shaped_tree


def _as_written(served: Served, tree: Tree, old: Tree | None, subresource: str) -> Tree:
    """The object with those parts of the sent one that the path may write."""
    if not served.resource.has_status:
        return tree
    base = old or {}
    if subresource == "status":
        written = {name: tree[name] for name in ("metadata", "status") if name in tree}
        return {name: value for name, value in base.items() if name != "status"} | written
    kept = {"status": base["status"]} if "status" in base else {}
    return {name: value for name, value in tree.items() if name != "status"} | kept
