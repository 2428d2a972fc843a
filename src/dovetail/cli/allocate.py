"""`dovetail allocate`: which devices serve the claims of a pod, on each node of worlds given in a file."""

import click

from dovetail.cli import output, text, worlds

_FLUSH_EVERY = 256
_COLUMNS = ("id", "node", "outcome", "devices or reason")


@click.command(name="allocate")
@click.option(
    "--worlds", "file", required=True, metavar="FILE", help="Worlds as JSON lines, plain or gzip; - for standard input."
)
@click.option("--list-attributes", is_flag=True, help="Count attributes that are lists (alpha, off by default).")
@click.option("-o", "--output", "form", type=click.Choice(("table", "jsonl")), default="table")
def command(*, file: str, list_attributes: bool, form: str) -> None:
    """Answer, for every world of FILE and each of its nodes, which devices serve its claims.

    \b
    dovetail allocate --worlds worlds.jsonl.gz -o jsonl
    """
    if form == "table":
        output.write_lines(
            text.table(_COLUMNS, [_told(row) for row in worlds.rows(file, list_attributes=list_attributes)])
        )
        return
    try:
        for number, row in enumerate(worlds.rows(file, list_attributes=list_attributes), start=1):
            output.write_json_line(row, flushed=number % _FLUSH_EVERY == 0)
    finally:
        output.flush()  # what was answered before a broken line stays answered


def _told(row: worlds.Row) -> list[str]:
    devices = [
        f"{one.get('request', '')}={one.get('pool', '')}/{one.get('device', '')}"
        for allocation in row["results"]
        for one in allocation.get("devices", {}).get("results", ())
    ]
    return [str(row["id"]), row["node"], row["outcome"], " ".join(devices) or "; ".join(row["reasons"])]
