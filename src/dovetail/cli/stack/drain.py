"""`dovetail stack drain`: what a drain of a node would do, without doing it.

Reads the cluster or a snapshot, asks `answer/drain`, and prints. Exit code 0: the node can be drained, 1: something
blocks the drain, 2: the question cannot be answered. Never changes the cluster.
"""

from __future__ import annotations

import click
import msgspec

from dovetail import errors
from dovetail.answer.drain import drain_filters
from dovetail.ask.lifecycle import drain_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster
from dovetail.cli.cluster import cluster_option
from dovetail.tables import label_option
from dovetail.tables.answers import drain_table

FORMS = ("table", "wide", "json", "yaml")
BLOCKED = 1


@click.command(name="drain")
@click.argument("node")
@click.option("--force", is_flag=True, help="Also end pods without a controller.")
@click.option("--ignore-daemonsets", is_flag=True, help="Go on although pods of DaemonSets stay.")
@click.option("--delete-emptydir-data", is_flag=True, help="Also end pods with emptyDir volumes.")
@click.option(
    "--disable-eviction", is_flag=True, help="Delete pods instead: disruption budgets do not count."
)
@click.option(
    "--grace-period",
    type=int,
    default=drain_filters.OWN_GRACE,
    show_default="each pod's own",
    metavar="SECONDS",
    help="Time for every pod to end.",
)
@click.option(
    "--skip-wait-for-delete-timeout",
    "skip_deleted",
    type=click.IntRange(min=0),
    default=0,
    metavar="SECONDS",
    help="Leave out pods that have been ending for longer; 0 leaves out none.",
)
@click.option("--pod-selector", metavar="LABELS", default="", help="Only pods with these labels.")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@asked_cluster.configurable
@cluster_option.readable
def command(
    *,
    node: str,
    force: bool,
    ignore_daemonsets: bool,
    delete_emptydir_data: bool,
    disable_eviction: bool,
    grace_period: int,
    skip_deleted: int,
    pod_selector: str,
    form: str,
    file: str | None,
) -> None:
    """Say what `kubectl drain NODE` with the same options would evict, skip and refuse, and in which order.

    Disruption budgets are counted from pod to pod; on a cluster its API server also judges a dry run of each eviction.
    Pods that hold GPUs without requesting any are listed. Nothing is evicted, the node is not cordoned.
    """
    options = drain_filters.Options(
        force=force,
        ignore_daemon_sets=ignore_daemonsets,
        delete_empty_dir_data=delete_emptydir_data,
        disable_eviction=disable_eviction,
        grace_period_seconds=grace_period,
        skip_deleted_seconds=skip_deleted,
    )
    try:
        selects = label_option.selector(pod_selector)
    except errors.InputError as error:
        raise output.BadInput(str(error).replace("-l ", "--pod-selector ", 1)) from None
    seen, rules = asked_cluster.view(file, drain_asked.KINDS)
    try:
        answer = drain_asked.drain(
            seen,
            rules,
            node.removeprefix("node/"),
            options,
            selects=selects if pod_selector.strip() else None,
            choice=None if seen.is_snapshot else cluster_option.chosen(),
        )
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
    if form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(answer)), form)
    else:
        output.write_lines(drain_table.lines(answer, is_wide=form == "wide"))
        cluster_option.say_cluster(seen.name)
        cluster_option.next_step("stack plan --to driver=VERSION")
    if not answer.can_drain:
        raise click.exceptions.Exit(BLOCKED)
