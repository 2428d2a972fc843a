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
LIVE = ("queues", "topologies")  # kinds of our own; kubectl shows the others
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
    )
    listing = LISTINGS[resource](asked)
    _write(listing, form)
    _miss(listing, names, resource)
    if form in ("table", "wide"):
        if not listing.rows:
            output.say(_nothing(resource, asked))
        output.next_step(
            NEXT.get(resource, "get gpus") if listing.rows else "up" if resource == "gpus" else "apply -f FILE"
        )


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

    return asyncio.run(fetched.cluster(config.load(kubeconfig, context=context), kinds.OURS))


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


def _nothing(resource: str, asked: rows.Asked) -> str:
    if resource in NAMESPACED and asked.namespace is not None:
        return f"no {resource} found in namespace {asked.namespace}; -A looks in all"
    return f"no {resource} found"
