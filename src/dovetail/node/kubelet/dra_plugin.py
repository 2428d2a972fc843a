"""The driver as the kubelet sees it: the service's socket, then the one that registers it, and both away in order.

Given the services of claims and health. Stale sockets of dead instances are removed at the start. At the end the
kubelet is sent away first, then the calls in flight finish. Never ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from dovetail.node.kubelet import (
    claim_server,
    health_server,
    registration_server,
    socket_paths,
    unix_server,
)
from dovetail.node.kubelet.claim_service import ClaimService, HealthService
from dovetail.ports import meter

DRIVER: Final = "gpu.nvidia.com"
GRACE_SECONDS: Final = 50.0  # a call of the kubelet has 45

LOG = logging.getLogger("dovetail.node.registration")


class DraPlugin:
    """Serves from `start` to `stop`."""

    def __init__(
        self,
        paths: socket_paths.SocketPaths,
        claims: ClaimService,
        health: HealthService | None,
        *,
        driver: str = DRIVER,
        meter_: meter.Meter | None = None,
    ) -> None:
        self._paths = paths
        self._driver = driver
        self._claims = claim_server.ClaimServer(claims, meter_=meter_)
        self._health = None if health is None else health_server.HealthServer(health)

        handlers = self._claims.handlers()
        supported = [*claim_server.SUPPORTED]
        if self._health is not None:
            handlers += self._health.handlers()
            supported += health_server.SUPPORTED
        self._service = unix_server.UnixServer(paths.service, handlers)
        self.registration = registration_server.RegistrationServer(driver, paths.service, supported)
        self._registrar = unix_server.UnixServer(paths.registration, self.registration.handlers())

    async def start(self) -> None:
        """Serves claims first, because the kubelet connects as soon as it finds the registration."""
        removed = unix_server.remove_dead_sockets(self._left_behind())
        if removed:
            names = ", ".join(str(path) for path in removed)
            LOG.info("sockets.removed: a dead instance left them", extra={"sockets": names})
        await self._service.start()
        try:
            await self._registrar.start()
        except BaseException:
            await self._service.stop(grace_seconds=0)
            raise
        LOG.info(
            "sockets.serving",
            extra={"service": self._paths.service, "registration": self._paths.registration},
        )

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Unregisters, lets calls in flight finish for so long, then ends."""
        await self._registrar.stop(grace_seconds=0)
        if self._health is not None:
            self._health.close()
        await self._service.stop(grace_seconds=grace_seconds)
        try:
            await asyncio.wait_for(self._claims.drained(), grace_seconds)
        except TimeoutError:
            LOG.error("claims.abandoned: calls did not finish", extra={"seconds": grace_seconds})

    def _left_behind(self) -> list[Path]:
        """Sockets under names of this driver's instances, whether or not one listens there."""
        registrations = self._paths.registration.parent.glob(f"{self._driver}*-reg.sock")
        services = self._paths.plugin_directory.glob("dra*.sock")
        return sorted([*registrations, *services])
