"""The agent's work in device plugin mode: counted resources for the kubelet, labels for the scheduler.

Given options and a connection to the cluster. GPUs, health and CDI edits are those of DRA mode, offered the older way.
Never serves a node on which claims are prepared.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from dovetail import errors
from dovetail.boot import clocks
from dovetail.boot.node import node_agent, node_gpus, node_health, node_metering
from dovetail.files import private_files
from dovetail.kube import client
from dovetail.kube.http import transport
from dovetail.node.cdi.driver_root import DriverRoot
from dovetail.node.claims import checkpoint_file
from dovetail.node.device_plugin import mode_conflicts
from dovetail.node.device_plugin.device_plugins import DevicePlugins
from dovetail.node.device_plugin.resources import OfferOptions
from dovetail.node.health import gpu_health
from dovetail.node.inventory import Inventory
from dovetail.node.kubelet import dra_plugin
from dovetail.node.slices import feature_labels
from dovetail.node.slices.label_writer import LabelWriter
from dovetail.ports import meter


@contextlib.asynccontextmanager
async def open_work(
    options: node_agent.Options, carrier: transport.Transport, meter_: meter.Meter
) -> AsyncIterator[node_agent.Work]:
    """Everything the mode runs; the session with the driver is open meanwhile."""
    clock = clocks.SystemClock()
    api = client.KubeApi(carrier)
    plugin_folder = options.kubelet_root / "plugins" / dra_plugin.DRIVER
    boot_id = checkpoint_file.boot_id_of(options.boot_id_file)
    if reasons := mode_conflicts.against_counting(plugin_folder, boot_id=boot_id):
        raise errors.InputError(f"--mode device-plugin: {'; '.join(reasons)}")

    private_files.make_directory(plugin_folder, option="--kubelet-root")
    gpus = node_gpus.NodeGpus(options, clock)
    health = node_health.health_of(
        options, gpus, clock, api=api, record=plugin_folder / node_health.HEALTH_FILE
    )
    plugins = DevicePlugins(
        options.kubelet_root / "device-plugins",
        DriverRoot(options.visible_driver_root, options.driver_root),
        node_gpus.cdi_paths(options),
        options=OfferOptions(has_mig=options.mig != "off", replicas=options.replicas),
    )
    labels = LabelWriter(api, node_name=options.node_name, clock=clock)
    label_options = feature_labels.LabelOptions(
        mig_strategy=feature_labels.MigStrategy.MIXED,
        machine_type=node_gpus.machine_type(options),
        replicas=options.replicas,
        sharing_strategy="time-slicing" if options.replicas > 1 else "none",
    )

    def update(inventory: Inventory) -> None:
        plugins.update(inventory)
        labels.publish(feature_labels.labels(inventory, label_options))

    gpus.on_change(update)

    async def judge() -> None:
        async for healths in health.monitor.changes():
            unfit = [
                minor
                for minor, state in healths.items()
                if not gpu_health.is_fit(state, health.policy)
            ]
            plugins.judge(unfit)
            await health.report.publish(healths)

    async def watch_health() -> None:
        await gpus.driver_found()
        await health.monitor.run()

    loops = {
        "gpus": gpus.run,
        "resources": plugins.run,
        "labels": labels.run,
        "health": watch_health,
        "health report": judge,
    }

    def ready() -> Mapping[str, bool]:
        return {
            "driver": bool(gpus.inventory().driver_version),
            "registered": plugins.is_registered,
        }

    try:
        yield node_agent.Work(
            serving=plugins,
            loops=loops,
            ready=ready,
            device_metrics=node_metering.device_metrics(
                options, gpus, clock, api=api, claims=tuple, meter_=meter_
            ),
        )
    finally:
        await gpus.close()
