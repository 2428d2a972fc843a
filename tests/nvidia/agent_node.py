"""The node agent in the oracle's place: `dovetail node-agent` on the same hardware, cluster and folders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dovetail.devcluster import control_plane
from tests.nvidia import dra_node, programs


class AgentNode(dra_node.DraNode):
    """The node agent for one node, as a process. `mig` is dynamic, static or off; `shares` off, memory or a number."""

    def __init__(
        self,
        hardware: Any,
        cluster: control_plane.ControlPlane,
        node: str,
        *,
        mig: str = "off",
        shares: str = "off",
    ) -> None:
        def command(home: dra_node.Home) -> list[str]:
            return [
                str(Path(sys.executable).parent / "dovetail"),
                "node-agent",
                f"--node-name={node}",
                f"--kubeconfig={cluster.kubeconfig}",
                f"--mig={mig}",
                f"--shares={shares}",
                f"--kubelet-root={home.directory}",
                f"--plugins-registry={home.registry}",
                f"--cdi-dir={home.cdi}",
                f"--driver-root={hardware.driver_root}",
                f"--sysfs-root={hardware.sysfs_root}",
                f"--proc-root={hardware.proc_root}",
                f"--nvidia-cdi-hook={programs.HOOK}",
            ]

        super().__init__(cluster, node, command)
