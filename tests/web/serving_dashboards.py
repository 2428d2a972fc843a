"""Dashboards for tests: real uvicorn on loopback, asked by aiohttp, about a server in memory or any other source."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from dovetail.boot import clocks, cluster_choice
from dovetail.sim.server.api_server import SimApi
from dovetail.web import application, asked, endpoints, problems
from dovetail.web import dashboard_settings as settings_
from dovetail.web.process import serving
from dovetail.web.security import link_tokens
from dovetail.web.source import captures, live_source, watched_kinds
from tests.support import rest_place, waiting

Tree = dict[str, Any]
ACCESS_TOKEN = "an-access-token-of-tests-that-is-long-enough"
CONFIRMED = {"Dovetail-Request": "1"}


# Endpoints of tests


class PodItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    namespace: str
    name: str
    node_name: str | None
    labels: dict[str, str]


class PodParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    namespace: str = ""
    most: int = 0


class NamedParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    namespace: str
    name: str


class Echo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""
    numbers: tuple[int, ...] = ()


class Counted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    nodes: int
    pods: int
    has_world: bool


def _pods(question: asked.Asked, params: PodParams) -> endpoints.Page[PodItem]:
    structs: list[Any] = [stored.struct for stored in question.view.objects.listed("Pod")]
    items = [
        PodItem(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            node_name=pod.spec.node_name or None,
            labels=dict(pod.metadata.labels),
        )
        for pod in structs
        if question.may.see_namespace(pod.metadata.namespace)
        and params.namespace in ("", pod.metadata.namespace)
    ]
    return endpoints.Page(items=items)


def _pod(question: asked.Asked, params: NamedParams) -> PodItem:
    for item in _pods(question, PodParams(namespace=params.namespace)).items:
        if item.name == params.name:
            return item
    raise problems.not_found(f"there is no pod {params.namespace}/{params.name} that you may see")


def _count(question: asked.Asked, params: endpoints.Nothing) -> Counted:
    replica = question.replica()
    nodes = question.view.objects.count("Node") if question.may.list("nodes") else 0
    pods = len(list(replica.listed("Pod")))
    return Counted(nodes=nodes, pods=pods, has_world=replica.world is not None)


PODS = endpoints.Endpoint(
    "/pods", PodParams, endpoints.Page[PodItem], _pods, summary="pods", is_quick=True
)
POD = endpoints.Endpoint("/pods/{namespace}/{name}", NamedParams, PodItem, _pod, is_quick=True)
COUNT = endpoints.Endpoint("/count", endpoints.Nothing, Counted, _count)
ECHO = endpoints.Endpoint("/echo", Echo, Echo, lambda question, params: params, "POST")
ALL = (PODS, POD, COUNT, ECHO)


class Held:
    """An endpoint whose answers wait until the test lets them go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.calls = 0
        self.endpoint = endpoints.Endpoint("/held", Echo, Echo, self._answer)

    def _answer(self, question: asked.Asked, params: Echo) -> Echo:
        self.calls += 1
        assert self.let_go.wait(60)
        return params


# Clusters of tests


