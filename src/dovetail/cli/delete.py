"""`dovetail delete`: deletes objects by name, by label, or those of a file, and waits until they are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dovetail import errors
from dovetail.ask import api_session
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option, resource_arguments
from dovetail.cli.objects import manifest_files
from dovetail.manifest import manifests
from dovetail.ports import api

if TYPE_CHECKING:
    from dovetail.kube import resource_names
    from dovetail.kube.http import transport

POLL_SECONDS = 0.1
SAY_SECONDS = 2.0  # until a wait is announced
NOT_FOUND = 1


class Doomed(NamedTuple):
    """An object to delete, and how it is written."""

    target: api.Target
    label: str


class Deleted(NamedTuple):
    """What became of the objects."""

    lines: list[str]
    missing: list[str]
    waiting: list[tuple[Doomed, str]]  # with the uid that has to go


@click.command()
@click.argument("words", metavar="[RESOURCE [NAME]... | RESOURCE/NAME...]", nargs=-1)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE|DIR|-",
    help="Delete the objects of these manifests; may repeat.",
)
@click.option("-n", "--namespace", help="Namespace of the objects. [default: the context's]")
@click.option("-A", "--all-namespaces", is_flag=True, help="With -l or --all: in all namespaces.")
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Delete those with the labels."
)
@click.option("--all", "everything", is_flag=True, help="Delete all objects of the resource.")
@click.option(
    "--grace-period", type=int, metavar="SECONDS", help="Time for pods to end. [default: their own]"
)
@click.option("--now", is_flag=True, help="As --grace-period 1.")
@click.option(
    "--cascade",
    type=click.Choice(("background", "foreground", "orphan")),
    default="background",
    show_default=True,
    help="What happens to the objects that these own.",
)
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="End when the objects are gone."
)
@click.option(
    "--timeout", type=float, default=0.0, metavar="SECONDS", help="Longest wait; 0: no limit."
)
@click.option("--ignore-not-found", is_flag=True, help="Objects that do not exist are no error.")
@click.option("-o", "--output", "form", type=click.Choice(("table", "name")), default="table")
@cluster_option.writable
def command(
    *,
    words: tuple[str, ...],
    files: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    everything: bool,
    grace_period: int | None,
    now: bool,
    cascade: str,
    wait: bool,
    timeout: float,
    ignore_not_found: bool,
    form: str,
) -> None:
    """Delete objects: by RESOURCE and names, by labels (-l), all of a RESOURCE (--all), or those of files (-f)."""
    _check_usage(words, files, has_filter=bool(selector) or everything)
    choice = cluster_option.chosen()
    place = "" if all_namespaces else namespace or choice.connection.namespace
    grace = 1 if now else grace_period
    objects: tuple[manifests.ManifestObject, ...] = ()
    if files:
        objects = tuple(
            manifest_files.load(files, namespace=namespace, default_namespace=place, did="deleted")
        )

    async def work(over: transport.Transport) -> Deleted:
        if objects:
            doomed = await _of_files(over, objects, place)
        else:
            doomed = await _of_words(over, words, place=place, selector=selector)
        return await _delete(over, doomed, grace=grace, propagation=cascade.capitalize())

    deleted = api_session.run(choice, work)
    if deleted.lines:
        output.write_lines(_lines(deleted, form))
    if wait and deleted.waiting:
        api_session.run(choice, lambda over: _wait(over, deleted.waiting, timeout=timeout))
    if deleted.missing and not ignore_not_found:
        raise errors.InputError("\n".join(deleted.missing))
    if not deleted.lines and not deleted.missing:
        output.say("nothing to delete")
    cluster_option.say_cluster(choice.name)


def _check_usage(words: Sequence[str], files: Sequence[str], *, has_filter: bool) -> None:
    if bool(words) == bool(files):
        raise click.UsageError("name a RESOURCE, or files with -f")
    if words and not has_filter:
        for named in resource_arguments.split(words):
            if not named.names:
                raise click.UsageError(
                    f"which {named.word}? give names, -l LABELS, or --all for every one"
                )


async def _of_files(
    over: transport.Transport, objects: Sequence[Any], namespace: str
) -> list[Doomed]:
    from dovetail.kube import resource_names

    structs = [item.stored.struct for item in objects]
    served = await resource_names.served_types(over, [struct.api_version for struct in structs])
    doomed = []
    for struct in structs:
        resource = served.of_type(struct.api_version, struct.kind)
        if resource is None:
            raise errors.InputError(
                f"the cluster serves no {struct.kind} in {struct.api_version}; nothing was deleted"
            )
        place = (struct.metadata.namespace or namespace) if resource.kind.is_namespaced else ""
        doomed.append(_doomed(resource, place, struct.metadata.name))
    return doomed


async def _of_words(
    over: transport.Transport, words: Sequence[str], *, place: str, selector: str
) -> list[Doomed]:
    from dovetail.kube import object_requests, resource_names

    served = await resource_names.discover(over)
    doomed = []
    for named in resource_arguments.split(words):
        resource = resource_arguments.resource_of(named.word, served)
        namespace = place if resource.kind.is_namespaced else ""
        if named.names:
            doomed += [_doomed(resource, namespace, name) for name in named.names]
            continue
        params = {"labelSelector": selector} if selector else {}
        trees = await object_requests.listed(
            over, resource.kind, namespace=namespace, params=params
        )
        heads = [tree["metadata"] for tree in trees]
        doomed += [_doomed(resource, head.get("namespace", ""), head["name"]) for head in heads]
    return doomed


def _doomed(resource: resource_names.Resource, namespace: str, name: str) -> Doomed:
    return Doomed(api.Target(resource.kind, namespace, name), resource.label)


async def _delete(
    over: transport.Transport, doomed: Sequence[Doomed], *, grace: int | None, propagation: str
) -> Deleted:
    from dovetail.cli.cluster import named_objects
    from dovetail.kube import object_requests

    deleted = Deleted([], [], [])
    for each in doomed:
        before = await object_requests.read(over, each.target)
        answer = None
        if before is not None:
            answer = await object_requests.delete(
                over, each.target, grace_seconds=grace, propagation=propagation
            )
        if before is None or answer is None:
            target = each.target
            deleted.missing.append(
                await named_objects.not_found(over, target.kind, target.namespace, target.name)
            )
            continue
        deleted.lines.append(f'{each.label} "{each.target.name}" deleted')
        deleted.waiting.append((each, str(before["metadata"].get("uid") or "")))
    return deleted


def _lines(deleted: Deleted, form: str) -> list[str]:
    if form == "table":
        return deleted.lines
    return [f"{each.label}/{each.target.name}" for each, _ in deleted.waiting]


async def _wait(
    over: transport.Transport, waiting: Sequence[tuple[Doomed, str]], *, timeout: float
) -> None:
    """Returns when the objects are gone, or others of their names exist. Announces a long wait once."""
    from dovetail.kube import object_requests

    loop = asyncio.get_running_loop()
    began = loop.time()
    is_announced = False
    for each, uid in waiting:
        while (tree := await object_requests.read(over, each.target)) is not None:
            if tree["metadata"].get("uid") != uid:
                break
            waited = loop.time() - began
            if timeout and waited > timeout:
                raise errors.StateError(
                    f'{each.label} "{each.target.name}" is still there after {timeout:g} s'
                    f"{_held_by(tree)}; --no-wait ends without waiting"
                )
            if waited > SAY_SECONDS and not is_announced:
                is_announced = True
                output.say(f'waiting for {each.label} "{each.target.name}" to go{_held_by(tree)}')
            await asyncio.sleep(POLL_SECONDS)


def _held_by(tree: dict[str, Any]) -> str:
    finalizers = tree["metadata"].get("finalizers") or ()
    return f" (finalizers: {', '.join(finalizers)})" if finalizers else ""
