"""NVIDIA's programs that run once on the fake: labels of GPU Feature Discovery, CDI of a whole node by nvidia-ctk."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nvidia import discovery
from tests.nvidia.conftest import Build

pytestmark = pytest.mark.slow

PROFILE_3G, PROFILE_1G = 9, 19  # ids on an H100


@pytest.mark.parametrize(
    ("machine", "family", "compute"),
    [
        ("dgx-a100", "ampere", "8.0"),
        ("dgx-h100", "hopper", "9.0"),
        ("dgx-b200", "blackwell", "10.0"),
        ("l4", "ada-lovelace", "8.9"),
        ("t4", "turing", "7.5"),
    ],
)
def test_labels_describe_the_gpus(machine: str, family: str, compute: str, build: Build) -> None:
    hardware = build(machine)
    discovery.name_server(hardware, "Some Server")
    labels = discovery.labels_by_gfd(hardware)
    gpu = hardware.snapshot().gpus[0]
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/gpu.product"] == gpu.product.replace(" ", "-")
    assert labels["nvidia.com/gpu.memory"] == str(gpu.memory_bytes // 1024**2)
    assert labels["nvidia.com/gpu.family"] == family
    major, minor = labels["nvidia.com/gpu.compute.major"], labels["nvidia.com/gpu.compute.minor"]
    assert f"{major}.{minor}" == compute
    assert labels["nvidia.com/gpu.machine"] == "Some-Server"
    assert labels["nvidia.com/mig.capable"] == str(bool(gpu.mig_capable)).lower()


def test_a_tray_of_a_rack_is_labelled_with_its_clique(build: Build) -> None:
    hardware = build("gb200-tray", gpus=4)
    gpu = hardware.snapshot().gpus[0]
    clique = f"{gpu.fabric_cluster}.{gpu.fabric_clique}"
    assert discovery.labels_by_gfd(hardware)["nvidia.com/gpu.clique"] == clique


def test_mixed_partitions_are_labelled_by_profile(build: Build) -> None:
    hardware = build("dgx-h100", mig=True)
    hardware.create_mig(0, PROFILE_3G, 4)
    hardware.create_mig(1, PROFILE_3G, 0)
    hardware.create_mig(1, PROFILE_1G, 4)
    labels = discovery.labels_by_gfd(hardware, mig_strategy="mixed")
    assert labels["nvidia.com/mig-3g.40gb.count"] == "2"
    assert labels["nvidia.com/mig-1g.10gb.count"] == "1"
    assert labels["nvidia.com/mig-3g.40gb.memory"] == "40448"
    assert labels["nvidia.com/mig-3g.40gb.multiprocessors"] == "60"


def test_nvidia_ctk_lists_every_gpu_by_index_and_uuid(build: Build) -> None:
    hardware = build("dgx-h100")
    spec = discovery.cdi_by_ctk(hardware)
    assert spec["kind"] == "nvidia.com/gpu"
    names = [device["name"] for device in spec["devices"]]
    uuids = [gpu.uuid for gpu in hardware.snapshot().gpus]
    assert sorted(names) == sorted(["0", "1", "all", *uuids])
    assert nodes_of(spec, "1") == ["/dev/nvidia1"]
    controls = [node["path"] for node in spec["containerEdits"]["deviceNodes"]]
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} <= set(controls)
    assert "NVIDIA_VISIBLE_DEVICES=void" in spec["containerEdits"]["env"]


def test_nvidia_ctk_gives_a_partition_its_capability_nodes(build: Build) -> None:
    hardware = build("dgx-h100", gpus=1, mig=True)
    hardware.create_mig(0, PROFILE_3G, 4)
    spec = discovery.cdi_by_ctk(hardware)
    gpu_node, *capabilities = nodes_of(spec, "0:0")
    assert gpu_node == "/dev/nvidia0"
    assert len(capabilities) == 2
    assert all(path.startswith("/dev/nvidia-caps/nvidia-cap") for path in capabilities)


def nodes_of(spec: dict[str, Any], name: str) -> list[str]:
    device = next(entry for entry in spec["devices"] if entry["name"] == name)
    return [node["path"] for node in device["containerEdits"]["deviceNodes"]]
