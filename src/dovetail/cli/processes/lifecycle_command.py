"""`dovetail lifecycle`: carries out upgrades of the GPU stack."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import click

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.processes import listen_address

DEFAULT: Final = "127.0.0.1:9104"
LEASE: Final = "kube-system/dovetail-lifecycle"


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
    "--leader-elect",
    metavar="NAMESPACE/NAME",
    default=LEASE,
    show_default=True,
    help="The replica that holds this Lease works.",
)
@click.option(
    "--checks",
    metavar="FILE",
    help="What a node is validated by before work returns, as YAML. [default: all that need no Job]",
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
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(
    *,
    kubeconfig: str | None,
    context: str | None,
    leader_elect: str,
    checks: str | None,
    listen: tuple[str, int],
    log_format: str,
) -> int:
    """Carry out StackUpgrades: fence, drain gang by gang, apply, validate, unfence.

    Everything it needs to go on stands in the cluster: it may be killed and started again at any time. On any address
    but loopback a bearer token is needed whose owner may get /metrics.
    """
    from dovetail.boot import lifecycle, logs
    from dovetail.kube.auth import client_config
    from dovetail.upgrade.validation import validation_checks

    namespace, slash, name = leader_elect.partition("/")
    if not (namespace and slash and name):
        raise output.BadInput(f'--leader-elect: "{leader_elect}" is not NAMESPACE/NAME')
    chosen = validation_checks.DEFAULTS
    if checks is not None:
        try:
            chosen = validation_checks.read(Path(checks).read_text(), checks)
        except (errors.InputError, OSError) as error:
            raise output.BadInput(f"--checks: {error}") from None
    logs.set_up(log_format, "info")
    connection = client_config.load(kubeconfig, context=context)
    settings = lifecycle.Settings(namespace, name, chosen)
    asyncio.run(lifecycle.Lifecycle(connection, settings).run(listen))
    return 0
