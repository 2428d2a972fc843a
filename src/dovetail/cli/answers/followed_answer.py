"""Asks a question again whenever the cluster changes: the work behind `-w` of commands that ask the engine.

Given the lists a question needs and a function that shows one answer and says whether it was the last. Changes that
come together are answered together. Ends with the last answer, at a timeout, or by Ctrl-C. Never writes to a cluster.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

from dovetail.ask import api_session, cluster_view, followed_objects
from dovetail.cli.cluster import cluster_option
from dovetail.kube import read_objects
from dovetail.kubetypes import object_set

if TYPE_CHECKING:
    from dovetail.kube.http import transport

PAUSE_SECONDS: Final = 0.3  # changes within it are answered together
# Time alone changes answers, too: work that runs longer than it stated, a promise that comes due.
LONGEST_WAIT_SECONDS: Final = 30.0

Show = Callable[[cluster_view.View], bool]  # whether that was the last answer


def follow(reads: Sequence[object_set.Read], show: Show, *, timeout: float | None = None) -> bool:
    """Shows answers until one is the last; False where the timeout came first."""
    if cluster_option.snapshot() is not None:
        raise click.UsageError("a snapshot does not change: leave -w out")
    choice = cluster_option.chosen()

    async def work(over: transport.Transport) -> bool:
        first = await read_objects.read_over(over, reads, cluster=choice.name)
        served = tuple(read for read in reads if read.kind not in first.unserved)
        objects = followed_objects.FollowedObjects(choice.name)
        try:
            await objects.follow(over, served)
            async with asyncio.timeout(timeout):  # of waiting: the first answer is always shown
                while True:
                    objects.changed.clear()
                    now = datetime.datetime.now(datetime.UTC)
                    seen = cluster_view.View(
                        objects.now(), now, choice.name, choice.is_embedded, first.unserved
                    )
                    if show(seen):
                        return True
                    await _changed(objects)
        except TimeoutError:
            return False
        finally:
            await objects.close()

    return api_session.run(choice, work)


async def _changed(objects: followed_objects.FollowedObjects) -> None:
    try:
        await asyncio.wait_for(objects.changed.wait(), LONGEST_WAIT_SECONDS)
    except TimeoutError:
        return
    await asyncio.sleep(PAUSE_SECONDS)
