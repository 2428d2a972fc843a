"""`dovetail get`: shows what is in the cluster, as a table or as Kubernetes objects."""

import click

from dovetail import errors
from dovetail.cli import label_option, options, output
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
from dovetail.sim.local import local_cluster, state_dir

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


def _resource(ctx: click.Context, parameter: click.Parameter, value: str) -> listing.Table:
    name = ALIASES.get(value.lower(), value.lower())
    if name not in TABLES:
        raise click.BadParameter(f'"{value}" is not known; expected one of {", ".join(TABLES)}')
    return TABLES[name]


@click.command()
@click.argument("table", metavar="RESOURCE", callback=_resource)
@click.argument("names", nargs=-1)
@click.option(
    "-n",
    "--namespace",
    default=local_cluster.DEFAULT_NAMESPACE,
    show_default=True,
    help="Namespace to look in.",
)
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
@click.option(
    "--kubeconfig", metavar="FILE", help="For queues and topologies: those of a real cluster."
)
@click.option(
    "--context", metavar="NAME", help="The kubeconfig's context. [default: its current one]"
)
@options.state
def command(
    *,
    table: listing.Table,
    names: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
    selector: str,
    form: str,
    node: str | None,
    kubeconfig: str | None,
    context: str | None,
    state: str | None,
) -> None:
    """Show gpus, devices, claims, nodes, pools, classes, slices, pods, templates, queues or topologies.

    gpus and devices are read from ResourceSlices; -o json and -o yaml print those. pools are read from nodes' labels.
    Queues and topologies can also be those of a real cluster (--kubeconfig or --context).
    """
    opened = options.opened(state)
    is_live = kubeconfig is not None or context is not None
    query = listing.Query(
        cluster=_live(table, kubeconfig, context) if is_live else _cluster(opened),
        now=opened.now(),
        test=label_option.selector(selector),
        namespace=None if all_namespaces else namespace,
        node=node,
        names=names,
        in_full=form == "wide",
    )
    shown = table.listing(query)
    _write(shown, form)
    _refuse_missing(shown, names, table)
    if form not in ("table", "wide"):
        return
    if not shown.rows:
        output.say(_nothing(table, query))
    if is_live:
        output.say(f"next: kubectl {table.live_next_step if shown.rows else 'apply -f FILE'}")
    else:
        output.next_step(_next(table, shown))


def _cluster(opened: state_dir.Local) -> local_cluster.Cluster:
    cluster = opened.cluster()
    if cluster is None:
        raise errors.StateError(f"no cluster in {opened.store.directory}\nnext: dovetail up")
    return cluster


def _live(
    table: listing.Table, kubeconfig: str | None, context: str | None
) -> local_cluster.Cluster:
    """The objects of a real cluster that these rows need."""
    if not table.live_next_step:
        ours = ", ".join(table.name for table in ALL_TABLES if table.live_next_step)
        raise click.UsageError(
            f"{table.name} of a real cluster: kubectl get shows them; here are {ours}"
        )
    import asyncio

    from dovetail.boot import live_view
    from dovetail.kube.auth import client_config
    from dovetail.kubetypes import registry

    connection = client_config.load(kubeconfig, context=context)
    cluster = asyncio.run(live_view.cluster(connection, registry.OURS))
    if not cluster.records and not asyncio.run(live_view.is_served(connection, table.name)):
        raise errors.StateError(
            f"the cluster does not serve {table.name}\nnext: dovetail install --definitions"
        )
    return cluster


def _write(shown: listing.Listing, form: str) -> None:
    if form in ("json", "yaml"):
        output.write_objects(shown.documents, form)
        return
    if shown.rows:
        output.write_lines(_lines(shown, form))


def _lines(shown: listing.Listing, form: str) -> list[str]:
    if form == "name":
        return [row.name for row in shown.rows]
    if form == "wide":
        cells = [row.cells + row.wide for row in shown.rows]
        return text.table(shown.headers + shown.wide_headers, cells)
    return text.table(shown.headers, [row.cells for row in shown.rows])


def _refuse_missing(shown: listing.Listing, names: tuple[str, ...], table: listing.Table) -> None:
    """Raises for names that do not exist, after the others were shown."""
    present = {row.name.rpartition("/")[2] for row in shown.rows}
    missing = [name for name in names if name not in present]
    problems = [f'{table.name} "{name}" not found' for name in missing]
    if problems:
        raise errors.InputError("\n".join(problems))


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
