"""Where the files of one real node are, and what its processes are called.

Given the node's name and its home, a short directory: the path of a unix socket holds 107 bytes, and the kubelet, its
plugins and containerd's shims put sockets deep below. Never touches the disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

HOMES: Final = Path("/tmp")  # noqa: S108 - each home is made with mode 0700, and only if its name is free
HOME_PREFIX: Final = "dv-"

MACHINE: Final = "machine"
CONTAINERD: Final = "containerd"
KUBELET: Final = "kubelet"
AGENT: Final = "node-agent"


class NodeLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of one node. They are the same inside its namespaces and outside."""

    name: str
    home: Path

    @property
    def cgroup(self) -> str:
        """The cgroup below which all containers of the node are, in every hierarchy."""
        return f"dovetail-{self.home.name}"

    # What survives a reboot.

    @property
    def kubelet_root(self) -> Path:
        """The kubelet's root directory; also /var/lib/kubelet inside the namespaces."""
        return self.home / "kubelet"

    @property
    def containerd_root(self) -> Path:
        """containerd's images, snapshots and metadata."""
        return self.home / "containerd"

    @property
    def configuration(self) -> Path:
        """Configuration files and credentials."""
        return self.home / "etc"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the user system:node:NAME."""
        return self.configuration / "kubelet.kubeconfig"

    @property
    def agent_kubeconfig(self) -> Path:
        """The kubeconfig of the node agent."""
        return self.configuration / "node-agent.kubeconfig"

    @property
    def logs(self) -> Path:
        """The logs of kubelet and containerd."""
        return self.home / "log"

    @property
    def pod_logs(self) -> Path:
        """The logs of containers, as the kubelet lays them out."""
        return self.logs / "pods"

    # What a reboot clears.

    @property
    def run(self) -> Path:
        """What lives in memory on a real machine."""
        return self.home / "run"

    @property
    def cdi(self) -> Path:
        """The directory of CDI specs; also /var/run/cdi inside the namespaces."""
        return self.run / "cdi"

    @property
    def containerd_state(self) -> Path:
        """containerd's state directory."""
        return self.run / "containerd"

    @property
    def containerd_socket(self) -> Path:
        """Where containerd serves CRI and its own API."""
        return self.containerd_state / "containerd.sock"

    # What makes it a machine.

    @property
    def masks(self) -> Path:
        """Files that take the place of those with the same path below /proc/sys."""
        return self.home / "sysctl"

    @property
    def boot_id(self) -> Path:
        """The boot id of the node; also /proc/sys/kernel/random/boot_id inside the namespaces."""
        return self.masks / "kernel" / "random" / "boot_id"

    @property
    def is_up_mark(self) -> Path:
        """Appears when the namespaces are ready to be entered."""
        return self.run / "machine-is-up"

    def log_of(self, process: str) -> Path:
        """The log file of a process of the node."""
        return self.logs / f"{process}.log"

    def process_name(self, process: str) -> str:
        """What a process of this node is called among those of the cluster."""
        return f"{process}@{self.name}"


def is_kubelet(process_name: str) -> bool:
    """Whether a process of a cluster is the kubelet of a node."""
    return process_name.startswith(f"{KUBELET}@")
