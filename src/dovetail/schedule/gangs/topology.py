"""Decides in which domains pods that want to be together are tried, and in which order: the tightest first.

Given the levels of a Topology and the labels of nodes. A domain is the whole path of label values; a node that lacks
one of them stands in none. Never places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from dovetail.model import gangs, nodes, topologies
from dovetail.model.reasons import Reason, ReasonCode

Path = tuple[str, ...]


class Domain(NamedTuple):
    """Nodes that stand together."""

    path: Path
    nodes: frozenset[str]


class Domains:
    """The domains of one Topology."""

    def __init__(self, topology: topologies.Topology, known: Mapping[str, nodes.Node]) -> None:
        self.levels = tuple(level.node_label for level in topology.spec.levels)
        self._aliases = {level.alias: level.node_label for level in topology.spec.levels if level.alias}
        found: list[dict[Path, set[str]]] = [{} for _ in self.levels]
        self._path: dict[str, Path] = {}
        for name, node in known.items():
            labels = node.metadata.labels
            if not all(level in labels for level in self.levels):
                continue
            path = self._path[name] = tuple(labels[level] for level in self.levels)
            for depth in range(len(self.levels)):
                found[depth].setdefault(path[: depth + 1], set()).add(name)
        self._found = [{path: Domain(path, frozenset(members)) for path, members in level.items()} for level in found]

    def depth(self, level: str) -> int | None:
        """Where a level stands, by label or alias; None if it is not one of ours."""
        label = self._aliases.get(level, level)
        return self.levels.index(label) if label in self.levels else None

    def at(self, depth: int) -> Iterable[Domain]:
        """The domains of a level."""
        return self._found[depth].values()

    def of(self, node: str, depth: int) -> Path | None:
        """The domain a node stands in."""
        path = self._path.get(node)
        return path[: depth + 1] if path is not None else None


class Choice(NamedTuple):
    """Levels to try, narrowest first; None for anywhere."""

    domains: Domains
    depths: tuple[int | None, ...]
    required: int | None


def choice(wish: gangs.TopologyWish, known: Mapping[str, Domains], *, is_relaxed: bool = False) -> Choice | Reason:
    """The levels a wish allows, or why nobody can know."""
    domains = known.get(wish.topology)
    if domains is None:
        return _unknown(f"topology {wish.topology} does not exist")
    required = domains.depth(wish.required) if wish.required is not None else None
    preferred = domains.depth(wish.preferred) if wish.preferred is not None else None
    for level, depth in ((wish.required, required), (wish.preferred, preferred)):
        if level is not None and depth is None:
            return _unknown(f"topology {wish.topology} has no level {level}")
    if is_relaxed and required is not None:
        preferred = required if preferred is None else preferred
        required = None
    narrowest = preferred if preferred is not None else required
    if narrowest is None:
        return Choice(domains, (None,), None)
    widest = required if required is not None else 0
    depths: tuple[int | None, ...] = tuple(range(max(narrowest, widest), widest - 1, -1))
    return Choice(domains, depths if required is not None else (*depths, None), required)


def candidates(
    chosen: Choice, depth: int | None, *, present: Collection[str], within: Collection[str] | None
) -> Iterator[frozenset[str] | None]:
    """The domains of one level that pods already there, and a wider choice, leave; None for anywhere."""
    if depth is None:
        yield None if within is None else frozenset(within)
        return
    held = {chosen.domains.of(node, depth) for node in present} if chosen.required is not None else set()
    for domain in chosen.domains.at(depth):
        nodes_left = domain.nodes if within is None else domain.nodes & frozenset(within)
        if nodes_left and (not held or held == {domain.path}):
            yield nodes_left


def _unknown(detail: str) -> Reason:
    return Reason(code=ReasonCode.TOPOLOGY, detail=f"{detail}; correct the name, or create it")
