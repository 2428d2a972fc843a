"""`dovetail exporter`: serves metrics of claims, slices, queues and gangs for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Final

import click

from dovetail.cli.processes import listen_address

DEFAULT: Final = "127.0.0.1:9102"


@click.command()
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="How to reach the cluster. [default: as kubectl, or in-cluster]",
)
@click.option(
    "--context", metavar="NAME", help="The kubeconfig's context. [default: its current one]"
)
@click.option(
    "--listen",
    type=listen_address.ListenAddress(DEFAULT),
    metavar="HOST:PORT",
    default=DEFAULT,
    show_default=True,
    help="Serve /healthz, /readyz and /metrics there.",
)
@click.option(
    "--partitions",
    is_flag=True,
    help="Also list the MIG partitions that GPUs could have: about 26 for each.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def command(
    *,
    kubeconfig: str | None,
    context: str | None,
    listen: tuple[str, int],
    partitions: bool,
    log_format: str,
    log_level: str,
) -> int:
    """Serve metrics of claims, slices, device classes, queues, gangs, promised starts and unusable GPUs.

    Watches the cluster and writes nothing. On any address but loopback a bearer token is needed whose owner may get
    /metrics.
    """
    from dovetail.boot import logs
    from dovetail.boot.observing import exporter
    from dovetail.kube.auth import client_config

    logs.set_up(log_format, log_level)
    address, port = listen
    connection = client_config.load(kubeconfig, context=context)
    asyncio.run(exporter.run(connection, address=address, port=port, has_partitions=partitions))
    return 0
