"""How `dovetail node-agent` is called on a real node: the one place that knows its options.

Given where the agent finds the API server, the kubelet, the container runtime and the driver, returns the command
line. The agent runs inside the node's namespaces, as it does on any machine, and ends with it. Never starts it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NamedTuple

# The console script of an installation may be missing; the package never is.
PROGRAM: Final = (sys.executable, "-c", "from dovetail.cli.main import main; main()")


class DriverFiles(NamedTuple):
    """Where the driver of a machine's GPUs has its files; those of fake hardware lie in a directory."""

    driver_root: Path
    sysfs_root: Path
    proc_root: Path


def command(
    *,
    kubeconfig: Path,
    node_name: str,
    kubelet_root: Path,
    cdi_directory: Path,
    boot_id_file: Path,
    cdi_hook: Path,
    driver: DriverFiles,
    options: tuple[str, ...] = (),
) -> list[str]:
    """The command line of the agent. `options` are further ones, such as `--mig=off`."""
    return [
        *PROGRAM,
        "node-agent",
        f"--kubeconfig={kubeconfig}",
        f"--node-name={node_name}",
        f"--kubelet-root={kubelet_root}",
        f"--cdi-dir={cdi_directory}",
        f"--boot-id-file={boot_id_file}",
        f"--nvidia-cdi-hook={cdi_hook}",
        f"--driver-root={driver.driver_root}",
        f"--sysfs-root={driver.sysfs_root}",
        f"--proc-root={driver.proc_root}",
        *options,
    ]
