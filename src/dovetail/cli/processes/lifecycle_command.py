"""`dovetail lifecycle`: carries out upgrades of the GPU stack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.processes import listen_address

T = TypeVar("T")

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
@click.option("--heal", is_flag=True, help="Also heal GPUs whose faults node agents publish.")
@click.option(
    "--heal-policy",
    metavar="FILE",
    help="With --heal: limits, breaker and windows of the healer, as YAML.",
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
    heal: bool,
    heal_policy: str | None,
    listen: tuple[str, int],
    log_format: str,
) -> int:
    """Carry out StackUpgrades: fence, drain gang by gang, apply, validate, unfence. With --heal, also heal GPUs.

    Everything it needs to go on stands in the cluster: it may be killed and started again at any time. On any address
    but loopback a bearer token is needed whose owner may get /metrics.
    """
    from dovetail.boot import lifecycle, logs
    from dovetail.kube.auth import client_config
    from dovetail.upgrade.heal import heal_policy as heal_policies
    from dovetail.upgrade.validation import validation_checks

    namespace, slash, name = leader_elect.partition("/")
    if not (namespace and slash and name):
        raise output.BadInput(f'--leader-elect: "{leader_elect}" is not NAMESPACE/NAME')
    if heal_policy is not None and not heal:
        raise output.BadInput("--heal-policy: needs --heal")
    chosen = _read("--checks", checks, validation_checks.read) or validation_checks.DEFAULTS
    rules = _read("--heal-policy", heal_policy, heal_policies.read) or heal_policies.DEFAULT
    logs.set_up(log_format, "info")
    connection = client_config.load(kubeconfig, context=context)
    settings = lifecycle.Settings(namespace, name, chosen, rules if heal else None)
    asyncio.run(lifecycle.Lifecycle(connection, settings).run(listen))
    return 0


def _read(option: str, file: str | None, read: Callable[[str, str], T]) -> T | None:
    """What a file of rules says; None where no file is named."""
    if file is None:
        return None
    try:
        return read(Path(file).read_text(), file)
    except (errors.InputError, OSError) as error:
        raise output.BadInput(f"{option}: {error}") from None
