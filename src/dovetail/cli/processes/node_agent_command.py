"""`dovetail node-agent`: publishes the GPUs of one node and prepares claims on them for the kubelet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

LOG = logging.getLogger("dovetail.node")
MODES: Final = ("dra", "device-plugin")
MIG_MODES: Final = ("dynamic", "static", "off")


class _Shares(click.ParamType[str]):
    """off, memory, or a positive number."""

    name = "shares"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text not in ("off", "memory") and not (text.isdecimal() and int(text) > 0):
            self.fail(f"{text!r} is not off, memory or a positive number", param, ctx)
        return text


class _Address(click.ParamType[str]):
    """off, or HOST:PORT."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        host, _, port = str(value).rpartition(":")
        if value == "off" or not value:
            return ""
        if not host or not port.isdecimal() or int(port) > 65_535:
            self.fail(f"{value!r} is not off or HOST:PORT, such as 127.0.0.1:9101", param, ctx)
        return str(value)


class _Seconds(click.ParamType[float]):
    """off, or a positive number of seconds."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if value == "off":
            return 0.0
        try:
            seconds = float(value)
        except ValueError:
            seconds = 0.0
        if not 0.1 <= seconds <= 3600:
            self.fail(f"{value!r} is not off or seconds between 0.1 and 3600", param, ctx)
        return seconds


_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_CLUSTER: Final = _options(
    click.option(
        "--node-name",
        metavar="NAME",
        envvar="NODE_NAME",
        required=True,
        help="The Node this process runs on. [default: $NODE_NAME]",
    ),
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="How to reach the cluster. [default: as kubectl, or in-cluster]",
    ),
    click.option(
        "--context", metavar="NAME", help="The kubeconfig's context. [default: its current one]"
    ),
)
_GPUS: Final = _options(
    click.option(
        "--mode",
        type=click.Choice(MODES),
        default="dra",
        show_default=True,
        help="How pods get GPUs: by claims, or by counted resources (nvidia.com/gpu).",
    ),
    click.option(
        "--mig",
        type=click.Choice(MIG_MODES),
        default="dynamic",
        show_default=True,
        help="MIG devices: made on demand, those that exist at the start, or none.",
    ),
    click.option(
        "--shares",
        type=_Shares(),
        metavar="off|memory|N",
        default="off",
        show_default=True,
        help="Whether claims may share a GPU: by memory, or N at a time.",
    ),
    click.option(
        "--replicas",
        type=click.IntRange(1, 64),
        default=1,
        show_default=True,
        help="In device plugin mode: how many containers may share a GPU by time slicing.",
    ),
)
_PLACES: Final = _options(
    click.option(
        "--device-metadata",
        is_flag=True,
        help="Give containers files that describe their devices (KEP-5304).",
    ),
    click.option(
        "--kubelet-root", type=_FOLDER, default=Path("/var/lib/kubelet"), show_default=True
    ),
    click.option(
        "--plugins-registry", type=_FOLDER, help="[default: plugins_registry of --kubelet-root]"
    ),
    click.option("--cdi-dir", type=_FOLDER, default=Path("/var/run/cdi"), show_default=True),
    click.option(
        "--driver-root",
        type=_FOLDER,
        default=Path("/"),
        show_default=True,
        help="Where the host has the driver's files.",
    ),
    click.option(
        "--driver-root-container",
        type=_FOLDER,
        help="Where this process sees them. [default: --driver-root]",
    ),
    click.option("--sysfs-root", type=_FOLDER, default=Path("/sys"), show_default=True),
    click.option("--proc-root", type=_FOLDER, default=Path("/proc"), show_default=True),
    click.option(
        "--boot-id-file",
        type=_FILE,
        default=Path("/proc/sys/kernel/random/boot_id"),
        show_default=True,
    ),
    click.option(
        "--nvidia-cdi-hook",
        type=_FILE,
        default=Path("/usr/bin/nvidia-cdi-hook"),
        show_default=True,
        help="The hook program, as the host's container runtime sees it.",
    ),
)
_HEALING: Final = _options(
    click.option(
        "--reset-command",
        metavar="COMMAND",
        default="",
        help="Run for a reset that the healer asks for: {gpus} are the uuids, {pci} the bus ids.",
    ),
    click.option(
        "--reboot-command", metavar="COMMAND", default="", help="Run for a reboot it asks for."
    ),
    click.option(
        "--hook-seconds",
        type=click.FloatRange(1, 3600),
        default=300.0,
        show_default=True,
        help="When such a command is ended.",
    ),
)
_OBSERVATION: Final = _options(
    click.option(
        "--health-policy",
        type=_FILE,
        help="Rules about faults of GPUs that go before the built-in ones, as YAML.",
    ),
    click.option(
        "--metrics",
        type=_Address(),
        metavar="HOST:PORT",
        default="off",
        show_default=True,
        help="Serve /healthz, /readyz and /metrics there.",
    ),
    click.option(
        "--device-metrics",
        type=_Seconds(),
        metavar="SECONDS|off",
        default="5",
        show_default=True,
        help="With --metrics: how often the GPUs' use may be read for it; off where DCGM exports it.",
    ),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
    ),
)


@click.command()
@_CLUSTER
@_GPUS
@_PLACES
@_HEALING
@_OBSERVATION
@click.option("--pod-uid", envvar="POD_UID", default="", hidden=True)
def command(
    *, cdi_dir: Path, metrics: str, log_format: str, log_level: str, node_name: str, **rest: Any
) -> int:
    """Serve the GPUs of this node to the kubelet, as NVIDIA's DRA driver does.

    One process per node, usually a DaemonSet. Runs until SIGTERM or SIGINT and then finishes what the kubelet asked
    for. With POD_UID set, a new instance can start before the old one ends.
    """
    # Before the large imports, so that the first line comes at once.
    from dovetail.boot import logs

    logs.set_up(log_format, log_level)
    LOG.info("agent.starting", extra={"node": node_name, "mode": rest["mode"]})
    from dovetail.boot.node import node_agent, node_parts

    options = node_agent.Options(
        node_name=node_name, cdi_directory=cdi_dir, metrics_address=metrics, **rest
    )
    asyncio.run(node_parts.serve(options))
    return 0
