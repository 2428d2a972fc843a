"""Whether a node's GPUs are already served the other way: by claims, or as counted resources.

Given the kubelet's root. The kubelet counts resources without looking at claims, and the scheduler allocates claims
without looking at counts: a GPU served both ways would get two owners. Returns reasons; an empty list means go ahead.
Never changes anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.node.claims import checkpoint_file
from dovetail.node.kubelet import unix_server

SOCKET_PREFIX: Final = "dovetail-"  # of the sockets that `device_plugins` serves
# Sockets under these names serve NVIDIA's GPUs: ours, and those of NVIDIA's device plugin.
_PLUGIN_SOCKETS = (f"{SOCKET_PREFIX}*.sock", "nvidia-*.sock")


def against_claims(kubelet_root: Path) -> list[str]:
    """Why claims must not be served."""
    folder = kubelet_root / "device-plugins"
    sockets = [path for pattern in _PLUGIN_SOCKETS for path in sorted(folder.glob(pattern))]
    return [
        f"{path}: a device plugin serves this node's GPUs; remove it from the node first"
        for path in sockets
        if unix_server.is_listening(path)
    ]


def against_counting(plugin_folder: Path, *, boot_id: str) -> list[str]:
    """Why GPUs must not be counted."""
    reasons = [
        f"{path}: a DRA driver serves this node's GPUs; remove it from the node first"
        for path in sorted(plugin_folder.glob("dra*.sock"))
        if unix_server.is_listening(path)
    ]
    try:
        known = checkpoint_file.CheckpointFile(plugin_folder, boot_id).read()
    except errors.StateError as error:
        return [*reasons, str(error)]
    # Of another boot, no process holds a GPU any more.
    if known.boot_id == boot_id and known.claims:
        claims = ", ".join(sorted(str(claim) for claim in known.claims.values())[:3])
        reasons.append(
            f"claims prepared on this node: {len(known.claims)} ({claims}); "
            "delete the pods that use them first"
        )
    return reasons
