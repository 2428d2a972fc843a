"""The namespaces that make a directory a machine: own mounts, own processes, own settings of the kernel.

Given a layout, returns the commands that make the namespaces and start a program inside. They exist as long as their
first process: when it ends, for any reason, the kernel kills every process inside and drops every mount, so a killed
node leaves nothing but files and empty cgroups. The network is this machine's: the node reaches an API server on
loopback, and no more. Never changes a setting of the kernel: the kubelet writes to files that cover them.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dovetail.devcluster import processes
from dovetail.devcluster.real_node import node_layout

# What the kubelet sets at its start (cm/container_manager_linux.go) and the ptp plugin for each pod. The values are
# those they want: they would otherwise change how this whole machine reacts to a kernel fault.
SETTINGS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
    "net/ipv4/ip_forward": "1",
}

SCRIPT: Final = Path(__file__).resolve().parent / "first_process.sh"


def prepare(layout: node_layout.NodeLayout) -> None:
    """Makes the directories of a node that is about to boot, with a new boot id and nothing from the last boot."""
    shutil.rmtree(layout.run, ignore_errors=True)
    for directory in (
        layout.kubelet_root,
        layout.containerd_root,
        layout.configuration,
        layout.pod_logs,
        layout.cdi,
        layout.containerd_state,
    ):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    settings = {layout.masks / path: value for path, value in SETTINGS.items()}
    settings[layout.boot_id] = str(uuid.uuid4())
    for file, value in settings.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n", encoding="ascii")


def first_process(layout: node_layout.NodeLayout) -> list[str]:
    """The command that makes the namespaces. All inside are killed when this command's process ends."""
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *namespaces, "--", "sh", str(SCRIPT), str(layout.home)]


def inside(machine: processes.ProcessRecord, command: Sequence[str | Path]) -> list[str]:
    """The command that runs a program inside the namespaces. The program ends with the process of this command."""
    (first,) = children_of(machine.pid)
    enter = ["nsenter", f"--target={first}", "--mount", "--pid", "--"]
    return [*enter, "setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]


def end(machine: processes.ProcessRecord) -> None:
    """Kills everything inside and waits until all of it is gone. Signals no process but the recorded one."""
    if processes.is_alive(machine):
        for pid in children_of(machine.pid):
            # The kernel reports the end of a namespace's first process only after that of all others in it.
            first = processes.recorded("first", pid, log=Path(machine.log))
            processes.end(first, grace_seconds=0)
    processes.end(machine, grace_seconds=0)


def children_of(pid: int) -> list[int]:
    """The child processes of a process."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(child) for child in text.split()]
    return []
