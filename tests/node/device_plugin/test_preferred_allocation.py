"""Which devices a container should get."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.node.device_plugin.preferred_allocation import Spread, preferred
from dovetail.node.device_plugin.resources import OfferOptions, PluginDevice, resources
from dovetail.node.inventory import Gpu, Inventory
from tests.node import build


def islands(*groups: tuple[int, ...]) -> Inventory:
    """GPUs with NVLink inside each group only."""
    minors = sorted(itertools.chain(*groups))
    gpus: list[Gpu] = []
    for minor in minors:
        group = next(group for group in groups if minor in group)
        peers = tuple(build.gpu(minor=peer).pci_bus_id for peer in group if peer != minor)
        gpus.append(msgspec.structs.replace(build.gpu(minor=minor), nvlink_peers=peers))
    return msgspec.structs.replace(build.machine(gpus=0), gpus=tuple(gpus))


def devices_of(node: Inventory, replicas: int = 1) -> tuple[PluginDevice, ...]:
    (offered,) = resources(node, OfferOptions(replicas=replicas))
    return offered.devices


def chosen(
    devices: tuple[PluginDevice, ...],
    size: int,
    *,
    free: set[int] | None = None,
    required: tuple[int, ...] = (),
    spread: Spread = Spread.DISTRIBUTED,
) -> list[int]:
    """The minor numbers of the choice."""
    minors = {device.id: device.gpu.minor for device in devices}
    ids = preferred(
        devices,
        available=[id_ for id_, minor in minors.items() if free is None or minor in free],
        required=[id_ for id_, minor in minors.items() if minor in required],
        size=size,
        spread=spread,
    )
    assert len(set(ids)) == len(ids)
    return sorted(minors[id_] for id_ in ids)


def test_four_gpus_come_from_one_nvlink_island() -> None:
    devices = devices_of(islands((0, 2, 4, 6), (1, 3, 5, 7)))
    assert chosen(devices, 4) == [0, 2, 4, 6]
    assert chosen(devices, 4, free={1, 2, 3, 5, 6, 7}) == [1, 3, 5, 7]


def test_two_gpus_come_from_the_island_that_is_broken_already() -> None:
    devices = devices_of(islands((0, 1, 2, 3), (4, 5, 6, 7)))
    assert chosen(devices, 2, free={0, 1, 2, 3, 4, 5}) == [4, 5]


def test_without_nvlink_neighbours_in_the_numa_node_are_preferred() -> None:
    devices = devices_of(build.machine("L4", gpus=8))
    assert chosen(devices, 2, free={2, 3, 5}) == [2, 3]
    assert chosen(devices, 2, free={3, 4, 5}) == [4, 5]


def test_required_gpus_pull_their_neighbours() -> None:
    devices = devices_of(islands((0, 1, 2, 3), (4, 5, 6, 7)))
    assert chosen(devices, 3, required=(6,)) == [4, 5, 6]


def test_more_than_there_are_gives_all_of_them() -> None:
    devices = devices_of(build.machine(gpus=2))
    assert chosen(devices, 5) == [0, 1]
    assert chosen(devices, 0) == []


def test_sixteen_gpus_are_searched_through_and_more_are_not() -> None:
    sixteen = devices_of(islands(tuple(range(0, 16, 2)), tuple(range(1, 16, 2))))
    assert chosen(sixteen, 8) == list(range(0, 16, 2))
    many = devices_of(islands(tuple(range(0, 40, 2)), tuple(range(1, 40, 2))))
    assert len({minor % 2 for minor in chosen(many, 20)}) == 1


def test_shares_are_spread_over_gpus_or_packed_on_few() -> None:
    devices = devices_of(build.machine(gpus=3), replicas=4)
    free = [device.id for device in devices][3:]  # GPU 0 has one free, the others four

    def minors(size: int, spread: Spread) -> list[str]:
        ids = preferred(devices, available=free, required=[], size=size, spread=spread)
        return [id_.partition("-")[2][:8] for id_ in ids]

    assert minors(1, Spread.DISTRIBUTED) == ["00000001"]
    assert minors(1, Spread.PACKED) == ["00000000"]
    assert sorted(minors(3, Spread.DISTRIBUTED)) == ["00000000", "00000001", "00000002"]


def test_two_shares_of_one_container_are_on_two_gpus() -> None:
    devices = devices_of(build.machine(gpus=2), replicas=4)
    assert chosen(devices, 2, spread=Spread.PACKED) == [0, 1]
    assert chosen(devices, 2, spread=Spread.DISTRIBUTED) == [0, 1]


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)), st.integers(-1, 12), st.booleans())
def test_a_choice_is_free_or_required_and_as_large_as_can_be(
    free: set[int], required: set[int], size: int, are_shared: bool
) -> None:
    devices = devices_of(islands((0, 1, 2, 3), (4, 5, 6, 7)), replicas=2 if are_shared else 1)
    by_id = {device.id: device.gpu.minor for device in devices}
    available = {id_ for id_, minor in by_id.items() if minor in free}
    fixed = [id_ for id_, minor in by_id.items() if minor in required]
    ids = preferred(devices, available=available, required=fixed, size=size)
    assert set(fixed) <= set(ids)
    assert set(ids) <= available | set(fixed)
    assert len(ids) == len(set(ids))
    assert len(ids) == max(len(fixed), min(size, len(available | set(fixed))))
