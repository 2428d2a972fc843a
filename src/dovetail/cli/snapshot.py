"""`dovetail snapshot`: a cluster as files. Save the local or a live one, load one back, show what one holds."""

import asyncio
from pathlib import Path

import click
import msgspec

from dovetail import errors, timestamps
from dovetail.cli import options, output
from dovetail.cli.tables import text
from dovetail.kubetypes import meta, registry
from dovetail.sim.local import local_cluster, state_dir
from dovetail.snapshot import saved_objects, snapshot_files, snapshot_format

FORMS = ("table", "json")


@click.group(name="snapshot")
def group() -> None:
    """Keep a cluster as files: save one, load it back, show what it holds."""


@group.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--kubeconfig", metavar="FILE", help="Save a live cluster: the one this kubeconfig leads to."
)
@click.option(
    "--context",
    metavar="NAME",
    help="Save a live cluster: the one of this context of the kubeconfig.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Save a live cluster: the one kubectl would use, or of the pod we run in.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Replace names by numbers and leave out what scheduling does not read.",
)
@click.option("--force", is_flag=True, help="Replace a snapshot that is there already.")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@options.own_state
def save(
    *,
    directory: Path,
    kubeconfig: str | None,
    context: str | None,
    live: bool,
    redact: bool,
    force: bool,
    form: str,
    state: str | None,
) -> None:
    """Save a cluster to DIRECTORY: the local one, or a live one with --kubeconfig, --context or --live.

    Pods, nodes, claims, templates, device classes, slices, taint rules and namespaces; secrets are never read.
    """
    is_live = live or kubeconfig is not None or context is not None
    if is_live and state is not None:
        raise click.UsageError(
            "give --state for the local cluster or --kubeconfig for a live one, not both"
        )
    if is_live:
        manifest = _save_live(directory, kubeconfig, context=context, redact=redact, force=force)
    else:
        manifest = _save_local(directory, options.opened(state), redact=redact, force=force)
    _show(manifest, form)
    if form == "table":
        output.next_step(
            f"snapshot load {directory} --fresh"
            if is_live
            else f"get pods -A --snapshot {directory}"
        )


@group.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--fresh", is_flag=True, help="Replace the cluster that is there, forgetting it.")
@options.own_state
def load(*, directory: Path, fresh: bool, state: str | None) -> None:
    """Load the snapshot in DIRECTORY as the local cluster.

    Statuses, uids and versions stay as they were; nothing is rescheduled.
    """
    place = options.opened(state)
    snapshot = load_into(directory, place, fresh=fresh)
    output.say(
        f'loaded {_objects(snapshot.manifest)} of "{snapshot.objects.cluster}" into {place.store.directory}'
    )
    output.next_step("get pods -A")


@group.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
def show(*, directory: Path, form: str) -> None:
    """Show what the snapshot in DIRECTORY holds, after checking that it is as it was saved."""
    _show(snapshot_files.checked(directory), form)
    if form == "table":
        output.next_step(f"get pods -A --snapshot {directory}")


def documents_of(cluster: local_cluster.Cluster) -> dict[registry.Kind, list[bytes]]:
    """The documents of the local cluster that a snapshot has, by namespace and name."""
    documents: dict[registry.Kind, list[bytes]] = {kind: [] for kind in snapshot_format.KINDS}
    for key in sorted(cluster.records):
        if kind := snapshot_files.KIND_NAMED.get(key.kind):
            documents[kind].append(bytes(cluster.records[key].document))
    return documents


def load_into(directory: Path, place: state_dir.Local, *, fresh: bool) -> saved_objects.Snapshot:
    """Loads a snapshot as the local cluster; with `fresh` it replaces an existing one."""
    snapshot = saved_objects.read(directory)
    records = {
        local_cluster.key_of(stored.struct): local_cluster.Record(
            msgspec.Raw(stored.document), meta.NO_RAW
        )
        for stored in snapshot.objects.all()
    }
    loaded = local_cluster.Cluster(snapshot.objects.cluster, snapshot.objects.revision, records)

    def replace(
        old: local_cluster.Cluster | None,
    ) -> tuple[local_cluster.Cluster | None, saved_objects.Snapshot]:
        if old is not None and not fresh:
            raise errors.InputError(
                f'a cluster "{old.name}" is already in {place.store.directory}; '
                "add --fresh to replace it"
            )
        return loaded, snapshot

    return place.store.change(replace)


def _save_local(
    directory: Path, place: state_dir.Local, *, redact: bool, force: bool
) -> snapshot_format.Manifest:
    cluster = place.cluster()
    if cluster is None:
        raise errors.StateError(
            f"no cluster in {place.store.directory}; for a live one add --kubeconfig FILE\nnext: dovetail up"
        )
    facts = snapshot_format.Facts(
        taken_at=timestamps.to_text(place.now()),
        cluster=cluster.name,
        resource_versions={kind.name: str(cluster.revision) for kind in snapshot_format.KINDS},
    )
    documents = documents_of(cluster)
    manifest = snapshot_files.write(
        directory, documents, facts, is_forced=force, redacts=redact, say=output.say
    )
    if left_out := len(cluster.records) - sum(map(len, documents.values())):
        output.say(
            f"left out: {text.counted(left_out, 'object')} of kinds a snapshot does not keep"
        )
    return manifest


def _save_live(
    directory: Path, kubeconfig: str | None, *, context: str | None, redact: bool, force: bool
) -> snapshot_format.Manifest:
    from dovetail.kube.auth import client_config
    from dovetail.snapshot import live_snapshot  # the local cluster needs no HTTP

    connection = client_config.load(kubeconfig, context=context)
    output.say(f"reading {connection.server}")
    return asyncio.run(
        live_snapshot.save(directory, connection, say=output.say, is_forced=force, redacts=redact)
    )


def _show(manifest: snapshot_format.Manifest, form: str) -> None:
    if form == "json":
        output.write_json(manifest)
        return
    facts = [
        manifest.cluster,
        manifest.taken_at,
        manifest.server_version,
        "yes" if manifest.redacted else "no",
        str(manifest.left_out),
        manifest.dovetail_version,
    ]
    files = [
        [
            file.kind,
            str(file.count),
            text.binary(file.size_bytes),
            file.resource_version,
            file.name,
            file.sha256[:12],
        ]
        for file in manifest.files
    ]
    output.write_lines(
        [
            *text.table(
                ("cluster", "taken", "server", "redacted", "left out", "dovetail"), [facts]
            ),
            "",
            *text.table(("kind", "count", "size", "version", "file", "sha256"), files),
        ]
    )


def _objects(manifest: snapshot_format.Manifest) -> str:
    return text.counted(sum(file.count for file in manifest.files), "object")
