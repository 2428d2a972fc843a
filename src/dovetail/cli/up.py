"""`dovetail up`: starts a cluster from a fleet and shows it, live on a terminal."""

import datetime
import os
import sys
from pathlib import Path

import click

from dovetail.cli import options, output
from dovetail.cli.tables import gpu_table, gpu_tiles, listing, text
from dovetail.kubetypes import object_set
from dovetail.kubetypes.core import pods
from dovetail.sim.local import local_cluster


@click.command()
@click.option(
    "--fleet",
    "file",
    metavar="FILE",
    help="YAML file that describes the fleet. [default: a sample]",
)
@click.option("--fresh", is_flag=True, help="Start over, forgetting what was applied before.")
@click.option("--empty", is_flag=True, help="Start the sample fleet without the sample workload.")
@options.state
def command(*, file: str | None, fresh: bool, empty: bool, state: str | None) -> None:
    """Start a cluster in memory, place its pods and show its GPUs.

    On a terminal the picture follows every change until q or Ctrl-C; elsewhere it is printed once.
    """
    opened = options.opened(state)
    started = opened.up(None if file is None else options.fleet(file), fresh=fresh, is_empty=empty)
    verb = "started" if started.is_new else "found"
    output.say(f'{verb} the cluster of fleet "{started.cluster.name}" in {opened.store.directory}')
    cluster = started.cluster
    objects = local_cluster.objects_of(cluster)
    if _is_terminal():
        from dovetail.cli import live_picture

        live_picture.watch(opened, cluster)
        objects = local_cluster.objects_of(opened.cluster() or cluster)
    _print(objects, opened.now())
    output.next_step(_next(objects))


def _print(objects: object_set.ObjectSet, now: datetime.datetime) -> None:
    query = listing.Query(objects=objects, now=now, test=lambda _: True, namespace=None, node=None)
    gpus = gpu_table.rows(query)
    output.write_lines(text.table(gpus.headers, [row.cells for row in gpus.rows]))
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
        and pod.status.phase in ("Succeeded", "Failed")
        for pod in structs
    )


def _next(objects: object_set.ObjectSet) -> str:
    if gpu_tiles.pod_counts(objects):
        return "get pods -A"
    return "apply -f examples/one-gpu.yaml" if _has_examples() else "get devices"


def _has_examples() -> bool:
    return Path("examples/one-gpu.yaml").is_file()


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
