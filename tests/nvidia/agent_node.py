"""The node agent in an oracle's place: `dovetail node-agent` on the same hardware, as DRA driver or device plugin."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dovetail.devcluster import control_plane
from tests.nvidia import device_plugin, dra_node, programs


class AgentNode(dra_node.DraNode):
    """The node agent for one node, as a process. `mig` is dynamic, static or off; `shares` off, memory or a number.

    `options` are further ones of the command.
    """

    def __init__(
        self,
        hardware: Any,
        cluster: control_plane.ControlPlane,
        node: str,
        *,
        mig: str = "off",
        shares: str = "off",
        options: Sequence[str] = (),
    ) -> None:
        def command(home: dra_node.Home) -> list[str]:
            own = [
                f"--mig={mig}",
                f"--shares={shares}",
                f"--plugins-registry={home.registry}",
                *options,
            ]
            return [*_words(hardware, cluster, node, home.directory), *own]

        super().__init__(cluster, node, command)


class AgentPlugin(device_plugin.PluginNode):
    """The node agent as a device plugin."""

    def __init__(
        self,
        hardware: Any,
        cluster: control_plane.ControlPlane,
        node: str,
        *,
        resources: Sequence[str] = ("gpu",),
        mig: str = "off",
        replicas: int = 1,
    ) -> None:
        home = Path(tempfile.mkdtemp(prefix="agdp-"))
        for name in ("device-plugins", "cdi", "plugins"):
            (home / name).mkdir()
        own = ["--mode=device-plugin", f"--mig={mig}", f"--replicas={replicas}"]
        command = [*_words(hardware, cluster, node, home), *own]
        super().__init__(home, command, prefix="dovetail-", resources=resources)


def _words(hardware: Any, cluster: control_plane.ControlPlane, node: str, home: Path) -> list[str]:
    return [
        str(Path(sys.executable).parent / "dovetail"),
        "node-agent",
        f"--node-name={node}",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--kubelet-root={home}",
        f"--cdi-dir={home / 'cdi'}",
        f"--driver-root={hardware.driver_root}",
        f"--sysfs-root={hardware.sysfs_root}",
        f"--proc-root={hardware.proc_root}",
        f"--nvidia-cdi-hook={programs.HOOK}",
    ]
