"""A dashboard of a server in memory whose GPU stack is being upgraded; tests play the lifecycle process.

Server and dashboard are served by a loop in another thread: Playwright needs the one of the test's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from dovetail.kubetypes import registry
from dovetail.kubetypes.custom.stack_upgrades import StackUpgrade
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi
from dovetail.web import api_endpoints
from tests.support import waiting
from tests.web import serving_dashboards as serving
from tests.web.api import stack_clusters

Tree = dict[str, Any]
T = TypeVar("T")
OPERATOR_GROUP = "nvidia.com/v1"  # no kinds of the server in memory


class _Serving(NamedTuple):
    client: serving.Client
    api: SimApi
    loop: asyncio.AbstractEventLoop
    ending: asyncio.Event


class UpgradingCluster:
    """The cluster, and a link to its dashboard."""

    def __init__(self, serving_: _Serving) -> None:
        self._serving = serving_

    def link(self) -> str:
        """A new link to the dashboard."""
        client = self._serving.client
        return f"{client.url}/#token={client.link_token()}"

    def upgrade(self) -> StackUpgrade:
        """The upgrade under way."""

        def find() -> StackUpgrade:
            upgrade: StackUpgrade = self._serving.api.find(
                registry.STACK_UPGRADE, stack_clusters.UPGRADE
            )
            return upgrade

        return self._run(find)

    def report(self, change: Callable[[Tree], None]) -> None:
        """The lifecycle process writes another status of the upgrade."""

        def write() -> None:
            api = self._serving.api
            name = stack_clusters.UPGRADE
            tree = api.tree(registry.STACK_UPGRADE, name)
            change(tree["status"])
            api.write(Target(registry.STACK_UPGRADE, "", name, "status"), tree)

        self._run(write)

    def _run(self, work: Callable[[], T]) -> T:
        """Runs it where the server runs."""

        async def worked() -> T:
            return work()

        future = asyncio.run_coroutine_threadsafe(worked(), self._serving.loop)
        return future.result(timeout=waiting.GIVE_UP_SECONDS)


@contextlib.contextmanager
def started(*, is_empty: bool = False, allow_writes: bool = True) -> Iterator[UpgradingCluster]:
    """A cluster while the block lasts; an empty one has nodes, and no upgrade."""
    said: queue.Queue[_Serving] = queue.Queue()

    async def serve() -> None:
        ending = asyncio.Event()
        async with (
            serving.cluster("research") as there,
            serving.served(
                serving.live(there.choice),
                api_endpoints.all_endpoints(),
                allow_writes=allow_writes,
            ) as client,
        ):
            for tree in stack_clusters.StackCluster(datetime.datetime.now(datetime.UTC)).objects():
                is_upgrade = tree["kind"] == registry.STACK_UPGRADE.name
                if tree["apiVersion"] != OPERATOR_GROUP and not (is_upgrade and is_empty):
                    there.api.put(tree)
            await client.is_read()
            said.put(_Serving(client, there.api, asyncio.get_running_loop(), ending))
            await ending.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    serving_ = said.get(timeout=waiting.GIVE_UP_SECONDS)
    try:
        yield UpgradingCluster(serving_)
    finally:
        serving_.loop.call_soon_threadsafe(serving_.ending.set)
        thread.join()
