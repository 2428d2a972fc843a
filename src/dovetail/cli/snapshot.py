"""`dovetail snapshot`: a cluster as files. Save one, load one as the embedded cluster, show what one holds."""

import asyncio
from pathlib import Path

import click

from dovetail import errors
from dovetail.ask import cluster_view
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.files import bounded_files, state_directory
from dovetail.snapshot import saved_objects, snapshot_files, snapshot_format
from dovetail.tables import text

FORMS = ("table", "json")
DUMP_HEADERS = (
    "source",
    "as of",
    "files",
    "objects",
    "left out",
    "given twice",
    "secrets",
    "namespaces added",
    "uids added",
)


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
    from dovetail.boot import embedded_setup
    from dovetail.cli.cluster import embedded_start
    from dovetail.snapshot import any_snapshot

    if directory.exists() and not any_snapshot.is_saved(str(directory)):
        raise click.UsageError(
            f"{directory}: not a snapshot that `dovetail snapshot save` wrote; "
            "apply its objects to a cluster of your own instead"
        )

    place = state_directory.state_directory(state)
    saved = saved_objects.read(directory)
    if state_directory.has_state(place) and not fresh:
        raise errors.InputError(
            f'a cluster "{state_directory.cluster_name(place)}" is already in {place}; '
            "add --fresh to replace it"
        )
    name = saved.objects.cluster
    setup = embedded_setup.Setup(name=name, snapshot=str(directory.resolve()))
    embedded_start.start(place, setup, is_fresh=fresh, names_fleet=False, is_tethered=False)
    output.clear_progress(output.PROGRESS_WIDTH)
    output.say(f'loaded {_objects(saved.manifest)} of "{name}" into {place}')
    if link := embedded_start.link(place):
        output.say(f"dashboard: {link}")
    output.next_step("get pods -A")


@group.command()
@click.argument("path")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True
)
def show(*, path: str, form: str) -> None:
    """Show what PATH holds: a snapshot, after checking that it is as it was saved, or any objects in files.

    PATH is what --snapshot takes: a directory, a file of YAML or JSON, an archive (.tar, .tgz), also compressed (.gz),
    or - for standard input.
    """
    from dovetail.snapshot import any_snapshot

    if any_snapshot.is_saved(path):
        _show(snapshot_files.checked(Path(path)), form)
    else:
        _show_dump(path, form)
    if form == "table" and path != bounded_files.STDIN:
        output.next_step(f"get pods -A --snapshot {path}")


def _show_dump(path: str, form: str) -> None:
    """What was read of objects in files, and what was left out or filled in."""
    from dovetail.snapshot import object_dump

    try:
        with cluster_view.not_collecting():
            dump = object_dump.read(path)
    except errors.InputError as error:
        raise output.BadInput(str(error)) from None
    cluster_option.say_some(dump.problems, "left out", "that cannot be read")
    cluster_option.say_some(dump.duplicates, "given twice", "objects that are given twice")
    summary = object_dump.summary_of(dump)
    if form == "json":
        output.write_json(summary)
        return
    facts = [
        summary.source,
        summary.taken_at,
        *map(str, (summary.files, summary.objects, summary.left_out, summary.given_twice)),
        *map(str, (summary.secrets, len(summary.added_namespaces), summary.added_uids)),
    ]
    kinds = [[each.kind, str(each.count), ", ".join(each.versions)] for each in summary.kinds]
    output.write_lines(
        [
            *text.table(DUMP_HEADERS, [facts]),
            "",
            *text.table(("kind", "count", "versions"), kinds),
        ]
    )
    output.say(f"time: {dump.taken_by}")
    if dump.passed_over:
        output.say(f"passed over: {text.counted(dump.passed_over, 'file')} of other sorts")
    if dump.added_namespaces:
        output.say(f"namespaces that objects name: {', '.join(dump.added_namespaces[:20])}")


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
