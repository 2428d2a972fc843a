"""The GPUs of a cluster for people: node by node, GPU by GPU, free, in use, or not to be had.

Read from published slices, allocated claims, taints and reservations, and for nodes whose GPUs a device plugin counts
from the node and the pods bound to it, so it shows what a scheduler sees. Every GPU has exactly one state. Returns
structs and tile strings. Never prints.
"""

import itertools
import locale
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TextIO

import msgspec

from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims, slices
from dovetail.model import node_pools
from dovetail.tables import text
from dovetail.tables.gpus import plugin_gpus, unavailable_gpus
from dovetail.tables.gpus.unavailable_gpus import DeviceId

# The state of a GPU. PARTS: it can be had in slices or shares only, and none is in use. TAINTED and RESERVED ones
# would be free otherwise.
FREE, PARTS, SLICED, SHARED, USED = "free", "parts", "sliced", "shared", "used"
TAINTED, RESERVED = "tainted", "reserved"

TILES: Final = {
    FREE: "□",
    PARTS: "▤",
    SLICED: "▥",
    SHARED: "◧",
    USED: "■",
    TAINTED: "▨",
    RESERVED: "▣",
}
_ASCII: Final = str.maketrans("□▤▥◧■▨▣", ".mMs#xr")
_COLOURS: Final = {
    "□": "32",
    "▤": "36",
    "▥": "33",
    "◧": "33",
    "■": "31",
    "▨": "90",
    "▣": "35",
}
LEGEND: Final = "□ free   ■ in use   ▤ in parts, all free   ▥ slices in use   ◧ shares in use   ▨ tainted   ▣ reserved"

MEMORY: Final = "memory"


class Item(msgspec.Struct, frozen=True, gc=False):
    """One published device, where it is, and whether a claim holds it, or shares that leave some of its memory."""

    node: str
    driver: str
    pool: str
    device: slices.Device
    is_allocated: bool
    has_room: bool = False

    @property
    def id(self) -> DeviceId:
        """What claims and rules name it by."""
        return self.driver, self.pool, self.device.name

    def word(self, name: str, *, domain: str = "") -> str:
        """An attribute as text; empty if it is not published."""
        value = self.device.attributes.get(f"{domain}/{name}" if domain else name)
        if value is None:
            return ""
        if value.string_value is not None:
            return value.string_value  # nearly all of them, and a fleet has many
        fields = (value.version_value, value.int_value, value.bool_value)
        texts = (str(field) for field in fields if field is not None)
        return next(texts, "")

    @property
    def memory_bytes(self) -> int:
        """Published memory, 0 if none is."""
        capacity = self.device.capacity.get(MEMORY)
        return 0 if capacity is None else capacity.value.nanos // 10**9


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One physical GPU, seen through the devices that share it."""

    uuid: str
    product: str
    memory_bytes: int
    has_whole: bool
    partitions: int
    state: str
    is_shareable: bool = False
    devices: tuple[DeviceId, ...] = ()  # that stand for it or for parts of it
    offers_shares: bool = False  # its parts are replicas, not slices

    @property
    def tile(self) -> str:
        """One character."""
        return TILES[self.state]


class NodeGpus(msgspec.Struct, frozen=True):
    """A node and its GPUs."""

    node: nodes.Node
    gpus: tuple[Gpu, ...]
    pools: frozenset[tuple[str, str]]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def free(self) -> int:
        """How many GPUs a pod can have whole: the largest block on this node."""
        return sum(gpu.state == FREE for gpu in self.gpus)

    def label(self, name: str) -> str:
        """A label of the node, or empty."""
        return self.node.metadata.labels.get(name, "")

    @property
    def pool(self) -> str:
        """The node's pool by its labels; nodes of no pool are grouped by product."""
        return node_pools.name_of(self.node) or self.products

    @property
    def products(self) -> str:
        """What is inside, without the maker's name."""
        return ", ".join(sorted({text.product(gpu.product) for gpu in self.gpus}))

    @property
    def tiles(self) -> str:
        """One tile per GPU."""
        return "".join(gpu.tile for gpu in self.gpus)

    @property
    def memory_bytes(self) -> int:
        """Memory of one GPU: as GPU feature discovery labels it, else of the largest published device."""
        mebibytes = self.label("nvidia.com/gpu.memory")
        if mebibytes.isdecimal() and mebibytes.isascii():
            return int(mebibytes[:12]) * 1024**2
        return max(gpu.memory_bytes for gpu in self.gpus)

    @property
    def offers(self) -> str:
        """Whether whole GPUs, partitions, shares or several of them can be claimed."""
        has_whole = any(gpu.has_whole for gpu in self.gpus)
        has_partitions = any(gpu.partitions for gpu in self.gpus)
        if not has_partitions:
            is_shareable = any(gpu.is_shareable for gpu in self.gpus)
            return "whole+shared" if is_shareable else "whole"
        pool = node_pools.pool_of(self.node)
        parts = "shared" if pool.sharing and not pool.mig_profiles else "mig"
        return f"whole+{parts}" if has_whole else parts


