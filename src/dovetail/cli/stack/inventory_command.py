"""`dovetail stack`: what every node and every workload with GPUs runs, with a source for each fact."""

from __future__ import annotations

import click
import msgspec

from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.stack import stack_options
from dovetail.tables.stack import inventory_table

FORMS = ("table", "wide", "json", "yaml")


@click.command(name="inventory")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@stack_options.with_rows
@cluster_option.readable
def command(*, form: str, files: tuple[str, ...], releases: tuple[str, ...]) -> None:
    """Show GPU, driver, CUDA, toolkit, runtime, kubelet, kernel and MIG of every node, and the CUDA of all work.

    Nodes of a pool with the same stack share a row; -o wide shows each. What no object states is `unknown`, and the
    reason stands below. Nothing runs on the nodes for it, and no image is read.
    """
    known = stack_options.rows(files, releases)
    seen, inventory = stack_options.inventory(known)
    if form in ("json", "yaml"):
        output.write_object(msgspec.json.decode(msgspec.json.encode(inventory)), form)
        return
    output.write_table(inventory_table.lines(inventory, is_wide=form == "wide"))
    cluster_option.say_cluster(seen.name)
    cluster_option.next_step("stack check --to driver=VERSION")
