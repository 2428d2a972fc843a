"""Wires the player of hollow nodes: `python -m dovetail.boot.player`. One process, one event loop.

Publishes a fleet on an API server and then plays its nodes: leases, pods, deletions. Says on stdout, one JSON object a
line, when everything is published and whatever it finds a pod was bound to that it may not start on; on stderr how
it gets on. Ends on SIGTERM or SIGINT. Never places a pod.
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
from dovetail.kube import api as kube_api
from dovetail.kube import config, failures_of, paths, transport, watch
from dovetail.loops import play, publish, stages
from dovetail.model import kinds, nodes
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.sim import fleet as fleets
from dovetail.sim import inventory

LOG = logging.getLogger("dovetail.player")
SAY_SECONDS: Final = 2.0  # between two words about progress
BOUND: Final = {"fieldSelector": "spec.nodeName!="}  # pods nobody has placed are no business of nodes

Tell = Callable[[dict[str, Any]], None]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is published and how it is played."""

    fleet: fleets.Fleet | None = None  # None publishes nothing
    walk: stages.Stages = stages.DEFAULT
    renew_seconds: float | None = None
    concurrency: int = 32
    plays_all: bool = False


def default_fleet(count: int) -> fleets.Fleet:
    """So many nodes with eight H100 each."""
    pool = fleets.Pool(name="h100", count=count, gpu="H100-SXM5-80GB", machine="DGX-H100", cpu="224", memory="2Ti")
    return fleets.Fleet(name="hollow", pools=(pool,))


async def run(connection: config.Connection, settings: Settings, *, tell: Tell) -> None:
    """Publishes, then plays until cancelled."""
    clock = clocks.SystemClock()
    opened = transport.Transport(connection, concurrency=2 * settings.concurrency, user_agent="dovetail-player")
    async with opened:
        api = kube_api.KubeApi(opened)
        published = publish.Progress(0, 0, 0)
        if settings.fleet is not None:
            publisher = publish.Publisher(api, clock, concurrency=settings.concurrency)
            published = await publisher.publish(inventory.objects_of(settings.fleet), say=_sayer(clock))
        player = play.Player(
            api,
            clock,
            let_go=letting_go(opened),
            walk=settings.walk,
            plays=_any_node if settings.plays_all else play.is_hollow,
            renew_seconds=settings.renew_seconds,
            concurrency=settings.concurrency,
            told=lambda violation: tell({"violation": violation._asdict()}),
        )
        async with asyncio.TaskGroup() as group:
            feeds = {kind: player.feed(kind) for kind in play.WATCHED}
            for kind, feed in feeds.items():
                params = BOUND if kind is kinds.POD else None
                group.create_task(watch.follow(opened, kind, feed, clock=clock, params=params))
            for feed in feeds.values():
                await feed.synced.wait()
            gc.collect()
            gc.freeze()
            group.create_task(player.run())
            tell({"ready": True, "nodes": published.nodes, "slices": published.slices})


def letting_go(opened: transport.Transport) -> play.LetGo:
    """Deletes a pod without grace, which `ports.api` has no word for: only nodes may do it."""

    async def let_go(target: apis.Target, uid: str) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        answer = await opened.request("DELETE", paths.of(target), body=msgspec.json.encode(options))
        if not answer.is_success and answer.status not in (404, 409):  # gone already, or another pod of the name
            raise failures_of.failure_of(
                answer.status, answer.body, headers=answer.headers, doing=f"delete {target} without grace"
            )

    return let_go


def main(argv: Sequence[str] | None = None) -> int:
    """0 when it was told to stop, 1 when the API server refused, 2 for input that cannot be used."""
    given = _parser().parse_args(argv)
    try:
        settings = _settings(given)
        connection = config.load(given.kubeconfig, context=given.context)
    except errors.InputError as error:
        print(f"dovetail player: {error}", file=sys.stderr)
        return 2
    logs.set_up("text", given.log_level)
    code = 0
    try:
        asyncio.run(_until_stopped(run(connection, settings, tell=_tell)))
    except* failures.ApiFailure as group:
        code = 1
        print(f"dovetail player: {_first(group)}", file=sys.stderr)
    return code


async def _until_stopped(work: Awaitable[None]) -> None:
    """Ends when the work ends, or quietly when a signal asks for it."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _settings(given: argparse.Namespace) -> Settings:
    fleet = None
    if not given.no_publish:
        fleet = fleets.read(_text(given.fleet), file=given.fleet) if given.fleet else default_fleet(given.nodes)
    walk = stages.read(_text(given.stages), file=given.stages) if given.stages else stages.DEFAULT
    return Settings(
        fleet=fleet,
        walk=walk,
        renew_seconds=given.renew_seconds,
        concurrency=given.concurrency,
        plays_all=given.all_nodes,
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InputError(f"{path}: cannot be read: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dovetail.boot.player", description="Plays the kubelets of hollow nodes.")
    parser.add_argument("--kubeconfig", help="default: as kubectl finds it")
    parser.add_argument("--context")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--fleet", metavar="FILE", help="publish this fleet")
    what.add_argument("--nodes", type=_count, default=10, metavar="N", help="publish N nodes with 8 H100 (default 10)")
    what.add_argument("--no-publish", action="store_true", help="only play the hollow nodes that are there")
    parser.add_argument("--all-nodes", action="store_true", help="play every node, hollow or not")
    parser.add_argument("--stages", metavar="FILE", help="how pods walk; default: they run for ever")
    parser.add_argument("--renew-seconds", type=_seconds, metavar="S", help="between two renewals of a node's lease")
    parser.add_argument("--concurrency", type=_count, default=32, metavar="N", help="requests at once (default 32)")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
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
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _any_node(node: nodes.Node) -> bool:
    return bool(node.metadata.name)


def _sayer(clock: clocks.SystemClock) -> Callable[[publish.Progress], None]:
    said = clock.monotonic()

    def say(progress: publish.Progress) -> None:
        nonlocal said
        if clock.monotonic() - said >= SAY_SECONDS or progress.nodes == progress.nodes_wanted:
            said = clock.monotonic()
            LOG.info("published", extra=progress._asdict())

    return say


def _tell(told: dict[str, Any]) -> None:
    print(msgspec.json.encode(told).decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
