"""What an allocation costs in silicon: whole GPUs, partitions, shares, replicas, and who is charged."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail import gpus
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.resource import claims
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.world.devices import device_usage, gpu_ledger
from dovetail.world.devices.device_columns import Devices
from dovetail.world.views import static_views
from dovetail.world.views.node_view import NodeView, PoolView

DRIVER = "gpu.example.com"


def pool(
    *devices: dict[str, Any],
    counters: dict[str, dict[str, str]] | None = None,
    driver: str = DRIVER,
) -> Devices:
    return view(*devices, counters=counters, driver=driver).devices


def view(
    *devices: dict[str, Any],
    counters: dict[str, dict[str, str]] | None = None,
    driver: str = DRIVER,
    held: tuple[claims.AllocationResult, ...] = (),
) -> PoolView:
    parts: list[dict[str, Any]] = [{"devices": list(devices)}]
    if counters:
        sets = [{"name": name, "counters": valued(amounts)} for name, amounts in counters.items()]
        parts.append({"sharedCounters": sets})
    published = [
        decoded(
            "ResourceSlice",
            {
                "metadata": {"name": f"s{index}"},
                "spec": {
                    "driver": driver,
                    "nodeName": "n",
                    "pool": {"name": "p", "generation": 1, "resourceSliceCount": len(parts)},
                    **part,
                },
            },
        )
        for index, part in enumerate(parts)
    ]
    in_use = device_usage.Usage()
    for item in held:
        in_use.change(item, 1)
    node = decoded("Node", {"metadata": {"name": "n"}})
    return static_views.node_views([node], published, in_use=in_use)["n"].pools[0]


def decoded(kind: str, tree: dict[str, Any]) -> Any:
    version = "v1" if kind == "Node" else registry.RESOURCE_V1
    return codec.decode({"apiVersion": version, "kind": kind, **tree}).struct


def valued(amounts: dict[str, str]) -> dict[str, Any]:
    return {name: {"value": amount} for name, amount in amounts.items()}


def partition(name: str, counter_set: str = "gpu-0", **amounts: str) -> dict[str, Any]:
    plain = {key.replace("_", "-"): amount for key, amount in amounts.items()}
    return {
        "name": name,
        "consumesCounters": [{"counterSet": counter_set, "counters": valued(plain)}],
    }


def allocation(*results: dict[str, Any]) -> claims.AllocationResult:
    whole = [{"request": "r", "driver": DRIVER, "pool": "p"} | result for result in results]
    claim = decoded(
        "ResourceClaim",
        {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": whole}}}},
    )
    assert isinstance(claim, claims.ResourceClaim)
    assert claim.status.allocation is not None
    return claim.status.allocation


def cost(given: claims.AllocationResult, devices: Devices) -> int:
    return gpu_ledger.Ledger().allocation_cost(given, {(devices.driver, "p"): devices})


def test_a_whole_gpu_costs_a_thousand_and_all_of_eight_cost_eight_thousand() -> None:
    devices = pool(*({"name": f"gpu-{index}"} for index in range(8)))
    assert cost(allocation({"device": "gpu-3"}), devices) == 1000
    assert cost(allocation(*({"device": f"gpu-{index}"} for index in range(8))), devices) == 8000


def test_a_partition_costs_its_largest_share() -> None:
    devices = pool(
        partition("small", sms="14", memory="10Gi"),
        partition("broad", sms="42", memory="40Gi"),
        partition("dense", sms="56", memory="40Gi"),
        partition("whole", sms="98", memory="80Gi"),
        counters={"gpu-0": {"sms": "98", "memory": "80Gi"}},
    )
    book = gpu_ledger.Ledger()
    assert [book.device_cost(devices, index) for index in range(4)] == [143, 500, 571, 1000]


def test_numbered_counters_are_one_counter() -> None:
    devices = pool(
        partition("left", slice_0="1", slice_1="1"),
        partition("right", slice_3="1"),
        counters={"gpu-0": {f"slice-{index}": "1" for index in range(4)}},
    )
    assert [gpu_ledger.Ledger().device_cost(devices, index) for index in range(2)] == [500, 250]


def test_an_engine_that_some_partitions_lack_does_not_measure_their_size() -> None:
    devices = pool(
        partition("plain", sms="10", media="0"),
        partition("with-media", sms="10", media="1"),
        counters={"gpu-0": {"sms": "40", "media": "1"}},
    )
    assert [gpu_ledger.Ledger().device_cost(devices, index) for index in range(2)] == [250, 250]


def test_a_device_on_two_gpus_costs_both_shares() -> None:
    both = {
        "name": "pair",
        "consumesCounters": [
            {"counterSet": "a", "counters": valued({"sms": "10"})},
            {"counterSet": "b", "counters": valued({"sms": "5"})},
        ],
    }
    devices = pool(both, counters={"a": {"sms": "10"}, "b": {"sms": "10"}})
    assert gpu_ledger.Ledger().device_cost(devices, 0) == 1500


def test_a_counter_set_that_measures_nothing_is_charged_whole() -> None:
    devices = pool(partition("odd", sms="0"), counters={"gpu-0": {"sms": "0"}})
    assert gpu_ledger.Ledger().device_cost(devices, 0) == 1000


def shareable(**more: Any) -> dict[str, Any]:
    capacity = {"memory": {"value": "80Gi"}, "cores": {"value": "100"}}
    return {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity} | more


def share(**consumed: str) -> dict[str, Any]:
    return {
        "device": "gpu-0",
        "shareID": "aaaaaaaa-0000-0000-0000-000000000001",
        "consumedCapacity": consumed,
    }


def test_a_share_costs_its_largest_part_of_the_capacities() -> None:
    assert cost(allocation(share(memory="20Gi", cores="10")), pool(shareable())) == 250
    assert cost(allocation(share(memory="8Gi", cores="50")), pool(shareable())) == 500


def test_a_share_of_a_device_without_capacity_costs_the_device() -> None:
    assert cost(allocation(share()), pool(shareable(capacity={}))) == 1000


def test_a_share_of_a_partition_costs_a_part_of_the_part() -> None:
    drawn = partition("gpu-0", sms="50")["consumesCounters"]
    devices = pool(shareable(consumesCounters=drawn), counters={"gpu-0": {"sms": "100"}})
    assert cost(allocation(share(memory="20Gi", cores="0")), devices) == 125


def test_administrative_access_is_free_and_other_devices_are_no_gpus() -> None:
    devices = pool({"name": "gpu-0"}, {"name": "gpu-1"})
    assert (
        cost(allocation({"device": "gpu-0", "adminAccess": True}, {"device": "gpu-1"}), devices)
        == 1000
    )
    nics = pool({"name": "nic-0"}, driver="net.example.com")
    assert cost(allocation({"device": "nic-0", "driver": "net.example.com"}), nics) == 0
    assert gpu_ledger.Ledger().device_cost(nics, 0) == 0


def test_a_device_that_is_no_longer_published_is_charged_as_whole() -> None:
    assert cost(allocation({"device": "gone"}), pool({"name": "gpu-0"})) == 1000
    assert gpu_ledger.Ledger().allocation_cost(allocation({"device": "gpu-0"}), {}) == 1000


def test_first_available_is_charged_for_what_was_given() -> None:
    devices = pool({"name": "gpu-0"}, partition("half", sms="1"), counters={"gpu-0": {"sms": "2"}})
    assert cost(allocation({"device": "half", "request": "r/second"}), devices) == 500


@pytest.mark.parametrize(
    ("whole", "holders", "parts"),
    [
        (1000, ["b", "a"], {"a": 500, "b": 500}),
        (1000, ["c", "a", "b"], {"a": 334, "b": 333, "c": 333}),
        (2, ["a", "b", "c"], {"a": 1, "b": 1, "c": 0}),
        (1000, ["a", "a"], {"a": 1000}),
        (1000, [], {}),
    ],
)
def test_a_shared_claim_is_charged_once_in_equal_parts(
    whole: int, holders: list[str], parts: dict[str, int]
) -> None:
    assert gpu_ledger.split(whole, holders) == parts


@pytest.mark.parametrize(
    ("resource", "count", "labels", "milli"),
    [
        ("nvidia.com/gpu", 2, {}, 2000),
        ("nvidia.com/gpu", 1, {"nvidia.com/gpu.replicas": "4"}, 250),
        ("nvidia.com/gpu.shared", 3, {"nvidia.com/gpu.replicas": "10"}, 300),
        ("nvidia.com/gpu", 1, {"nvidia.com/gpu.replicas": "0"}, 1000),
        ("nvidia.com/mig-1g.10gb", 1, {"nvidia.com/gpu.memory": "81559"}, 143),
        ("nvidia.com/mig-3g.40gb", 2, {"nvidia.com/gpu.memory": "81920"}, 1000),
        ("nvidia.com/mig-1g.6gb", 1, {"nvidia.com/gpu.memory": "24576"}, 250),
        ("nvidia.com/mig-7g.80gb", 1, {"nvidia.com/gpu.memory": "1"}, 1000),
        ("nvidia.com/mig-1g.10gb.me", 1, {}, 143),
        ("example.com/nic", 4, {}, 0),
    ],
)
def test_device_plugin_resources(
    resource: str, count: int, labels: dict[str, str], milli: int
) -> None:
    assert gpu_ledger.plugin_cost(resource, count, labels) == milli


def sample_node(gpu: str) -> NodeView:
    fleet = fleet_spec.Fleet(
        name="f", pools=(fleet_spec.Pool(name="p", count=1, gpu=gpu, gpus_per_node=2, mig=True),)
    )
    stored = [codec.decode(tree).struct for tree in fleet_objects.objects_of(fleet)]
    nodes = [item for item in stored if type(item).__name__ == "Node"]
    published = [item for item in stored if type(item).__name__ == "ResourceSlice"]
    return static_views.node_views(nodes, published)["p-0"]  # type: ignore[arg-type]


@pytest.mark.parametrize("board", ["A100-SXM4-80GB", "H100-SXM5-80GB"])
def test_real_mig_profiles_cost_between_their_compute_and_memory_share(board: str) -> None:
    devices = sample_node(board).pools[0].devices
    known = gpus.by_name(board)
    assert known is not None
    assert known.mig is not None
    sizes = {profile.name.value: profile for profile in gpus.profiles(known)}
    book = gpu_ledger.Ledger()
    for index, name in enumerate(devices.names):
        milli = book.device_cost(devices, index)
        profile = devices.device(index).attributes.get("profile")
        if profile is None:
            assert milli == 1000, name
            continue
        size = sizes[profile.string_value or ""]
        assert size.memory_slices is not None
        least = 1000 * size.memory_slices.value // known.mig.memory_slices
        most = -(-1000 * size.compute_slices.value // known.mig.compute_slices)
        assert least <= milli <= max(least, most), name


def test_what_is_free_counts_whole_gpus_and_the_scarcest_counter() -> None:
    book = gpu_ledger.Ledger()
    eight = [{"name": f"gpu-{index}"} for index in range(8)]
    assert book.free_milli_gpu(view(*eight)) == 8000
    assert (
        book.free_milli_gpu(
            view(*eight, held=(allocation({"device": "gpu-1"}, {"device": "gpu-2"}),))
        )
        == 6000
    )
    parts = [partition("a", sms="4", memory="1Gi"), partition("b", sms="1", memory="4Gi")]
    sets = {"gpu-0": {"sms": "10", "memory": "10Gi"}}
    assert book.free_milli_gpu(view(*parts, counters=sets)) == 1000
    assert (
        book.free_milli_gpu(view(*parts, counters=sets, held=(allocation({"device": "a"}),))) == 600
    )
    held = allocation(share(memory="20Gi", cores="10"))
    assert book.free_milli_gpu(view(shareable(), held=(held,))) == 750
    assert book.free_milli_gpu(view({"name": "nic"}, driver="net.example.com")) == 0
