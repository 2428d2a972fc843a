"""Decides in which topology domains pods are tried that must be close together, and in which order: the tightest first.

Given the levels of a Topology and the labels of nodes. A domain is the whole path of label values; a node that
lacks one of the labels is in none. Pods that come in segments need a domain for each. Never places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import topologies
from dovetail.model import gangs
from dovetail.model.reasons import Reason, ReasonCode

Path = tuple[str, ...]
Depths = tuple[int | None, ...]  # levels by their index, narrowest first; None for anywhere


class Domain(NamedTuple):
    """Nodes with the same label values down to a level."""

    path: Path
    nodes: frozenset[str]


class Domains:
    """The domains of one Topology."""

    def __init__(
        self, topology: topologies.Topology, node_by_name: Mapping[str, nodes.Node]
    ) -> None:
        self.levels = tuple(level.node_label for level in topology.spec.levels)
        self._aliases = {
            level.alias: level.node_label for level in topology.spec.levels if level.alias
        }
        self._path: dict[str, Path] = {}  # by node
        for name, node in node_by_name.items():
            labels = node.metadata.labels
            if all(level in labels for level in self.levels):
                self._path[name] = tuple(labels[level] for level in self.levels)
        self._by_depth = [self._domains_at(depth) for depth in range(len(self.levels))]

    def _domains_at(self, depth: int) -> dict[Path, Domain]:
        members: dict[Path, set[str]] = {}
        for name, path in self._path.items():
            members.setdefault(path[: depth + 1], set()).add(name)
        return {path: Domain(path, frozenset(names)) for path, names in members.items()}

    def depth(self, level: str) -> int | None:
        """The index of a level, by label or alias; None if the Topology has no such level."""
        label = self._aliases.get(level, level)
        return self.levels.index(label) if label in self.levels else None

    def at(self, depth: int) -> Iterable[Domain]:
        """The domains of a level."""
        return self._by_depth[depth].values()

    def of(self, node: str, depth: int) -> Path | None:
        """The domain of a node."""
        path = self._path.get(node)
        return path[: depth + 1] if path is not None else None


class TopologyIndex:
    """The domains of every Topology, built when they are first needed."""

    def __init__(
        self,
        topology_by_name: Mapping[str, topologies.Topology],
        node_by_name: Mapping[str, nodes.Node],
    ) -> None:
        self._topologies = topology_by_name
        self._nodes = node_by_name
        self._domains: dict[tuple[str, ...], Domains] = {}

    def of(self, wish: gangs.TopologyRequest) -> Domains | Reason:
        """The domains a constraint is about: of the Topology it names, of any with its levels, or by label alone."""
        if wish.topology:
            topology = self._topologies.get(wish.topology)
            if topology is None:
                return _unknown_topology(wish.topology)
            return self._built((wish.topology,), topology)

        levels = tuple(dict.fromkeys(filter(None, _widest_first(wish))))
        for name, topology in sorted(self._topologies.items()):
            if set(_names(topology)).issuperset(levels):
                return self._built((name,), topology)

        missing = [level for level in levels if not self._is_node_label(level)]
        if missing:
            detail = f"no Topology has a level {missing[0]}, and no node that label; correct the name, or label nodes"
            return Reason(code=ReasonCode.TOPOLOGY, detail=detail)
        spec_levels = tuple(topologies.Level(node_label=level) for level in levels)
        spec = topologies.TopologySpec(levels=spec_levels)
        return self._built(("", *levels), topologies.Topology(spec=spec))

    def _is_node_label(self, label: str) -> bool:
        return any(label in node.metadata.labels for node in self._nodes.values())

    def _built(self, key: tuple[str, ...], topology: topologies.Topology) -> Domains:
        domains = self._domains.get(key)
        if domains is None:
            domains = self._domains[key] = Domains(topology, self._nodes)
        return domains


def _widest_first(wish: gangs.TopologyRequest) -> tuple[str | None, str | None]:
    """The levels of a constraint without a Topology.

    Segments are required within the narrow level and prefer the wide one; all else prefers the narrow one.
    """
    return (wish.preferred, wish.required) if wish.segment else (wish.required, wish.preferred)


def _names(topology: topologies.Topology) -> Iterator[str]:
    for level in topology.spec.levels:
        yield level.node_label
        if level.alias:
            yield level.alias


class Choice(NamedTuple):
    """The levels a constraint allows."""

    domains: Domains
    depths: Depths
    required: int | None
    around: Depths = (None,)  # where several domains are used, the level that holds all of them

    @property
    def level(self) -> int | None:
        """The level whose domains keep segments, or spread pods, apart."""
        return self.depths[0]


def choice(
    wish: gangs.TopologyRequest, atlas: TopologyIndex, *, is_relaxed: bool = False
) -> Choice | Reason:
    """The levels a constraint allows, or why it cannot be read."""
    domains = atlas.of(wish)
    if isinstance(domains, Reason):
        return domains
    for level in (wish.required, wish.preferred):
        if level is not None and domains.depth(level) is None:
            return _no_level(wish.topology, level)
    required = _depth(domains, wish.required)
    preferred = _depth(domains, wish.preferred)

    around: Depths = (None,)
    if preferred is not None and required is not None:
        around = _around(wish, required, preferred, is_relaxed=is_relaxed)
        if wish.segment and preferred < required:
            preferred = None  # it is for all segments together

    if is_relaxed and required is not None:  # what was required is only preferred from now on
        preferred = required if preferred is None else preferred
        required = None
    return Choice(domains, _depths(required, preferred), required, around)


def _depth(domains: Domains, level: str | None) -> int | None:
    return None if level is None else domains.depth(level)


def _around(
    wish: gangs.TopologyRequest, required: int, preferred: int, *, is_relaxed: bool
) -> Depths:
    """The levels of which one domain holds all the domains that are used."""
    if wish.segment and preferred < required:
        # Each segment stays within the required level. All of them together prefer the wider one: it is tried from
        # there upwards, and in the end anywhere.
        return (*range(preferred, -1, -1), None)
    if wish.spread and not is_relaxed:
        return (required,)
    return (None,)


def _depths(required: int | None, preferred: int | None) -> Depths:
    """From the preferred level up to the required one; without a required one in the end anywhere."""
    narrowest = preferred if preferred is not None else required
    if narrowest is None:
        return (None,)
    if required is None:
        return (*range(narrowest, -1, -1), None)
    return tuple(range(max(narrowest, required), required - 1, -1))


def candidates(
    chosen: Choice, depth: int | None, *, present: Collection[str], within: Collection[str] | None
) -> Iterator[frozenset[str] | None]:
    """The domains of one level that remain, as sets of nodes; None for anywhere.

    Where the level is required, placed members leave only the domain they are in.
    """
    if depth is None:
        yield None if within is None else frozenset(within)
        return

    occupied: set[Path | None] = set()
    if chosen.required is not None:
        occupied = {chosen.domains.of(node, depth) for node in present}
    for domain in chosen.domains.at(depth):
        allowed = domain.nodes if within is None else domain.nodes & frozenset(within)
        if allowed and (not occupied or occupied == {domain.path}):
            yield allowed


class Segment(NamedTuple):
    """The pods of one segment, and the nodes of its members that are placed already."""

    ids: tuple[str, ...]
    present: tuple[str, ...]


def segments(
    ids: Sequence[str], size: int, *, chosen: Choice, present: Collection[str]
) -> Iterator[Segment]:
    """Pods in segments of one size, in their order; first those that complete a segment that runs in part."""
    remaining = list(ids)
    nodes_by_path: dict[Path | None, list[str]] = {}
    for node in present:
        path = chosen.domains.of(node, chosen.level) if chosen.level is not None else None
        nodes_by_path.setdefault(path, []).append(node)

    for path, occupied in sorted(nodes_by_path.items(), key=lambda item: item[0] or ()):
        lacking = -len(occupied) % size
        if path is not None and lacking and remaining:
            yield Segment(tuple(remaining[:lacking]), tuple(occupied))
            del remaining[:lacking]
    for start in range(0, len(remaining), size):
        yield Segment(tuple(remaining[start : start + size]), ())


def _unknown_topology(topology: str) -> Reason:
    detail = f"topology {topology} does not exist; correct the name, or create it"
    return Reason(code=ReasonCode.TOPOLOGY, detail=detail)


def _no_level(topology: str, level: str) -> Reason:
    detail = f"topology {topology} has no level {level}; correct the name, or create it"
    return Reason(code=ReasonCode.TOPOLOGY, detail=detail)