class PodCounts(msgspec.Struct, frozen=True):
    """How many pods there are, have a node, and wait for one."""

    total: int
    running: int
    waiting: int


def pod_counts(objects: object_set.ObjectSet) -> PodCounts | None:
    """Pods by whether they have a node; None where there are no pods."""
    structs = [stored.struct for stored in objects.listed("Pod")]
    placed = sum(isinstance(pod, pods.Pod) and bool(pod.spec.node_name) for pod in structs)
    return PodCounts(len(structs), placed, len(structs) - placed) if structs else None


def items(objects: object_set.ObjectSet) -> Iterator[Item]:
    """Every published device, node by node and in counting order."""
    allocated_devices = allocated(objects)
    all_items: list[Item] = []
    for stored in objects.listed("ResourceSlice"):
        if not isinstance(stored.struct, slices.ResourceSlice):
            continue
        spec = stored.struct.spec
        for device in spec.devices:
            node = device.node_name or spec.node_name or ""
            taken = allocated_devices.get((spec.driver, spec.pool.name, device.name))
            item = Item(
                node,
                spec.driver,
                spec.pool.name,
                device,
                is_allocated=taken is not None,
                has_room=taken is not None and _has_room(device, taken),
            )
            all_items.append(item)

    # Nodes and devices share few names: each is taken apart once, and items are compared by numbers.
    node_ranks = _ranks({item.node for item in all_items})
    device_ranks = _ranks({item.device.name for item in all_items})
    all_items.sort(key=lambda item: (node_ranks[item.node], device_ranks[item.device.name]))
    return iter(all_items)


def _ranks(names: Collection[str]) -> dict[str, int]:
    """The place of each name in counting order."""
    ordered = sorted(names, key=text.natural)
    return {name: rank for rank, name in enumerate(ordered)}


def allocated(objects: object_set.ObjectSet) -> Mapping[DeviceId, int]:
    """The devices that claims hold, without admin access, and how much memory of each shares take, in nanos."""
    taken: Counter[DeviceId] = Counter()
    for stored in objects.listed("ResourceClaim"):
        if not isinstance(stored.struct, claims.ResourceClaim):
            continue
        allocation = stored.struct.status.allocation
        if allocation is None:
            continue
        for result in allocation.devices.results:
            if not result.admin_access:
                memory = result.consumed_capacity.get(MEMORY)
                device_id = (result.driver, result.pool, result.device)
                taken[device_id] += 0 if memory is None else memory.nanos
    return taken


def _has_room(device: slices.Device, taken: int) -> bool:
    """Whether shares of a device leave some of its memory."""
    memory = device.capacity.get(MEMORY)
    is_shareable = bool(device.allow_multiple_allocations)
    return is_shareable and memory is not None and taken < memory.value.nanos


