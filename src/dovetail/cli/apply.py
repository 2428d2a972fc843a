"""`dovetail apply`: applies objects from files to the cluster, all or none."""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, assert_never

import click

from dovetail import errors
from dovetail.cli import options, output
from dovetail.cli.tables import text
from dovetail.files import bounded_files
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.manifest import manifests
from dovetail.model import gpu_annotations, workload_annotations
from dovetail.model.queue import queue_tree
from dovetail.sim.local import local_cluster, state_dir

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
REFUSED = 1
NAMESPACED_NEXT = {"ResourceClaim": "claims", "Pod": "pods", "ResourceClaimTemplate": "templates"}
CLUSTER_WIDE_NEXT = {"Queue": "queues", "Topology": "topologies", "DeviceClass": "classes"}


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="What to apply; may repeat.",
)
@click.option("-n", "--namespace", help="Namespace for objects that name none. [default: default]")
@click.option("--dry-run", is_flag=True, help="Check everything, change nothing.")
@click.option(
    "-o", "--output", "form", type=click.Choice(("table", "json", "yaml", "name")), default="table"
)
@options.state
def command(
    *, files: tuple[str, ...], namespace: str | None, dry_run: bool, form: str, state: str | None
) -> None:
    """Create or change objects from YAML or JSON files, all or none.

    FILE may hold many documents; DIR means its .yaml, .yml and .json files; - is standard input.
    """
    opened = options.opened(state)
    loaded = [_load(name, content, namespace) for name, content in contents(files)]
    objects = [item for manifest in loaded for item in manifest.objects]
    problems = [problem for manifest in loaded for problem in manifest.problems]
    problems += _namespace_problems(objects, namespace)
    if problems:
        _refuse([str(problem) for problem in problems])
    if not objects:
        _refuse([f"{', '.join(files)}: no objects found; expected at least one Kubernetes object"])

    _print_notes(loaded)
    _apply(
        opened,
        objects,
        namespace=namespace or local_cluster.DEFAULT_NAMESPACE,
        dry_run=dry_run,
        form=form,
    )


def _print_notes(loaded: list[manifests.Manifests]) -> None:
    """Notes on the files, and annotations that cannot be read."""
    for manifest in loaded:
        for note in manifest.notes:
            if not note.subject.startswith("Namespace "):
                output.say(str(note))
    for manifest in loaded:
        for item in manifest.objects:
            annotated = workload_annotations.labels_and_annotations(item.stored.struct.metadata)
            for problem in workload_annotations.read(annotated).problems:
                output.say(str(item.problem("", problem)))
            for message in _notes_on_gpus(item.stored.struct):
                output.say(str(item.problem("", message)))


def _notes_on_gpus(manifest_object: codec.Object) -> Iterator[str]:
    """Annotations about GPUs that keep a pod pending, and those without an effect."""
    if isinstance(manifest_object, pods.Pod):
        for refusal in gpu_annotations.refusals(manifest_object):
            yield f"{refusal.subject}: {refusal.detail}"
        yield from gpu_annotations.notes(manifest_object)


def _apply(
    opened: state_dir.Local,
    objects: list[manifests.ManifestObject],
    *,
    namespace: str,
    dry_run: bool,
    form: str,
) -> None:
    was_up = opened.cluster() is not None
    trees = [local_cluster.Given(item.stored.tree, _place(item)) for item in objects]
    outcome = opened.apply(trees, namespace=namespace, dry_run=dry_run)
    match outcome:
        case local_cluster.Refused(problems):
            _refuse([str(problem) for problem in problems])
        case local_cluster.Applied(cluster, changes):
            if not was_up:
                where = "checked against" if dry_run else "started"
                output.say(f"no cluster in {opened.store.directory} yet: {where} the sample fleet")
            _show(cluster, changes, form=form, dry_run=dry_run)
            _report_queues(cluster, changes)
            output.next_step(_next(changes))
        case _:
            assert_never(outcome)


