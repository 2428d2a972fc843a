"""Versions of objects as an API server stored them, and what is read off them for the checker of upgrades.

Plain data and pure functions. Shares no rule with the code under test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Tree = dict[str, Any]
FENCE: Final = "dovetail.dev/stack-upgrade"
NODE: Final = "dovetail.dev/node"
WORK: Final = "example.com/work"  # label of pods that have to leave
STAYS: Final = "example.com/stays"  # label of pods that no upgrade may touch
STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
GANG_MIN: Final = "dovetail.dev/gang-min"
SKIP: Final = "nvidia.com/gpu-driver-upgrade.skip"
ENDED: Final = ("Completed", "Stopped", "Aborted", "Refused")  # phases of an upgrade


class Change(NamedTuple):
    """One version of one object."""

    revision: int
    kind: str  # plural
    type: str  # ADDED | MODIFIED | DELETED
    tree: Tree

    @property
    def name(self) -> str:
        return str(self.tree["metadata"]["name"])


class Scene(NamedTuple):
    """What the checker has to know about a story."""

    most_unavailable: int
    driver_app: str
    images: Mapping[str, str]  # driver's version -> image
    cordoned: frozenset[str] = frozenset()  # nodes that others cordoned, before the upgrade began
    restarting: frozenset[str] = frozenset()  # nodes whose driver's pod the story itself ends


def fence_of(node: Tree) -> str:
    """The upgrades that our taint on a node names; several would stand beside each other."""
    taints = node["spec"].get("taints", ())
    return ",".join(taint.get("value", "") for taint in taints if taint["key"] == FENCE)


def foreign_taints(node: Tree) -> list[tuple[str, str, str]]:
    """Taints of other people; those of Kubernetes itself come and go."""
    return sorted(
        (taint["key"], taint.get("value", ""), taint["effect"])
        for taint in node["spec"].get("taints", ())
        if taint["key"] != FENCE and not taint["key"].startswith("node.kubernetes.io/")
    )


def nodes_of(upgrade: Tree) -> dict[str, Tree]:
    """What an upgrade says of its nodes, by name."""
    return {node["name"]: node for node in upgrade.get("status", {}).get("nodes", ())}


def begins_to_end(change: Change, before: Tree | None) -> bool:
    """Whether this version is the first in which a pod is ending, or gone."""
    if before is not None and before["metadata"].get("deletionTimestamp"):
        return False
    is_ending = bool(change.tree["metadata"].get("deletionTimestamp"))
    return change.type == "DELETED" or is_ending
