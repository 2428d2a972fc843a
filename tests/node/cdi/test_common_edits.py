"""What every container with a GPU gets: our list, and the one of NVIDIA's toolkit."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.devcluster import go_build
from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.cdi import common_edits, spec, toolkit
from dovetail.node.cdi.claim_specs import ClaimDevice, ClaimSpecs, Paths
from dovetail.node.cdi.driver_root import DriverRoot

VERSION = "580.95.05"
HOOK = "/usr/bin/nvidia-cdi-hook"


def edits_of(hardware: Hardware, host: Path | None = None, hook: str = HOOK) -> spec.Edits:
    root = DriverRoot(hardware.driver_root, host)
    return common_edits.common_edits(root, driver_version=VERSION, hook_path=hook)


def test_libraries_programs_nodes_and_hooks_of_the_driver_are_listed(hardware: Hardware) -> None:
    edits = edits_of(hardware)
    inside = {mount.container_path for mount in edits.mounts}
    assert f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}" in inside
    assert "/usr/bin/nvidia-smi" in inside
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.1" not in inside, "links are made by a hook"
    paths = {node.path for node in edits.device_nodes}
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"} <= paths
    assert [hook.args[1] for hook in edits.hooks] == [
        "create-symlinks",
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "disable-device-node-modification",
        "update-application-profile",
    ]
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits.env


def test_the_runtime_is_given_the_paths_of_the_host(hardware: Hardware) -> None:
    edits = edits_of(hardware, host=Path("/run/nvidia/driver"))
    hosts = [mount.host_path for mount in edits.mounts]
    hosts += [node.host_path for node in edits.device_nodes]
    assert all(path.startswith("/run/nvidia/driver/") for path in hosts)
    assert all(not mount.container_path.startswith("/run") for mount in edits.mounts)


def test_hooks_of_the_combined_program_are_subcommands(hardware: Hardware) -> None:
    edits = edits_of(hardware, hook="/usr/bin/nvidia-ctk")
    assert edits.hooks[-1].args == ("nvidia-ctk", "hook", "update-application-profile")


def test_another_driver_version_than_reported_is_a_clear_failure(hardware: Hardware) -> None:
    root = DriverRoot(hardware.driver_root)
    with pytest.raises(FileNotFoundError, match=r"no libraries of driver 999\.1"):
        common_edits.common_edits(root, driver_version="999.1", hook_path=HOOK)


def test_sockets_and_firmware_are_mounted_where_there_are_some(hardware: Hardware) -> None:
    firmware = hardware.driver_root / "lib/firmware/nvidia" / VERSION / "gsp_ga10x.bin"
    socket = hardware.driver_root / "run/nvidia-persistenced/socket"
    for path in (firmware, socket):
        path.parent.mkdir(parents=True)
        path.touch()
    mounts = {mount.container_path: mount.options for mount in edits_of(hardware).mounts}
    assert mounts[f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"][0] == "ro"
    assert "noexec" in mounts["/run/nvidia-persistenced/socket"]


# ---- NVIDIA's toolkit


def nvidia_ctk() -> Path:
    """The pinned nvidia-ctk, if it was built."""
    built = sorted((go_build.cache_home() / "nvidia-toolkit").glob("*/nvidia-ctk"))
    if not built:
        pytest.skip("nvidia-ctk is not built")
    return built[-1]


@pytest.mark.slow
def test_our_list_is_the_one_of_nvidias_toolkit(hardware: Hardware) -> None:
    root = DriverRoot(hardware.driver_root)
    theirs = toolkit.toolkit_edits(nvidia_ctk(), root, hook_path=HOOK)
    ours = edits_of(hardware)
    assert theirs is not None
    assert set(theirs.env) == set(ours.env)
    assert set(theirs.device_nodes) == set(ours.device_nodes)
    assert set(theirs.mounts) == set(ours.mounts)
    assert set(theirs.hooks) == set(ours.hooks)


@pytest.mark.slow
def test_the_toolkit_is_given_the_paths_of_the_host(hardware: Hardware) -> None:
    root = DriverRoot(hardware.driver_root, Path("/run/nvidia/driver"))
    theirs = toolkit.toolkit_edits(nvidia_ctk(), root, hook_path=HOOK)
    ours = edits_of(hardware, host=Path("/run/nvidia/driver"))
    assert theirs is not None
    assert set(theirs.mounts) == set(ours.mounts)
    assert set(theirs.device_nodes) == set(ours.device_nodes)


@pytest.mark.parametrize("script", ["exit 3", "echo not json", "echo '{}'"])
def test_a_toolkit_that_fails_is_replaced_by_our_list(
    hardware: Hardware, tmp_path: Path, script: str
) -> None:
    program = tmp_path / "nvidia-ctk"
    program.write_text(f"#!/bin/sh\n{script}\n", "ascii")
    program.chmod(0o755)
    paths = Paths(cdi_folder=tmp_path / "cdi", toolkit=program)
    specs = ClaimSpecs(DriverRoot(hardware.driver_root), paths)
    assert specs.common(VERSION) == edits_of(hardware)


def test_a_toolkit_is_asked_once_per_driver_version(hardware: Hardware, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-ctk"
    calls = tmp_path / "calls"
    mount = '{"hostPath": "/a", "containerPath": "/a"}'
    answer = '{"containerEdits": {"mounts": [' + mount + '], "env": ["FROM=ctk"]}}'
    program.write_text(f"#!/bin/sh\necho x >> {calls}\necho '{answer}'\n", "ascii")
    program.chmod(0o755)
    paths = Paths(
        cdi_folder=tmp_path / "cdi",
        toolkit=program,
        proc_root=hardware.proc_root,
        sysfs_root=hardware.sysfs_root,
    )
    specs = ClaimSpecs(DriverRoot(hardware.driver_root), paths)
    for uid in ("a", "b"):
        specs.write(uid, [ClaimDevice("gpu-0", 0, "0000:1b:00.0")], driver_version=VERSION)
    assert "FROM=ctk" in specs.path("b").read_text("utf-8")
    assert calls.read_text("ascii").count("x") == 1
    specs.write("c", [ClaimDevice("gpu-0", 0, "0000:1b:00.0")], driver_version="590.1")
    assert calls.read_text("ascii").count("x") == 2
