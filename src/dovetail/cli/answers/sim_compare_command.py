"""`dovetail sim compare` and `dovetail sim report`: several policies on the same jobs, as a table, data or a page.

Given what was named on the command line. Writes the page and the rows to the files that were named.
"""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.answers import sim_input

if TYPE_CHECKING:
    from dovetail.study.queueing import comparison

POLICIES = "fifo,backfill,partitions,kueue,kai"
HEADERS = (
    "POLICY",
    "WAITING",
    "P95",
    "JCT",
    "USED %",
    "EVICTED",
    "LOST GPU-H",
    "JAIN",
    "FTF",
    "FTF P95",
    "BELOW QUOTA GPU-H",
    "NEVER STARTED",
)

_policies = click.option(
    "--policies", default=POLICIES, show_default=True, metavar="A,B,C", help="What to compare."
)
_seed = click.option("--seed", type=int, default=42, show_default=True)
_rows = click.option(
    "--rows", metavar="FILE.csv|FILE.parquet", help="Where to write a line for each job."
)


@click.command(name="compare")
@sim_input.options
@_policies
@_seed
@_rows
@click.option(
    "-o", "--output", "form", type=click.Choice(("table", "json", "csv")), default="table"
)
def compare(*, policies: str, seed: int, rows: str | None, form: str, **source: Any) -> None:
    """Run the same jobs under several policies, and print their figures side by side.

    \b
    dovetail sim compare --jobs jobs.csv --fleet fleet.yaml --study study.yaml --policies fifo,kai,dovetail
    dovetail sim compare --trace philly:0.6 --policies fifo,backfill,kueue,kai -o json
    dovetail sim compare --generate days=7,load=1 --fleet fleet.yaml
    """
    result = _compared(sim_input.Source(**source), policies, seed=seed, rows=rows)
    if form == "json":
        output.write_json(result)
    elif form == "csv":
        output.write_text(_csv(result))
    else:
        output.write_table(_table(result))


@click.command(name="report")
@sim_input.options
@_policies
@_seed
@_rows
@click.option("--from", "saved", metavar="FILE.json", help="What `sim compare -o json` printed.")
@click.option("--file", default="-", help="Where to write the page; - is stdout.")
def report(
    *, policies: str, seed: int, rows: str | None, saved: str | None, file: str, **source: Any
) -> None:
    """Run the same jobs under several policies, and draw one HTML page that needs nothing else.

    \b
    dovetail sim report --trace philly:0.6 --policies fifo,backfill,kai --file philly.html
    dovetail sim report --from compared.json --file compared.html
    """
    from dovetail.study.report import comparison_page

    if saved is not None:
        result = _read(saved)
    else:
        result = _compared(sim_input.Source(**source), policies, seed=seed, rows=rows)
    page = comparison_page.page(result)
    if file == "-":
        output.write_text(page)
        return
    try:
        Path(file).write_text(page, encoding="utf-8")
    except OSError as error:
        raise errors.InputError(f"{file}: cannot be written: {error}") from None
    output.say(f"wrote {file}")


def _compared(
    source: sim_input.Source, policies: str, *, seed: int, rows: str | None
) -> comparison.Comparison:
    from dovetail.cli.answers import sim_progress, sim_rows
    from dovetail.study.queueing import comparison, study_runs

    names = list(dict.fromkeys(filter(None, (name.strip() for name in policies.split(",")))))
    if not names:
        raise errors.InputError("--policies: expected names, such as fifo,kai,dovetail")
    for name in names:
        study_runs.check_policy(name)
    rows_file = None if rows is None else sim_rows.RowsFile(rows)
    given = sim_input.read(source, seed=seed)
    bar = sim_progress.Bar(names)
    try:
        result = comparison.compare(
            given,
            names,
            seed=seed,
            progress=bar.show,
            done=None if rows_file is None else rows_file.add,
        )
    finally:
        bar.close()
    if rows_file is not None:
        rows_file.write()
    return result


def _read(file: str) -> comparison.Comparison:
    from dovetail.study.queueing import comparison

    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return msgspec.json.decode(data, type=comparison.Comparison)
    except (OSError, msgspec.DecodeError) as error:
        raise errors.InputError(
            f"{file}: expected what sim compare -o json prints: {error}"
        ) from None


def _cells(result: comparison.Comparison) -> list[list[str]]:
    rows = []
    for each in result.policies:
        figures = each.figures
        values = (
            figures.waiting_mean_s,
            figures.waiting_p95_s,
            figures.jct_mean_s,
            figures.utilisation_pct,
            figures.evictions,
            figures.lost_gpu_hours,
            figures.jain,
            figures.finish_time_mean,
            figures.finish_time_p95,
            figures.below_quota_gpu_hours,
            figures.never_started,
        )
        rows.append([each.policy, *("" if value is None else f"{value}" for value in values)])
    bounds = [f"{result.bound_waiting_s}", "", f"{result.bound_jct_s}"]
    rows.append(["lower bound", *bounds, *[""] * (len(HEADERS) - 4)])
    return rows


def _table(result: comparison.Comparison) -> list[str]:
    rows = [list(HEADERS), *_cells(result)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADERS))]
    lines = [f"{result.study}: {result.jobs} jobs on {result.gpus} GPUs, seed {result.seed}", ""]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("   ".join(cells).rstrip())
    lines += ["", "waiting and JCT in seconds; FTF: JCT by JCT alone on the queue's quota"]
    return lines


def _csv(result: comparison.Comparison) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        header.lower().replace(" %", "_pct").replace(" ", "_").replace("-", "_")
        for header in HEADERS
    )
    writer.writerows(_cells(result))
    return text.getvalue()
