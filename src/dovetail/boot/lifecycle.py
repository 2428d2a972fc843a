"""Wires the process that carries out upgrades of the GPU stack: watches, decides and writes while it holds a Lease.

One process; replicas choose the one that works by a Lease. Serves health and metrics. All state is in the cluster, so a
process that ends at any time is followed by one that goes on. Never schedules.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple

from dovetail.boot import clocks, http_server, lifecycle_healing
from dovetail.kube import client
from dovetail.kube.auth import access_reviews, client_config
from dovetail.kube.http import transport
from dovetail.kubetypes import object_set
from dovetail.kubetypes.custom.stack_upgrades import StackUpgrade
from dovetail.live.cycle import restarts
from dovetail.live.election import leader_election
from dovetail.model import exposition
from dovetail.ports import clock as clock_port
from dovetail.telemetry import lifecycle_metrics, metrics
from dovetail.upgrade import judging, upgrade_loop, upgrade_series, upgrade_watch
from dovetail.upgrade.heal import heal_policy
from dovetail.upgrade.machine.cluster_facts import Judges
from dovetail.upgrade.validation import validation_checks

LOG = logging.getLogger("dovetail.lifecycle")
LEASE: Final = "dovetail-lifecycle"
LEADING: Final = "dovetail_lifecycle_leading"


class Settings(NamedTuple):
    """Where the Lease is, what a node is validated by, and how GPUs are healed."""

    namespace: str
    lease: str = LEASE
    checks: validation_checks.Checks = validation_checks.DEFAULTS
    healing: heal_policy.HealPolicy | None = None  # None: no healer runs


class Lifecycle:
    """The process."""

    def __init__(
        self,
        connection: client_config.Connection,
        settings: Settings,
        *,
        clock: clock_port.Clock | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or clocks.SystemClock()
        # Restarts and elections count under the scheduler's names, which this process must not show.
        self._inner = metrics.Metrics()
        self.shown = metrics.Metrics(lifecycle_metrics.DECLARED)
        self._upgrades: tuple[StackUpgrade, ...] = ()
        self._transport = transport.Transport(
            connection, concurrency=16, user_agent="dovetail-lifecycle"
        )
        self._tenures = restarts.Restarts(self.clock, self._inner)

    async def run(self, listen: tuple[str, int] | None = None) -> None:
        """Works until a signal, or until cancelled; serves health and metrics if an address is given."""
        async with self._transport, contextlib.AsyncExitStack() as stack:
            if listen is not None:
                server = await stack.enter_async_context(self._server(*listen))
                LOG.info("lifecycle.serving", extra={"address": listen[0], "port": server.port})
            working = asyncio.ensure_future(self._work())
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, working.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await working
        LOG.info("lifecycle.stopped")

    def _server(self, address: str, port: int) -> http_server.Server:
        reviews = access_reviews.Reviews(client.KubeApi(self._transport), self.clock)
        return http_server.Server(
            metrics=self._text,
            ready=lambda: {"lifecycle": self._tenures.is_steady},
            alive=lambda: True,
            configuration={},
            authorise=reviews.authorise,
            address=address,
            port=port,
            option="--listen",
        )

    async def _work(self) -> None:
        election = leader_election.Election(
            client.KubeApi(self._transport),
            self.clock,
            namespace=self.settings.namespace,
            name=self.settings.lease,
            meter_=self._inner,
        )
        await election.run(lambda fence: self._tenures.run(lambda: self._tenure(fence)))

    async def _tenure(self, fence: leader_election.Fence) -> None:
        """Works from a fresh read to the loss of the lease."""
        async with upgrade_watch.UpgradeWatch(self._transport, self.clock) as cluster:
            loop = upgrade_loop.UpgradeLoop(
                client.KubeApi(self._transport, fence=fence),
                cluster.read,
                self.clock,
                self._judges,
                confirm=cluster.confirm,
                observe=self._show,
                meter_=self.shown,
            )
            self.shown.gauge(LEADING, 1)
            try:
                await lifecycle_healing.together(loop.run(), *self._healing(fence))
            finally:
                self.shown.gauge(LEADING, 0)
                self._show(())

    def _show(self, upgrades: Sequence[StackUpgrade]) -> None:
        """What metrics are about from now on; a replica that does not work shows no upgrade."""
        self._upgrades = tuple(upgrades)

    def _text(self) -> bytes:
        lines = upgrade_series.series(self._upgrades, self.clock.now())
        return self.shown.text() + exposition.text(upgrade_series.FAMILIES, lines).encode()

    def _healing(self, fence: leader_election.Fence) -> list[Awaitable[None]]:
        policy = self.settings.healing
        if policy is None:
            return []
        over, clock = self._transport, self.clock
        return [lifecycle_healing.heal(over, fence, clock, policy=policy, meter_=self.shown)]

    def _judges(self, objects: object_set.ObjectSet) -> Judges:
        return judging.judges_of(objects, self.settings.checks)
