"""`dovetail install`, `upgrade`, `uninstall`: installs the scheduler on a cluster and removes it, without Helm."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dovetail.cli import output

if TYPE_CHECKING:  # imported in the commands, so that help comes at once
    from dovetail.kube.http import transport

F = TypeVar("F", bound=Callable[..., Any])
SECONDS = 120.0


def _where(command: F) -> F:
    """Options that select the installation and the cluster."""
    for option in (
        click.option(
            "--context", metavar="NAME", help="The kubeconfig's context. [default: its current one]"
        ),
        click.option(
            "--kubeconfig", metavar="FILE", help="How to reach the cluster. [default: as kubectl]"
        ),
        click.option(
            "-n", "--namespace", default="dovetail-system", show_default=True, metavar="NAME"
        ),
        click.option(
            "--name",
            default="dovetail",
            show_default=True,
            metavar="NAME",
            help="What names begin with.",
        ),
    ):
        command = option(command)
    return command


def _values(command: F) -> F:
    """Options for the chart's values."""
    for option in (
        click.option(
            "--timeout", type=click.FloatRange(min=1), default=SECONDS, show_default=True, metavar="SECONDS",
            help="How long to wait.",
        ),
        click.option("--wait", is_flag=True, help="Wait until every replica is ready; with --stack, every part."),
        click.option(
            "--stack", is_flag=True,
            help="Also what GPU nodes need: node agents, metrics, device classes (chart's values-stack.yaml).",
        ),
        click.option("--force", is_flag=True, help="Take over objects and fields of others."),
        click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="A value; YAML, so lists work."),
        click.option("-f", "--values", "files", multiple=True, metavar="FILE", help="A file of values."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@_where
@_values
@click.option(
    "--definitions",
    is_flag=True,
    help="Only what makes queues and topologies known; the scheduler runs elsewhere.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be applied; no request is sent.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("yaml", "json")),
    help="How --dry-run prints. [default: yaml]",
)
@click.option(
    "--api-versions",
    multiple=True,
    metavar="GROUP/VERSION/KIND",
    help="With --dry-run: what the cluster serves.",
)
def install(
    *,
    name: str,
    namespace: str,
    files: Sequence[str],
    settings: Sequence[str],
    stack: bool,
    definitions: bool,
    dry_run: bool,
    form: str | None,
    api_versions: Sequence[str],
    **target: Any,
) -> None:
    """Install the scheduler on a cluster, or bring it up to date.

    \b
    dovetail install --set image.repository=example.com/gpu/dovetail --wait
    dovetail install --set image.repository=example.com/gpu/dovetail --dry-run -o yaml
    dovetail install --set image.repository=example.com/gpu/dovetail --stack --wait
    dovetail install --definitions

    The same objects as the Helm chart in deploy/chart. Nothing is changed unless the cluster accepts all of it.
    """
    if not dry_run and (form is not None or api_versions):
        raise click.UsageError("-o and --api-versions go with --dry-run")
    if definitions and (files or settings or stack or target["wait"]):
        raise click.UsageError("--definitions takes no values and waits for nothing")
    from dovetail.install import chart

    if definitions:
        _define(
            chart.definitions() if dry_run else None,
            form or "yaml",
            target["kubeconfig"],
            target["context"],
        )
        return
    release = chart.Release(name, namespace)
    values = _values_of(files, settings, is_stack=stack)
    if dry_run:
        _print(chart.objects(values, release, api_versions=api_versions), form or "yaml")
        return
    _bring(values, release, is_upgrade=False, is_stack=stack, **target)


@click.command()
@_where
@_values
def upgrade(
    *,
    name: str,
    namespace: str,
    files: Sequence[str],
    settings: Sequence[str],
    stack: bool,
    **target: Any,
) -> None:
    """Bring an installation up to date; refuse where there is none.

    Values are those given now, not those given before. What this version no longer has is deleted.
    """
    from dovetail.install import chart

    values = _values_of(files, settings, is_stack=stack)
    _bring(values, chart.Release(name, namespace), is_upgrade=True, is_stack=stack, **target)


@click.command()
@_where
@click.option(
    "--purge",
    is_flag=True,
    help="Delete the definitions of our kinds even if there are objects, and those.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=SECONDS, show_default=True, metavar="SECONDS"
)
def uninstall(
    *,
    name: str,
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
    purge: bool,
    timeout: float,
) -> None:
    """Take the scheduler off a cluster and leave nothing behind.

    Pods that run go on; pods that wait for it wait. The definitions of queues and topologies stay while there
    are any, unless --purge is given; a namespace stays if it was there before or holds something else.
    """
    from dovetail.install import chart, uninstall

    async def work(over: "transport.Transport") -> None:
        release = chart.Release(name, namespace)
        await uninstall.uninstall(over, release, say=output.say, is_purge=purge, seconds=timeout)

    _run(kubeconfig, context, work)


def _define(
    printed: Sequence[dict[str, Any]] | None, form: str, kubeconfig: str | None, context: str | None
) -> None:
    """Applies the definitions, or prints them."""
    if printed is not None:
        _print(printed, form)
        return
    from dovetail.install import apply_chart

    _run(kubeconfig, context, lambda over: apply_chart.define(over, say=output.say))
    output.next_step("scheduler")


def _values_of(files: Sequence[str], settings: Sequence[str], *, is_stack: bool) -> dict[str, Any]:
    from dovetail.install import chart, stack_install

    read = stack_install.values_of if is_stack else chart.values_of
    return read(files, settings=settings)


def _bring(
    values: dict[str, Any],
    release: Any,
    *,
    is_upgrade: bool,
    is_stack: bool,
    kubeconfig: str | None,
    context: str | None,
    force: bool,
    wait: bool,
    timeout: float,
) -> None:
    from dovetail.install import apply_chart, stack_install

    async def work(over: "transport.Transport") -> None:
        fitted = values
        if is_stack:
            fitted = await stack_install.checked(over, values, release, say=output.say)
        await apply_chart.install(
            over, fitted, release, say=output.say, is_upgrade=is_upgrade, is_forced=force
        )
        if wait:
            await apply_chart.await_ready(over, release, seconds=timeout, say=output.say)
        if wait and is_stack:
            await stack_install.await_parts(over, seconds=timeout, say=output.say)

    _run(kubeconfig, context, work)
    if is_stack:
        output.next_step("stack parts")
    else:
        output.say(f"next: kubectl -n {release.namespace} get pods")


def _run(
    kubeconfig: str | None,
    context: str | None,
    work: "Callable[[transport.Transport], Awaitable[None]]",
) -> None:
    from dovetail.kube.auth import client_config
    from dovetail.kube.http import transport

    connection = client_config.load(kubeconfig, context=context)

    async def connected() -> None:
        async with transport.Transport(connection, concurrency=8) as over:
            await work(over)

    asyncio.run(connected())


def _print(objects: Sequence[dict[str, Any]], form: str) -> None:
    if form == "json":
        output.write_objects(objects, "json")
        return
    from dovetail.install import chart_functions

    output.write_yaml(
        "".join(f"---\n{chart_functions.to_yaml(tree)}\n" for tree in objects), objects
    )
