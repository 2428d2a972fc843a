"""`dovetail queue`: waiting and running work, in the order in which the scheduler would take it."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence

import click
import msgspec

from dovetail.ask import cluster_view, scheduler_policy
from dovetail.cli import output, output_formats
from dovetail.cli.cluster import cluster_option
from dovetail.cli.views import printed_answers
from dovetail.kubetypes import object_set, registry
from dovetail.model import policy
from dovetail.tables import label_option, listing, missing_names, path_templates
from dovetail.tables.work import work_items, work_table
from dovetail.world.owners import facts_of_objects


@click.command(name="queue")
@click.argument("name", required=False)
@click.option("-n", "--namespace", help="Only work of this namespace. [default: all]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Work of all namespaces, as by default.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Labels of its pods.")
@click.option("--me", is_flag=True, help="Only what I submitted with `dovetail run`.")
@click.option("--pending", is_flag=True, help="Only what waits.")
@click.option(
    "-o",
    "--output",
    "form",
    type=output_formats.FormatType(),
    default="table",
    show_default=True,
    metavar="|".join((*output.FORMATS, "jsonpath=TEMPLATE", "custom-columns=SPEC")),
)
@click.option("--sort-by", metavar="PATH", help="Order by a field of -o json, such as .gpus.")
@click.option("-w", "--watch", is_flag=True, help="Go on with a row for every change.")
@click.option("--no-headers", is_flag=True, help="Leave out the headers.")
@click.option("--config", "file", metavar="FILE", help="The scheduler's configuration.")
@cluster_option.readable
def command(
    *,
    name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    me: bool,
    pending: bool,
    form: output_formats.Format,
    sort_by: str | None,
    watch: bool,
    no_headers: bool,
    file: str | None,
) -> None:
    """Show what waits and runs: all of it, that of one queue, or one job (train, job/train).

    What waits comes first, by whose turn it is. START is promised (!) or expected; REASON is a word that
    `dovetail explain` explains.
    """
    labels = ",".join(filter(None, [selector, _my_selector() if me else ""]))
    query = listing.Query(
        objects=object_set.NOTHING,
        now=cluster_view.EPOCH,
        test=label_option.selector(labels),
        namespace=None if all_namespaces else namespace,
        node=None,
        in_full=form.is_wide,
    )
    configured = scheduler_policy.configured(file)
    order = output_formats.sort_path(sort_by)
    if watch:
        if sort_by or not form.is_table:
            raise click.UsageError("-w shows a table, and takes no --sort-by")
        _watch(query, name, configured, pending=pending, form=form, has_headers=not no_headers)
        return

    seen = cluster_option.view(_reads(query))
    rules = configured or scheduler_policy.default(seen)
    items = work_items.items_of(seen.objects, rules, seen.now)
    queues = {stored.struct.metadata.name for stored in seen.objects.listed(registry.QUEUE.name)}
    is_known = any(work_table.is_named(name, each) for each in items) if name else True
    if name is not None and name not in queues and not is_known:
        raise output.BadInput(_unknown(name, queues, items))
    whole = msgspec.structs.replace(query, objects=seen.objects, now=seen.now)
    shown = work_table.listed(
        [each for each in items if _is_shown(each, whole, name, pending)], seen.now
    )
    if order is not None:
        shown = listing.sorted_by(shown, lambda tree: path_templates.sort_key(order, tree))
    answer = printed_answers.Answer("work", None, whole, shown, seen.name)
    printed_answers.write([answer], form, has_headers=not no_headers)
    if form.is_table:
        if not shown.rows:
            output.say("nothing waits" if pending else "nothing waits or runs")
        cluster_option.say_cluster(seen.name)
        cluster_option.next_step(_next(items))


def _my_selector() -> str:
    from dovetail.ask.submission import job_manifest  # loads the selector language

    return job_manifest.my_selector()


def _watch(
    query: listing.Query,
    name: str | None,
    configured: policy.Policy | None,
    *,
    pending: bool,
    form: output_formats.Format,
    has_headers: bool,
) -> None:
    if cluster_option.snapshot() is not None:
        raise click.UsageError("a snapshot does not change; leave -w out")
    from dovetail.cli.views import watched_rows

    choice = cluster_option.chosen()
    view = cluster_view.nothing_of(choice)
    rules = configured or scheduler_policy.default(view)

    def rows(current: listing.Query) -> listing.Listing:
        now = datetime.datetime.now(datetime.UTC)  # the engine decides about the present
        items = work_items.items_of(current.objects, rules, now)
        shown = [each for each in items if _is_shown(each, current, name, pending)]
        return work_table.listed(shown, current.now)

    table = listing.Table(name="work", aliases=(), listing=rows, reads=_reads)
    watched_rows.follow(choice, table, query, is_wide=form.is_wide, has_headers=has_headers)


def _reads(query: listing.Query) -> tuple[object_set.Read, ...]:
    """Everything that the engine reads: whose turn it is depends on all work."""
    kinds = (*facts_of_objects.KINDS, registry.INTENT)
    return tuple(object_set.Read(kind) for kind in kinds)


def _is_shown(
    item: work_items.WorkItem, query: listing.Query, name: str | None, pending: bool
) -> bool:
    is_wanted = query.namespace in (None, item.namespace) and query.test(item.labels)
    if pending and item.state not in work_table.PENDING_STATES:
        return False
    return is_wanted and (name is None or item.queue == name or work_table.is_named(name, item))


def _next(items: Sequence[work_items.WorkItem]) -> str:
    """The next command: why the first that waits does not start."""
    waiting = [item for item in items if item.reason and item.state in work_table.PENDING_STATES]
    if not waiting:
        return "top"
    return f"why {waiting[0].name}{cluster_option.namespace_words(waiting[0].namespace)}"


def _unknown(name: str, queues: Collection[str], items: Sequence[work_items.WorkItem]) -> str:
    """The message about a name that no queue and no work has."""
    known = {*queues, *(item.name.rpartition("/")[2] for item in items)}
    listed = f"; queues: {', '.join(sorted(queues))}" if queues else ""
    hint = missing_names.near_words(name, known) or listed
    return f'no queue "{name}", and no work of that name waits or runs{hint}'
