"""The same claim prepared by NVIDIA's own driver: its CDI file and ours give containers the same."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.cdi.claim_specs import ClaimDevice, ClaimSpecs, Paths
from dovetail.node.cdi.driver_root import DriverRoot
from tests.support import cluster

dra_driver = pytest.importorskip("tests.nvidia.dra_driver")
claims = pytest.importorskip("tests.nvidia.claims")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("devices", "gates"),
    [
        (["gpu-1"], {}),
        (["gpu-0", "gpu-1"], {}),
        (["gpu-0-mig-3g40gb-9-4"], {"DynamicMIG": True}),
    ],
)
def test_the_edits_of_a_claim_are_those_of_nvidias_driver(
    hardware: Hardware, tmp_path: Path, devices: list[str], gates: dict[str, bool]
) -> None:
    node = f"node-{uuid.uuid4().hex[:8]}"
    oracle = dra_driver.DraOracle(hardware, cluster.control_plane(), node, feature_gates=gates)
    try:
        claim = claims.allocated(oracle.rest, node, devices)
        uid = claim["metadata"]["uid"]
        assert oracle.prepare(claim).error == ""
        theirs = oracle.cdi_spec(uid)
        ours = our_spec(hardware, tmp_path, uid, devices, hook=hook_of(theirs))
        assert in_any_order(ours) == in_any_order(theirs)
        assert oracle.unprepare(claim) == ""
    finally:
        oracle.stop()


def hook_of(tree: Any) -> str:
    return str(tree["containerEdits"]["hooks"][0]["path"])


def our_spec(hardware: Hardware, folder: Path, uid: str, devices: list[str], *, hook: str) -> Any:
    """What we write while the hardware is as NVIDIA's driver has prepared it."""
    paths = Paths(
        cdi_folder=folder / "cdi",
        proc_root=hardware.proc_root,
        sysfs_root=hardware.sysfs_root,
        hook_path=hook,
    )
    specs = ClaimSpecs(DriverRoot(hardware.driver_root), paths)
    state = hardware.snapshot()
    entries: list[ClaimDevice] = []
    for name in devices:
        gpu = state.gpus[int(name.split("-")[1])]
        instances = [(gi.id, gi.compute_instances[0].id) for gi in gpu.gpu_instances]
        instance = instances[0] if "mig" in name else None
        entries.append(ClaimDevice(name, gpu.minor, gpu.bus_id, instance=instance))
    specs.write(uid, entries, driver_version=state.driver_version)
    return yaml.safe_load(specs.path(uid).read_bytes())


def in_any_order(tree: Any) -> Any:
    """The specification with its lists sorted: runtimes apply them in any order."""
    if isinstance(tree, dict):
        return {key: in_any_order(value) for key, value in tree.items() if key != "args"} | {
            key: value for key, value in tree.items() if key == "args"
        }
    if isinstance(tree, list):
        return sorted((in_any_order(value) for value in tree), key=json.dumps)
    return tree
