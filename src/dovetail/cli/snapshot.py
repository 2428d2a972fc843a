"""`dovetail snapshot`: a cluster as files. Save one, load one as the embedded cluster, show what one holds."""

import asyncio
from pathlib import Path

import click

from dovetail import errors
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.cli.tables import text
from dovetail.files import state_directory
from dovetail.snapshot import saved_objects, snapshot_files, snapshot_format

FORMS = ("table", "json")


@click.group(name="snapshot")
def group() -> None:
    """Keep a cluster as files: save one, load it back, show what it holds."""


@group.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--redact",
    is_flag=True,
    help="Replace names by numbers and leave out what scheduling does not read.",
)
@click.option("--force", is_flag=True, help="Replace a snapshot that is there already.")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
@cluster_option.writable
def save(*, directory: Path, redact: bool, force: bool, form: str) -> None:
    """Save a cluster to DIRECTORY.

    Pods and what owns them, nodes, claims, templates, device classes, slices, taint rules, volumes, queues and
    namespaces; secrets are never read.
    """
    from dovetail.snapshot import live_snapshot

    choice = cluster_option.chosen()
    output.say(f"reading {choice.name}")
    name = "" if choice.directory is None else state_directory.cluster_name(choice.directory)
    manifest = asyncio.run(
        live_snapshot.save(
            directory,
            choice.connection,
            say=output.say,
            is_forced=force,
            redacts=redact,
            cluster=name,
        )
    )
    _show(manifest, form)
    if form == "table":
        output.next_step(f"get pods -A --snapshot {directory}")


@group.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--fresh", is_flag=True, help="Replace the cluster that is there, forgetting it.")
@click.option(
    "--state",
    metavar="DIR",
    help=f"Directory of the cluster. [default: ${state_directory.STATE_VARIABLE} or the user's state directory]",
)
def load(*, directory: Path, fresh: bool, state: str | None) -> None:
    """Load the snapshot in DIRECTORY as the embedded cluster, and leave it running.

    Statuses, uids and versions are as they were saved; from then on the scheduler decides about what waits.
    """
    from dovetail.boot import embedded_process, embedded_setup

    place = state_directory.state_directory(state)
    saved = saved_objects.read(directory)
    if state_directory.has_state(place) and not fresh:
        raise errors.InputError(
            f'a cluster "{state_directory.cluster_name(place)}" is already in {place}; '
            "add --fresh to replace it"
        )
    name = saved.objects.cluster
    setup = embedded_setup.Setup(name=name, snapshot=str(directory.resolve()))
    embedded_process.start(
        place, setup, is_fresh=fresh, names_fleet=False, is_tethered=False, say=output.progress
    )
    output.clear_progress(output.PROGRESS_WIDTH)
    output.say(f'loaded {_objects(saved.manifest)} of "{name}" into {place}')
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
