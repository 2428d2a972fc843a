"""`dovetail stack mig`: which GPUs to partition how, from the work that waits.

Reads the cluster or a snapshot, asks `answer/partitioning`, prints, and writes manifests where it is asked to. Exit
code 0: there is an answer, 2: the question cannot be answered. Never changes the cluster.
"""

from __future__ import annotations

import click
import msgspec

from dovetail.ask.lifecycle import partition_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster
from dovetail.cli.cluster import cluster_option
from dovetail.cli.stack import stack_options
from dovetail.tables.stack import partition_table

FORMS = ("table", "wide", "json", "yaml")


@click.command(name="mig")
@click.option(
    "--write", "directory", metavar="DIR", help="Write the manifests into this directory."
)
@click.option(
    "--config-map",
    default="dovetail-mig-config",
    show_default=True,
    metavar="NAME",
    help="The ConfigMap that migManager.config.name shall name.",
)
@click.option(
    "--operator-namespace",
    default="gpu-operator",
    show_default=True,
    metavar="NAME",
    help="Where the MIG manager runs.",
)
@click.option(
    "--checkpoint", metavar="DURATION", help="Moved work loses at most so much. [default: all]"
)
@click.option(
    "--restart",
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="Until moved work computes again.",
)
@click.option(
    "--partition-time",
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="In which the GPUs of a change serve no work.",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@asked_cluster.configurable
@cluster_option.readable
def command(
    *,
    directory: str | None,
    config_map: str,
    operator_namespace: str,
    checkpoint: str | None,
    restart: str,
    partition_time: str,
    form: str,
    file: str | None,
) -> None:
    """Say which GPUs to partition how, so that more waiting pods start: who must leave, and what it costs.

    Each proposal is judged by the scheduler's own engine: no pod that starts without it waits with it, and pods that
    must leave start again elsewhere. Nodes that partition their GPUs for each claim need none.
    """
    with stack_options.bad_input():
        costs = partition_asked.costs(restart, checkpoint, partition_time)
    seen, rules = asked_cluster.view(file, partition_asked.KINDS)
    with stack_options.bad_input():
        plan = partition_asked.planned(seen, rules, costs)
        texts = partition_asked.files(plan, config_map=config_map, namespace=operator_namespace)
        written = partition_asked.write(directory, texts) if directory is not None else []
    if form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(plan)), form)
    else:
        output.write_lines(partition_table.lines(plan, is_wide=form == "wide"))
        cluster_option.say_cluster(seen.name)
    for path in written:
        output.say(f"{path} written")
    if written:
        output.say(
            f"next: kubectl apply --server-side -f {directory}, once the pods that move have left"
        )
    elif texts:
        cluster_option.next_step("stack mig --write DIR")
    else:
        cluster_option.next_step("why")