def _show(
    cluster: local_cluster.Cluster,
    changes: tuple[local_cluster.Change, ...],
    *,
    form: str,
    dry_run: bool,
) -> None:
    if form in ("json", "yaml"):
        trees = [local_cluster.decoded(cluster.records[change.key]).tree for change in changes]
        output.write_objects(trees, form)
        return
    names = [_resource_name(change) for change in changes]
    if form == "name":
        output.write_lines(names)
        return
    after = " (dry run)" if dry_run else ""
    output.write_lines(
        [f"{name} {change.outcome}{after}" for name, change in zip(names, changes, strict=True)]
    )


def _report_queues(
    cluster: local_cluster.Cluster, changes: tuple[local_cluster.Change, ...]
) -> None:
    """Problems of the applied queues within the tree of all queues."""
    applied = {change.key.name for change in changes if change.key.kind == "Queue"}
    if not applied:
        return
    structs = [stored.struct for stored in local_cluster.listed(cluster, "Queue")]
    queues_by_name = {
        queue.metadata.name: queue for queue in structs if isinstance(queue, queues.Queue)
    }
    for name, problem in sorted(queue_tree.problems(queues_by_name).items()):
        if name in applied:
            output.say(f"queue {name}: {problem.message}")


def _resource_name(change: local_cluster.Change) -> str:
    """kind.group/name, as kubectl writes it."""
    group = change.api_version.rpartition("/")[0]
    kind = change.key.kind.partition(".")[0].lower()
    return f"{kind}{'.' + group if group else ''}/{change.key.name}"


def _next(changes: tuple[local_cluster.Change, ...]) -> str:
    """The command that shows what was applied, the most interesting kind first."""
    kinds = {change.key.kind for change in changes}
    for kind, resource in NAMESPACED_NEXT.items():
        if kind in kinds:
            return f"get {resource}{_namespace_option(changes)}"
    for kind, resource in CLUSTER_WIDE_NEXT.items():
        if kind in kinds:
            return f"get {resource}"
    return "get gpus"


def _namespace_option(changes: tuple[local_cluster.Change, ...]) -> str:
    namespaces = {change.key.namespace for change in changes} - {""}
    if len(namespaces) > 1:
        return " -A"
    if not namespaces or namespaces == {"default"}:
        return ""
    return f" -n {namespaces.pop()}"


def _refuse(problems: list[str]) -> NoReturn:
    for problem in problems:
        output.say(f"error: {problem}")
    output.say(f"nothing was applied: {text.counted(len(problems), 'problem')}")
    raise click.exceptions.Exit(REFUSED)


def contents(files: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Every file to read with its content. Raises InputError for a file that cannot be read."""
    for name in files:
        path = Path(name)
        if name == STDIN or not path.is_dir():
            yield bounded_files.display_name(name), bounded_files.content(name)
            continue
        yield from _directory_contents(path, name)


def _directory_contents(directory: Path, name: str) -> Iterator[tuple[str, bytes]]:
    candidates = [file for file in directory.iterdir() if file.suffix in SUFFIXES]
    manifest_files = sorted(file for file in candidates if file.is_file())
    if not manifest_files:
        raise errors.InputError(f"{name}: no {', '.join(SUFFIXES)} files in this directory")
    for file in manifest_files:
        yield str(file), bounded_files.content(file)


def _load(name: str, content: bytes, namespace: str | None) -> manifests.Manifests:
    return manifests.load(
        content, file=name, default_namespace=namespace or local_cluster.DEFAULT_NAMESPACE
    )


def _namespace_problems(
    objects: list[manifests.ManifestObject], namespace: str | None
) -> Iterator[manifests.ManifestProblem]:
    """Objects that name another namespace than the command."""
    for item in objects:
        stated = item.stored.struct.metadata.namespace
        if namespace and stated and stated != namespace:
            yield item.problem("metadata.namespace", f'is "{stated}", but -n says "{namespace}"')


def _place(item: manifests.ManifestObject) -> str:
    return f"{item.file}: document {item.document} (line {item.line})"
