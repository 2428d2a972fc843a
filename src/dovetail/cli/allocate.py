"""`dovetail allocate`: which devices a pod's claims are allocated, on each node of the worlds in a file."""

import click

from dovetail.cli import output
from dovetail.replay import allocation_worlds
from dovetail.tables import text

_COLUMNS = ("id", "node", "outcome", "devices or reason")


@click.command(name="allocate")
@click.option(
    "--worlds",
    "file",
    required=True,
    metavar="FILE",
    help="Worlds as JSON lines, plain or gzip; - for standard input.",
)
@click.option(
    "--list-attributes",
    is_flag=True,
    help="Count attributes that are lists (alpha, off by default).",
)
@click.option("-o", "--output", "form", type=click.Choice(("table", "jsonl")), default="table")
def command(*, file: str, list_attributes: bool, form: str) -> None:
    """Answer, for every world of FILE and each of its nodes, which devices serve its claims.

    \b
    dovetail allocate --worlds worlds.jsonl.gz -o jsonl
    """
    rows = allocation_worlds.rows(file, list_attributes=list_attributes)
    if form == "jsonl":
        output.write_json_lines(rows)
    else:
        output.write_lines(text.table(_COLUMNS, [_cells(row) for row in rows]))


def _cells(row: allocation_worlds.Row) -> list[str]:
    devices = [
        f"{result.get('request', '')}={result.get('pool', '')}/{result.get('device', '')}"
        for allocation in row["results"]
        for result in allocation.get("devices", {}).get("results", ())
    ]
    return [
        str(row["id"]),
        row["node"],
        row["outcome"],
        " ".join(devices) or "; ".join(row["reasons"]),
    ]
