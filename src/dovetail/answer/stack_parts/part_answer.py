"""The shape of the answer of `dovetail stack parts`: parts per node, what is missing, and the next step. Plain data.

Lists are sorted, so that the same objects give the same document.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class State(StrEnum):
    """How a part of a node stands."""

    READY = "ready"
    NOT_READY = "not ready"
    MISSING = "missing"
    OFF = "off"  # not asked for
    UNKNOWN = "unknown"


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part: its state, and what was seen of it."""

    name: str
    state: State
    seen: str = ""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is missing or wrong: what, why, and what to do next."""

    code: str
    part: str
    what: str
    next: str


class NodeParts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parts of one node with GPUs."""

    node: str
    served_by: str  # whose parts publish its GPUs; empty where none do
    parts: tuple[Part, ...]
    gaps: tuple[Gap, ...]

    def part(self, name: str) -> Part:
        """The part of that name."""
        return next(part for part in self.parts if part.name == name)


class ClusterGap(msgspec.Struct, frozen=True, kw_only=True):
    """A gap with all nodes that have it; none where it concerns the cluster as a whole."""

    code: str
    part: str
    what: str
    next: str
    nodes: tuple[str, ...]


class PartReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parts of a cluster."""

    nodes: tuple[NodeParts, ...]  # those with GPUs
    other_nodes: int  # those of which nothing says that they have GPUs
    cluster: tuple[Part, ...]
    gaps: tuple[ClusterGap, ...]
    problems: tuple[str, ...]  # objects that could not be read

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing on any node."""
        return not self.gaps
