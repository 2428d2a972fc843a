"""`dovetail get`: what is in the cluster, as a table or as Kubernetes objects."""

from collections.abc import Callable

import click

from dovetail import errors
from dovetail.boot import local
from dovetail.cli import labels, options, output, pools, queues, rows, text
from dovetail.sim import cluster as clusters

LISTINGS: dict[str, Callable[[rows.Asked], rows.Listing]] = {
    "gpus": rows.gpus,
    "devices": rows.devices,
    "claims": rows.claim_rows,
    "nodes": rows.node_rows,
    "pools": pools.pool_rows,
    "classes": rows.class_rows,
    "slices": rows.slice_rows,
    "pods": rows.pod_rows,
    "templates": rows.template_rows,
    "queues": queues.queue_rows,
    "topologies": queues.topology_rows,
}
ALIASES = {
    "gpu": "gpus",
    "device": "devices",
    "claim": "claims",
    "resourceclaim": "claims",
    "resourceclaims": "claims",
    "node": "nodes",
    "no": "nodes",
    "pool": "pools",
    "class": "classes",
    "deviceclass": "classes",
    "deviceclasses": "classes",
    "slice": "slices",
    "resourceslice": "slices",
    "resourceslices": "slices",
    "pod": "pods",
    "po": "pods",
    "template": "templates",
    "resourceclaimtemplate": "templates",
    "resourceclaimtemplates": "templates",
    "queue": "queues",
    "topology": "topologies",
}
LIVE = {"queues": "get pods -A", "topologies": "get nodes"}  # kinds of our own; kubectl shows the others
NAMESPACED = ("claims", "pods", "templates")
NEXT = {
    "gpus": "get devices",
    "devices": "get claims -A",
    "nodes": "get pools",
    "pools": "get gpus",
    "classes": "get devices",
    "slices": "get devices",
    "queues": "get pods -A",
    "topologies": "get nodes",
}


def _resource(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    name = ALIASES.get(value.lower(), value.lower())
    if name not in LISTINGS:
        raise click.BadParameter(f'"{value}" is not known; expected one of {", ".join(LISTINGS)}')
    return name


@click.command()
@click.argument("resource", callback=_resource)
@click.argument("names", nargs=-1)
@click.option("-n", "--namespace", default=clusters.DEFAULT_NAMESPACE, show_default=True, help="Namespace to look in.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces.")
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="LABELS",
    help="Labels to match; for gpus and devices, the node's.",
)
@click.option("-o", "--output", "form", type=click.Choice(output.FORMATS), default="table", show_default=True)
@click.option("--node", metavar="NAME", help="Only this node.")
@click.option("--kubeconfig", metavar="FILE", help="For queues and topologies: those of a real cluster.")
@click.option("--context", metavar="NAME", help="The kubeconfig's context. [default: its current one]")
@options.state
def command(
    *,
    resource: str,
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
    asked = rows.Asked(
        cluster=_cluster(opened) if kubeconfig is None and context is None else _live(resource, kubeconfig, context),
        now=opened.now(),
        test=labels.selector(selector),
        namespace=None if all_namespaces else namespace,
        node=node,
        names=names,
        in_full=form == "wide",
    )
    listing = LISTINGS[resource](asked)
    _write(listing, form)
    _miss(listing, names, resource)
    if form in ("table", "wide"):
        if not listing.rows:
            output.say(_nothing(resource, asked))
        if kubeconfig is not None or context is not None:
            output.say(f"next: kubectl {LIVE[resource] if listing.rows else 'apply -f FILE'}")
        else:
            output.next_step(_next(resource, listing))


def _cluster(opened: local.Local) -> clusters.Cluster:
    cluster = opened.cluster()
    if cluster is None:
        raise errors.StateError(f"no cluster in {opened.store.directory}\nnext: dovetail up")
    return cluster


def _live(resource: str, kubeconfig: str | None, context: str | None) -> clusters.Cluster:
    """A real cluster, as far as these rows need it."""
    if resource not in LIVE:
        raise click.UsageError(f"{resource} of a real cluster: kubectl get shows them; here are {', '.join(LIVE)}")
    import asyncio

    from dovetail.boot import fetched
    from dovetail.kube import config
    from dovetail.model import kinds

    connection = config.load(kubeconfig, context=context)
    found = asyncio.run(fetched.cluster(connection, kinds.OURS))
    if not found.records and not asyncio.run(fetched.is_served(connection, resource)):
        raise errors.StateError(f"the cluster does not know {resource}\nnext: dovetail install --definitions")
    return found


def _write(listing: rows.Listing, form: str) -> None:
    if form in ("json", "yaml"):
        output.write_objects(listing.documents, form)
    elif form == "name":
        if listing.rows:
            output.write_lines([row.name for row in listing.rows])
    elif listing.rows:
        headers = listing.headers + (listing.wide_headers if form == "wide" else ())
        cells = [row.cells + (row.wide if form == "wide" else ()) for row in listing.rows]
        output.write_lines(text.table(headers, cells))


def _miss(listing: rows.Listing, names: tuple[str, ...], resource: str) -> None:
    """Raises for a name that was asked for and is not there, after the others were shown."""
    found = {row.name.rpartition("/")[2] for row in listing.rows}
    missing = [name for name in names if name not in found]
    if missing:
        raise errors.InputError("\n".join(f'{resource} "{name}" not found' for name in missing))


def _next(resource: str, listing: rows.Listing) -> str:
    """The command that answers what these rows leave open: of pods that wait, when they start."""
    if not listing.rows:
        return "up" if resource == "gpus" else "apply -f FILE"
    if resource == "pods" and any(_waits(row) for row in listing.rows):
        return "when"
    return NEXT.get(resource, "get gpus")


def _waits(row: rows.Row) -> bool:
    return row.cells[rows.POD_HEADERS.index("status")] == "Pending"


def _nothing(resource: str, asked: rows.Asked) -> str:
    if resource in NAMESPACED and asked.namespace is not None:
        return f"no {resource} found in namespace {asked.namespace}; -A looks in all"
    return f"no {resource} found"
