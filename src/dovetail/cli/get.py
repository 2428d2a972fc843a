"""`dovetail get`: shows what is in a cluster, as a table or as Kubernetes objects; with -w every change after that."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from dovetail import errors
from dovetail.ask import cluster_view
from dovetail.cli import output, output_formats
from dovetail.cli.cluster import cluster_option, resource_arguments
from dovetail.cli.views import printed_answers
from dovetail.cli.views.printed_answers import Answer
from dovetail.kubetypes import json_paths, object_set
from dovetail.tables import (
    claim_tables,
    class_table,
    device_table,
    label_option,
    listing,
    missing_names,
    node_pool_table,
    node_table,
    path_templates,
    pod_table,
    queue_table,
    slice_table,
    topology_table,
)
from dovetail.tables.gpus import gpu_summary, gpu_table

ALL_TABLES = (
    gpu_table.TABLE,
    device_table.TABLE,
    claim_tables.CLAIMS,
    node_table.TABLE,
    node_pool_table.TABLE,
    class_table.TABLE,
    slice_table.TABLE,
    pod_table.TABLE,
    claim_tables.TEMPLATES,
    queue_table.TABLE,
    topology_table.TABLE,
)
TABLES = {table.name: table for table in ALL_TABLES}
ALIASES = {alias: table.name for table in ALL_TABLES for alias in table.aliases}


@click.command()
@click.argument("words", metavar="RESOURCE [NAME]... | RESOURCE/NAME...", nargs=-1, required=True)
@click.option("-n", "--namespace", help="Namespace to look in. [default: the context's]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces.")
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="LABELS",
    help="Labels to match; for gpus and devices, the node's.",
)
@click.option(
    "--field-selector",
    "fields",
    default="",
    metavar="FIELDS",
    help="Fields to match, as the server knows them: status.phase=Running.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=output_formats.FormatType(),
    default="table",
    show_default=True,
    metavar="|".join((*output.FORMATS, "jsonpath=TEMPLATE", "custom-columns=SPEC")),
)
@click.option("--sort-by", metavar="PATH", help="Order by a field, such as .metadata.name.")
@click.option("--show-labels", is_flag=True, help="Add the labels as the last column.")
@click.option("-w", "--watch", is_flag=True, help="Go on with a row for every change.")
@click.option("--node", metavar="NAME", help="Only this node.")
@click.option("--summary", is_flag=True, help="For gpus: one row per type, with what is free.")
@click.option("--no-headers", is_flag=True, help="Leave out the headers of tables.")
@cluster_option.readable
def command(
    *,
    words: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    fields: str,
    form: output_formats.Format,
    sort_by: str | None,
    show_labels: bool,
    watch: bool,
    node: str | None,
    summary: bool,
    no_headers: bool,
) -> None:
    """Show gpus, devices, claims, nodes, pools, classes, slices, pods, templates, queues, topologies, or any kind.

    Several resources are joined by commas; RESOURCE/NAME names single objects. gpus and devices are read from
    ResourceSlices and from what device plugins count; -o json and -o yaml print those. pools are read from nodes'
    labels. Other kinds (events, jobs, deployments ...) have the columns of kubectl.
    """
    order = output_formats.sort_path(sort_by)
    test = label_option.selector(selector)
    place = None if all_namespaces else namespace or cluster_option.default_namespace()
    query = listing.Query(
        objects=object_set.NOTHING,
        now=cluster_view.EPOCH,
        test=test,
        namespace=place,
        node=node,
        labels=selector,
        fields=fields,
        in_full=form.is_wide,
        needs_documents=form.shows_documents or sort_by is not None,
    )
    wanted = [
        (
            _summarised(table_of(named.word)) if summary else table_of(named.word),
            named.word,
            msgspec.structs.replace(query, names=named.names),
        )
        for named in resource_arguments.split(words)
    ]
    for table, _, _ in wanted:
        _refuse_for_rows(table, {"--field-selector": fields, "--sort-by": sort_by})
        _refuse_for_rows(table, {"--show-labels": show_labels})
    if watch:
        if sort_by or show_labels:
            raise click.UsageError("-w takes neither --sort-by nor --show-labels")
        _watch(wanted, form, has_headers=not no_headers)
        return
    with cluster_view.not_collecting():
        answers = [_arranged(_answer(*each), order, has_labels=show_labels) for each in wanted]
        printed_answers.write(answers, form, has_headers=not no_headers)
    _refuse_missing(answers)
    if form.is_table:
        _close(answers)


def _summarised(table: listing.Table | None) -> listing.Table:
    if table is not gpu_table.TABLE:
        raise click.UsageError("--summary is about gpus; leave other resources out")
    return gpu_summary.TABLE


def _refuse_for_rows(table: listing.Table | None, options: Mapping[str, object]) -> None:
    """Options about objects mean nothing where a row is put together from several."""
    for option, value in options.items():
        if value and table is not None and not table.shows_objects:
            raise click.UsageError(f"{option} is about objects; {table.name} are read from several")
    if options.get("--field-selector") and cluster_option.snapshot() is not None:
        raise click.UsageError("--field-selector needs a cluster, because servers evaluate it")


def _arranged(answer: Answer, order: json_paths.Path | None, *, has_labels: bool) -> Answer:
    shown = answer.listing
    if order is not None:
        shown = listing.sorted_by(shown, lambda tree: path_templates.sort_key(order, tree))
    if has_labels:
        shown = listing.with_labels(shown)
    return answer._replace(listing=shown)


def table_of(word: str) -> listing.Table | None:
    """Our table for a word; None where the server is to be asked."""
    return TABLES.get(ALIASES.get(word.lower(), word.lower()))


def _answer(table: listing.Table | None, word: str, query: listing.Query) -> Answer:
    if table is None:
        return _server_answer(word, query)
    seen = cluster_option.view(table.reads(query))
    if table.definition is not None and table.definition in seen.unserved:
        raise errors.StateError(
            f"the cluster does not serve {table.name}\nnext: dovetail install --definitions"
        )
    first = msgspec.structs.replace(query, objects=seen.objects, now=seen.now)
    seen = cluster_option.widened(seen, table.more_reads(first))
    whole = msgspec.structs.replace(first, objects=seen.objects)
    return Answer(word, table, whole, table.listing(whole), seen.name)


def _server_answer(word: str, query: listing.Query) -> Answer:
    path = cluster_option.snapshot()
    if path is not None:
        return _saved_answer(word, query, path)
    from dovetail.ask import api_session
    from dovetail.cli.views import server_table
    from dovetail.kube.http import transport

    choice = cluster_option.chosen()

    async def work(over: transport.Transport) -> Answer:
        resource = await server_table.resource_of(over, word)
        shown = await server_table.listed(over, resource, query)
        return Answer(resource.kind.plural, None, query, shown, choice.name)

    return api_session.run(choice, work)


def _saved_answer(word: str, query: listing.Query, path: Path) -> Answer:
    """A kind without a table of ours, of a snapshot."""
    from dovetail.cli.views import saved_table

    seen = cluster_option.whole_snapshot(path)
    resource = saved_table.resource_of(word, seen.objects)
    whole = msgspec.structs.replace(query, objects=seen.objects, now=seen.now)
    shown = saved_table.listed(resource, whole)
    return Answer(resource.kind.plural, None, whole, shown, seen.name)


def _watch(
    wanted: Sequence[tuple[listing.Table | None, str, listing.Query]],
    form: output_formats.Format,
    *,
    has_headers: bool,
) -> None:
    (table, word, query), *others = wanted
    if others or not form.is_table:
        raise click.UsageError("-w follows one resource, as a table")
    if cluster_option.snapshot() is not None:
        raise click.UsageError("a snapshot does not change; leave -w out")
    from dovetail.cli.views import watched_rows

    choice, is_wide = cluster_option.chosen(), form.is_wide
    if table is None:
        watched_rows.follow_server(choice, word, query, is_wide=is_wide, has_headers=has_headers)
    else:
        watched_rows.follow(choice, table, query, is_wide=is_wide, has_headers=has_headers)


def _refuse_missing(answers: Sequence[Answer]) -> None:
    """Raises for names that do not exist, after the others were shown."""
    problems = []
    for answer in answers:
        present = {row.name.partition("/")[2] for row in answer.listing.rows}
        present |= {name.rpartition("/")[2] for name in present}
        missing = [name for name in answer.query.names if name not in present]
        if missing and answer.table is not gpu_summary.TABLE:  # its rows are types, not nodes
            known = _everywhere(answer)
            is_namespaced = any(place for place, _ in known)
            place = answer.query.namespace if is_namespaced else None
            problems += [
                missing_names.sentence(answer.name, name, place, known) for name in missing
            ]
    if problems:
        raise errors.InputError("\n".join(problems))


def _everywhere(answer: Answer) -> set[missing_names.Name]:
    """What there is instead, in all namespaces; nothing where it may not be read."""
    query = msgspec.structs.replace(answer.query, names=(), namespace=None, needs_documents=False)
    try:
        shown = _answer(answer.table, answer.name, query).listing
    except errors.DovetailError:
        return set()
    has_namespaces = shown.headers[:1] and shown.headers[0].lower() == "namespace"
    return {
        (row.cells[0] if has_namespaces else "", row.name.rpartition("/")[2]) for row in shown.rows
    }


def _close(answers: Sequence[Answer]) -> None:
    """The lines after a table: what was not there, whom it is about, the next command."""
    for answer in answers:
        if not answer.listing.rows:
            output.say(_nothing(answer))
    last = answers[-1]
    cluster_option.say_cluster(last.cluster)
    inspected = "" if last.listing.rows else f"snapshot show {cluster_option.snapshot()}"
    cluster_option.next_step(_next(last), otherwise=inspected)


def _next(answer: Answer) -> str:
    """The next command: for pending pods, the one that says why the first of them does not start."""
    table = answer.table
    if not answer.listing.rows:
        is_about_gpus = table in (gpu_table.TABLE, gpu_summary.TABLE)
        return "up" if is_about_gpus else "apply -f FILE"
    if table is None:
        return f"describe {answer.listing.rows[0].name}"
    if table is pod_table.TABLE:
        pending = [row for row in answer.listing.rows if pod_table.is_pending(row)]
        if pending:
            namespace, name = pending[0].cells[:2]
            return f"why {name}{cluster_option.namespace_words(namespace)}"
    return table.next_step


def _nothing(answer: Answer) -> str:
    is_namespaced = answer.table is None or answer.table.is_namespaced
    if is_namespaced and answer.query.namespace is not None:
        return f"no {answer.name} found in namespace {answer.query.namespace}; -A looks in all"
    return f"no {answer.name} found"
