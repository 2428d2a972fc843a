"""Dashboards of a real API server for tests in a browser, with the rights that the chart gives its service account.

The dashboard is served by a loop in another thread: Playwright needs the one of the test's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator

import msgspec
from playwright import sync_api

from dovetail.boot import cluster_choice
from dovetail.devcluster import control_plane
from dovetail.install import chart
from dovetail.kube.auth import credentials
from dovetail.web import api_endpoints
from tests.deploy import build
from tests.support import cluster, waiting
from tests.web import cluster_users
from tests.web import serving_dashboards as serving
from tests.web.browser import browsing


@contextlib.contextmanager
def served(plane: control_plane.ControlPlane, namespace: str) -> Iterator[str]:
    """The address of a dashboard while the block lasts; users sign in with tokens of the cluster."""
    release = chart.Release(f"browser-{namespace}", namespace)
    rendered = build.objects("dashboard.enabled=true", release=release)
    account = f"{release.name}-dashboard"
    own = [
        item
        for item in build.of_kind(rendered, "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        if item["metadata"]["name"] == account
    ]
    assert len(own) == 3
    cluster.apply(plane, own, namespace=namespace)
    token = cluster.kubectl(plane, "create", "token", account, "-n", namespace).strip()
    choice = cluster_choice.choose(cluster_choice.Options(kubeconfig=str(plane.kubeconfig)))
    connection = msgspec.structs.replace(
        choice.connection, credentials=credentials.Credentials(token=token)
    )
    try:
        with _in_a_thread(msgspec.structs.replace(choice, connection=connection)) as address:
            yield address
    finally:
        for kind in ("clusterrole", "clusterrolebinding"):
            cluster.kubectl(plane, "delete", kind, account)


@contextlib.contextmanager
def signed_in(opened: sync_api.Browser, url: str, token: str) -> Iterator[browsing.Visit]:
    """A user who pasted a token into the form."""
    reader = browsing.Visit(opened, url)
    try:
        reader.page.goto(url)
        reader.page.get_by_label("Token").fill(token)
        reader.page.get_by_role("button", name="Sign in").click()
        reader.page.locator("nav.nav").wait_for()
        reader.complaints.clear()  # the browser logs that there was no session before
        yield reader
    finally:
        reader.close()


@contextlib.contextmanager
def _in_a_thread(choice: cluster_choice.Choice) -> Iterator[str]:
    """The address of a dashboard that a loop in another thread serves."""
    said: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        ending = asyncio.Event()
        async with serving.served(
            serving.live(choice),
            api_endpoints.all_endpoints(),
            auth=frozenset({"token"}),
            reviews_kept_seconds=cluster_users.KEPT_SECONDS,
        ) as client:
            await client.is_read()
            said.put((client.url, asyncio.get_running_loop(), ending))
            await ending.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    url, loop, ending = said.get(timeout=waiting.GIVE_UP_SECONDS)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
