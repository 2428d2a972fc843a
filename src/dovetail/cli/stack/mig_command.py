"""`dovetail stack mig`: which GPUs to partition how, from the work that waits.

Reads the cluster or a snapshot, asks `answer/partitioning`, prints, and writes manifests where it is asked to; with
--apply it hands the plan to the lifecycle process. Exit code 0: there is an answer, or it was started; 1: it cannot be
carried out; 2: the question cannot be answered.
"""

from __future__ import annotations

import click
import msgspec

from dovetail.answer.partitioning.partition_answer import PartitionPlan
from dovetail.ask.lifecycle import geometry_upgrade, partition_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster
from dovetail.cli.cluster import cluster_option
from dovetail.cli.stack import mig_apply, stack_options
from dovetail.tables.stack import partition_table

FORMS = ("table", "wide", "json", "yaml")


@click.command(name="mig")
@click.option(
    "--write", "directory", metavar="DIR", help="Write the manifests into this directory."
)
@click.option("--apply", "is_applied", is_flag=True, help="Start an upgrade that carries it out.")
@click.option("--dry-run", is_flag=True, help="With --apply: show it, and start nothing.")
@click.option("--policy", "policy_file", metavar="FILE", help="Waves, drain, stop rules as YAML.")
@click.option("--name", metavar="NAME", help="Of the upgrade. [default: mig- and the time]")
@click.option(
    "--history",
    "--records",
    "history",
    metavar="FILE|URL",
    help="A store of history, or records as JSON: room that is left is for what waited.",
)
@click.option(
    "--window",
    default=partition_asked.DEFAULT_WINDOW,
    show_default=True,
    metavar="DURATION",
    help="How far back --history is read.",
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
    is_applied: bool,
    dry_run: bool,
    policy_file: str | None,
    name: str | None,
    history: str | None,
    window: str,
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
    must leave start again elsewhere. Nodes that partition their GPUs for each claim need none. --apply lets the
    lifecycle process carry it out, node by node: fence, drain, partition, validate, unfence.
    """
    _refuse_combinations(
        is_applied=is_applied, directory=directory, apply_options=(dry_run, policy_file, name)
    )
    with stack_options.bad_input():
        costs = partition_asked.costs(restart, checkpoint, partition_time)
        recent = partition_asked.recent(history, window) if history is not None else ()
    seen, rules = asked_cluster.view(file, (*partition_asked.KINDS, *geometry_upgrade.KINDS))
    with stack_options.bad_input():
        plan = partition_asked.planned(seen, rules, costs, recent=recent, is_applied=is_applied)
    if is_applied:
        order = mig_apply.Order(config_map, operator_namespace, policy_file, name, dry_run, form)
        mig_apply.apply(seen, plan, order)
        return
    with stack_options.bad_input():
        texts = partition_asked.files(plan, config_map=config_map, namespace=operator_namespace)
        written = partition_asked.write(directory, texts) if directory is not None else []
    _show(plan, form, seen.name)
    for path in written:
        output.say(f"{path} written")
    if written:
        output.say(
            f"next: kubectl apply --server-side -f {directory}, once the pods that move have left"
        )
    elif _can_apply(plan):
        cluster_option.next_step("stack mig --apply --dry-run")
    elif texts:
        cluster_option.next_step("stack mig --write DIR")
    else:
        cluster_option.next_step("why")


def _can_apply(plan: PartitionPlan) -> bool:
    is_managed = any(proposal.has_manager for proposal in plan.proposals)
    return is_managed and cluster_option.snapshot() is None


def _refuse_combinations(
    *, is_applied: bool, directory: str | None, apply_options: tuple[object, ...]
) -> None:
    if is_applied and directory is not None:
        raise click.UsageError("give --write or --apply, not both")
    if not is_applied and any(apply_options):
        raise click.UsageError("--dry-run, --policy and --name go with --apply")
    if is_applied and cluster_option.snapshot() is not None:
        raise click.UsageError("--apply needs a cluster; a snapshot cannot be changed")


def _show(plan: PartitionPlan, form: str, cluster: str) -> None:
    if form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(plan)), form)
        return
    output.write_lines(partition_table.lines(plan, is_wide=form == "wide"))
    cluster_option.say_cluster(cluster)
