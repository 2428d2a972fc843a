"""Which pod a process belongs to: by its control group, whose name holds the pod's uid.

Given process ids and the root of /proc as the host sees it. A process that ended, or that runs in no pod, has none.
Never asks the kubelet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from dovetail.files import small_files

# kubepods-burstable-pod<uid with underscores>.slice under systemd, pod<uid> under cgroupfs.
_POD: Final = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}([-_])[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12})(?:\.slice)?(?:/|$)"
)
# A static pod has the hash of its manifest in place of a uid.
_STATIC_POD: Final = re.compile(r"(?:^|[/-])pod([0-9a-f]{32})(?:\.slice)?(?:/|$)")


def pods_of(pids: Iterable[int], *, proc_root: Path) -> dict[int, str]:
    """Uids of pods by process id, of those processes that have one."""
    uids = {pid: _uid(proc_root / str(pid) / "cgroup") for pid in pids}
    return {pid: uid for pid, uid in uids.items() if uid}


def uid_in(cgroups: str) -> str:
    """The pod's uid in the text of a cgroup file; empty if there is none."""
    for line in cgroups.splitlines():
        path = line.rpartition(":")[2]
        if match := _POD.search(path) or _STATIC_POD.search(path):
            return match[1].replace("_", "-")
    return ""


def _uid(file: Path) -> str:
    try:
        return uid_in(small_files.content(file).decode("utf-8", "replace"))
    except OSError:  # it ended
        return ""
