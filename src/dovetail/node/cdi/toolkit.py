"""Asks NVIDIA's container toolkit what every container with a GPU gets, where it is installed.

Given the driver root, runs `nvidia-ctk cdi generate` and takes the common part of its answer, with paths as the host
sees them. Its list follows the driver release by release, which ours cannot. None if it is not there or fails: then
`common_edits` has the list. Never writes a file.
"""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from dovetail.node.cdi import common_edits, spec
from dovetail.node.cdi.driver_root import DriverRoot

LOG = logging.getLogger("dovetail.node.cdi")

_TIMEOUT_SECONDS: Final = 20  # less than the kubelet waits for an answer


class _Answer(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    container_edits: spec.Edits = spec.Edits()


def toolkit_edits(program: Path, root: DriverRoot, *, hook_path: str) -> spec.Edits | None:
    """The toolkit's common edits."""
    command = [
        str(program),
        "cdi",
        "generate",
        "--mode=nvml",
        "--format=json",
        "--device-id=none",
        f"--driver-root={root.seen}",
        f"--dev-root={root.dev_seen}",
        f"--nvidia-cdi-hook-path={hook_path}",
    ]
    try:
        answer = subprocess.run(  # noqa: S603 - the path is the operator's
            command, capture_output=True, timeout=_TIMEOUT_SECONDS, check=True
        )
        edits = msgspec.json.decode(answer.stdout, type=_Answer).container_edits
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        LOG.warning("cdi.toolkit_failed", extra={"program": str(program), "why": str(error)})
        return None
    if not edits.mounts:
        LOG.warning(
            "cdi.toolkit_found_no_driver", extra={"program": str(program), "root": str(root.seen)}
        )
        return None
    nodes = tuple(_node_on_host(node, root) for node in edits.device_nodes)
    mounts = tuple(_mount_on_host(mount, root) for mount in edits.mounts)
    on_host = msgspec.structs.replace(edits, device_nodes=nodes, mounts=mounts)
    return spec.Edits(env=(common_edits.NO_DEVICES,)) + on_host


def _node_on_host(node: spec.DeviceNode, root: DriverRoot) -> spec.DeviceNode:
    host_path = root.on_host(Path(node.host_path or node.path))
    return msgspec.structs.replace(node, host_path=host_path)


def _mount_on_host(mount: spec.Mount, root: DriverRoot) -> spec.Mount:
    return msgspec.structs.replace(mount, host_path=root.on_host(Path(mount.host_path)))
