"""Names the sockets of one instance of the agent under the kubelet's directories.

Given the kubelet's root, the driver's name and, in a pod, the pod's uid. With a uid two instances can serve side by
side during a rolling update. Names follow k8s.io/dynamic-resource-allocation, shortened by a hash where an address
would be too long. Never touches a file.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors

MAX_ADDRESS_BYTES: Final = (
    107  # sun_path of unix(7) has 108, and the kernel wants the last to be zero
)
HASH_BYTES: Final = 8  # enough to tell the instances of one node apart


class SocketPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where one instance serves."""

    registration: Path  # the kubelet finds new plugins here
    service: Path  # and calls them there

    @property
    def plugin_directory(self) -> Path:
        """The driver's own directory: sockets, locks, checkpoint."""
        return self.service.parent


def socket_paths(
    kubelet_root: Path, driver: str, *, registry: Path | None = None, pod_uid: str = ""
) -> SocketPaths:
    """The paths of an instance. InputError if they are too long for any name."""
    return SocketPaths(
        registration=_shortest_that_fits(
            registry or kubelet_root / "plugins_registry", driver, pod_uid, ending="-reg.sock"
        ),
        service=_shortest_that_fits(
            kubelet_root / "plugins" / driver, "dra", pod_uid, ending=".sock"
        ),
    )


def fits(path: Path) -> bool:
    """Whether a socket can have this address."""
    return len(str(path).encode()) <= MAX_ADDRESS_BYTES


def _shortest_that_fits(directory: Path, stem: str, pod_uid: str, *, ending: str) -> Path:
    if not pod_uid:
        names = [f"{stem}{ending}"]
    else:
        names = [
            f"{stem}-{pod_uid}{ending}",
            f"{stem}-{_hash(pod_uid)}{ending}",
            f"dra-{_hash(stem, pod_uid)}{ending}",
        ]
    for name in names:
        if fits(directory / name):
            return directory / name

    length = len(str(directory / names[-1]).encode())
    raise errors.InputError(
        f"{directory / names[-1]}: {length} bytes, but the address of a socket has at most {MAX_ADDRESS_BYTES}; "
        "choose a shorter --kubelet-root or --plugins-registry"
    )


def _hash(*words: str) -> str:
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return base64.urlsafe_b64encode(digest[:HASH_BYTES]).decode().rstrip("=")
