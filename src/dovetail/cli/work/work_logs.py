"""`dovetail logs`: what the containers of a pod, a job or a gang print."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from dovetail import errors
from dovetail.ask import api_session
from dovetail.cli import output
from dovetail.cli.cluster import cluster_option
from dovetail.quantity import durations
from dovetail.tables import text

if TYPE_CHECKING:
    from dovetail.cli.work import pod_logs
    from dovetail.kube.http import transport

POLL_SECONDS: Final = 0.5
NO_LOGS: Final = (
    "the embedded cluster runs no containers, so its pods print nothing; "
    "`dovetail dev up --kubelet` starts a cluster that does"
)

Tree = dict[str, Any]


@click.command()
@click.argument("word", metavar="POD | KIND/NAME")
@click.option("-n", "--namespace", help="Namespace to look in. [default: the context's]")
@click.option("-f", "--follow", is_flag=True, help="Wait for the start, and go on until it ends.")
@click.option("-c", "--container", default="", metavar="NAME", help="[default: the only or first]")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Only the last lines.")
@click.option("--since", default="", metavar="DURATION", help="Only lines of that time: 10m.")
@click.option("-p", "--previous", is_flag=True, help="Of the container before its restart.")
@click.option("--timestamps", is_flag=True, help="Begin every line with its time.")
@click.option("--all-pods", is_flag=True, help="All pods of the job or gang, each with its name.")
@cluster_option.writable
def command(
    *,
    word: str,
    namespace: str | None,
    follow: bool,
    container: str,
    tail: int | None,
    since: str,
    previous: bool,
    timestamps: bool,
    all_pods: bool,
) -> None:
    """Print the logs of a pod, of the first pod of a job or gang, or of all of them (--all-pods)."""
    from dovetail.cli.work import pod_logs

    since_seconds = durations.seconds(since) if since else None
    if since and since_seconds is None:
        raise click.BadParameter(
            f'"{since}": expected a duration such as 10m', param_hint="--since"
        )
    options = pod_logs.LogOptions(
        container=container,
        tail=tail,
        since_seconds=since_seconds,
        is_previous=previous,
        has_timestamps=timestamps,
    )
    choice = cluster_option.chosen()
    place = namespace or choice.connection.namespace

    async def work(over: transport.Transport) -> None:
        pods = await _pods(over, word, place)
        if choice.is_embedded:
            raise errors.StateError(NO_LOGS)
        if len(pods) > 1 and not all_pods:
            first = pods[0]["metadata"]["name"]
            output.say(
                f"{text.counted(len(pods), 'pod')}, using pod/{first}; --all-pods prints all"
            )
            pods = pods[:1]
        await _print(over, place, pods, options, follows=follow, has_prefix=all_pods)

    api_session.run(choice, work)


async def _pods(over: transport.Transport, word: str, namespace: str) -> list[Tree]:
    from dovetail.cli.work import work_targets

    lookup = await work_targets.lookup(over, namespace)
    work = await lookup.of_word(word)
    if not work.pods:
        raise errors.InputError(f"{work.label} has no pods in namespace {namespace}")
    return work_targets.sorted_by_index(work.pods)


async def _print(
    over: transport.Transport,
    namespace: str,
    pods: Sequence[Tree],
    options: pod_logs.LogOptions,
    *,
    follows: bool,
    has_prefix: bool,
) -> None:
    from dovetail.cli.work import pod_logs

    async def print_pod(pod: Tree) -> None:
        name = pod["metadata"]["name"]
        prefix = f"[pod/{name}] " if has_prefix else ""

        def write(line: str) -> None:
            output.write_text(f"{prefix}{line}\n")

        if follows:
            await await_start(over, namespace, name)
            await pod_logs.followed(over, namespace, name, options, write)
        else:
            await pod_logs.printed(over, namespace, name, options, write)

    if follows:
        await asyncio.gather(*map(print_pod, pods))
        return
    for pod in pods:
        await print_pod(pod)


async def await_start(over: transport.Transport, namespace: str, name: str) -> None:
    """Returns when a container of the pod has started. Says once that it waits."""
    from dovetail.kube import object_requests
    from dovetail.kubetypes import registry
    from dovetail.ports import api

    is_announced = False
    while True:
        pod = await object_requests.read(over, api.Target(registry.POD, namespace, name))
        if pod is None:
            raise errors.InputError(f'pods "{name}" not found')
        if has_started(pod):
            return
        if not is_announced:
            is_announced = True
            output.say(f"pod {name} has not started yet")
        await asyncio.sleep(POLL_SECONDS)


def has_started(pod: Tree) -> bool:
    """Whether a container runs, or has ended."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    states = [each.get("state") or {} for each in statuses]
    return any("running" in state or "terminated" in state for state in states)