def nodes_with_gpus(objects: object_set.ObjectSet) -> list[NodeGpus]:
    """Nodes that publish GPUs, in counting order."""
    by_node: dict[str, dict[str, list[Item]]] = {}
    for item in items(objects):
        if item.driver == node_pools.GPU_DRIVER:
            identity = item.word("parentUUID") or item.word("uuid")
            by_node.setdefault(item.node, {}).setdefault(identity, []).append(item)
    nodes_by_name = {
        stored.struct.metadata.name: stored.struct
        for stored in objects.listed("Node")
        if isinstance(stored.struct, nodes.Node)
    }
    closed = _closed_devices(objects, by_node)
    published = [
        _node_gpus(nodes_by_name[name], by_gpu, closed)
        for name, by_gpu in by_node.items()
        if name in nodes_by_name
    ]
    # A node that publishes its GPUs may be counted by a plugin too, while it is moved from one to the other.
    others = [node for name, node in nodes_by_name.items() if name not in by_node]
    counted = _counted_nodes(others, objects)
    if not counted:
        return published
    return sorted([*published, *counted], key=lambda node: text.natural(node.name))


class _Closed(NamedTuple):
    """Devices that are not to be had although no claim holds them."""

    tainted: frozenset[DeviceId]
    reserved: frozenset[DeviceId]


def _closed_devices(
    objects: object_set.ObjectSet, by_node: Mapping[str, Mapping[str, Sequence[Item]]]
) -> _Closed:
    by_gpu = itertools.chain.from_iterable(of_node.values() for of_node in by_node.values())
    all_items = list(itertools.chain.from_iterable(by_gpu))
    has_taints = [item for item in all_items if item.device.taints]  # few fleets have any
    tainted = {item.id for item in has_taints if unavailable_gpus.keeps_off(item.device.taints)}
    if objects.count(registry.TAINT_RULE.name):
        rules = unavailable_gpus.taints_of_rules(objects, (item.id for item in all_items))
        tainted |= {each for each, taints in rules.items() if unavailable_gpus.keeps_off(taints)}
    return _Closed(frozenset(tainted), unavailable_gpus.reserved_in(objects).devices)


def can_show_tiles(stream: TextIO) -> bool:
    """Whether the stream's encoding has the tiles."""
    try:
        LEGEND.encode(getattr(stream, "encoding", None) or locale.getpreferredencoding(False))
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def ascii_only(line: str) -> str:
    """The line with plain letters for tiles."""
    return line.translate(_ASCII)


def coloured(line: str) -> str:
    """The line with ANSI colours on its tiles."""
    return "".join(
        f"\x1b[{_COLOURS[sign]}m{sign}\x1b[0m" if sign in _COLOURS else sign for sign in line
    )


def _counted_nodes(
    candidates: Sequence[nodes.Node], objects: object_set.ObjectSet
) -> list[NodeGpus]:
    """Nodes whose GPUs a device plugin counts; one that counts more than can be is left out."""
    plugin_nodes = [
        node
        for node in candidates
        if node_pools.plugin_gpus(node) and not plugin_gpus.implausible(node)
    ]
    if not plugin_nodes:
        return []
    used = plugin_gpus.used_in(objects)
    reserved = unavailable_gpus.reserved_in(objects).resources
    return [
        _counted_gpus(node, used.get(node.metadata.name, {}), reserved.get(node.metadata.name, {}))
        for node in plugin_nodes
    ]


