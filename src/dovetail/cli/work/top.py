"""`dovetail top`: who holds the GPUs and who waits for them, by queue, namespace, user, node or type.

Live on a terminal: redrawn when the cluster changes, until `q`. Once where it is piped, or with -o.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from dovetail.ask import cluster_view, measured_use, scheduler_policy
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.kubetypes import object_set, registry
from dovetail.model import plaintext, policy
from dovetail.tables import text
from dovetail.tables.work import gpu_holdings, gpu_usage_table
from dovetail.world.owners import facts_of_objects

if TYPE_CHECKING:
    from dovetail.cli.views import live_picture

FORMS: Final = ("table", "json", "yaml", "name")
BAR_WIDTH: Final = 20
FULL, EMPTY = "█", "░"
KINDS: Final = (*facts_of_objects.KINDS, registry.INTENT)


@click.command()
@click.option(
    "--by",
    type=click.Choice(gpu_holdings.KEYS),
    multiple=True,
    help="May repeat. [default: queue, namespace and type]",
)
@click.option("-n", "--namespace", help="Only what this namespace holds. [default: all]")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), help="Show it once, in that form."
)
@click.option("--no-headers", is_flag=True, help="Leave out the headers.")
@click.option("--config", "file", metavar="FILE", help="The scheduler's configuration.")
@click.option(
    "--prometheus",
    metavar="URL",
    envvar="DOVETAIL_PROMETHEUS",
    help="Where USED comes from. [default: $DOVETAIL_PROMETHEUS, or that of --config]",
)
@cluster_option.readable
def command(
    *,
    by: tuple[str, ...],
    namespace: str | None,
    form: str | None,
    no_headers: bool,
    file: str | None,
    prometheus: str | None,
) -> None:
    """Show who holds the GPUs, and who waits for them.

    GPUs are counted in silicon: half a GPU by MIG is 0.5. USED is how many of the allocated ones are busy, by the
    metrics of a Prometheus; n/a without.
    """
    configured = scheduler_policy.configured(file)
    sections = by or (gpu_holdings.QUEUE, gpu_holdings.NAMESPACE, gpu_holdings.TYPE)
    is_live = form is None and sys.stdout.isatty() and sys.stdin.isatty()
    endpoint = measured_use.endpoint_of(prometheus, file)
    if is_live and cluster_option.snapshot() is None:
        _live(sections, namespace, configured, measured_use.Following(endpoint))
        return

    seen = cluster_option.view([object_set.Read(kind) for kind in KINDS])
    rules = configured or scheduler_policy.default(seen)
    usage = _usage(seen.objects, rules, seen.now, namespace)
    if endpoint is not None and cluster_option.snapshot() is None:
        measured, problem = measured_use.measured_now(endpoint)
        usage = usage._replace(measured=measured)
        if problem:
            output.say(f"USED is n/a: {problem}")
    rows = [row for section in sections for row in usage.rows(section)]
    if form in ("json", "yaml"):
        output.write_object(
            {"gpus": usage.total, "rows": [gpu_usage_table.tree(row) for row in rows]}, form
        )
        return
    if form == "name":
        output.write_lines([f"{row.by}/{row.name}" for row in rows if row.name])
        return
    lines: list[str] = []
    for section in sections:
        block = _table(section, usage.rows(section))[no_headers:]
        lines += ["", *block] if lines and not no_headers else block
    output.write_lines(lines)
    output.say(gpu_usage_table.total(usage))
    cluster_option.say_cluster(seen.name)
    cluster_option.next_step("queue")


def _live(
    sections: Sequence[str],
    namespace: str | None,
    configured: policy.Policy | None,
    following: measured_use.Following,
) -> None:
    import rich.text

    from dovetail.ask import api_session
    from dovetail.cli.views import live_picture
    from dovetail.kube import read_objects
    from dovetail.kube.http import transport

    choice = cluster_option.chosen()
    view = cluster_view.nothing_of(choice)
    rules = configured or scheduler_policy.default(view)

    async def served(over: transport.Transport) -> tuple[registry.Kind, ...]:
        reads = [object_set.Read(kind) for kind in KINDS]
        return (await read_objects.read_over(over, reads, cluster="")).unserved

    unserved = api_session.run(choice, served)

    def draw(objects: object_set.ObjectSet, *, note: str, rows: int | None) -> live_picture.Drawing:
        now = datetime.datetime.now(datetime.UTC)
        usage = _usage(objects, rules, now, namespace)._replace(measured=following.measured)
        note = note or following.problem
        title = f"cluster {objects.cluster}   {gpu_usage_table.total(usage)}"
        body: list[rich.text.Text] = []
        for section in sections:
            table = _table(section, usage.rows(section), has_bars=True)
            body += [_line(line, "bold" if not number else "") for number, line in enumerate(table)]
            body.append(_line(""))
        foot = [_line(note, "red")] if note else []
        foot.append(_line("q leaves", "dim"))
        return live_picture.Drawing([_line(title, "bold"), _line("")], body, foot, rows=rows)

    def _line(line: str, style: str = "") -> rich.text.Text:
        return rich.text.Text(
            plaintext.escaped(line), style=style, overflow="ellipsis", no_wrap=True
        )

    live_picture.show(choice, [kind for kind in KINDS if kind not in unserved], draw)


def _usage(
    objects: object_set.ObjectSet,
    rules: policy.Policy,
    now: datetime.datetime,
    namespace: str | None,
) -> gpu_holdings.Usage:
    usage = gpu_holdings.usage_of(objects, rules, now)
    return usage if namespace is None else usage.of_namespace(namespace)


def _table(
    section: str, rows: Sequence[gpu_holdings.UsageRow], *, has_bars: bool = False
) -> list[str]:
    headers = gpu_usage_table.headers(section)
    cells = []
    for row in rows:
        bar = (_bar(row),) if has_bars else ()
        cells.append((*gpu_usage_table.cells(row), *bar))
    return text.table((*headers, "") if has_bars else headers, cells)


def _bar(row: gpu_holdings.UsageRow) -> str:
    """How much of the capacity is allocated."""
    if not row.capacity:
        return ""
    full = min(BAR_WIDTH, round(BAR_WIDTH * row.allocated / row.capacity))
    return FULL * full + EMPTY * (BAR_WIDTH - full)
