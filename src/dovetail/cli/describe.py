"""`dovetail describe`: an object in words: what it asks for, what it holds, why it waits, what happened."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail import errors
from dovetail.ask import api_session
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option, resource_arguments
from dovetail.kubetypes import codec, registry
from dovetail.ports import api
from dovetail.tables import description, label_option

if TYPE_CHECKING:
    from dovetail.kube import resource_names
    from dovetail.kube.http import transport

CORE_EVENT = registry.Kind("v1", "Event", "events", True, codec.Generic)


@click.command()
@click.argument("words", metavar="RESOURCE [NAME]... | RESOURCE/NAME...", nargs=-1, required=True)
@click.option("-n", "--namespace", help="Namespace to look in. [default: the context's]")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Labels to match.")
@cluster_option.readable
def command(*, words: tuple[str, ...], namespace: str | None, selector: str) -> None:
    """Describe objects of any kind: a pod with its devices and why it waits, a node with its GPUs, a claim, a queue.

    Without a name, all objects of the resource in the namespace.
    """
    path = cluster_option.snapshot()
    if path is not None:
        _describe_saved(words, path, namespace=namespace, selector=selector)
        return
    choice = cluster_option.chosen()
    place = namespace or choice.connection.namespace
    now = datetime.datetime.now(datetime.UTC)

    async def work(over: transport.Transport) -> tuple[list[str], list[str]]:
        return await _described(over, words, place=place, selector=selector, now=now)

    lines, missing = api_session.run(choice, work)
    _write(lines, missing, place=place, cluster=choice.name)


def _describe_saved(
    words: Sequence[str], path: Path, *, namespace: str | None, selector: str
) -> None:
    """Describes objects of a snapshot."""
    from dovetail.cli.views import saved_descriptions

    test = label_option.selector(selector)
    place = namespace or cluster_option.default_namespace()
    seen = cluster_option.whole_snapshot(path)
    lines: list[str] = []
    missing: list[str] = []
    for named in resource_arguments.split(words):
        wanted = saved_descriptions.Wanted(named.word, named.names, place, test)
        described = saved_descriptions.described(wanted, seen.objects, now=seen.now)
        for block in described.blocks:
            lines += ["", "", *block] if lines else block
        missing += described.missing
    _write(lines, missing, place=place, cluster=seen.name)


def _write(lines: Sequence[str], missing: Sequence[str], *, place: str, cluster: str) -> None:
    if lines:
        output.write_lines(lines)
    if missing:
        raise errors.InputError("\n".join(missing))
    if not lines:
        output.say(f"nothing found in namespace {place}")
    cluster_option.say_cluster(cluster)


async def _described(
    over: transport.Transport,
    words: Sequence[str],
    *,
    place: str,
    selector: str,
    now: datetime.datetime,
) -> tuple[list[str], list[str]]:
    from dovetail.cli.cluster import named_objects
    from dovetail.kube import object_requests, resource_names

    served = await resource_names.discover(over)
    lines: list[str] = []
    missing: list[str] = []
    for named in resource_arguments.split(words):
        resource = resource_arguments.resource_of(named.word, served)
        namespace = place if resource.kind.is_namespaced else ""
        if named.names:
            trees = []
            for name in named.names:
                tree = await object_requests.read(over, api.Target(resource.kind, namespace, name))
                if tree is None:
                    missing.append(
                        await named_objects.not_found(over, resource.kind, namespace, name)
                    )
                else:
                    trees.append(tree)
        else:
            params = {"labelSelector": selector} if selector else {}
            trees = await object_requests.listed(
                over, resource.kind, namespace=namespace, params=params
            )
        for tree in trees:
            related = await _related(over, resource, tree)
            lines += ["", ""] if lines else []
            lines += description.lines_of(tree, related, now=now)
    return lines, missing


async def _related(
    over: transport.Transport, resource: resource_names.Resource, tree: description.Tree
) -> description.Related:
    """The objects that say more about this one."""
    from dovetail.kube import object_requests

    metadata = tree["metadata"]
    namespace = str(metadata.get("namespace") or "")
    about = f"involvedObject.name={metadata['name']},involvedObject.kind={resource.kind.name}"
    events = object_requests.listed(
        over, CORE_EVENT, namespace=namespace, params={"fieldSelector": about}
    )
    if resource.kind.name == "Pod" and not resource.group:
        claims = object_requests.listed(over, registry.CLAIM, namespace=namespace)
        event_trees, claim_trees = await asyncio.gather(events, claims)
        return description.Related(events=event_trees, claims=claim_trees)
    if resource.kind.name == "Node" and not resource.group:
        on_node = {"fieldSelector": f"spec.nodeName={metadata['name']}"}
        listed = await asyncio.gather(
            events,
            object_requests.listed(over, registry.CLAIM),
            object_requests.listed(over, registry.POD, params=on_node),
            object_requests.listed(over, registry.SLICE, params=on_node),
        )
        return description.Related(*listed)
    return description.Related(events=await events)