def _counted_gpus(
    node: nodes.Node, used: Mapping[str, int], reserved: Mapping[str, int]
) -> NodeGpus:
    """The GPUs of a node by number; use is shown from the first one on, then what is reserved."""
    pool = node_pools.pool_of(node)
    product = pool.accelerator.replace("-", " ")
    resources = plugin_gpus.resources_of(node, used)
    whole = sum(each.total for each in resources if each.type == plugin_gpus.WHOLE)
    whole_used = sum(each.used for each in resources if each.type == plugin_gpus.WHOLE)
    whole_reserved = sum(
        reserved.get(each.name, 0) for each in resources if each.type == plugin_gpus.WHOLE
    )
    parts = sum(each.total for each in resources if each.type != plugin_gpus.WHOLE)
    parts_used = sum(each.used for each in resources if each.type != plugin_gpus.WHOLE)

    split_count = 0
    if parts:
        labelled = pool.gpu_count - whole
        split_count = labelled if labelled > 0 else 1
    gpus: list[Gpu] = []
    for number in range(whole):
        state = USED if number < whole_used else FREE
        if state == FREE and number < whole_used + whole_reserved:
            state = RESERVED
        gpus.append(_counted_gpu(node, number, product, partitions=0, state=state))
    per_gpu = -(-parts // split_count) if split_count else 0
    has_shares = any(each.type == plugin_gpus.SHARED for each in resources)
    for number in range(split_count):
        in_use = SHARED if has_shares else SLICED
        state = in_use if number * per_gpu < parts_used else PARTS
        gpus.append(
            _counted_gpu(
                node,
                whole + number,
                product,
                partitions=per_gpu,
                state=state,
                offers_shares=has_shares,
            )
        )
    return NodeGpus(node, tuple(gpus), frozenset())


def _counted_gpu(
    node: nodes.Node,
    number: int,
    product: str,
    *,
    partitions: int,
    state: str,
    offers_shares: bool = False,
) -> Gpu:
    if state in (FREE, PARTS) and node.spec.unschedulable:
        state = TAINTED
    return Gpu(
        uuid=f"{node.metadata.name}/{number}",
        product=product,
        memory_bytes=0,
        has_whole=not partitions,
        partitions=partitions,
        state=state,
        offers_shares=offers_shares,
    )


def _node_gpus(node: nodes.Node, by_gpu: dict[str, list[Item]], closed: _Closed) -> NodeGpus:
    is_cordoned = bool(node.spec.unschedulable)
    gpus = tuple(
        _gpu(identity, shared, closed, is_cordoned=is_cordoned)
        for identity, shared in by_gpu.items()
    )
    pools = frozenset((item.driver, item.pool) for shared in by_gpu.values() for item in shared)
    return NodeGpus(node, gpus, pools)


def _gpu(identity: str, shared: list[Item], closed: _Closed, *, is_cordoned: bool) -> Gpu:
    # One loop without further lists: a large fleet has tens of thousands of GPUs.
    state, memory_bytes, partitions = FREE, 0, 0
    has_whole = is_shareable = False
    for item in shared:
        memory_bytes = max(memory_bytes, item.memory_bytes)
        match item.word("type"):
            case "gpu":
                has_whole = True
                is_shareable = is_shareable or bool(item.device.allow_multiple_allocations)
                if item.is_allocated:  # in use, unless there is room for another share
                    state = SHARED if item.has_room and state != USED else USED
            case "mig":
                partitions += 1
                state = SLICED if item.is_allocated and state == FREE else state
    ids = tuple([(item.driver, item.pool, item.device.name) for item in shared])
    if state == FREE and (is_cordoned or any(closed)):
        state = _idle_state(shared, ids, closed, has_whole=has_whole, is_cordoned=is_cordoned)
    elif state == FREE and not has_whole:
        state = PARTS
    return Gpu(
        uuid=identity,
        product=shared[0].word("productName"),
        memory_bytes=memory_bytes,
        has_whole=has_whole,
        partitions=partitions,
        state=state,
        is_shareable=is_shareable,
        devices=ids,
    )


def _idle_state(
    shared: list[Item],
    ids: tuple[DeviceId, ...],
    closed: _Closed,
    *,
    has_whole: bool,
    is_cordoned: bool,
) -> str:
    """The state of a GPU of which nothing is in use."""
    if closed.reserved and not closed.reserved.isdisjoint(ids):
        return RESERVED
    if is_cordoned:
        return TAINTED
    if closed.tainted:
        # Of a GPU that can be had whole, the device for all of it decides; else all parts have to be closed.
        deciding = {item.id for item in shared if not has_whole or item.word("type") == "gpu"}
        if deciding <= closed.tainted:
            return TAINTED
    return FREE if has_whole else PARTS
