"""Names of sockets: plain, with a pod uid, and shortened where an address would be too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import errors
from dovetail.node.kubelet import socket_paths

DRIVER = "gpu.nvidia.com"
UID = "0b2c1f6e-8f0e-4b0a-9c3d-2f4f0a1b2c3d"


def test_one_instance_has_the_names_of_nvidias_driver() -> None:
    paths = socket_paths.socket_paths(Path("/var/lib/kubelet"), DRIVER)
    assert str(paths.registration) == "/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock"
    assert str(paths.service) == "/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock"
    assert str(paths.plugin_directory) == "/var/lib/kubelet/plugins/gpu.nvidia.com"


def test_a_pod_uid_is_in_both_names() -> None:
    paths = socket_paths.socket_paths(
        Path("/var/lib/kubelet"), DRIVER, pod_uid=UID, registry=Path("/registry")
    )
    assert str(paths.registration) == f"/registry/gpu.nvidia.com-{UID}-reg.sock"
    assert paths.service.name == f"dra-{UID}.sock"


@pytest.mark.parametrize("length", range(30, 64))
def test_every_name_fits_an_address_and_differs_by_uid(length: int) -> None:
    root = Path("/" + "r" * (length - 1))
    paths = [
        socket_paths.socket_paths(root, DRIVER, pod_uid=uid) for uid in (UID, UID[:-1] + "e", "x")
    ]
    every = [path for pair in paths for path in (pair.registration, pair.service)]
    assert len(set(every)) == 6
    assert all(len(str(path)) <= 107 for path in every)
    assert all(path.name.endswith("-reg.sock") for path in every[::2])


def test_a_root_that_is_too_long_for_any_name_is_refused_with_the_option() -> None:
    with pytest.raises(errors.InputError, match=r"at most 107; choose a shorter --kubelet-root"):
        socket_paths.socket_paths(Path("/" + "r" * 90), DRIVER, pod_uid=UID)
