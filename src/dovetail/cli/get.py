"""`dovetail get`: shows what is in a cluster, as a table or as Kubernetes objects."""

from collections.abc import Sequence
from typing import NamedTuple

import click
import msgspec

from dovetail import errors
from dovetail.cli import cluster_option, label_option, output
from dovetail.cli.tables import (
    claim_tables,
    class_table,
    device_table,
    gpu_table,
    listing,
    node_pool_table,
    node_table,
    pod_table,
    queue_table,
    slice_table,
    text,
    topology_table,
)
from dovetail.kubetypes import object_set

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


class Wanted(NamedTuple):
    """One resource of the command line, and the names given for it."""

    table: listing.Table
    names: tuple[str, ...]


def _table(word: str) -> listing.Table:
    name = ALIASES.get(word.lower(), word.lower())
    if name not in TABLES:
        raise click.BadParameter(f'"{word}" is not known; expected one of {", ".join(TABLES)}')
    return TABLES[name]


def _wanted(words: Sequence[str]) -> list[Wanted]:
    """`pods a b`, `pods,claims`, `pod/a node/b`: as kubectl reads them."""
    if not any("/" in word for word in words):
        kinds, *names = words
        return [Wanted(_table(kind), tuple(names)) for kind in kinds.split(",")]
    names_by_table: dict[str, list[str]] = {}
    for word in words:
        kind, slash, name = word.partition("/")
        if not (kind and slash and name):
            raise click.BadParameter(f'"{word}": expected RESOURCE/NAME, as in the other arguments')
        names_by_table.setdefault(_table(kind).name, []).append(name)
    return [Wanted(TABLES[name], tuple(given)) for name, given in names_by_table.items()]


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
    "-o", "--output", "form", type=click.Choice(output.FORMATS), default="table", show_default=True
)
@click.option("--node", metavar="NAME", help="Only this node.")
@cluster_option.readable
def command(
    *,
    words: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    form: str,
    node: str | None,
) -> None:
    """Show gpus, devices, claims, nodes, pools, classes, slices, pods, templates, queues or topologies.

    Several resources are joined by commas; RESOURCE/NAME names single objects. gpus and devices are read from
    ResourceSlices and from what device plugins count; -o json and -o yaml print those. pools are read from nodes'
    labels.
    """
    wanted = _wanted(words)
    test = label_option.selector(selector)
    place = None if all_namespaces else namespace or cluster_option.default_namespace()
    answers = [
        _answer(each, place=place, node=node, labels=selector, test=test, form=form)
        for each in wanted
    ]
    _write(answers, form)
    _refuse_missing(answers)
    if form in ("table", "wide"):
        _close(answers)


class Answer(NamedTuple):
    """The rows of one resource, and how they came about."""

    wanted: Wanted
    query: listing.Query
    listing: listing.Listing
    seen: cluster_option.View


def _answer(
    wanted: Wanted,
    *,
    place: str | None,
    node: str | None,
    labels: str,
    test: label_option.Test,
    form: str,
) -> Answer:
    table = wanted.table
    query = listing.Query(
        objects=object_set.NOTHING,
        now=cluster_option.EPOCH,
        test=test,
        namespace=place,
        node=node,
        names=wanted.names,
        labels=labels,
        in_full=form == "wide",
    )
    seen = cluster_option.view(table.reads(query))
    if table.definition is not None and table.definition in seen.unserved:
        raise errors.StateError(
            f"the cluster does not serve {table.name}\nnext: dovetail install --definitions"
        )
    first = msgspec.structs.replace(query, objects=seen.objects, now=seen.now)
    seen = cluster_option.widened(seen, table.more_reads(first))
    query = msgspec.structs.replace(first, objects=seen.objects)
    return Answer(wanted, query, table.listing(query), seen)


def _write(answers: Sequence[Answer], form: str) -> None:
    if form in ("json", "yaml"):
        trees = [tree for answer in answers for tree in answer.listing.documents()]
        if _is_single(answers) and len(trees) == 1:
            output.write_object(trees[0], form)
        else:
            output.write_objects(trees, form)
        return
    blocks = [_lines(answer.listing, form) for answer in answers if answer.listing.rows]
    separator = [] if form == "name" else [""]
    lines: list[str] = []
    for block in blocks:
        lines += [*(separator if lines else []), *block]
    if lines:
        output.write_lines(lines)


def _is_single(answers: Sequence[Answer]) -> bool:
    """Whether one object was asked for by its name: it is printed as it is, as kubectl does."""
    first = answers[0].wanted
    return len(answers) == 1 and len(first.names) == 1 and first.table.shows_objects


def _lines(shown: listing.Listing, form: str) -> list[str]:
    if form == "name":
        return [row.name for row in shown.rows]
    if form == "wide":
        cells = [row.cells + row.wide for row in shown.rows]
        return text.table(shown.headers + shown.wide_headers, cells)
    return text.table(shown.headers, [row.cells for row in shown.rows])


def _refuse_missing(answers: Sequence[Answer]) -> None:
    """Raises for names that do not exist, after the others were shown."""
    problems = []
    for answer in answers:
        present = {row.name.partition("/")[2] for row in answer.listing.rows}
        present |= {name.rpartition("/")[2] for name in present}
        missing = [name for name in answer.wanted.names if name not in present]
        problems += [f'{answer.wanted.table.name} "{name}" not found' for name in missing]
    if problems:
        raise errors.InputError("\n".join(problems))


def _close(answers: Sequence[Answer]) -> None:
    """The lines after a table: what was not there, whom it is about, the next command."""
    for answer in answers:
        if not answer.listing.rows:
            output.say(_nothing(answer.wanted.table, answer.query))
    last = answers[-1]
    cluster_option.say_cluster(last.seen.name)
    output.next_step(_next(last.wanted.table, last.listing))


def _next(table: listing.Table, shown: listing.Listing) -> str:
    """The next command: for pending pods, the one that says when they start."""
    if not shown.rows:
        return "up" if table is gpu_table.TABLE else "apply -f FILE"
    if table is pod_table.TABLE and any(map(pod_table.is_pending, shown.rows)):
        return "when"
    return table.next_step


def _nothing(table: listing.Table, query: listing.Query) -> str:
    if table.is_namespaced and query.namespace is not None:
        return f"no {table.name} found in namespace {query.namespace}; -A looks in all"
    return f"no {table.name} found"
