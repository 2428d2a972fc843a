"""Pools of devices across the cluster: which generation counts, whether it is complete, whether it makes sense.

Given slices as they come and go; tells for a node which devices of a pool it may use. Holds devices in columns,
never whole slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.model import nodes, selectors, slices
from dovetail.world.devices import Devices, Interner, Origin

PoolKey = tuple[str, str]  # driver, pool name


class Part(NamedTuple):
    """What is kept of one slice."""

    name: str
    generation: int
    slice_count: int
    origin: Origin
    devices: Devices
    is_ignored: bool  # its devices declare compatibility groups, which are off by default

    @property
    def has_counters(self) -> bool:
        """Whether it carries counter sets; such a slice gives no devices."""
        return bool(self.devices.counter_sets)


class Generation(NamedTuple):
    """All slices of one generation, in order of the devices they list."""

    parts: tuple[Part, ...]
    devices: Devices
    starts: tuple[int, ...]  # where each part's devices begin
    places: dict[str, int]  # device name -> position; the first where a name is there twice
    waits: int  # devices with binding conditions


class Seen(NamedTuple):
    """A pool from one node: the devices it may use, or why it may use none."""

    generation: Generation
    usable: int
    is_complete: bool
    problem: str | None


def part_of(interner: Interner, slice_: slices.ResourceSlice) -> Part:
    """The compact form of a slice."""
    spec = slice_.spec
    origin = Origin(
        spec.node_name, spec.node_selector, spec.all_nodes or False, spec.per_device_node_selection or False
    )
    ignored = any(c.compatibility_groups for device in spec.devices for c in device.consumes_counters)
    return Part(
        slice_.metadata.name,
        spec.pool.generation,
        spec.pool.resource_slice_count,
        origin,
        interner.devices(slice_),
        ignored,
    )


class Pool:
    """The slices of one pool, by name."""

    __slots__ = ("_generations", "_interner", "_last_seen", "key", "parts")

    def __init__(self, key: PoolKey, interner: Interner) -> None:
        self.key = key
        self.parts: dict[str, Part] = {}
        self._interner = interner
        self._generations: dict[tuple[int, frozenset[str] | None], Generation] = {}
        self._last_seen: tuple[nodes.Node, Seen | None] | None = None  # most pools are looked at from one node only

    def put(self, part: Part) -> None:
        """A slice came or changed."""
        self.parts[part.name] = part
        self._forget()

    def drop(self, name: str) -> None:
        """A slice went."""
        self.parts.pop(name, None)
        self._forget()

    def _forget(self) -> None:
        self._generations.clear()
        self._last_seen = None

    @property
    def only_node(self) -> str | None:
        """The node all slices name, if there is just one."""
        names = {part.origin.node_name for part in self.parts.values()}
        return names.pop() if len(names) == 1 else None

    def seen_from(self, node: nodes.Node) -> Seen | None:
        """The pool from a node; None where it does not exist for it, or is being replaced."""
        if self._last_seen is None or self._last_seen[0] is not node:
            self._last_seen = (node, self._seen(node))
        return self._last_seen[1]

    def _seen(self, node: nodes.Node) -> Seen | None:
        relevant = [part for part in self.parts.values() if not part.is_ignored and _is_relevant(part, node)]
        if not relevant:
            return None
        number = max(part.generation for part in relevant)
        kept = {part.name for part in relevant if part.generation == number}
        # Slices should agree on their number. Where they do not, upstream believes the node's own first.
        first = min((p for p in relevant if p.name in kept), key=lambda p: (not p.origin.node_name, p.name))
        wanted = first.slice_count
        if len(kept) != wanted:
            if any(part.generation > number for part in self.parts.values()):
                return None
            same = [p for p in self.parts.values() if p.generation == number and not p.is_ignored]
            if len(same) != wanted:
                return Seen(self.generation(number), 0, is_complete=False, problem=None)
        generation = self.generation(number, kept if len(kept) == wanted else None)
        problem = self._problem(generation, kept)
        usable = 0 if problem else _usable(generation, kept, node)
        return Seen(generation, usable, is_complete=True, problem=problem)

    def _problem(self, generation: Generation, kept: set[str]) -> str | None:
        devices, derived = generation.devices, self._interner.derived
        if any(part.name not in kept for part in generation.parts):
            names = _name_problem(generation, kept)
        else:
            names = derived("names", devices.names, make=lambda: _name_problem(generation, kept))
        return names or derived(
            "counters", devices.templates, devices.counter_sets, make=lambda: _counter_problem(generation)
        )

    def generation(self, number: int, names: set[str] | None = None) -> Generation:
        """All slices of a generation together, or those named: a node that sees enough slices looks at no others."""
        same = [p for p in self.parts.values() if p.generation == number and not p.is_ignored]
        chosen = [part for part in same if names is None or part.name in names]
        key = (number, None if len(chosen) == len(same) else frozenset(part.name for part in chosen))
        known = self._generations.get(key)
        if known is None:
            known = self._generations[key] = self._built(sorted(chosen, key=_order))
        return known

    def newest(self) -> Generation | None:
        """The highest generation there is."""
        return self.generation(max(p.generation for p in self.parts.values())) if self.parts else None

    def _built(self, parts: list[Part]) -> Generation:
        giving = [part.devices if not part.has_counters else _none_of(part.devices) for part in parts]
        devices = self._interner.joined(self.key[0], giving) if giving else _no_devices(self.key[0])
        starts, position = [], 0
        for part in giving:
            starts.append(position)
            position += len(part)
        places = self._interner.derived("places", devices.names, make=lambda: _places(devices.names))
        waits = self._interner.derived("waits", devices.templates, make=lambda: _waits(devices))
        return Generation(tuple(parts), devices, tuple(starts), places, waits)


def _order(part: Part) -> tuple[tuple[str, ...], str]:
    # Not by slice name as upstream does: drivers end names in random letters, and nodes alike should look alike.
    return part.devices.names, part.name


def matches(
    origin_node: str | None, selector: selectors.NodeSelector | None, *, everywhere: bool, node: nodes.Node
) -> bool:
    """Whether a slice or device that names a node, all nodes or a selector can be used on this one."""
    if origin_node:
        return origin_node == node.metadata.name
    if everywhere:
        return True
    if selector is None:
        return False
    try:
        return selectors.picks_node(selector, node.metadata.labels, node_name=node.metadata.name)
    except selectors.SelectorError:
        return False


def _is_relevant(part: Part, node: nodes.Node) -> bool:
    origin = part.origin
    if origin.node_name or origin.all_nodes or origin.node_selector is not None:
        return matches(origin.node_name, origin.node_selector, everywhere=origin.all_nodes, node=node)
    if origin.is_per_device:
        return any(_device_matches(part.devices, i, node) for i in range(len(part.devices)))
    return False


def _device_matches(devices: Devices, index: int, node: nodes.Node) -> bool:
    template = devices.templates[index]
    return matches(template.node_name, template.node_selector, everywhere=template.all_nodes or False, node=node)


def _usable(generation: Generation, kept: set[str], node: nodes.Node) -> int:
    mask = 0
    for part, start in zip(generation.parts, generation.starts, strict=True):
        if part.name not in kept or part.has_counters:
            continue
        if not part.origin.is_per_device:
            mask |= ((1 << len(part.devices)) - 1) << start
            continue
        for offset in range(len(part.devices)):
            if _device_matches(part.devices, offset, node):
                mask |= 1 << (start + offset)
    return mask


def _name_problem(generation: Generation, kept: set[str]) -> str | None:
    seen: set[str] = set()
    for part in generation.parts:
        for name in part.devices.names if part.name in kept and not part.has_counters else ():
            if name in seen:
                return f"duplicate device name {name}"
            seen.add(name)
    return None


def _counter_problem(generation: Generation) -> str | None:
    known: dict[str, Iterable[str]] = {}
    for counter_set in generation.devices.counter_sets:
        if counter_set.name in known:
            return f"duplicate counter set name {counter_set.name}"
        known[counter_set.name] = counter_set.counters
    for template in {id(template): template for template in generation.devices.templates}.values():
        for consumption in template.consumes_counters:
            counters = known.get(consumption.counter_set)
            if counters is None:
                return f"counter set {consumption.counter_set} not found"
            for name in consumption.counters:
                if name not in counters:
                    return f"counter {name} not found in counter set {consumption.counter_set}"
    return None


def _places(names: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        found.setdefault(name, place)
    return found


def _waits(devices: Devices) -> int:
    return sum(1 << i for i, template in enumerate(devices.templates) if template.binding_conditions)


def _none_of(devices: Devices) -> Devices:
    """The counter sets of a slice without its devices."""
    empty = _no_devices(devices.driver)
    empty.counter_sets = devices.counter_sets
    return empty


def _no_devices(driver: str) -> Devices:
    return Devices(driver=driver, names=(), templates=(), attributes=(), columns=(), origins=(), counter_sets=())
