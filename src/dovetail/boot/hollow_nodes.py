"""Wires the hollow kubelets: `python -m dovetail.boot.hollow_nodes`. One process, one event loop.

Publishes a fleet on an API server and then acts as its kubelets: leases, pods, deletions. Writes one JSON object per
line to stdout, when everything is published and for every pod bound to a node it cannot start on; logs to stderr. Ends
on SIGTERM or SIGINT. Never places a pod.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.boot import clocks, logs
from dovetail.hollow import hollow_kubelets, node_marks, pod_stages, publish_nodes
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import paths, status_errors, transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import nodes
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.sim.fleet import fleet_objects, fleet_spec

LOG = logging.getLogger("dovetail.hollow")
PROGRESS_SECONDS: Final = 2.0  # between two log lines about progress
BOUND: Final = {"fieldSelector": "spec.nodeName!="}  # kubelets see only pods bound to a node

PrintLine = Callable[[dict[str, Any]], None]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is published and how its nodes behave."""

    fleet: fleet_spec.Fleet | None = None  # None publishes nothing
    stages: pod_stages.Stages = pod_stages.DEFAULT
    renew_seconds: float | None = None
    concurrency: int = 32
    plays_all: bool = False


def default_fleet(count: int) -> fleet_spec.Fleet:
    """This many nodes with eight H100 each."""
    pool = fleet_spec.Pool(
        name="h100", count=count, gpu="H100-SXM5-80GB", machine="DGX-H100", cpu="224", memory="2Ti"
    )
    return fleet_spec.Fleet(name="hollow", pools=(pool,))


async def run(
    connection: client_config.Connection, settings: Settings, *, print_line: PrintLine
) -> None:
    """Publishes, then runs the kubelets until cancelled."""
    clock = clocks.SystemClock()
    opened = transport.Transport(
        connection, concurrency=2 * settings.concurrency, user_agent="dovetail-player"
    )
    async with opened:
        api = client.KubeApi(opened)
        published = publish_nodes.Progress(0, 0, 0)
        if settings.fleet is not None:
            publisher = publish_nodes.Publisher(api, clock, concurrency=settings.concurrency)
            published = await publisher.publish(
                fleet_objects.objects_of(settings.fleet), say=_progress_logger(clock)
            )
        player = hollow_kubelets.HollowKubelets(
            api,
            clock,
            let_go=pod_deleter(opened),
            stages=settings.stages,
            plays=_any_node if settings.plays_all else node_marks.is_hollow,
            renew_seconds=settings.renew_seconds,
            concurrency=settings.concurrency,
            on_violation=lambda violation: print_line({"violation": violation._asdict()}),
        )
        async with asyncio.TaskGroup() as group:
            feeds = {kind: player.feed(kind) for kind in hollow_kubelets.WATCHED}
            for kind, feed in feeds.items():
                params = BOUND if kind is registry.POD else None
                group.create_task(watch.follow(opened, kind, feed, clock=clock, params=params))
            for feed in feeds.values():
                await feed.synced.wait()
            gc.collect()
            gc.freeze()
            group.create_task(player.run())
            print_line({"ready": True, "nodes": published.nodes, "slices": published.slices})


def pod_deleter(opened: transport.Transport) -> hollow_kubelets.DeletePod:
    """Deletes a pod without grace, which `ports.api` does not offer: only nodes may do it."""

    async def let_go(target: apis.Target, uid: str) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid},
        }
        answer = await opened.request("DELETE", paths.of(target), body=msgspec.json.encode(options))
        is_gone = answer.status in (404, 409)  # deleted already, or replaced by another pod
        if not answer.is_success and not is_gone:
            raise status_errors.failure_of(
                answer.status,
                answer.body,
                headers=answer.headers,
                doing=f"delete {target} without grace",
            )

    return let_go


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 after a signal, 1 when the API server refused, 2 for invalid input."""
    arguments = _parser().parse_args(argv)
    try:
        settings = _settings(arguments)
        connection = client_config.load(arguments.kubeconfig, context=arguments.context)
    except errors.InputError as error:
        print(f"dovetail player: {error}", file=sys.stderr)
        return 2
    logs.set_up("text", arguments.log_level)
    code = 0
    try:
        asyncio.run(_until_stopped(run(connection, settings, print_line=_print_line)))
    except* failures.ApiFailure as group:
        code = 1
        print(f"dovetail player: {_first(group)}", file=sys.stderr)
    return code


async def _until_stopped(work: Awaitable[None]) -> None:
    """Ends when the work ends, or without an error on a signal."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _settings(arguments: argparse.Namespace) -> Settings:
    fleet = None
    if arguments.fleet and not arguments.no_publish:
        fleet = fleet_spec.read(_text(arguments.fleet), file=arguments.fleet)
    elif not arguments.no_publish:
        fleet = default_fleet(arguments.nodes)

    stages = pod_stages.DEFAULT
    if arguments.stages:
        stages = pod_stages.read(_text(arguments.stages), file=arguments.stages)
    return Settings(
        fleet=fleet,
        stages=stages,
        renew_seconds=arguments.renew_seconds,
        concurrency=arguments.concurrency,
        plays_all=arguments.all_nodes,
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InputError(f"{path}: cannot be read: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dovetail.boot.hollow_nodes", description="Acts as the kubelets of hollow nodes."
    )
    parser.add_argument("--kubeconfig", help="default: the one kubectl uses")
    parser.add_argument("--context")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--fleet", metavar="FILE", help="publish this fleet")
    what.add_argument(
        "--nodes",
        type=_count,
        default=10,
        metavar="N",
        help="publish N nodes with 8 H100 (default 10)",
    )
    what.add_argument(
        "--no-publish", action="store_true", help="only serve hollow nodes that exist"
    )
    parser.add_argument("--all-nodes", action="store_true", help="serve every node, hollow or not")
    parser.add_argument(
        "--stages", metavar="FILE", help="life cycle of pods; default: they run forever"
    )
    parser.add_argument(
        "--renew-seconds", type=_seconds, metavar="S", help="between two renewals of a node's lease"
    )
    parser.add_argument(
        "--concurrency", type=_count, default=32, metavar="N", help="requests at once (default 32)"
    )
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error")
    )
    return parser


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= 10_000:
        raise argparse.ArgumentTypeError(f'expected a number from 1 to 10000, got "{text}"')
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.1 <= number <= 86_400:
        raise argparse.ArgumentTypeError(f'expected seconds from 0.1 to 86400, got "{text}"')
    return number


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _any_node(node: nodes.Node) -> bool:
    return bool(node.metadata.name)


def _progress_logger(clock: clocks.SystemClock) -> Callable[[publish_nodes.Progress], None]:
    logged_at = clock.monotonic()

    def say(progress: publish_nodes.Progress) -> None:
        nonlocal logged_at
        is_done = progress.nodes == progress.nodes_wanted
        if is_done or clock.monotonic() - logged_at >= PROGRESS_SECONDS:
            logged_at = clock.monotonic()
            LOG.info("hollow.published", extra=progress._asdict())

    return say


def _print_line(message: dict[str, Any]) -> None:
    print(msgspec.json.encode(message).decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
