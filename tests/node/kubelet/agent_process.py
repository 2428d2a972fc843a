"""The agent's process with claims that a test can hold up: `python -m tests.node.kubelet.agent_process DIR [POD_UID]`.

DIR holds the kubelet's directories. A preparation appends `enter` and `leave` with its process id to DIR/steps and
waits between them while DIR/hold exists. The life cycle and the sockets are the product's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dovetail.boot import logs
from dovetail.boot.node import node_agent
from dovetail.node.kubelet import dra_plugin, socket_paths
from dovetail.node.kubelet.claim_service import ClaimReference, Failed, Prepared
from tests.node.kubelet import services
from tests.support import waiting


class HeldClaims(services.GpuClaims):
    """Writes down when each preparation begins and ends."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Prepared | Failed]:
        self._write("enter", claims)
        hold = self._directory / "hold"
        await waiting.until(lambda: not hold.exists(), "the release of the claim")
        outcomes = await super().prepare(claims)
        self._write("leave", claims)
        return outcomes

    def _write(self, step: str, claims: Sequence[ClaimReference]) -> None:
        names = ",".join(claim.name for claim in claims)
        with (self._directory / "steps").open("a") as file:
            file.write(f"{step} {os.getpid()} {names}\n")


async def main(directory: Path, pod_uid: str) -> None:
    """Serves until a signal."""
    paths = socket_paths.socket_paths(directory, dra_plugin.DRIVER, pod_uid=pod_uid)
    plugin = dra_plugin.DraPlugin(paths, HeldClaims(directory), services.Healths())
    await node_agent.run(node_agent.Work(serving=plugin))


if __name__ == "__main__":
    logs.set_up("text", "info")
    asyncio.run(main(Path(sys.argv[1]), *(sys.argv[2:] or [""])))
