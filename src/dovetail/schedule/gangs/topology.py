"""Decides in which domains pods that want to be together are tried, and in which order: the tightest first.

Given the levels of a Topology and the labels of nodes. A domain is the whole path of label values; a node that lacks
one of them stands in none. Pods that come in lots need a domain for each. Never places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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


class Atlas:
    """The domains of every Topology, worked out when somebody asks for them."""

    def __init__(self, known: Mapping[str, topologies.Topology], on: Mapping[str, nodes.Node]) -> None:
        self._known = known
        self._nodes = on
        self._domains: dict[tuple[str, ...], Domains] = {}

    def of(self, wish: gangs.TopologyWish) -> Domains | Reason:
        """Those a wish is about: of the Topology it names, of any that has its levels, or by the label itself."""
        if wish.topology:
            named = self._known.get(wish.topology)
            return self._built((wish.topology,), named) if named is not None else _unknown(wish.topology)
        levels = tuple(dict.fromkeys(filter(None, _widest_first(wish))))
        for name, one in sorted(self._known.items()):
            if all(level in {*_names(one)} for level in levels):
                return self._built((name,), one)
        missing = [level for level in levels if not any(level in node.metadata.labels for node in self._nodes.values())]
        if missing:
            detail = f"no Topology has a level {missing[0]}, and no node that label; correct the name, or label nodes"
            return Reason(code=ReasonCode.TOPOLOGY, detail=detail)
        spec = topologies.TopologySpec(levels=tuple(topologies.Level(node_label=level) for level in levels))
        return self._built(("", *levels), topologies.Topology(spec=spec))

    def _built(self, key: tuple[str, ...], topology: topologies.Topology) -> Domains:
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains(topology, self._nodes)
        return found


def _widest_first(wish: gangs.TopologyWish) -> tuple[str | None, str | None]:
    """Its levels where only labels say what they are: lots are within what is preferred, all else the other way."""
    return (wish.preferred, wish.required) if wish.segment else (wish.required, wish.preferred)


def _names(topology: topologies.Topology) -> Iterator[str]:
    for level in topology.spec.levels:
        yield level.node_label
        if level.alias:
            yield level.alias


class Choice(NamedTuple):
    """Levels to try, narrowest first; None for anywhere."""

    domains: Domains
    depths: tuple[int | None, ...]
    required: int | None
    around: tuple[int | None, ...] = (None,)  # where several domains are used, what all of them are in

    @property
    def level(self) -> int | None:
        """The level that tells lots, or those who are spread, apart."""
        return self.depths[0]


def choice(wish: gangs.TopologyWish, atlas: Atlas, *, is_relaxed: bool = False) -> Choice | Reason:
    """The levels a wish allows, or why nobody can know."""
    domains = atlas.of(wish)
    if isinstance(domains, Reason):
        return domains
    required = domains.depth(wish.required) if wish.required is not None else None
    preferred = domains.depth(wish.preferred) if wish.preferred is not None else None
    for level, depth in ((wish.required, required), (wish.preferred, preferred)):
        if level is not None and depth is None:
            return _no_level(wish.topology, level)
    around: tuple[int | None, ...] = (None,)
    if wish.segment and preferred is not None and required is not None and preferred < required:
        around, preferred = (*range(preferred, -1, -1), None), None
    elif wish.spread and preferred is not None and required is not None and not is_relaxed:
        around = (required,)
    if is_relaxed and required is not None:
        preferred = required if preferred is None else preferred
        required = None
    narrowest = preferred if preferred is not None else required
    if narrowest is None:
        return Choice(domains, (None,), None)
    widest = required if required is not None else 0
    depths: tuple[int | None, ...] = tuple(range(max(narrowest, widest), widest - 1, -1))
    return Choice(domains, depths if required is not None else (*depths, None), required, around)


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


class Lot(NamedTuple):
    """Pods that stand in one domain, and the nodes of those that are there already."""

    ids: tuple[str, ...]
    present: tuple[str, ...]


def lots(ids: Sequence[str], size: int, *, chosen: Choice, present: Collection[str]) -> Iterator[Lot]:
    """Pods in lots of one size, in their order; first whoever completes a lot that runs in part."""
    left = list(ids)
    there: dict[Path | None, list[str]] = {}
    for node in present:
        depth = chosen.level
        there.setdefault(chosen.domains.of(node, depth) if depth is not None else None, []).append(node)
    for path, held in sorted(there.items(), key=lambda item: item[0] or ()):
        lacking = -len(held) % size
        if path is not None and lacking and left:
            yield Lot(tuple(left[:lacking]), tuple(held))
            del left[:lacking]
    for start in range(0, len(left), size):
        yield Lot(tuple(left[start : start + size]), ())


def _unknown(topology: str) -> Reason:
    detail = f"topology {topology} does not exist; correct the name, or create it"
    return Reason(code=ReasonCode.TOPOLOGY, detail=detail)


def _no_level(topology: str, level: str) -> Reason:
    detail = f"topology {topology} has no level {level}; correct the name, or create it"
    return Reason(code=ReasonCode.TOPOLOGY, detail=detail)
