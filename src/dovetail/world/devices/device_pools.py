"""Pools of devices: which generation counts, whether it is complete, whether it is valid.

Given slices as they are published and deleted; returns the devices of a pool that a node may use. Stores devices in
columns, never whole slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.resource import slices
from dovetail.world.devices.device_columns import Devices, Interner, Origin, origin_of

PoolKey = tuple[str, str]  # driver, pool name


class Part(NamedTuple):
    """What is stored of one slice."""

    name: str
    generation: int
    slice_count: int
    origin: Origin
    devices: Devices
    is_ignored: bool  # its devices declare compatibility groups, a feature that is off by default

    @property
    def has_counters(self) -> bool:
        """Whether it publishes counter sets; such a slice publishes no devices."""
        return bool(self.devices.counter_sets)


class Generation(NamedTuple):
    """All slices of one generation, in the order of the devices they list."""

    parts: tuple[Part, ...]
    devices: Devices
    starts: tuple[int, ...]  # where each part's devices begin
    places: dict[str, int]  # device name -> position; the first if a name is duplicated
    waits: int  # devices with binding conditions


class VisiblePool(NamedTuple):
    """A pool as one node sees it: the devices it may use, or why it may use none."""

    generation: Generation
    usable: int
    is_complete: bool
    problem: str | None


def part_of(interner: Interner, slice_: slices.ResourceSlice) -> Part:
    """The compact form of a slice."""
    spec = slice_.spec
    is_ignored = any(
        consumption.compatibility_groups
        for device in spec.devices
        for consumption in device.consumes_counters
    )
    return Part(
        slice_.metadata.name,
        spec.pool.generation,
        spec.pool.resource_slice_count,
        origin_of(slice_),
        interner.devices(slice_),
        is_ignored,
    )


class Pool:
    """The slices of one pool, by name."""

    __slots__ = ("_generations", "_interner", "_last_seen", "key", "parts")

    def __init__(self, key: PoolKey, interner: Interner) -> None:
        self.key = key
        self.parts: dict[str, Part] = {}
        self._interner = interner
        self._generations: dict[tuple[int, frozenset[str] | None], Generation] = {}
        # The last answer only: most pools are visible from a single node.
        self._last_seen: tuple[nodes.Node, VisiblePool | None] | None = None

    def put(self, part: Part) -> None:
        """Adds or replaces a slice."""
        self.parts[part.name] = part
        self._invalidate()

    def drop(self, name: str) -> None:
        """Removes a slice."""
        self.parts.pop(name, None)
        self._invalidate()

    def _invalidate(self) -> None:
        self._generations.clear()
        self._last_seen = None

    @property
    def only_node(self) -> str | None:
        """The node all slices name, if there is just one."""
        names = {part.origin.node_name for part in self.parts.values()}
        return names.pop() if len(names) == 1 else None

    def slice_counts(self) -> tuple[int, int]:
        """How many slices of the newest generation are published, and how many there should be."""
        number = max((part.generation for part in self.parts.values()), default=0)
        newest = self._parts_of(number)
        return len(newest), max((part.slice_count for part in newest), default=0)

    def seen_from(self, node: nodes.Node) -> VisiblePool | None:
        """The pool as a node sees it; None if it does not exist for the node, or is being replaced."""
        if self._last_seen is None or self._last_seen[0] is not node:
            self._last_seen = (node, self._seen(node))
        return self._last_seen[1]

    def _seen(self, node: nodes.Node) -> VisiblePool | None:
        """Follows GatherPools of k8s.io/dynamic-resource-allocation, which kube-scheduler uses."""
        visible = [
            part for part in self.parts.values() if not part.is_ignored and _is_relevant(part, node)
        ]
        if not visible:
            return None
        number = max(part.generation for part in visible)
        newest = [part for part in visible if part.generation == number]
        names = {part.name for part in newest}

        # Slices should agree on how many they are. If they do not, upstream believes the node's own slice first.
        first = min(newest, key=lambda part: (not part.origin.node_name, part.name))
        if len(names) == first.slice_count:
            generation = self.generation(number, names)
        elif any(part.generation > number for part in self.parts.values()):
            return None  # other nodes see a newer generation: the pool is being replaced
        elif len(self._parts_of(number)) == first.slice_count:
            generation = self.generation(number)  # the missing slices are for other nodes
        else:
            return VisiblePool(self.generation(number), 0, is_complete=False, problem=None)
        problem = self._problem(generation, names)
        usable = 0 if problem else _usable(generation, names, node)
        return VisiblePool(generation, usable, is_complete=True, problem=problem)

    def _problem(self, generation: Generation, visible: set[str]) -> str | None:
        """Why a pool is invalid. Shared by all pools of the same content, except if the node sees only a part."""
        devices, derived = generation.devices, self._interner.derived
        if any(part.name not in visible for part in generation.parts):
            name_problem = _name_problem(generation, visible)
        else:
            name_problem = derived(
                "names", devices.names, make=lambda: _name_problem(generation, visible)
            )
        return name_problem or derived(
            "counters",
            devices.templates,
            devices.counter_sets,
            make=lambda: _counter_problem(generation),
        )

    def _parts_of(self, number: int) -> list[Part]:
        return [
            part
            for part in self.parts.values()
            if part.generation == number and not part.is_ignored
        ]

    def generation(self, number: int, names: set[str] | None = None) -> Generation:
        """All slices of a generation, or those named: a node that sees enough slices reads no others."""
        parts = self._parts_of(number)
        chosen = [part for part in parts if names is None or part.name in names]
        is_whole = len(chosen) == len(parts)
        key = (number, None if is_whole else frozenset(part.name for part in chosen))
        generation = self._generations.get(key)
        if generation is None:
            generation = self._built(sorted(chosen, key=_order))
            self._generations[key] = generation
        return generation

    def newest(self) -> Generation | None:
        """The highest generation there is."""
        if not self.parts:
            return None
        return self.generation(max(part.generation for part in self.parts.values()))

    def _built(self, parts: list[Part]) -> Generation:
        published = [
            _none_of(part.devices) if part.has_counters else part.devices for part in parts
        ]
        driver = self.key[0]
        devices = self._interner.joined(driver, published) if published else _no_devices(driver)
        starts, position = [], 0
        for part_devices in published:
            starts.append(position)
            position += len(part_devices)
        places = self._interner.derived(
            "places", devices.names, make=lambda: _places(devices.names)
        )
        waits = self._interner.derived("waits", devices.templates, make=lambda: _waits(devices))
        return Generation(tuple(parts), devices, tuple(starts), places, waits)


def _order(part: Part) -> tuple[tuple[str, ...], str]:
    # Not by slice name as upstream does: drivers end names in random letters, and like nodes should look alike.
    return part.devices.names, part.name


def matches(
    origin_node: str | None,
    selector: node_selectors.NodeSelector | None,
    *,
    everywhere: bool,
    node: nodes.Node,
) -> bool:
    """Whether a slice or device that names a node, all nodes or a selector can be used on this node."""
    if origin_node:
        return origin_node == node.metadata.name
    if everywhere:
        return True
    if selector is None:
        return False
    try:
        return node_selectors.picks_node(
            selector, node.metadata.labels, node_name=node.metadata.name
        )
    except node_selectors.SelectorError:
        return False


def _is_relevant(part: Part, node: nodes.Node) -> bool:
    origin = part.origin
    if origin.node_name or origin.all_nodes or origin.node_selector is not None:
        return matches(
            origin.node_name, origin.node_selector, everywhere=origin.all_nodes, node=node
        )
    if origin.is_per_device:
        return any(_device_matches(part.devices, i, node) for i in range(len(part.devices)))
    return False


def _device_matches(devices: Devices, index: int, node: nodes.Node) -> bool:
    template = devices.templates[index]
    return matches(
        template.node_name,
        template.node_selector,
        everywhere=template.all_nodes or False,
        node=node,
    )


def _usable(generation: Generation, visible: set[str], node: nodes.Node) -> int:
    mask = 0
    for part, start in zip(generation.parts, generation.starts, strict=True):
        if part.name not in visible or part.has_counters:
            continue
        if not part.origin.is_per_device:
            mask |= ((1 << len(part.devices)) - 1) << start
            continue
        for offset in range(len(part.devices)):
            if _device_matches(part.devices, offset, node):
                mask |= 1 << (start + offset)
    return mask


def _name_problem(generation: Generation, visible: set[str]) -> str | None:
    names: set[str] = set()
    for part in generation.parts:
        if part.name not in visible or part.has_counters:
            continue
        for name in part.devices.names:
            if name in names:
                return f"duplicate device name {name}"
            names.add(name)
    return None


def _counter_problem(generation: Generation) -> str | None:
    counters_of: dict[str, Iterable[str]] = {}
    for counter_set in generation.devices.counter_sets:
        if counter_set.name in counters_of:
            return f"duplicate counter set name {counter_set.name}"
        counters_of[counter_set.name] = counter_set.counters
    distinct = {id(template): template for template in generation.devices.templates}
    for template in distinct.values():
        for consumption in template.consumes_counters:
            counters = counters_of.get(consumption.counter_set)
            if counters is None:
                return f"counter set {consumption.counter_set} not found"
            for name in consumption.counters:
                if name not in counters:
                    return f"counter {name} not found in counter set {consumption.counter_set}"
    return None


def _places(names: tuple[str, ...]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return places


def _waits(devices: Devices) -> int:
    mask = 0
    for index, template in enumerate(devices.templates):
        if template.binding_conditions:
            mask |= 1 << index
    return mask


def _none_of(devices: Devices) -> Devices:
    """The counter sets of a slice without its devices."""
    empty = _no_devices(devices.driver)
    empty.counter_sets = devices.counter_sets
    return empty


def _no_devices(driver: str) -> Devices:
    return Devices(
        driver=driver,
        names=(),
        templates=(),
        attributes=(),
        columns=(),
        origins=(),
        counter_sets=(),
    )
