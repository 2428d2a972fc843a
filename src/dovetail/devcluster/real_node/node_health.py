"""Whether the programs of a real node answer. Given their records or sockets; never waits and never starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

from dovetail.devcluster import probe, processes
from dovetail.devcluster.real_node import machine, node_layout


def of_kubelet(kubelet: processes.ProcessRecord) -> probe.Answer:
    """What the health endpoint of a kubelet answers, and no other process on its port."""
    children = machine.children_of(kubelet.pid)
    if kubelet.port is None or not any(processes.listens(pid, kubelet.port) for pid in children):
        return probe.Answer(0, b"it does not listen yet")
    return probe.ask(kubelet.port, "/healthz")


def agent_serves(layout: node_layout.NodeLayout) -> bool:
    """Whether a node agent invites the kubelet to connect."""
    registry = layout.kubelet_root / "plugins_registry"
    return any(_is_served(path) for path in registry.glob("gpu.nvidia.com*-reg.sock"))


def _is_served(path: Path) -> bool:
    """Whether a process listens on a socket; one that was killed leaves its file behind."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
