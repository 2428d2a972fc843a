"""`dovetail stack parts`: which parts of the GPU stack run on which node, and what is missing.

Reads the cluster or a snapshot, asks `answer/stack_parts`, and prints. Exit code 0: nothing is missing, 1: something
is, 2: the question cannot be answered. Never changes the cluster.
"""

from __future__ import annotations

import click
import msgspec

from dovetail.answer.stack_parts import part_report
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.kubetypes import object_set
from dovetail.tables.stack import part_table

FORMS = ("table", "wide", "json", "yaml")
INCOMPLETE = 1


@click.command(name="parts")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@cluster_option.readable
def command(*, form: str) -> None:
    """Say which parts run on every node with GPUs, what is missing and why, each with the next step.

    Parts are the driver, the agent, its devices, labels, metrics, MPS and the container runtime; those of NVIDIA's GPU
    Operator are recognised. Two parts that serve the same GPUs are reported as well.
    """
    reads = [object_set.Read(kind) for kind in part_report.NEEDED]
    reads += [object_set.Read(kind, is_optional=True) for kind in part_report.FURTHER]
    seen = cluster_option.view(reads)
    report = part_report.report(seen.objects)
    if form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(report)), form)
    else:
        output.write_table(part_table.lines(report, is_wide=form == "wide"))
        cluster_option.say_cluster(seen.name)
        cluster_option.next_step("stack mig" if report.is_complete else "stack parts -o wide")
    if not report.is_complete:
        raise click.exceptions.Exit(INCOMPLETE)
