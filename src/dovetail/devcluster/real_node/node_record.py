"""The record of a node on disk, and the removal of all that the node made.

Given the directory of a cluster and a node's name. A node makes things outside that directory: its home, cgroups,
processes. The record names them before they exist, so that removal also clears up behind a killed process. Never
ends a process that the roster does not name, but for those inside the node's namespaces.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Final

import msgspec

from dovetail import errors
from dovetail.devcluster import control_plane, processes
from dovetail.devcluster.real_node import cgroups, machine, node_layout
from dovetail.files import private_files

SUFFIX: Final = ".node.json"
STARTER: Final = "starter.json"
STOP_SECONDS: Final = 10.0  # for the agent, which may be writing a checkpoint


def create(
    directory: Path, name: str, *, is_tethered: bool = False, homes: Path = node_layout.HOMES
) -> node_layout.NodeLayout:
    """Records a new node and makes its home, a directory with a short and free name.

    The home of a tethered node names this process: others remove what it leaves if it is killed.
    """
    private_files.make_directory(directory)
    record = _file(directory, name)
    if record.exists():
        raise errors.StateError(f"a node {name} is already in {directory}")
    home = homes / f"{node_layout.HOME_PREFIX}{secrets.token_hex(3)}"
    layout = node_layout.NodeLayout(name=name, home=home)
    private_files.replace(record, msgspec.json.encode(layout, enc_hook=str))
    home.mkdir(mode=private_files.DIRECTORY_MODE)
    if is_tethered:
        starter = processes.recorded("starter", os.getpid(), log=home)
        private_files.replace(home / STARTER, msgspec.json.encode(starter))
    return layout


def remove_orphans(*, homes: Path = node_layout.HOMES) -> list[Path]:
    """Removes the homes and cgroups of tethered nodes whose starter was killed; their processes ended with it."""
    orphans = [home for home in homes.glob(f"{node_layout.HOME_PREFIX}*") if _is_orphan(home)]
    for home in orphans:
        cgroups.remove(node_layout.NodeLayout(name="", home=home).cgroup)
        shutil.rmtree(home, ignore_errors=True)  # another process may be removing it too
    return orphans


def roster_of(directory: Path) -> processes.ProcessRecords:
    """The processes of the cluster in a directory, among them those of its nodes."""
    return processes.ProcessRecords(directory / control_plane.ROSTER)


def layouts(directory: Path) -> dict[str, node_layout.NodeLayout]:
    """The recorded nodes of a directory, by name. Raises StateError if a record cannot be read."""
    recorded = [_layout(file) for file in sorted(directory.glob(f"*{SUFFIX}"))]
    return {layout.name: layout for layout in recorded}


def remove_all(directory: Path) -> list[str]:
    """Removes every recorded node of a directory; their names."""
    names = list(layouts(directory))
    for name in names:
        remove(directory, name)
    return names


def remove(directory: Path, name: str) -> None:
    """Ends the processes of a node and removes all that it made. Does nothing if there is none of this name."""
    record = _file(directory, name)
    if not record.exists():
        return
    layout = _layout(record)
    end_processes(layout, roster_of(directory))
    cgroups.remove(layout.cgroup)
    if layout.home.exists():
        shutil.rmtree(layout.home)
    record.unlink()


def end_processes(layout: node_layout.NodeLayout, roster: processes.ProcessRecords) -> None:
    """Ends all processes of a node, the machine first: all inside end with it."""
    machine_name = layout.process_name(node_layout.MACHINE)
    recorded = roster.all()
    if machine_name in recorded:
        machine.end(recorded[machine_name])
        roster.remove(machine_name)
    for process in (node_layout.KUBELET, node_layout.CONTAINERD, node_layout.AGENT):
        name = layout.process_name(process)
        if name in recorded:
            processes.end(recorded[name], grace_seconds=STOP_SECONDS)
            roster.remove(name)


def _is_orphan(home: Path) -> bool:
    """Whether it is ours and its starter is gone. One without a starter belongs to a cluster that outlives commands."""
    try:
        content = (home / STARTER).read_bytes()
        is_ours = home.stat().st_uid == os.geteuid()
    except OSError:
        return False
    try:
        starter = msgspec.json.decode(content, type=processes.ProcessRecord)
    except msgspec.MsgspecError:
        return False
    return is_ours and not processes.is_alive(starter)


def _layout(record: Path) -> node_layout.NodeLayout:
    try:
        return msgspec.json.decode(
            record.read_bytes(), type=node_layout.NodeLayout, dec_hook=_decoded
        )
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.StateError(f"{record} cannot be read: {error}; remove it by hand") from None


def _decoded(_: type, value: str) -> Path:
    """The paths of a layout, the only fields that JSON has no type for."""
    return Path(value)


def _file(directory: Path, name: str) -> Path:
    return directory / f"{name}{SUFFIX}"
