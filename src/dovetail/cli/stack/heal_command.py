"""`dovetail stack heal`: what the healer would do now for each node with a fault, and why.

Reads the cluster or a snapshot, asks `upgrade/heal`, and prints. Exit code 0: nothing is refused, 1: a remedy is due
and a rule forbids it, 2: the question cannot be answered. Never changes the cluster.
"""

from __future__ import annotations

import click
import msgspec

from dovetail.ask.lifecycle import heal_asked
from dovetail.cli import output
from dovetail.cli.answers import asked_cluster
from dovetail.cli.cluster import cluster_option
from dovetail.cli.stack import stack_options
from dovetail.files import bounded_files
from dovetail.tables import text
from dovetail.upgrade.heal import heal_policy
from dovetail.upgrade.heal.healing import Action

FORMS = ("table", "json", "yaml")
HEADERS = ("NODE", "GPUS", "ACTION", "REMEDY", "PODS", "WHY")
REFUSED = 1


@click.command(name="heal")
@click.option(
    "--dry-run", is_flag=True, help="Let the API server judge each eviction by a dry run as well."
)
@click.option(
    "--policy", "rules", metavar="FILE", help="Limits, breaker and windows of the healer."
)
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@asked_cluster.configurable
@cluster_option.readable
def command(*, dry_run: bool, rules: str | None, form: str, file: str | None) -> None:
    """Show what the healer would do now for every node whose GPUs have faults, and why.

    Faults are the taints that node agents publish. Nothing is written, with or without --dry-run.
    """
    policy = heal_policy.DEFAULT
    if rules is not None:
        with stack_options.bad_input():
            name = bounded_files.display_name(rules)
            policy = heal_policy.read(bounded_files.text(rules), name)
    seen, scheduler = asked_cluster.view(file)
    choice = cluster_option.chosen() if dry_run and not seen.is_snapshot else None
    answer = heal_asked.heal(seen, scheduler, policy, choice=choice)
    if form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(answer)), form)
    else:
        output.write_lines(lines(answer))
        cluster_option.say_cluster(seen.name)
    if any(step.action is Action.REFUSE for step in answer.steps):
        raise click.exceptions.Exit(REFUSED)


def lines(answer: heal_asked.Healing) -> list[str]:
    """For people."""
    if not answer.steps:
        return [f"{answer.nodes} nodes with {answer.gpus} GPUs: no fault, no remedy under way"]
    rows = [
        (
            step.node,
            ",".join(step.gpus) or "-",
            step.action.value,
            step.rung.value if step.rung is not None else "-",
            str(len(step.pods)),
            step.reason,
        )
        for step in answer.steps
    ]
    head = f"{answer.nodes} nodes with {answer.gpus} GPUs: {len(rows)} with faults or a remedy"
    refused = [f"the server would not evict {pod}: {why}" for pod, why in answer.refused.items()]
    return [head, "", *text.table(HEADERS, rows), *refused, *answer.unknown]
