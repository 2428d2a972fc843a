"""`dovetail stack upgrade status|pause|resume|abort`: shows upgrades, and changes what they are to do next.

Exit code 0: done; 1: the upgrade stopped, failed nodes, or was refused (status of one); 2: no such upgrade.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from dovetail.ask import api_session
from dovetail.ask.lifecycle import stack_asked
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom.stack_upgrades import Acceptance, Phase, StackUpgrade
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.tables.stack import upgrade_table

if TYPE_CHECKING:
    from dovetail.kube.http import transport

UNHEALTHY: Final = 1
PICTURES: Final = ("svg", "html")  # of one upgrade
_BAD: Final = frozenset({Phase.STOPPED, Phase.REFUSED})
_ENDED: Final = frozenset({Phase.COMPLETED, Phase.STOPPED, Phase.ABORTED, Phase.REFUSED})


@click.command()
@click.argument("name", required=False)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("table", "wide", "json", "yaml", *PICTURES)),
    default="table",
    show_default=True,
)
@cluster_option.writable
def status(*, name: str | None, form: str) -> None:
    """Show all upgrades, or one with its waves and the nodes that are under way or failed.

    -o svg and -o html draw what happened to the nodes of one upgrade over time, and the GPUs in service.
    """
    if name is None:
        _show_all(form)
        return
    document = _read(_plain(name))
    if form in PICTURES:
        _draw(codec.decode_struct(StackUpgrade, document), form)
        return
    if form in ("json", "yaml"):
        output.write_object(codec.parsed(document), form)
        return
    upgrade = codec.decode_struct(StackUpgrade, document)
    lines = upgrade_table.described(upgrade, is_wide=form == "wide")
    if upgrade.spec.mig is not None:
        lines += ["", _started(upgrade.spec.mig.acceptance)]
    output.write_table(lines)
    if upgrade.status.phase not in _ENDED:
        verb = "resume" if upgrade.spec.paused else "pause"
        cluster_option.next_step(f"stack upgrade {verb} {upgrade.metadata.name}")
    if upgrade.status.phase in _BAD:
        raise click.exceptions.Exit(UNHEALTHY)


@click.command()
@click.argument("name")
@cluster_option.writable
def pause(*, name: str) -> None:
    """Let no further node begin and no further work be evicted; nodes being installed finish."""
    _change(_plain(name), {"paused": True}, "paused")


@click.command()
@click.argument("name")
@cluster_option.writable
def resume(*, name: str) -> None:
    """Go on with a paused upgrade."""
    _change(_plain(name), {"paused": False}, "resumed")


@click.command()
@click.argument("name")
@cluster_option.writable
def abort(*, name: str) -> None:
    """End an upgrade: nodes to which nothing was applied return into service, the others finish.

    Nodes that failed stay fenced. An aborted upgrade cannot be resumed.
    """
    _change(_plain(name), {"aborted": True}, "aborted")


def _draw(upgrade: StackUpgrade, form: str) -> None:
    from dovetail.tables.stack import upgrade_items, upgrade_picture

    now = datetime.datetime.now(datetime.UTC)
    gpus = stack_asked.gpus_of_nodes(cluster_option.chosen())
    item = upgrade_items.item_of(upgrade, gpus, now)
    if form == "svg":
        picture = upgrade_picture.svg(item, now)
    else:
        lines = upgrade_table.described(upgrade, is_wide=True)
        picture = upgrade_picture.page(item, now, lines)
    output.write_lines(picture.splitlines())
    if upgrade.status.phase in _BAD:
        raise click.exceptions.Exit(UNHEALTHY)


def _show_all(form: str) -> None:
    from dovetail.kube import client

    if form in PICTURES:
        raise output.BadInput(f"-o {form} draws one upgrade: name it")

    async def listed(over: transport.Transport) -> list[bytes]:
        documents, _ = await client.list_documents(over, registry.STACK_UPGRADE)
        return documents

    try:
        documents = api_session.run(cluster_option.chosen(), listed)
    except failures.Missing:
        documents = []
    if form in ("json", "yaml"):
        trees = [codec.parsed(document) for document in documents]
        output.write_object(output.list_of(trees), form)
        return
    upgrades = [codec.decode_struct(StackUpgrade, document) for document in documents]
    output.write_table(upgrade_table.listed(upgrades))
    if upgrades:
        cluster_option.next_step(f"stack upgrade status {upgrades[-1].metadata.name}")


def _started(acceptance: Acceptance) -> str:
    """What became of the pods for which GPUs were partitioned."""
    from dovetail.kube import client

    async def listed(over: transport.Transport) -> list[pods.Pod]:
        stored, _ = await client.list_all(over, registry.POD)
        return stored

    stored = api_session.run(cluster_option.chosen(), listed)
    named = {f"{each.metadata.namespace}/{each.metadata.name}": each for each in stored}
    running = {name for name, pod in named.items() if pod.spec.node_name}
    return upgrade_table.started(acceptance, running, named.keys() - running)


def _plain(name: str) -> str:
    return name.removeprefix("stackupgrade/")


def _read(name: str) -> bytes:
    from dovetail.kube import client

    async def read(over: transport.Transport) -> bytes:
        return await client.KubeApi(over).get(Target(registry.STACK_UPGRADE, "", name))

    try:
        return api_session.run(cluster_option.chosen(), read)
    except failures.Missing:
        raise _no_such(name) from None


def _change(name: str, fields: dict[str, Any], verb: str) -> None:
    from dovetail.kube import client

    async def change(over: transport.Transport) -> bytes:
        target = Target(registry.STACK_UPGRADE, "", name)
        return await client.KubeApi(over).patch(target, codec.encode_tree({"spec": fields}))

    upgrade = codec.decode_struct(StackUpgrade, _read(name))
    if upgrade.status.phase in _ENDED:
        raise output.BadInput(f"stackupgrade/{name} has ended: {upgrade.status.phase}")
    if upgrade.spec.aborted and verb != "aborted":
        raise output.BadInput(f"stackupgrade/{name} is aborted, which cannot be taken back")
    api_session.run(cluster_option.chosen(), change)
    output.write_lines([f"stackupgrade/{name} {verb}"])
    cluster_option.next_step(f"stack upgrade status {name}")


def _no_such(name: str) -> output.BadInput:
    return output.BadInput(f"no stackupgrade/{name}; `dovetail stack upgrade status` lists them")
