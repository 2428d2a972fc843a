"""The agent's work in DRA mode: claims for the kubelet, slices for the scheduler, the health of GPUs for both.

Given options and a connection to the cluster. Serves once there is a driver and what an earlier process left is in
order; publishes after that. Never serves a node whose GPUs a device plugin serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.boot import clocks
from dovetail.boot.node import (
    node_agent,
    node_gpus,
    node_health,
    node_metering,
    node_publication,
    node_requests,
)
from dovetail.kube import client
from dovetail.kube.http import transport
from dovetail.node.claims import assembly, plan_prepare
from dovetail.node.claims.service import NodeClaims
from dovetail.node.device_plugin import mode_conflicts
from dovetail.node.health import health_monitor
from dovetail.node.kubelet import dra_plugin, socket_paths
from dovetail.ports import meter

AGAIN_SECONDS: Final = 5.0

LOG = logging.getLogger("dovetail.node")


@contextlib.asynccontextmanager
async def open_work(
    options: node_agent.Options, carrier: transport.Transport, meter_: meter.Meter
) -> AsyncIterator[node_agent.Work]:
    """Everything the mode runs; the session with the driver is open meanwhile."""
    clock = clocks.SystemClock()
    api = client.KubeApi(carrier)
    paths = socket_paths.socket_paths(
        options.kubelet_root,
        dra_plugin.DRIVER,
        registry=options.plugins_registry,
        pod_uid=options.pod_uid,
    )
    if reasons := mode_conflicts.against_claims(options.kubelet_root):
        raise errors.InputError(f"--mode dra: {'; '.join(reasons)}")

    gpus = node_gpus.NodeGpus(options, clock)
    claims = assembly.node_claims(
        api=api,
        clock=clock,
        control=gpus.control,
        inventory=gpus.inventory,
        settings=_settings(options),
        paths=_claim_paths(options, paths.plugin_directory),
        writes_metadata=options.device_metadata,
    )
    health = node_health.health_of(
        options, gpus, clock, api=api, record=paths.plugin_directory / node_health.HEALTH_FILE
    )
    publication = node_publication.Publication(options, carrier, policy=health.policy, clock=clock)
    stream = health_monitor.DeviceHealthStream(
        health.monitor,
        policy=health.policy,
        pool_name=options.node_name,
        devices_of=publication.device_names,
        clock=clock,
    )
    plugin = dra_plugin.DraPlugin(paths, claims, stream, meter_=meter_)
    serving = _Serving(gpus, claims, plugin)
    gpus.on_change(publication.update)
    requests = node_requests.requests(
        options,
        gpus,
        claims,
        health=health,
        publication=publication,
        api=api,
        folder=paths.plugin_directory,
        clock=clock,
    )

    async def publish() -> None:
        await serving.is_serving.wait()
        await publication.begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publication.publisher.run())
            tasks.create_task(publication.labels.run())
            tasks.create_task(publication.follow_slices())
            tasks.create_task(publication.follow_counters())

    async def judge() -> None:
        async for healths in health.monitor.changes():
            publication.judge(healths)
            await health.report.publish(healths)

    async def watch_health() -> None:
        await gpus.driver_found()
        await health.monitor.run()

    async def answer_requests() -> None:
        await serving.is_serving.wait()
        await requests.run()

    async def keep_claims() -> None:
        await serving.is_serving.wait()
        await claims.run()

    loops = {
        "gpus": gpus.run,
        "slices": publish,
        "claims": keep_claims,
        "health": watch_health,
        "health report": judge,
        "requests": answer_requests,
    }

    def ready() -> Mapping[str, bool]:
        return {
            "driver": bool(gpus.inventory().driver_version),
            "registered": plugin.registration.registered.is_set(),
            "published": serving.is_serving.is_set() and not publication.publisher.problem,
        }

    try:
        yield node_agent.Work(
            serving=serving,
            loops=loops,
            ready=ready,
            device_metrics=node_metering.device_metrics(
                options, gpus, clock, api=api, claims=claims.prepared, meter_=meter_
            ),
        )
    finally:
        await gpus.close()


class _Serving:
    """The plugin, once the node can keep what it promises."""

    def __init__(
        self, gpus: node_gpus.NodeGpus, claims: NodeClaims, plugin: dra_plugin.DraPlugin
    ) -> None:
        self._gpus = gpus
        self._claims = claims
        self._plugin = plugin
        self.is_serving = asyncio.Event()

    async def start(self) -> None:
        """Waits for a driver, deals with what an earlier process left, then serves."""
        await self._gpus.driver_found()
        await self._recover()
        await self._plugin.start()
        self.is_serving.set()

    async def stop(self) -> None:
        """In the order in which the kubelet must notice."""
        await self._plugin.stop()
        await self._claims.close()

    async def _recover(self) -> None:
        while True:
            try:
                return await self._claims.start()
            except errors.DovetailError as error:  # such as another instance that is at work
                LOG.warning(
                    "claims.not_recovered: tries again",
                    extra={"why": str(error), "again_seconds": AGAIN_SECONDS},
                )
                await asyncio.sleep(AGAIN_SECONDS)


def _settings(options: node_agent.Options) -> plan_prepare.Settings:
    return plan_prepare.Settings(
        pool=options.node_name,
        mig=plan_prepare.MigPolicy(options.mig),
        share_count=int(options.shares) if options.shares.isdecimal() else None,
    )


def _claim_paths(options: node_agent.Options, plugin_folder: Path) -> assembly.Paths:
    return assembly.Paths(
        plugin_folder=plugin_folder,
        boot_id_file=options.boot_id_file,
        driver_root=options.driver_root,
        driver_root_seen=options.driver_root_container,
        cdi=node_gpus.cdi_paths(options),
    )
