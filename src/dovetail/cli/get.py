"""`dovetail get`: shows what is in a cluster, as a table or as Kubernetes objects; with -w every change after that."""

from collections.abc import Sequence
from typing import NamedTuple

import click
import msgspec

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option, label_option, resource_arguments
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
KUBECTL_FORMATS = ("jsonpath", "custom-columns", "go-template", "jsonpath-as-json")
ALIASES = {alias: table.name for table in ALL_TABLES for alias in table.aliases}


class _Forms(click.Choice[str]):
    """The formats of -o. Those that kubectl alone has are refused with the way to get them."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        word = value.partition("=")[0]
        if word in KUBECTL_FORMATS:
            self.fail(
                f"{word} is kubectl's: `kubectl get -o {word}=...` works on the same cluster"
                " (`dovetail up` prints its KUBECONFIG), or read -o json",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class Answer(NamedTuple):
    """The rows of one resource, and how they came about. Kinds without a table of ours have the server's."""

    word: str
    table: listing.Table | None
    query: listing.Query
    listing: listing.Listing
    cluster: str

    @property
    def name(self) -> str:
        """What messages call the resource."""
        return self.word if self.table is None else self.table.name


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
    "-o", "--output", "form", type=_Forms(output.FORMATS), default="table", show_default=True
)
@click.option("-w", "--watch", is_flag=True, help="Go on with a row for every change.")
@click.option("--node", metavar="NAME", help="Only this node.")
@click.option("--no-headers", is_flag=True, help="Leave out the headers of tables.")
@cluster_option.readable
def command(
    *,
    words: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    form: str,
    watch: bool,
    node: str | None,
    no_headers: bool,
) -> None:
    """Show gpus, devices, claims, nodes, pools, classes, slices, pods, templates, queues, topologies, or any kind.

    Several resources are joined by commas; RESOURCE/NAME names single objects. gpus and devices are read from
    ResourceSlices and from what device plugins count; -o json and -o yaml print those. pools are read from nodes'
    labels. Other kinds (events, jobs, deployments ...) have the columns of kubectl.
    """
    test = label_option.selector(selector)
    place = None if all_namespaces else namespace or cluster_option.default_namespace()
    query = listing.Query(
        objects=object_set.NOTHING,
        now=cluster_option.EPOCH,
        test=test,
        namespace=place,
        node=node,
        labels=selector,
        in_full=form == "wide",
    )
    wanted = [
        (table_of(named.word), named.word, msgspec.structs.replace(query, names=named.names))
        for named in resource_arguments.split(words)
    ]
    if watch:
        _watch(wanted, form)
        return
    answers = [_answer(*each) for each in wanted]
    _write(answers, form, has_headers=not no_headers)
    _refuse_missing(answers)
    if form in ("table", "wide"):
        _close(answers)


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
    if cluster_option.snapshot() is not None:
        raise click.BadParameter(
            f'"{word}" is not in a snapshot; expected one of {", ".join(TABLES)}'
        )
    from dovetail.cli.cluster import api_session
    from dovetail.cli.views import server_table
    from dovetail.kube.http import transport

    choice = cluster_option.chosen()

    async def work(over: transport.Transport) -> Answer:
        resource = await server_table.resource_of(over, word)
        shown = await server_table.listed(over, resource, query)
        return Answer(resource.kind.plural, None, query, shown, choice.name)

    return api_session.run(choice, work)


def _watch(wanted: Sequence[tuple[listing.Table | None, str, listing.Query]], form: str) -> None:
    (table, word, query), *others = wanted
    if others or form not in ("table", "wide"):
        raise click.UsageError("-w follows one resource, as a table")
    if table is None:
        raise click.UsageError(f"-w follows our own tables, not {word}: {', '.join(TABLES)}")
    if cluster_option.snapshot() is not None:
        raise click.UsageError("a snapshot does not change; leave -w out")
    from dovetail.cli.views import watched_rows

    watched_rows.follow(cluster_option.chosen(), table, query, is_wide=form == "wide")


def _write(answers: Sequence[Answer], form: str, *, has_headers: bool) -> None:
    if form in ("json", "yaml"):
        trees = [_presented(tree) for answer in answers for tree in answer.listing.documents()]
        if not _is_single(answers):
            output.write_objects(trees, form)
        elif trees:
            output.write_object(trees[0], form)
        return
    blocks = [
        lines_of(answer.listing, form)[not has_headers and form != "name" :]
        for answer in answers
        if answer.listing.rows
    ]
    separator = [] if form == "name" else [""]
    lines: list[str] = []
    for block in blocks:
        lines += [*(separator if lines else []), *block]
    if lines:
        write = output.write_table if form == "table" else output.write_lines
        write(lines)


def _presented(tree: listing.Tree) -> listing.Tree:
    """The object as kubectl prints it: its type first, its status last, and not who wrote which field."""
    first: listing.Tree = {name: tree[name] for name in ("apiVersion", "kind") if name in tree}
    metadata = tree.get("metadata")
    if isinstance(metadata, dict):
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        first["metadata"] = kept
    last = {name: tree[name] for name in ("status",) if name in tree}
    known = first.keys() | last.keys()
    return first | {name: value for name, value in tree.items() if name not in known} | last


def _is_single(answers: Sequence[Answer]) -> bool:
    """Whether one object was asked for by its name: it is printed as it is, as kubectl does."""
    first = answers[0]
    has_object = first.table is None or first.table.shows_objects
    return len(answers) == 1 and len(first.query.names) == 1 and has_object


def lines_of(shown: listing.Listing, form: str) -> list[str]:
    """The lines of a table, or the names."""
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
        missing = [name for name in answer.query.names if name not in present]
        problems += [f'{answer.name} "{name}" not found' for name in missing]
    if problems:
        raise errors.InputError("\n".join(problems))


def _close(answers: Sequence[Answer]) -> None:
    """The lines after a table: what was not there, whom it is about, the next command."""
    for answer in answers:
        if not answer.listing.rows:
            output.say(_nothing(answer))
    last = answers[-1]
    cluster_option.say_cluster(last.cluster)
    output.next_step(_next(last))


def _next(answer: Answer) -> str:
    """The next command: for pending pods, the one that says when they start."""
    table = answer.table
    if not answer.listing.rows:
        return "up" if table is gpu_table.TABLE else "apply -f FILE"
    if table is None:
        return f"describe {answer.listing.rows[0].name}"
    if table is pod_table.TABLE and any(map(pod_table.is_pending, answer.listing.rows)):
        return "when"
    return table.next_step


def _nothing(answer: Answer) -> str:
    is_namespaced = answer.table is None or answer.table.is_namespaced
    if is_namespaced and answer.query.namespace is not None:
        return f"no {answer.name} found in namespace {answer.query.namespace}; -A looks in all"
    return f"no {answer.name} found"
