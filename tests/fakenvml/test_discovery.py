"""What nvidia-ml-py finds on the fake machines: the catalogue's boards, connected as the real servers are."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import gpus
from dovetail.devcluster.fake_gpus import gpu_machines
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.fakenvml import nvml
from tests.fakenvml.conftest import MakeHardware

pytestmark = pytest.mark.slow

IDENTITY = """
[
    [nvml.nvmlDeviceGetName(gpu), nvml.nvmlDeviceGetMemoryInfo(gpu).total, nvml.nvmlDeviceGetUUID(gpu),
     list(nvml.nvmlDeviceGetCudaComputeCapability(gpu)), nvml.nvmlDeviceGetPciInfo(gpu).busId]
    for gpu in gpus
]
"""


@pytest.mark.parametrize("name", sorted(gpu_machines.MACHINES))
def test_every_machine_shows_the_boards_of_the_catalogue(
    name: str, make_hardware: MakeHardware
) -> None:
    machine = gpu_machines.MACHINES[name]
    board = gpus.by_name(machine.board)
    assert board is not None
    assert board.memory_bytes is not None
    with nvml.client(make_hardware(machine=name)) as client:
        seen = client.do(IDENTITY)
    assert len(seen) == len(machine.slots)
    assert {product for product, *_ in seen} == {board.product.value}
    assert {memory for _, memory, *_ in seen} == {board.memory_bytes.value}
    assert len({uuid for _, _, uuid, *_ in seen}) == len(seen)
    capability = [int(part) for part in board.compute_capability.value.split(".")]
    assert all(found == capability for *_, found, _ in seen)
    buses = [bus for *_, bus in seen]
    assert buses == sorted(buses)


def test_a_gpu_is_found_by_uuid_serial_and_pci_address(client: nvml.Nvml) -> None:
    client.do("second = gpus[1]; uuid = nvml.nvmlDeviceGetUUID(second)")
    assert client.do("nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid))") == 1
    assert (
        client.do("nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId('0000:43:00.0'))")
        == 1
    )
    order = "nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleBySerial(nvml.nvmlDeviceGetSerial(second)))"
    assert client.do(order) == 1
    assert client.refusal("nvml.nvmlDeviceGetHandleByUUID('GPU-unknown')") == "NotFound"
    assert client.refusal("nvml.nvmlDeviceGetHandleByIndex(2)") == "InvalidArgument"


def test_the_same_name_gives_the_same_uuids_and_another_name_others(
    make_hardware: MakeHardware,
) -> None:
    def uuids(name: str) -> list[str]:
        machine = make_hardware(machine="t4", name=name).snapshot()
        return [gpu.uuid for gpu in machine.gpus]

    assert uuids("node-a") == uuids("node-a")
    assert not set(uuids("node-a")) & set(uuids("node-b"))


def test_memory_is_split_into_reserved_used_and_free(hopper: Hardware, client: nvml.Nvml) -> None:
    hopper.set(0, memory_used_bytes=5 << 30)
    total, reserved, free, used = client.do(
        "m = nvml.nvmlDeviceGetMemoryInfo(gpus[0], version=nvml.nvmlMemory_v2)\n"
        "[m.total, m.reserved, m.free, m.used]"
    )
    assert used == 5 << 30
    assert total == reserved + free + used
    first_version = client.do("nvml.nvmlDeviceGetMemoryInfo(gpus[0]).used")
    assert first_version == used + reserved


def test_gpus_behind_switches_reach_each_other_over_nvlink(client: nvml.Nvml) -> None:
    assert client.do("nvml.nvmlDeviceGetFieldValues(gpus[0], [91])[0].value.uiVal") == 18
    assert client.do("nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpus[0], 0)") == 2
    assert client.do("nvml.nvmlDeviceGetNvLinkState(gpus[0], 17)") == 1
    assert client.refusal("nvml.nvmlDeviceGetNvLinkState(gpus[0], 18)") == "InvalidArgument"


def test_direct_links_lead_to_the_peers_by_pci_address(make_hardware: MakeHardware) -> None:
    with nvml.client(make_hardware(machine="hgx-a100-4")) as client:
        remote = client.do(
            "[nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpus[1], link).busId for link in range(12)]"
        )
        own = client.do("[nvml.nvmlDeviceGetPciInfo(gpu).busId for gpu in gpus]")
        p2p = client.do("nvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[3], 2)")
    assert remote == [own[0]] * 4 + [own[2]] * 4 + [own[3]] * 4
    assert p2p == 0


def test_a_down_link_is_inactive(hopper: Hardware, client: nvml.Nvml) -> None:
    hopper.set_nvlinks_down(0, [3])
    assert client.do("[nvml.nvmlDeviceGetNvLinkState(gpus[0], link) for link in (2, 3)]") == [1, 0]


def test_distance_follows_pcie_switch_root_and_numa_node(make_hardware: MakeHardware) -> None:
    with nvml.client(make_hardware(machine="dgx-a100")) as client:
        levels = client.do(
            "[nvml.nvmlDeviceGetTopologyCommonAncestor(gpus[0], gpu) for gpu in gpus]"
        )
        node = client.do("nvml.nvmlDeviceGetMemoryAffinity(gpus[2], 1, 0)[0]")
    single, system = 10, 50
    assert levels == [0, single] + [system] * 6
    assert node == 1 << 1


RACK = """
info = nvml.c_nvmlGpuFabricInfo_v2_t()
nvml.nvmlDeviceGetGpuFabricInfoV(gpus[0], nvml.byref(info))
[info.state, info.cliqueId, bytes(info.clusterUuid).hex()]
"""


def test_a_rack_tray_belongs_to_a_fabric_and_a_dgx_to_none(
    make_hardware: MakeHardware, client: nvml.Nvml
) -> None:
    completed = 3
    with nvml.client(make_hardware(machine="gb200-tray")) as tray:
        state, clique, cluster = tray.do(RACK)
        assert tray.do("nvml.nvmlDeviceGetNumaNodeId(gpus[1])") == 10
    assert (state, clique) == (completed, 1)
    assert int(cluster, 16) != 0
    assert client.do(RACK) == [completed, 0, "00" * 16]
    assert client.refusal("nvml.nvmlDeviceGetNumaNodeId(gpus[0])") == "NotSupported"


SERVER = """
name: lab
board: L40S
has_nvlink: false
slots:
- {domain: 0, bus: 59, root: 58, switch: 0, numa_node: 0}
"""


def test_a_machine_described_in_a_file_is_made(make_hardware: MakeHardware, tmp_path: Path) -> None:
    description = tmp_path / "server.yaml"
    description.write_text(SERVER, encoding="utf-8")
    state = make_hardware(machine=str(description)).snapshot()
    assert [gpu.product for gpu in state.gpus] == ["NVIDIA L40S"]


def test_an_unknown_machine_lists_the_known_ones(make_hardware: MakeHardware) -> None:
    with pytest.raises(gpu_machines.UnknownMachine, match="dgx-h100"):
        make_hardware(machine="dgx-1")


def test_an_added_gpu_appears_to_the_running_client(hopper: Hardware, client: nvml.Nvml) -> None:
    assert hopper.add_gpu(machine="dgx-h100") == 2
    assert client.do("nvml.nvmlDeviceGetCount()") == 3
    assert client.do("nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(2))").startswith(
        "NVIDIA H100"
    )
    assert (hopper.driver_root / "dev" / "nvidia2").exists()
