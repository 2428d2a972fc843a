"""Event streams: what they say, how they resume, and what they say when the cluster is gone."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path

from dovetail.boot import clocks, cluster_choice
from dovetail.sim.server.api_server import SimApi
from dovetail.web.source import live_source, watched_kinds
from tests.support import rest_place, waiting
from tests.web.serving_dashboards import (
    Client,
    cluster,
    live,
    next_event,
    pod,
    served,
    story,
)


def test_a_stream_says_which_resources_changed() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        async with client.stream() as events:
            hello = await next_event(events, "hello")
            assert hello.data["cluster"] == client.dashboard.source.name
            api.put(pod("a", "train"))
            change = await next_event(events, "change")
            assert change.data["version"] > hello.data["version"]
            assert {"workloads", "fleet", "pods"} <= set(change.data["resources"])
            assert change.id == f"{client.dashboard.source.feed.boot}-{change.data['version']}"

    story(tell)


def test_changes_that_come_together_are_one_event() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        async with client.stream() as events:
            await next_event(events, "hello")
            for number in range(200):
                api.put(pod(f"pod-{number}", "train"))
            seen = 0
            while (
                client.dashboard.source.feed.announced < client.dashboard.source.feed.version
                or not seen
            ):
                await next_event(events, "change")
                seen += 1
            assert (await client.get("/api/v1/pods")).tree["total"] == 200
            assert seen < 20

    story(tell)


def test_a_client_that_missed_a_change_is_told_at_once() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        async with client.stream() as events:
            await next_event(events, "hello")
            api.put(pod("a", "train"))
            last = await next_event(events, "change")
        feed = client.dashboard.source.feed
        api.put(pod("b", "train"))
        await waiting.until(lambda: feed.announced > last.data["version"], "the second change")
        async with client.stream(Last_Event_ID=last.id) as events:
            change = await next_event(events, "change")
            assert change.data["version"] == feed.version
        async with client.stream(Last_Event_ID=change.id) as events:
            assert (await next_event(events, "hello")).id == change.id
            api.put(pod("c", "train"))
            nothing_missed = await next_event(events, "change")
            assert nothing_missed.data["version"] > change.data["version"]

    story(tell)


def test_a_client_comes_back_to_a_server_that_was_started_again() -> None:
    async def main() -> None:
        async with cluster("train") as there:
            async with served(live(there.choice)) as client:
                await client.is_read()
                async with client.stream() as events:
                    hello = await next_event(events, "hello")
                port = client.port
            async with served(live(there.choice), port=port) as client:
                await client.is_read()
                async with client.stream(Last_Event_ID=hello.id) as events:
                    change = await next_event(events, "change")
                    assert change.id.partition("-")[0] != hello.id.partition("-")[0]

    asyncio.run(main())


def test_an_open_stream_does_not_hold_up_the_end_of_the_server() -> None:
    async def main() -> None:
        async with (
            cluster("train") as there,
            contextlib.AsyncExitStack() as streams,
            served(live(there.choice)) as client,
        ):
            await client.is_read()
            for _ in range(5):
                events = await streams.enter_async_context(client.stream())
                await next_event(events, "hello")

    asyncio.run(main())


def test_streams_of_one_user_are_bounded_and_counted_until_they_end() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        async with client.stream() as first, client.stream() as second:
            await next_event(first, "hello")
            await next_event(second, "hello")
            assert (await client.get("/api/v1/stream")).status == 429
        feed = client.dashboard.source.feed
        await waiting.until(lambda: not feed.subscribers, "the streams to end")
        async with client.stream() as events:
            await next_event(events, "hello")

    story(tell, most_streams_of_user=2)


def test_a_stream_ends_after_its_time_so_that_its_user_is_checked_again() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        async with client.stream() as events, asyncio.timeout(waiting.GIVE_UP_SECONDS):
            names = [event.name async for event in events]
        assert names == ["hello"]

    story(tell, longest_stream_seconds=0.2)


def test_a_cluster_that_is_gone_makes_the_view_stale_and_its_return_fresh() -> None:
    """The cluster comes back at another address, as an embedded one does, with other objects."""

    async def main() -> None:
        api = SimApi(clocks.SystemClock(), namespaces=["train"], is_complete=True)
        with tempfile.TemporaryDirectory(prefix="dovetail-web-") as folder:
            options = cluster_choice.Options(kubeconfig=str(Path(folder) / "kubeconfig"))
            source = live_source.LiveSource(
                lambda: cluster_choice.choose(options), watched_kinds.READS, name="moving"
            )
            async with served(source) as client:
                assert (await client.get("/api/v1/pods")).status == 503
                assert (await client.get("/readyz")).status == 503
                async with rest_place.served(api, Path(folder)):
                    await client.is_read()
                    streaming = client.stream()
                    events = await streaming.__aenter__()
                    await next_event(events, "hello")
                stale = await next_event(events, "stale")
                assert stale.data["since"].endswith("Z")
                assert (await client.get("/api/v1/pods")).status == 200  # what was read last
                session = (await client.get("/api/v1/session")).tree
                assert session["staleSince"] == stale.data["since"]
                api.put(pod("a", "train"))
                async with rest_place.served(api, Path(folder)):
                    await next_event(events, "fresh")
                    await waiting.until(lambda: _total(client), "the pod of meanwhile")
                    assert (await client.get("/api/v1/session")).tree["staleSince"] is None
                    await streaming.__aexit__(None, None, None)

    asyncio.run(main())


async def _total(client: Client) -> int:
    return int((await client.get("/api/v1/pods")).tree["total"])


def test_only_the_head_of_a_stream_is_sent_where_only_that_is_asked_for() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        answer = await client.ask("HEAD", "/api/v1/stream")
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["Content-Type"].startswith("text/event-stream")

    story(tell)
