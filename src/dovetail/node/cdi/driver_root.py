"""Where the driver's files are: under one root for the agent, perhaps under another for the host.

Given both roots; answers which path the agent opens and which path the container runtime, which runs on the host, must
be given. A driver root with a `dev` folder has its own device nodes. Looks at the file system, never changes it.
"""

from __future__ import annotations

import glob
import os
import stat
from pathlib import Path
from typing import Final

from dovetail.node.cdi import spec

LIBRARY_FOLDERS: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib/x86_64-linux-gnu/nvidia/current",
    "lib/aarch64-linux-gnu/nvidia/current",
)
PROGRAM_FOLDERS: Final = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "opt/bin")


class DriverRoot:
    """One installation of the driver. `seen` is its root for the agent, `host` for the host."""

    def __init__(self, seen: Path, host: Path | None = None) -> None:
        self.seen = seen
        self.host = host if host is not None else seen
        self.dev_seen = seen if (seen / "dev").is_dir() else Path("/")

    def on_host(self, path: Path) -> str:
        """The path of a file of the driver as the host sees it."""
        return self._translated(path, self.seen, self.host)

    def in_container(self, path: Path) -> str:
        """Where a container gets a file of the driver: at its place below the root."""
        return self._translated(path, self.seen, Path("/"))

    def program(self, name: str) -> Path | None:
        """The first executable of this name."""
        for folder in PROGRAM_FOLDERS:
            path = self.seen / folder / name
            if path.is_file() and os.access(path, os.X_OK):
                return path
        return None

    def library_folders(self, version: str) -> tuple[Path, ...]:
        """The folders that have libraries of this driver version; a folder reached by two names counts once."""
        folders: dict[Path, Path] = {}
        for folder in LIBRARY_FOLDERS:
            path = self.seen / folder
            if self.matches(path, f"lib*.so.{version}"):
                folders.setdefault(path.resolve(), path)
        return tuple(folders.values())

    def matches(self, folder: Path, pattern: str) -> tuple[Path, ...]:
        """The regular files of a folder that match a pattern, links to others left out, in order of name."""
        found = sorted(folder.glob(pattern) if folder.is_dir() else ())
        return tuple(path for path in found if path.is_file() and not path.is_symlink())

    def files(self, pattern: str) -> tuple[Path, ...]:
        """The files below the root that match a pattern, whatever they are."""
        below = glob.escape(str(self.seen)).rstrip("/")
        return tuple(Path(path) for path in sorted(glob.glob(f"{below}/{pattern}")))

    def device_node(self, path: str) -> spec.DeviceNode | None:
        """A node such as /dev/nvidiactl with its numbers and mode; None if it is no character device."""
        seen = self.dev_seen / path.lstrip("/")
        try:
            status = seen.stat()
        except OSError:
            return None
        if not stat.S_ISCHR(status.st_mode):
            return None
        return spec.DeviceNode(
            path=path,
            host_path=self._translated(seen, self.seen, self.host),
            major=os.major(status.st_rdev),
            minor=os.minor(status.st_rdev),
            file_mode=stat.S_IMODE(status.st_mode) or None,
            permissions="rwm",
            gid=status.st_gid or None,
        )

    @staticmethod
    def _translated(path: Path, root: Path, target: Path) -> str:
        if not path.is_relative_to(root):
            return str(path)
        return str(target / path.relative_to(root))


def needed_groups(nodes: tuple[spec.DeviceNode, ...]) -> tuple[int, ...]:
    """The groups a process must be in to open nodes that are not open to everyone."""
    everyone = stat.S_IROTH | stat.S_IWOTH
    groups = [
        node.gid
        for node in nodes
        if node.gid and node.file_mode and node.file_mode & everyone != everyone
    ]
    return tuple(dict.fromkeys(groups))
