"""Puts the parts of a node's ClaimService together: one function for the process that runs it.

Given adapters, paths and settings. Makes the folder and reads the boot id; raises StateError if it
cannot. Starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from dovetail.files import private_files
from dovetail.node.cdi.claim_specs import ClaimSpecs
from dovetail.node.cdi.claim_specs import Paths as CdiPaths
from dovetail.node.cdi.driver_root import DriverRoot
from dovetail.node.claims.checkpoint_file import CheckpointFile, boot_id_of
from dovetail.node.claims.device_metadata import DeviceMetadata
from dovetail.node.claims.execution import Execution
from dovetail.node.claims.gpu_locks import GpuLocks
from dovetail.node.claims.mps import MpsDaemons
from dovetail.node.claims.plan_prepare import Settings
from dovetail.node.claims.service import NodeClaims
from dovetail.node.gpu_control import GpuControl
from dovetail.node.inventory import Inventory
from dovetail.ports.api import Api
from dovetail.ports.clock import Clock


class Paths(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Where a node keeps things. The plugin folder must have the same path for the agent and for the host."""

    plugin_folder: Path = Path("/var/lib/kubelet/plugins/gpu.nvidia.com")
    boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id")
    driver_root: Path = Path("/")  # as the host sees it
    driver_root_seen: Path | None = None  # as the agent sees it, if that differs
    cdi: CdiPaths = CdiPaths()


def node_claims(
    *,
    api: Api,
    clock: Clock,
    control: GpuControl,
    inventory: Callable[[], Inventory],
    settings: Settings,
    paths: Paths,
    writes_metadata: bool = False,
) -> NodeClaims:
    """The claims of a node. `inventory` returns the newest known facts of its GPUs without asking the driver."""
    private_files.make_directory(paths.plugin_folder, option="--kubelet-root")
    seen = paths.driver_root_seen if paths.driver_root_seen is not None else paths.driver_root
    root = DriverRoot(seen, paths.driver_root)
    metadata = DeviceMetadata(paths.plugin_folder, paths.cdi.cdi_folder)
    execution = Execution(
        control=control,
        inventory=inventory,
        file=CheckpointFile(paths.plugin_folder, boot_id_of(paths.boot_id_file)),
        specs=ClaimSpecs(root, paths.cdi),
        mps=MpsDaemons(paths.plugin_folder / "mps", root),
        metadata=metadata if writes_metadata else None,
    )
    locks = GpuLocks(paths.plugin_folder)
    return NodeClaims(api=api, clock=clock, execution=execution, locks=locks, settings=settings)
