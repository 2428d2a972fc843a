"""`dovetail history`: record what happens to GPUs, and look at what was recorded."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dovetail import timestamps
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.processes import listen_address
from dovetail.files import state_directory

if TYPE_CHECKING:
    from dovetail.history import stores
    from dovetail.model.accounting.records import Gap
    from dovetail.ports import usage_source

STORE_VARIABLE: Final = "DOVETAIL_HISTORY"
FORMS: Final = ("table", "json", "csv")
MOST_GAPS: Final = 10  # that the table shows
WHAT: Final = (
    "allocations",
    "assets",
    "usage",
    "waiting",
    "unusable",
    "promises",
    "decisions",
    "gaps",
    "prices",
)
F = TypeVar("F", bound=Callable[..., Any])


@click.group(name="history")
def group() -> None:
    """Record what happens to GPUs, and look at what was recorded.

    A store is a SQLite file, or a PostgreSQL database by URL. `dovetail up` records into the embedded cluster's
    own; other clusters have one where `dovetail history record` runs.
    """


def _with_store(command: F) -> F:
    return click.option(
        "--store",
        metavar="FILE|URL",
        help="A SQLite file or a postgresql:// URL. "
        f"[default: ${STORE_VARIABLE}, or that of the embedded cluster]",
    )(command)


def _with_output(command: F) -> F:
    return click.option(
        "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
    )(command)


def _with_window(command: F) -> F:
    add_end = click.option(
        "--to", "end", metavar="TIME", help="Until then. [default: the end of what is stored]"
    )
    add_start = click.option(
        "--from",
        "start",
        metavar="TIME",
        help="From then on: 2026-11-01, 2026-11-01T08:00:00Z, 7d.",
    )
    return add_start(add_end(command))


@group.command()
@_with_store
@click.option(
    "--leader-elect",
    metavar="NAMESPACE/NAME",
    help="Replicas share the store: the one that holds this Lease records.",
)
@click.option("--keep", default="400d", show_default=True, help="Drop what is older.")
@click.option("--max-size", metavar="BYTES", help="Drop the oldest days beyond this: 20Gi.")
@click.option(
    "--prometheus",
    metavar="URL",
    envvar="DOVETAIL_PROMETHEUS",
    help="Store how busy GPUs are, by what this Prometheus has measured.",
)
@click.option(
    "--prices",
    metavar="FILE",
    help="Store which prices are in force: this price file, read again when it changes.",
)
@click.option(
    "--listen",
    type=listen_address.ListenAddress("127.0.0.1:9103"),
    metavar="HOST:PORT",
    help="Serve /healthz, /readyz and /metrics there. [default: nowhere]",
)
@click.option(
    "--log-format", type=click.Choice(("text", "json")), default="text", show_default=True
)
@cluster_option.writable
def record(
    *,
    store: str | None,
    leader_elect: str | None,
    prometheus: str | None,
    prices: str | None,
    listen: tuple[str, int] | None,
    keep: str,
    max_size: str | None,
    log_format: str,
) -> None:
    """Record a cluster until Ctrl-C. Reads only, apart from the Lease of --leader-elect."""
    from dovetail.boot import logs
    from dovetail.boot.observing import history_process, price_file_watch
    from dovetail.history import compaction
    from dovetail.quantity import quantity

    limits = compaction.Limits(
        keep=1000 * _seconds(keep, "--keep"),
        max_bytes=quantity.parse(max_size).value() if max_size else 0,
    )
    location = _location(store)
    logs.set_up(log_format, "info")
    election = None
    if leader_elect:
        namespace, slash, name = leader_elect.partition("/")
        if not (namespace and slash and name):
            raise output.BadInput(f'--leader-elect: "{leader_elect}" is not NAMESPACE/NAME')
        election = history_process.Election(namespace, name)
    price_file = None if prices is None else price_file_watch.PriceFileWatch(prices)
    settings = history_process.Settings(
        location, election=election, limits=limits, prices=price_file
    )
    choice = cluster_option.chosen()
    output.say(f"records {choice.name}")

    async def run() -> None:
        async with _measurements(prometheus) as source:
            measuring = settings._replace(usage=source)
            await history_process.HistoryProcess(choice.connection, measuring).run(listen)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def _measurements(url: str | None) -> AsyncIterator[usage_source.UsageSource | None]:
    """The Prometheus of that address as a source of measurements; None without one."""
    from dovetail.ask import measured_use
    from dovetail.boot.observing import prometheus_usage

    endpoint = measured_use.endpoint_of(url, None)
    if endpoint is None:
        yield None
        return
    async with prometheus_usage.connected(endpoint) as source:
        yield source


@group.command()
@_with_store
@_with_output
@cluster_option.writable
def show(*, store: str | None, form: str) -> None:
    """Show what is stored: from when to when, how much, and the gaps."""
    with _opened(store) as opened:
        summary = opened.summary()
    if form == "json":
        output.write_json(summary)
    elif form == "csv":
        _write_csv(summary.gaps, _gap_type())
    else:
        _write_summary(summary)


@group.command()
@_with_store
@click.option("--keep", default="400d", show_default=True, help="Drop what is older.")
@click.option("--max-size", metavar="BYTES", help="Drop the oldest days beyond this: 20Gi.")
@_with_output
@cluster_option.writable
def compact(*, store: str | None, keep: str, max_size: str | None, form: str) -> None:
    """Roll measurements up, drop what is too old, and give unused space back."""
    from dovetail.history import compaction
    from dovetail.quantity import quantity

    limits = compaction.Limits(
        keep=1000 * _seconds(keep, "--keep"),
        max_bytes=quantity.parse(max_size).value() if max_size else 0,
        shrinks=True,
    )
    with _opened(store) as opened:
        before = opened.summary().size_bytes
        report = opened.compact(_now(), limits)
        after = opened.summary().size_bytes
    if form == "json":
        output.write_json(report)
    elif form == "csv":
        _write_csv((report,), type(report))
    else:
        from dovetail.tables import text

        output.write_lines(
            text.aligned(
                [
                    ("hours rolled up", str(report.rolled_hours)),
                    ("usage rows", f"{report.usage_rows_before} -> {report.usage_rows_after}"),
                    ("allocations joined", str(report.joined_allocations)),
                    ("hours added up", str(report.accounted_hours)),
                    ("rows dropped", str(report.dropped_rows)),
                    ("size", f"{text.binary(before)} -> {text.binary(after)}"),
                ]
            )
        )


@group.command()
@_with_store
@_with_window
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measurements, as `dovetail history export usage -o json` writes them.",
)
@click.option(
    "--prometheus", metavar="URL", help="Measurements that this Prometheus has of the time."
)
@cluster_option.writable
def backfill(
    *,
    store: str | None,
    start: str | None,
    end: str | None,
    file: Path | None,
    prometheus: str | None,
) -> None:
    """Add measurements of a past time. Those that are stored already change nothing."""
    from dovetail.boot.observing import usage_files
    from dovetail.history import backfill as backfills

    if (file is None) == (prometheus is None):
        raise output.BadInput("give either --file FILE or --prometheus URL")

    async def in_thread(work: Callable[[], Any]) -> Any:
        return work()

    async def fetched(
        opened: stores.Store, source: usage_source.UsageSource, times: tuple[int, int]
    ) -> backfills.Progress:
        return await backfills.backfill(
            opened,
            source,
            *times,
            in_thread=in_thread,
            say=lambda step: output.progress(f"until {_text(step.done_until)}"),
        )

    async def run(opened: stores.Store) -> backfills.Progress:
        if file is not None:
            given = usage_files.FileSource(file)
            return await fetched(opened, given, times(*given.window()))
        summary = opened.summary()
        whole = times(summary.first or 0, summary.watched_until or summary.first or 0)
        async with _measurements(prometheus) as source:
            assert source is not None
            return await fetched(opened, source, whole)

    def times(first: int, last: int) -> tuple[int, int]:
        return _millis(start, first, "--from"), _millis(end, last, "--to")

    with _opened(store) as opened:
        progress = asyncio.run(run(opened))
    output.say(
        f"{progress.measurements} measurements from {_text(progress.start)} to {_text(progress.end)}"
    )


@group.command()
@click.argument("what", type=click.Choice(WHAT))
@_with_store
@_with_window
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, help="Of this work only; may repeat."
)
@_with_output
@cluster_option.writable
def export(
    *,
    what: str,
    store: str | None,
    start: str | None,
    end: str | None,
    namespaces: Sequence[str],
    form: str,
) -> None:
    """Print the records of a time: one JSON object per line with -o json, or CSV."""
    with _opened(store) as opened:
        summary = opened.summary()
        begun = _millis(start, summary.first or 0, "--from")
        latest = max(summary.watched_until or 0, summary.usage_until or 0)
        ended = _millis(end, latest + 1, "--to")
        if ended <= begun:
            raise output.BadInput(f"--to ({_text(ended)}) is not after --from ({_text(begun)})")
        records = opened.records(
            begun, ended, namespaces=tuple(namespaces), has_usage=what == "usage"
        )
    items = getattr(records, what)
    if form == "json":
        output.write_json_lines(items)
    elif form == "csv":
        _write_csv(items, _type_of(what))
    else:
        _write_rows(items, _type_of(what))


# Options


@contextlib.contextmanager
def _opened(store: str | None) -> Iterator[stores.Store]:
    from dovetail.history import stores

    with stores.open_store(_location(store)) as opened:
        yield opened


def _location(store: str | None) -> str:
    if chosen := store or os.environ.get(STORE_VARIABLE):
        return chosen
    options = cluster_option.chosen_options()
    if options.kubeconfig or options.context:
        raise click.UsageError("say where history is: --store FILE or a postgresql:// URL")
    return str(state_directory.state_directory(options.state) / state_directory.HISTORY)


def _seconds(text: str, option: str) -> int:
    from dovetail.quantity import durations

    seconds = durations.seconds(text)
    if seconds is None:
        raise output.BadInput(f'{option}: "{text}" is not a duration like 90m, 24h or 7d')
    return seconds


def _millis(text: str | None, default: int, option: str) -> int:
    """A time given as a date, a time or a duration before now."""
    if text is None:
        return default
    moment = timestamps.parse_or_none(text)
    if moment is not None:
        return int(moment.timestamp() * 1000)
    try:
        return _now() - 1000 * _seconds(text, option)
    except output.BadInput:
        raise output.BadInput(
            f'{option}: "{text}" is neither a time (2026-11-01T08:00:00Z) nor a duration before now (7d)'
        ) from None


def _now() -> int:
    return int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)


def _text(millis: int | None) -> str:
    if millis is None:
        return "-"
    return timestamps.to_text(datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC))


# Output


def _write_summary(summary: stores.Summary) -> None:
    from dovetail.tables import text

    rows = [
        ("store", summary.place),
        ("size", text.binary(summary.size_bytes)),
        ("from", _text(summary.first)),
        ("watched until", _text(summary.watched_until)),
        ("measured until", _text(summary.usage_until)),
        ("open allocations", str(summary.open_allocations)),
        *((name, str(count)) for name, count in summary.rows.items()),
    ]
    output.write_lines(text.aligned(rows))
    if not summary.gaps:
        return
    output.write_lines([""])
    shown = summary.gaps[-MOST_GAPS:]
    table = [
        (gap.source.value, _text(gap.start), _text(gap.end), gap.subject or "all", gap.why)
        for gap in shown
    ]
    output.write_table(text.table(("SOURCE", "FROM", "TO", "SUBJECT", "WHY"), table))
    if len(summary.gaps) > len(shown):
        output.say(f"{len(summary.gaps) - len(shown)} earlier gaps are left out; -o csv has them")


def _write_rows(items: Sequence[Any], item: Any) -> None:
    from dovetail.tables import text

    fields = [field for field in item.__struct_fields__ if field not in ("labels",)]
    rows = [[_cell(field, getattr(each, field)) for field in fields] for each in items]
    output.write_table(text.table([field.upper() for field in fields], rows))


def _cell(field: str, value: Any) -> str:
    if field in ("start", "end", "at"):
        return _text(value)
    if field == "owner":
        return f"{value.namespace}/{value.pod}"
    return "-" if value is None else str(value)


def _write_csv(items: Sequence[Any], item: Any) -> None:
    from dovetail.web.wire import csv_rows

    output.write_text(csv_rows.written(items, item).decode().replace("\r\n", "\n"))


def _type_of(what: str) -> Any:
    from dovetail.model.accounting import records as kinds

    names = {"usage": "Usage", "waiting": "Waiting", "unusable": "Unusable", "prices": "PriceList"}
    return getattr(kinds, names.get(what) or what.removesuffix("s").capitalize())


def _gap_type() -> type[Gap]:
    from dovetail.model.accounting.records import Gap

    return Gap