def pod(name: str, namespace: str, *, node: str = "", **labels: str) -> Tree:
    """A pod as an API server stores it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]}
        | ({"nodeName": node} if node else {}),
    }


class Cluster(NamedTuple):
    """A server in memory, and how to reach it."""

    api: SimApi
    choice: cluster_choice.Choice


@contextlib.asynccontextmanager
async def cluster(*namespaces: str) -> AsyncIterator[Cluster]:
    """Serves while the block lasts."""
    api = SimApi(
        clocks.SystemClock(), namespaces=namespaces, collects_all_kinds=True, is_complete=True
    )
    with tempfile.TemporaryDirectory(prefix="dovetail-web-") as folder:
        async with rest_place.served(api, Path(folder)) as kubeconfig:
            options = cluster_choice.Options(kubeconfig=str(kubeconfig))
            yield Cluster(api, cluster_choice.choose(options))


def live(choice: cluster_choice.Choice) -> live_source.LiveSource:
    """The source of a cluster."""
    return live_source.LiveSource(lambda: choice, watched_kinds.READS, name=choice.name)


# Dashboards


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def tree(self) -> Any:
        return json.loads(self.body)


class Event(NamedTuple):
    id: str
    name: str
    data: Any


class Client:
    """Asks one dashboard."""

    def __init__(
        self, dashboard: application.Dashboard, session: aiohttp.ClientSession, port: int
    ) -> None:
        self.dashboard = dashboard
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._session = session

    async def get(self, path: str, *, token: str = ACCESS_TOKEN, **headers: str) -> Answer:
        return await self.ask("GET", path, token=token, headers=headers)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        token: str = ACCESS_TOKEN,
        headers: dict[str, str] | None = None,
        body: Any = None,
    ) -> Answer:
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        sent |= {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        content = None
        if body is not None:
            content = io.BytesIO(json.dumps(body).encode())
            sent |= {"Content-Type": "application/json"}
        async with self._session.request(
            method, self.url + path, headers=sent, data=content, allow_redirects=False
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    def link_token(self) -> str:
        """What a new link carries."""
        return link_tokens.link_token(ACCESS_TOKEN, self.dashboard.source.feed.boot, time.time())

    async def signed_in(self) -> dict[str, str]:
        """The Cookie header of a new session."""
        answer = await self.ask(
            "POST",
            "/api/v1/session",
            token="",
            headers=CONFIRMED | {"Origin": self.url},
            body={"token": self.link_token()},
        )
        assert answer.status == 200, answer
        return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}

    @contextlib.asynccontextmanager
    async def stream(
        self, *, token: str = ACCESS_TOKEN, **headers: str
    ) -> AsyncIterator[AsyncIterator[Event]]:
        sent = {"Authorization": f"Bearer {token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.get(self.url + "/api/v1/stream", headers=sent) as answer:
            assert answer.status == 200, await answer.text()
            yield _events(answer)

    async def is_read(self) -> None:
        """Returns when the cluster was read."""

        async def is_ready() -> bool:
            return (await self.get("/readyz")).status == 200

        await waiting.until(is_ready, "the cluster to be read", so_far=self.trouble)

    def trouble(self) -> str:
        return self.dashboard.source.trouble()


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    fields: dict[str, str] = {}
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield Event(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
            fields = {}


async def next_event(events: AsyncIterator[Event], name: str) -> Event:
    """The next event of that name."""
    async with asyncio.timeout(waiting.GIVE_UP_SECONDS):
        async for event in events:
            if event.name == name:
                return event
    raise AssertionError(f"the stream ended without {name}")


@contextlib.asynccontextmanager
async def served(
    source: captures.Source,
    given: tuple[endpoints.Endpoint, ...] = ALL,
    **chosen: Any,
) -> AsyncIterator[Client]:
    """Serves a dashboard while the block lasts."""
    listener = serving.listening("127.0.0.1", int(chosen.pop("port", 0)))
    port = serving.port_of(listener)
    usual: Tree = {"access_token": ACCESS_TOKEN, "link_user": "tester", "port": port}
    accounting = chosen.pop("accounting", None)
    settings = settings_.Settings(**(usual | chosen))
    dashboard = application.Dashboard(source, given, settings, accounting=accounting)
    ending = asyncio.Event()
    work = serving.serve(dashboard.application, listener, ending=ending)
    running = asyncio.create_task(work)
    connector = aiohttp.TCPConnector(limit=0)
    jar = aiohttp.DummyCookieJar()
    try:
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as session:
            client = Client(dashboard, session, port)
            yield client
    finally:
        ending.set()
        await running


def story(
    tell: Callable[[Client, SimApi], Awaitable[None]],
    *,
    namespaces: tuple[str, ...] = ("train", "serve"),
    given: tuple[endpoints.Endpoint, ...] = ALL,
    **chosen: Any,
) -> None:
    """Runs a story about one dashboard and its cluster."""

    async def main() -> None:
        async with (
            cluster(*namespaces) as there,
            served(live(there.choice), given, **chosen) as client,
        ):
            await client.is_read()
            await tell(client, there.api)

    asyncio.run(main())
