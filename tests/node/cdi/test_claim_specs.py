"""The CDI file of a claim: nodes of GPUs and MIG devices, versions, and how it is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.cdi import durable_files, spec
from dovetail.node.cdi.claim_specs import ClaimDevice, ClaimSpecs, Paths, device_id
from dovetail.node.cdi.device_edits import DeviceEdits
from dovetail.node.cdi.driver_root import DriverRoot

VERSION = "580.95.05"


def specs_of(hardware: Hardware, folder: Path) -> ClaimSpecs:
    paths = Paths(cdi_folder=folder, proc_root=hardware.proc_root, sysfs_root=hardware.sysfs_root)
    return ClaimSpecs(DriverRoot(hardware.driver_root), paths)


def nodes_of(tree: Any, index: int = 0) -> dict[str, Any]:
    nodes = tree["devices"][index]["containerEdits"]["deviceNodes"]
    return {node["path"]: node for node in nodes}


def test_a_file_names_its_devices_after_the_claim(hardware: Hardware, tmp_path: Path) -> None:
    specs = specs_of(hardware, tmp_path / "cdi")
    specs.write("uid-1", [ClaimDevice("gpu-1", 1, "0000:43:00.0")], driver_version=VERSION)
    tree = yaml.safe_load((tmp_path / "cdi/k8s.gpu.nvidia.com-claim_uid-1.yaml").read_bytes())
    assert tree["cdiVersion"] == "0.5.0"
    assert tree["kind"] == "k8s.gpu.nvidia.com/claim"
    assert [device["name"] for device in tree["devices"]] == ["uid-1-gpu-1"]
    assert device_id("uid-1", "gpu-1") == "k8s.gpu.nvidia.com/claim=uid-1-gpu-1"
    node = nodes_of(tree)["/dev/nvidia1"]
    assert (node["major"], node["minor"], node["permissions"]) == (195, 1, "rwm")
    assert specs.uids() == ("uid-1",)
    assert specs.device_names("uid-1") == ("gpu-1",)
    specs.remove("uid-1")
    specs.remove("uid-1")
    assert specs.uids() == ()


def test_a_mig_device_has_two_capability_nodes_beside_its_gpu(
    hardware: Hardware, tmp_path: Path
) -> None:
    hardware.set_mig_mode(0, True)
    gi, ci = hardware.create_mig(0, 9, 4)
    specs = specs_of(hardware, tmp_path)
    device = ClaimDevice("gpu-0-mig-3g40gb-9-4", 0, "0000:1b:00.0", instance=(gi, ci))
    specs.write("u", [device], driver_version=VERSION)
    nodes = nodes_of(yaml.safe_load(specs.path("u").read_bytes()))
    capabilities = [node for path, node in nodes.items() if path.startswith("/dev/nvidia-caps/")]
    assert len(capabilities) == 2
    mig = hardware.proc_root / f"driver/nvidia/capabilities/gpu0/mig/gi{gi}"
    minors = [path.read_text("ascii").split()[1] for path in (mig / "access", mig / "ci0/access")]
    assert [str(node["minor"]) for node in capabilities] == minors
    assert all(node["type"] == "c" for node in capabilities)
    assert {node["major"] for node in capabilities} == {hardware.snapshot().caps_major}


def test_an_instance_the_driver_does_not_have_is_a_clear_failure(hardware: Hardware) -> None:
    root = DriverRoot(hardware.driver_root)
    edits = DeviceEdits(root, proc_root=hardware.proc_root, sysfs_root=hardware.sysfs_root)
    with pytest.raises(FileNotFoundError, match="gi5"):
        edits.of_instance(0, gi_id=5, ci_id=0)
    (hardware.proc_root / "devices").write_text("Character devices:\n  1 mem\n", "ascii")
    with pytest.raises(FileNotFoundError, match="is the driver loaded"):
        edits.of_instance(0, gi_id=5, ci_id=0)


def test_a_node_that_does_not_exist_yet_is_made_by_the_runtime(hardware: Hardware) -> None:
    (hardware.driver_root / "dev/nvidia0").unlink()
    root = DriverRoot(hardware.driver_root)
    edits = DeviceEdits(root, proc_root=hardware.proc_root, sysfs_root=hardware.sysfs_root)
    (node,) = edits.of_gpu(0, pci_bus_id="0000:1b:00.0", hook_path="/hook").device_nodes
    assert (node.path, node.type, node.major, node.minor) == ("/dev/nvidia0", "c", 195, 0)


def test_a_node_for_one_group_brings_the_group_along(hardware: Hardware, tmp_path: Path) -> None:
    path = hardware.driver_root / "dev/nvidia0"
    if not stat.S_ISCHR(path.stat().st_mode) or os.geteuid() != 0:
        pytest.skip("making device nodes needs root")
    os.chown(path, 0, 44)
    path.chmod(0o660)
    specs = specs_of(hardware, tmp_path)
    specs.write("u", [ClaimDevice("gpu-0", 0, "0000:1b:00.0")], driver_version=VERSION)
    tree = yaml.safe_load(specs.path("u").read_bytes())
    assert tree["cdiVersion"] == "0.7.0", "additionalGids came with that version"
    assert tree["devices"][0]["containerEdits"]["additionalGids"] == [44]
    assert nodes_of(tree)["/dev/nvidia0"]["gid"] == 44


def test_drm_nodes_go_with_their_gpu(hardware: Hardware) -> None:
    if os.geteuid() != 0:
        pytest.skip("making device nodes needs root")
    bus_id = hardware.snapshot().gpus[0].bus_id
    (hardware.sysfs_root / "bus/pci/devices" / bus_id / "drm/renderD128").mkdir(parents=True)
    dri = hardware.driver_root / "dev/dri"
    (dri / "by-path").mkdir(parents=True)
    os.mknod(dri / "renderD128", 0o666 | stat.S_IFCHR, os.makedev(226, 128))
    (dri / f"by-path/pci-{bus_id}-render").symlink_to("../renderD128")
    root = DriverRoot(hardware.driver_root)
    edits = DeviceEdits(root, proc_root=hardware.proc_root, sysfs_root=hardware.sysfs_root)
    found = edits.of_gpu(0, pci_bus_id=bus_id, hook_path="/usr/bin/nvidia-cdi-hook")
    assert [node.path for node in found.device_nodes] == ["/dev/nvidia0", "/dev/dri/renderD128"]
    link = f"../renderD128::/dev/dri/by-path/pci-{bus_id}-render"
    assert found.hooks[0].args == ("nvidia-cdi-hook", "create-symlinks", "--link", link)


def test_a_file_is_readable_by_the_runtime_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        durable_files.replace(tmp_path / "file", b"content", mode=0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.mkdir()
    (target / "child").touch()
    with pytest.raises(OSError, match="file") as failure:
        durable_files.replace(target, b"content", mode=0o644)
    assert failure.value.filename == str(target)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_no_specification_is_said_to_be_none() -> None:
    for content in (b"", b"{", b"a: 1", b"- x", b"\xff\xfe"):
        with pytest.raises(ValueError, match="not a CDI specification"):
            spec.parse(content)
