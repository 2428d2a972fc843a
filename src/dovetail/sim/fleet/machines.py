"""The machines of a fleet: node by node, the GPUs inside with their ids and addresses.

Given a fleet, every id follows from the fleet's name, the node and the index, so two runs agree and no two
GPUs share a uuid. Never touches Kubernetes objects.
"""

import uuid
from collections.abc import Iterator

import msgspec

from dovetail import gpus
from dovetail.sim.fleet import fleet_spec

_SEED = uuid.UUID("6d1f0a52-7f0e-5c2e-9f0c-0a8e6d4f3b21")  # ours; any constant would do
_FIRST_BUS = 0x10
_BUSES = 0xE0


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU in one node."""

    minor: int
    uuid: str
    pci_bus_id: str
    pcie_root: str
    numa_node: int


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a pool and what is in it."""

    name: str
    pool: fleet_spec.Pool
    gpu: gpus.Gpu
    rack: str | None
    clique: str | None
    boards: tuple[Board, ...]


def machines_of(fleet: fleet_spec.Fleet) -> Iterator[Machine]:
    """Every machine, pool by pool. The fleet must have no problems."""
    for pool in fleet.pools:
        gpu = fleet_spec.gpu_of(pool)
        assert gpu is not None, "an unchecked fleet"
        digits = len(str(pool.count - 1))
        for index in range(pool.count):
            name = f"{pool.name}-{index:0{digits}d}"
            rack = _rack(pool, index)
            yield Machine(
                name=name,
                pool=pool,
                gpu=gpu,
                rack=rack,
                clique=_clique(fleet, pool, rack),
                boards=tuple(_board(fleet, name, gpu=gpu, minor=minor, count=pool.gpus_per_node)
                             for minor in range(pool.gpus_per_node)),
            )  # fmt: skip


def derived_uuid(*parts: str | int) -> str:
    """The same id for the same parts, another for any other."""
    return str(uuid.uuid5(_SEED, "/".join(str(part) for part in parts)))


def _board(fleet: fleet_spec.Fleet, node: str, *, gpu: gpus.Gpu, minor: int, count: int) -> Board:
    numa_node = minor * 2 // count
    if gpu.form_factor.value == "superchip":  # each GPU is alone behind its own PCI domain
        domain = 0x8 + 0x10 * (minor // 2) + minor % 2
        return Board(
            minor=minor,
            uuid=f"GPU-{derived_uuid(fleet.name, node, minor)}",
            pci_bus_id=f"{domain:04x}:01:00.0",
            pcie_root=f"pci{domain:04x}:00",
            numa_node=numa_node,
        )
    bus = _FIRST_BUS + minor * (_BUSES // count)
    return Board(
        minor=minor,
        uuid=f"GPU-{derived_uuid(fleet.name, node, minor)}",
        pci_bus_id=f"0000:{bus + 1:02x}:00.0",
        pcie_root=f"pci0000:{bus:02x}",
        numa_node=numa_node,
    )


def _rack(pool: fleet_spec.Pool, index: int) -> str | None:
    if pool.rack is None or pool.nodes_per_rack is None:
        return pool.rack
    return f"{pool.rack}-{index // pool.nodes_per_rack}"


def _clique(fleet: fleet_spec.Fleet, pool: fleet_spec.Pool, rack: str | None) -> str | None:
    """What NVIDIA's discovery writes: the fabric's cluster uuid and the number of the clique in it."""
    if pool.clique != fleet_spec.AUTOMATIC:
        return pool.clique
    return f"{derived_uuid(fleet.name, pool.name, rack or '', 'fabric')}.0"
