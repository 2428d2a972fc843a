"""The GPUs of a cluster for people: node by node, GPU by GPU, free or in use.

Reads published slices and allocated claims only, so it shows what a scheduler sees.
Returns structs and tile strings. Never prints.
"""

import locale
from collections.abc import Iterator
from typing import Final, TextIO

import msgspec

from dovetail.cli.tables import text
from dovetail.kubetypes.core import nodes, pods
from dovetail.kubetypes.resource import claims, slices
from dovetail.model import node_pools
from dovetail.sim.fleet import device_publisher
from dovetail.sim.local import local_cluster

FREE, PART, USED = "free", "part", "used"

_TILES: Final = {("whole", FREE): "□", ("mig", FREE): "▤", ("mig", PART): "▥", ("whole", USED): "■"}
_ASCII: Final = str.maketrans("□▤▥■", ".mM#")
_COLOURS: Final = {"□": "32", "▤": "36", "▥": "33", "■": "31"}
LEGEND: Final = "□ free   ■ in use   ▤ partitions, all free   ▥ partitions, some in use"

DeviceId = tuple[str, str, str]  # driver, pool, device


class Item(msgspec.Struct, frozen=True, gc=False):
    """One published device, where it is, and whether a claim holds it."""

    node: str
    driver: str
    pool: str
    device: slices.Device
    is_allocated: bool

    def word(self, name: str, *, domain: str = "") -> str:
        """An attribute as text; empty if it is not published."""
        value = self.device.attributes.get(f"{domain}/{name}" if domain else name)
        if value is None:
            return ""
        fields = (value.string_value, value.version_value, value.int_value, value.bool_value)
        texts = (str(field) for field in fields if field is not None)
        return next(texts, "")

    @property
    def memory_bytes(self) -> int:
        """Published memory, 0 if none is."""
        capacity = self.device.capacity.get("memory")
        return 0 if capacity is None else capacity.value.nanos // 10**9


class Gpu(msgspec.Struct, frozen=True):
    """One physical GPU, seen through the devices that share it."""

    uuid: str
    product: str
    memory_bytes: int
    has_whole: bool
    partitions: int
    state: str

    @property
    def tile(self) -> str:
        """One character."""
        kind = "mig" if self.partitions and (not self.has_whole or self.state == PART) else "whole"
        return _TILES.get((kind, self.state)) or _TILES["whole", self.state]


class NodeGpus(msgspec.Struct, frozen=True):
    """A node and its GPUs."""

    node: nodes.Node
    gpus: tuple[Gpu, ...]
    pools: frozenset[tuple[str, str]]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

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
        """Whether whole GPUs, partitions or both can be claimed."""
        has_whole = any(gpu.has_whole for gpu in self.gpus)
        has_partitions = any(gpu.partitions for gpu in self.gpus)
        if not has_partitions:
            return "whole"
        return "whole+mig" if has_whole else "mig"


class PodCounts(msgspec.Struct, frozen=True):
    """How many pods there are, have a node, and wait for one."""

    total: int
    running: int
    waiting: int


def pod_counts(cluster: local_cluster.Cluster) -> PodCounts | None:
    """Pods by whether they have a node; None where there are no pods."""
    structs = [stored.struct for stored in local_cluster.listed(cluster, "Pod")]
    placed = sum(isinstance(pod, pods.Pod) and bool(pod.spec.node_name) for pod in structs)
    return PodCounts(len(structs), placed, len(structs) - placed) if structs else None


def items(cluster: local_cluster.Cluster) -> Iterator[Item]:
    """Every published device, node by node and in counting order."""
    allocated_devices = allocated(cluster)
    all_items: list[Item] = []
    for stored in local_cluster.listed(cluster, "ResourceSlice"):
        if not isinstance(stored.struct, slices.ResourceSlice):
            continue
        spec = stored.struct.spec
        for device in spec.devices:
            node = device.node_name or spec.node_name or ""
            is_allocated = (spec.driver, spec.pool.name, device.name) in allocated_devices
            all_items.append(Item(node, spec.driver, spec.pool.name, device, is_allocated))

    all_items.sort(key=lambda item: (text.natural(item.node), text.natural(item.device.name)))
    return iter(all_items)


def allocated(cluster: local_cluster.Cluster) -> set[DeviceId]:
    """The devices that claims hold, without admin access."""
    device_ids: set[DeviceId] = set()
    for stored in local_cluster.listed(cluster, "ResourceClaim"):
        if not isinstance(stored.struct, claims.ResourceClaim):
            continue
        allocation = stored.struct.status.allocation
        if allocation is None:
            continue
        for result in allocation.devices.results:
            if not result.admin_access:
                device_ids.add((result.driver, result.pool, result.device))
    return device_ids


def nodes_with_gpus(cluster: local_cluster.Cluster) -> list[NodeGpus]:
    """Nodes that publish GPUs, in counting order."""
    by_node: dict[str, dict[str, list[Item]]] = {}
    for item in items(cluster):
        if item.driver == device_publisher.GPU_DRIVER:
            identity = item.word("parentUUID") or item.word("uuid")
            by_node.setdefault(item.node, {}).setdefault(identity, []).append(item)
    nodes_by_name = {
        stored.struct.metadata.name: stored.struct
        for stored in local_cluster.listed(cluster, "Node")
        if isinstance(stored.struct, nodes.Node)
    }
    return [
        _node_gpus(nodes_by_name[name], by_gpu)
        for name, by_gpu in by_node.items()
        if name in nodes_by_name
    ]


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


def _node_gpus(node: nodes.Node, by_gpu: dict[str, list[Item]]) -> NodeGpus:
    gpus = tuple(_gpu(identity, shared) for identity, shared in by_gpu.items())
    pools = frozenset((item.driver, item.pool) for shared in by_gpu.values() for item in shared)
    return NodeGpus(node, gpus, pools)


def _gpu(identity: str, shared: list[Item]) -> Gpu:
    whole = [item for item in shared if item.word("type") == "gpu"]
    partitions = [item for item in shared if item.word("type") == "mig"]
    state = FREE
    if any(item.is_allocated for item in whole):
        state = USED
    elif any(item.is_allocated for item in partitions):
        state = PART
    return Gpu(
        uuid=identity,
        product=shared[0].word("productName"),
        memory_bytes=max(item.memory_bytes for item in shared),
        has_whole=bool(whole),
        partitions=len(partitions),
        state=state,
    )
