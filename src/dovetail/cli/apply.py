"""`dovetail apply` and `dovetail create`: objects from files into a cluster, all or none.

Checks the files here, then every object on the server without storing it, and only then writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dovetail import errors
from dovetail.ask import api_session
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option, settling_notice
from dovetail.cli.objects import manifest_files
from dovetail.kubetypes import object_set

if TYPE_CHECKING:
    from dovetail.cli.objects import object_writing

NAMESPACED_NEXT = {
    "ResourceClaim": "claims",
    "Pod": "pods",
    "Job": "pods",
    "Deployment": "pods",
    "StatefulSet": "pods",
    "DaemonSet": "pods",
    "ReplicaSet": "pods",
    "ResourceClaimTemplate": "templates",
}
TAKE_OVER = "leave these fields out of the file, or add --force-conflicts to take them over"
CLUSTER_WIDE_NEXT = {"Queue": "queues", "Topology": "topologies", "DeviceClass": "classes"}

_FILES = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="What to read; may repeat.",
)
_NAMESPACE = click.option(
    "-n", "--namespace", help="Namespace for objects that name none. [default: the context's]"
)
_DRY_RUN = click.option(
    "--dry-run",
    is_flag=False,
    flag_value="server",
    default="none",
    type=click.Choice(("none", "server", "client")),
    help="Change nothing: check everything (server), or only the files (client).",
)
_OUTPUT = click.option(
    "-o", "--output", "form", type=click.Choice(("table", "json", "yaml", "name")), default="table"
)


@click.command()
@_FILES
@_NAMESPACE
@_DRY_RUN
@_OUTPUT
@click.option(
    "--force-conflicts",
    is_flag=True,
    help="Take over fields that other field managers own.",
)
@cluster_option.writable
def command(
    *,
    files: tuple[str, ...],
    namespace: str | None,
    dry_run: str,
    form: str,
    force_conflicts: bool,
) -> None:
    """Create or change objects from YAML or JSON files, all or none.

    FILE may hold many documents; DIR means its .yaml, .yml and .json files; - is standard input. On the embedded
    cluster the command ends once the scheduler has answered about the pods.
    """
    _write(
        files,
        namespace=namespace,
        dry_run=dry_run,
        form=form,
        verb="apply",
        forces_conflicts=force_conflicts,
    )


@click.command()
@_FILES
@_NAMESPACE
@_DRY_RUN
@_OUTPUT
@cluster_option.writable
def create(*, files: tuple[str, ...], namespace: str | None, dry_run: str, form: str) -> None:
    """Create objects from YAML or JSON files, all or none; none may exist already.

    Objects with generateName instead of a name get one from the server.
    """
    _write(files, namespace=namespace, dry_run=dry_run, form=form, verb="create")


def _write(
    files: Sequence[str],
    *,
    namespace: str | None,
    dry_run: str,
    form: str,
    verb: str,
    forces_conflicts: bool = False,
) -> None:
    from dovetail.cli.objects import object_writing

    did = "applied" if verb == "apply" else "created"
    place = namespace or _default_namespace()
    objects = manifest_files.load(files, namespace=namespace, default_namespace=place, did=did)
    writer = object_writing.Writer(
        objects,
        namespace=place,
        is_creating=verb == "create",
        forces_conflicts=forces_conflicts,
    )
    problems = writer.local_problems()
    if problems:
        manifest_files.refuse(problems, did=did)

    manifest_files.say_annotation_problems(objects)
    if dry_run == "client":
        _show(writer.unsent(), form=form, dry_run=True)
        return
    choice = cluster_option.chosen()
    is_dry = dry_run == "server"
    notice = settling_notice.SettlingNotice()
    outcome = api_session.run(
        choice,
        lambda over: writer.write(
            over, dry_run=is_dry, settles=choice.is_embedded, report=notice.report
        ),
    )
    notice.finish()
    if outcome.problems:
        hint = TAKE_OVER if outcome.is_contested else ""
        manifest_files.refuse(outcome.problems, did=did, hint=hint)
    _show(outcome.changes, form=form, dry_run=is_dry)
    for warning in outcome.warnings:
        output.say(warning)
    if form == "table":
        cluster_option.say_cluster(choice.name)
        output.next_step(_next(outcome.changes))


def _default_namespace() -> str:
    """The namespace of the context. Files are checked first, so a cluster that is not there is reported later."""
    try:
        return cluster_option.default_namespace()
    except errors.DovetailError:
        return object_set.DEFAULT_NAMESPACE


def _show(changes: Sequence[object_writing.Change], *, form: str, dry_run: bool) -> None:
    if form in ("json", "yaml"):
        trees = [change.tree for change in changes]
        if len(trees) == 1:
            output.write_object(trees[0], form)
        else:
            output.write_objects(trees, form)
        return
    if form == "name":
        output.write_lines([change.label for change in changes])
        return
    after = " (dry run)" if dry_run else ""
    output.write_lines([f"{change.label} {change.outcome}{after}" for change in changes])


def _next(changes: Sequence[object_writing.Change]) -> str:
    """The command that shows what was applied, the most interesting kind first."""
    kinds = {change.kind for change in changes}
    for kind, resource in NAMESPACED_NEXT.items():
        if kind in kinds:
            return f"get {resource}{_namespace_option(changes)}"
    for kind, resource in CLUSTER_WIDE_NEXT.items():
        if kind in kinds:
            return f"get {resource}"
    return "get gpus"


def _namespace_option(changes: Sequence[object_writing.Change]) -> str:
    namespaces = {change.namespace for change in changes} - {""}
    if len(namespaces) > 1:
        return " -A"
    if not namespaces or namespaces == {object_set.DEFAULT_NAMESPACE}:
        return ""
    return f" -n {namespaces.pop()}"
