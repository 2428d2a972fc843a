"""`dovetail up`: starts the embedded cluster and shows it, live on a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.ask import api_session, cluster_view
from dovetail.cli import output
from dovetail.cli.cluster import fleet_option, settling, settling_notice
from dovetail.files import state_directory
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import pods
from dovetail.tables import listing, text
from dovetail.tables.gpus import gpu_table, gpu_tiles

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.kube.http import transport

SETTLE_SECONDS = 60.0  # for every pod of a new cluster to be bound or to have a reason


@click.command()
@click.option(
    "--fleet",
    "file",
    metavar="FILE",
    help="YAML file that describes the fleet. [default: a sample]",
)
@click.option("--fresh", is_flag=True, help="Start over, forgetting what was applied before.")
@click.option("--empty", is_flag=True, help="Start the sample fleet without the sample workload.")
@click.option("--no-dashboard", is_flag=True, help="Start no dashboard beside the cluster.")
@click.option(
    "--prices",
    metavar="FILE",
    help="What GPUs cost, for the dashboard's cost page. [default: placeholders]",
)
@click.option("--detach", "-d", is_flag=True, help="Leave the cluster running, and show it once.")
@click.option(
    "--state",
    metavar="DIR",
    help=f"Directory of the cluster. [default: ${state_directory.STATE_VARIABLE} or the user's state directory]",
)
def command(
    *,
    file: str | None,
    fresh: bool,
    empty: bool,
    no_dashboard: bool,
    prices: str | None,
    detach: bool,
    state: str | None,
) -> None:
    """Start the embedded cluster: an API server, the scheduler and hollow nodes, in one process on this machine.

    On a terminal the picture follows every change; q or Ctrl-C ends the cluster, and the next `up` goes on from its
    state. With --detach, or where there is no terminal, the cluster stays up until `dovetail down`. `up` on a running
    cluster only shows it. A dashboard runs beside the cluster; its link is printed, and signs in once.
    """
    from dovetail.boot import embedded_setup
    from dovetail.cli.cluster import embedded_start
    from dovetail.sim.fleet import fleet_spec

    directory = state_directory.state_directory(state)
    price_file = None if prices is None else _price_file(prices, has_dashboard=not no_dashboard)
    fleet = None if file is None else fleet_option.fleet(file)
    shown = fleet or fleet_spec.sample()
    setup = embedded_setup.Setup(
        name=shown.name, fleet=shown, has_sample_workload=fleet is None and not empty
    )
    is_live = is_terminal() and not detach
    started = embedded_start.start(
        directory,
        setup,
        is_fresh=fresh,
        names_fleet=fleet is not None,
        is_tethered=is_live,
        has_dashboard=not no_dashboard,
        prices=price_file,
    )
    output.clear_progress(output.PROGRESS_WIDTH)
    name = embedded_setup.read(directory).name
    output.say(f'{_verb(started)} the cluster of fleet "{name}" in {directory}')
    if is_live:
        from dovetail.cli.views import live_picture

        try:
            live_picture.watch(started.choice, dashboard=embedded_start.link(directory))
        finally:
            if not started.was_running:
                embedded_start.stop(directory)
        if not started.was_running:
            output.say("the cluster has ended; its state is kept")
            output.next_step("up")
        return
    objects = _settled(started.choice)
    _print(objects)
    output.say(f"export KUBECONFIG={directory / state_directory.KUBECONFIG}")
    if link := embedded_start.link(directory):
        output.say(f"dashboard: {link}")
    output.next_step(_next(objects))


def _price_file(name: str, *, has_dashboard: bool) -> str:
    """Where the price file is. One that cannot be used is said before anything is started."""
    from dovetail import errors
    from dovetail.ask import cost_asked

    if not has_dashboard:
        raise click.UsageError("--prices are for the dashboard: leave --no-dashboard out")
    if name == "-":
        raise click.UsageError(
            "--prices -: the dashboard reads the file again when it changes; give a path"
        )
    try:
        cost_asked.prices(name)
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
    return name if name == cost_asked.EXAMPLES else str(Path(name).resolve())


def _verb(started: object) -> str:
    from dovetail.boot import embedded_process

    assert isinstance(started, embedded_process.Started)
    if started.is_new:
        return "started"
    return "found" if started.was_running else "resumed"


def _settled(choice: cluster_choice.Choice) -> object_set.ObjectSet:
    """The objects of the picture, once the scheduler has answered about every pod."""
    from dovetail.kube import read_objects

    notice = settling_notice.SettlingNotice()

    async def work(over: transport.Transport) -> object_set.ObjectSet:
        await settling.wait_for_answers(over, ("",), seconds=SETTLE_SECONDS, report=notice.report)
        reading = await read_objects.read_over(over, PICTURE, cluster=choice.name)
        return reading.objects

    objects = api_session.run(choice, work)
    notice.finish()
    return objects


PICTURE = tuple(
    object_set.Read(kind) for kind in (registry.NODE, registry.SLICE, registry.CLAIM, registry.POD)
)


def _print(objects: object_set.ObjectSet) -> None:
    query = listing.Query(
        objects=objects,
        now=cluster_view.EPOCH,
        test=lambda _: True,
        namespace=None,
        node=None,
    )
    gpus = gpu_table.rows(query)
    output.write_table(text.table(gpus.headers, [row.cells for row in gpus.rows]))
    output.say(gpu_tiles.LEGEND)
    if counts := gpu_tiles.pod_counts(objects):
        ended = _ended(objects)
        output.say(
            f"{text.counted(counts.total, 'pod')}: {counts.running - ended} running, {counts.waiting} waiting"
            + (f", {ended} ended" if ended else "")
        )


def _ended(objects: object_set.ObjectSet) -> int:
    """How many placed pods have ended."""
    structs = (stored.struct for stored in objects.listed("Pod"))
    return sum(
        isinstance(pod, pods.Pod)
        and bool(pod.spec.node_name)
        and pod.status.phase in pods.TERMINAL_PHASES
        for pod in structs
    )


def _next(objects: object_set.ObjectSet) -> str:
    if gpu_tiles.pod_counts(objects):
        return "get pods -A"
    return "apply -f examples/one-gpu.yaml" if _has_examples() else "get devices"


def _has_examples() -> bool:
    return Path("examples/one-gpu.yaml").is_file()


def is_terminal() -> bool:
    """Whether a person sits in front of a terminal that can show a picture."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
