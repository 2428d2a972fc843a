"""Makes and removes the cgroup below which the containers of a node are, in every hierarchy of this machine.

Given its name. The kubelet expects the cgroup to exist; what it makes below is removed with it. Works with the
hierarchies of both versions of cgroups. Never ends a process: only an empty cgroup can be removed.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
REMOVE_SECONDS: Final = 20.0  # the kernel may still be burying killed processes
POLL_SECONDS: Final = 0.05


def make(name: str) -> None:
    """Makes the cgroup."""
    for hierarchy in hierarchies():
        with contextlib.suppress(FileExistsError):
            (hierarchy / name).mkdir()


def remove(name: str) -> None:
    """Removes the cgroup and all below it. Raises TimeoutError if a process stays in one of them."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while busy := [place for place in existing(name) if not _is_removed(place)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes are still in {', '.join(map(str, busy))}")
        time.sleep(POLL_SECONDS)


def existing(name: str) -> list[Path]:
    """Where the cgroup exists."""
    return [hierarchy / name for hierarchy in hierarchies() if (hierarchy / name).is_dir()]


def hierarchies() -> list[Path]:
    """The mount points of the hierarchies."""
    points: list[Path] = []
    for line in MOUNTS.read_text(encoding="utf-8").splitlines():
        # Optional fields end with a dash; the mount point is the fifth field, the type follows the dash.
        mount, _, source = line.partition(" - ")
        if source.split()[0] in {"cgroup", "cgroup2"}:
            points.append(Path(mount.split()[4]))
    return points


def _is_removed(place: Path) -> bool:
    """Removes a cgroup from its leaves up; whether all of it is gone."""
    for directory, _, _ in os.walk(place, topdown=False):
        with contextlib.suppress(FileNotFoundError):
            try:
                Path(directory).rmdir()
            except OSError:  # a process is left in it
                return False
    return True
