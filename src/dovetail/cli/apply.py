"""`dovetail apply`: objects from files into the cluster, all of them or none."""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, assert_never

import click

from dovetail import errors
from dovetail.boot import files as sources
from dovetail.boot import local
from dovetail.cli import options, output, text
from dovetail.model import manifests, queues, queuetree, wishes
from dovetail.sim import cluster as clusters

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
REFUSED = 1


@click.command()
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE|DIR|-", help="What to apply; may repeat."
)
@click.option("-n", "--namespace", help="Namespace for objects that name none. [default: default]")
@click.option("--dry-run", is_flag=True, help="Check everything, change nothing.")
@click.option("-o", "--output", "form", type=click.Choice(("table", "json", "yaml", "name")), default="table")
@options.state
def command(*, files: tuple[str, ...], namespace: str | None, dry_run: bool, form: str, state: str | None) -> None:
    """Create or change objects from YAML or JSON files, all or none.

    FILE may hold many documents; DIR means its .yaml, .yml and .json files; - is standard input.
    """
    opened = options.opened(state)
    read = [_read(name, content, namespace) for name, content in contents(files)]
    problems = [problem for one in read for problem in one.problems]
    given = [one for found in read for one in found.objects]
    problems += [one.problem("metadata.namespace", message) for one in given if (message := _elsewhere(one, namespace))]
    if problems:
        _refuse([str(problem) for problem in problems])
    if not given:
        _refuse([f"{', '.join(files)}: no objects found; expected at least one Kubernetes object"])
    for note in (note for one in read for note in one.notes):
        if not note.subject.startswith("Namespace "):
            output.say(str(note))
    for one in given:
        for problem in wishes.read(wishes.place_of(one.stored.struct.metadata)).problems:
            output.say(str(one.problem("", problem)))
    _apply(opened, given, namespace=namespace or clusters.DEFAULT_NAMESPACE, dry_run=dry_run, form=form)


def _apply(
    opened: local.Local, found: list[manifests.ManifestObject], *, namespace: str, dry_run: bool, form: str
) -> None:
    was_up = opened.cluster() is not None
    given = [clusters.Given(one.stored.tree, _place(one)) for one in found]
    outcome = opened.apply(given, namespace=namespace, dry_run=dry_run)
    match outcome:
        case clusters.Refused(problems):
            _refuse([str(problem) for problem in problems])
        case clusters.Applied(cluster, changes):
            if not was_up:
                where = "checked against" if dry_run else "started"
                output.say(f"no cluster in {opened.store.directory} yet: {where} the sample fleet")
            _show(cluster, changes, form=form, dry_run=dry_run)
            _complain(cluster, {change.key.name for change in changes if change.key.kind == "Queue"})
            output.next_step(_next(changes))
        case _:
            assert_never(outcome)


def _show(cluster: clusters.Cluster, changes: tuple[clusters.Change, ...], *, form: str, dry_run: bool) -> None:
    if form in ("json", "yaml"):
        trees = [clusters.decoded(cluster.records[change.key]).tree for change in changes]
        output.write_objects(trees, form)
        return
    names = [_resource_name(change) for change in changes]
    if form == "name":
        output.write_lines(names)
        return
    after = " (dry run)" if dry_run else ""
    output.write_lines([f"{name} {one.outcome}{after}" for name, one in zip(names, changes, strict=True)])


def _complain(cluster: clusters.Cluster, names: set[str]) -> None:
    """What is wrong with queues as they hang together, of those that were applied."""
    known = {
        one.struct.metadata.name: one.struct
        for one in clusters.listed(cluster, "Queue")
        if isinstance(one.struct, queues.Queue)
    }
    for name, problem in sorted(queuetree.problems(known).items()) if names else ():
        if name in names:
            output.say(f"queue {name}: {problem.message}")


def _resource_name(change: clusters.Change) -> str:
    """kind.group/name, as kubectl writes it."""
    group = change.api_version.rpartition("/")[0]
    return f"{change.key.kind.lower()}{'.' + group if group else ''}/{change.key.name}"


def _next(changes: tuple[clusters.Change, ...]) -> str:
    kinds = {change.key.kind for change in changes}
    spaces = {change.key.namespace for change in changes if change.key.namespace}
    where = (
        f" -n {next(iter(spaces))}" if len(spaces) == 1 and spaces != {"default"} else " -A" if len(spaces) > 1 else ""
    )
    for kind, resource in (("ResourceClaim", "claims"), ("Pod", "pods"), ("ResourceClaimTemplate", "templates")):
        if kind in kinds:
            return f"get {resource}{where}"
    for kind, resource in (("Queue", "queues"), ("Topology", "topologies"), ("DeviceClass", "classes")):
        if kind in kinds:
            return f"get {resource}"
    return "get gpus"


def _refuse(problems: list[str]) -> NoReturn:
    for problem in problems:
        output.say(f"error: {problem}")
    output.say(f"nothing was applied: {text.counted(len(problems), 'problem')}")
    raise click.exceptions.Exit(REFUSED)


def contents(files: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Every file to read with its content. Raises InputError for what cannot be read."""
    for name in files:
        path = Path(name)
        if name == STDIN or not path.is_dir():
            yield sources.shown(name), sources.content(name)
            continue
        inside = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file())
        if not inside:
            raise errors.InputError(f"{name}: no {', '.join(SUFFIXES)} files in this directory")
        yield from ((str(one), sources.content(one)) for one in inside)


def _read(name: str, content: bytes, namespace: str | None) -> manifests.Manifests:
    return manifests.load(content, file=name, default_namespace=namespace or clusters.DEFAULT_NAMESPACE)


def _elsewhere(one: manifests.ManifestObject, namespace: str | None) -> str | None:
    """Why an object does not fit the namespace the command names."""
    given = one.stored.struct.metadata.namespace
    if namespace and given and given != namespace:
        return f'is "{given}", but -n says "{namespace}"'
    return None


def _place(one: manifests.ManifestObject) -> str:
    return f"{one.file}: document {one.document} (line {one.line})"
