"""Lists and watches over HTTP: pages, selectors, tables, and streams that resume or say that they cannot."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dovetail.boot import clocks
from dovetail.kubetypes import registry
from dovetail.sim.rest.reading import listing
from dovetail.sim.server import event_expiry, object_store
from dovetail.sim.server.api_server import SimApi
from dovetail.sim.virtual_clock import VirtualClock
from tests.sim.test_rest_requests import CONFIG_MAPS, PODS, config_map, pod
from tests.support import rest_place
from tests.support.rest_place import Asker, Tree


def run_story(story: Callable[[Asker, SimApi], Awaitable[None]]) -> None:
    """Runs a story against a fresh server that can also be changed directly."""

    async def main() -> None:
        api = SimApi(clocks.SystemClock(), collects_all_kinds=True)
        async with rest_place.asked(api) as asker, asyncio.timeout(60):
            await story(asker, api)

    asyncio.run(main())


def names(listed: Tree) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def version(asker: Asker, path: str = CONFIG_MAPS) -> str:
    return str((await asker.get(path))["metadata"]["resourceVersion"])


async def next_of(events: AsyncIterator[Tree]) -> tuple[str, str]:
    """The type of the next event and the name of its object."""
    event = await anext(events)
    return event["type"], event["object"]["metadata"].get("name", "")


# Lists


def test_pages_show_the_state_of_the_first_one() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        for number in range(5):
            await asker.create(CONFIG_MAPS, config_map(f"c{number}"))
        first = await asker.get(f"{CONFIG_MAPS}?limit=2")
        assert names(first) == ["c0", "c1"]
        assert first["metadata"]["remainingItemCount"] == 3
        await asker.ask("DELETE", f"{CONFIG_MAPS}/c3", status=200)
        await asker.create(CONFIG_MAPS, config_map("c2a"))
        token = first["metadata"]["continue"]
        rest = await asker.get(f"{CONFIG_MAPS}?limit=9&continue={token}")
        assert names(rest) == ["c2", "c3", "c4"]
        assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert "continue" not in rest["metadata"]
        again = await asker.get(f"{CONFIG_MAPS}?limit=9&continue={token}")  # its answer was lost
        assert names(again) == names(rest)

    run_story(story)


def test_a_page_that_is_asked_for_too_late_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_OPEN_LISTS", 1)

    async def story(asker: Asker, api: SimApi) -> None:
        for number in range(3):
            await asker.create(CONFIG_MAPS, config_map(f"c{number}"))
        token = (await asker.get(f"{CONFIG_MAPS}?limit=1"))["metadata"]["continue"]
        await asker.get(f"{CONFIG_MAPS}?limit=1")
        late = await asker.ask("GET", f"{CONFIG_MAPS}?limit=1&continue={token}", status=410)
        assert late.tree["reason"] == "Expired"
        await asker.ask("GET", f"{CONFIG_MAPS}?limit=1&continue=nonsense", status=400)

    run_story(story)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier!=db", ["b"]),
        ("app in (web,other)", ["a", "b", "c"]),
        ("tier", ["a"]),
        ("!tier", ["b", "c"]),
        ("tier notin (db)", ["b", "c"]),
    ],
)
def test_labels_select(selector: str, expected: list[str]) -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        labels = {"a": {"app": "web", "tier": "db"}, "b": {"app": "web"}, "c": {"app": "other"}}
        for name, own in labels.items():
            await asker.create(CONFIG_MAPS, config_map(name, labels=own))
        text = selector.replace(" ", "%20").replace("=", "%3D")
        assert names(await asker.get(f"{CONFIG_MAPS}?labelSelector={text}")) == expected

    run_story(story)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("spec.nodeName=n1", ["bound"]),
        ("spec.nodeName!=", ["bound"]),
        ("spec.nodeName=", ["free"]),
        ("status.phase=Running", ["bound"]),
        ("spec.schedulerName=dovetail", ["free"]),
        ("metadata.name=free", ["free"]),
        ("metadata.namespace!=default", []),
    ],
)
def test_fields_select(selector: str, expected: list[str]) -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        await asker.create(PODS, pod("free", spec={"schedulerName": "dovetail"}))
        await asker.create(PODS, pod("bound"))
        await asker.ask("POST", f"{PODS}/bound/binding", {"target": {"name": "n1"}}, status=201)
        await asker.patch(f"{PODS}/bound/status", {"status": {"phase": "Running"}})
        text = selector.replace("=", "%3D")
        assert names(await asker.get(f"/api/v1/pods?fieldSelector={text}")) == expected

    run_story(story)


def test_a_field_that_is_not_selectable_is_refused() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        refused = await asker.ask("GET", "/api/v1/pods?fieldSelector=spec.color%3Dred", status=400)
        assert "field label not supported: spec.color" in refused.tree["message"]

    run_story(story)


def test_metadata_alone_can_be_listed() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        await asker.create(CONFIG_MAPS, config_map("a", {"x": "y"}))
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        listed = await asker.get(CONFIG_MAPS, Accept=accept)
        assert listed["kind"] == "PartialObjectMetadataList"
        [item] = listed["items"]
        assert item["kind"] == "PartialObjectMetadata"
        assert "data" not in item

    run_story(story)


# Tables


def row(table: Tree) -> dict[str, Any]:
    columns = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(columns, table["rows"][0]["cells"], strict=True))


def test_a_pods_row_says_what_it_waits_for() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        await asker.create(PODS, pod("a"))
        path = f"{PODS}/a"
        first = row(await asker.get(path, Accept=rest_place.TABLE))
        assert (first["Ready"], first["Status"], first["Node"]) == ("0/1", "Pending", "<none>")
        waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        await asker.patch(f"{path}/status", {"status": {"containerStatuses": [waiting]}})
        assert row(await asker.get(path, Accept=rest_place.TABLE))["Status"] == "ImagePullBackOff"
        running = {"name": "main", "ready": True, "restartCount": 2, "state": {"running": {}}}
        status = {"phase": "Running", "containerStatuses": [running]}
        await asker.patch(f"{path}/status", {"status": status})
        shown = row(await asker.get(path, Accept=rest_place.TABLE))
        assert (shown["Ready"], shown["Status"], shown["Restarts"]) == ("1/1", "Running", "2")

    run_story(story)


def test_a_table_row_carries_the_metadata_or_the_object() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        await asker.create(CONFIG_MAPS, config_map("a", {"x": "y"}))
        table = await asker.get(CONFIG_MAPS, Accept=rest_place.TABLE)
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        assert row(table)["Data"] == 1
        whole = await asker.get(f"{CONFIG_MAPS}?includeObject=Object", Accept=rest_place.TABLE)
        assert whole["rows"][0]["object"]["data"] == {"x": "y"}

    run_story(story)


# Watches


def test_a_watch_goes_on_from_its_version() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        await asker.create(CONFIG_MAPS, config_map("before"))
        since = await version(asker)
        await asker.create(CONFIG_MAPS, config_map("a"))
        async with asker.watch(f"{CONFIG_MAPS}?resourceVersion={since}") as events:
            assert await next_of(events) == ("ADDED", "a")
            await asker.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
            assert await next_of(events) == ("MODIFIED", "a")
            await asker.ask("DELETE", f"{CONFIG_MAPS}/a", status=200)
            gone = await anext(events)
            assert gone["type"] == "DELETED"
            assert int(gone["object"]["metadata"]["resourceVersion"]) > int(since)

    run_story(story)


def test_a_watch_without_a_version_begins_with_what_is_there() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        await asker.create(CONFIG_MAPS, config_map("a"))
        async with asker.watch(CONFIG_MAPS) as events:
            assert await next_of(events) == ("ADDED", "a")
            await asker.create(CONFIG_MAPS, config_map("b"))
            assert await next_of(events) == ("ADDED", "b")

    run_story(story)


def test_initial_events_end_with_a_bookmark() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        await asker.create(CONFIG_MAPS, config_map("a"))
        query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with asker.watch(f"{CONFIG_MAPS}?{query}") as events:
            assert await next_of(events) == ("ADDED", "a")
            end = await anext(events)
            assert end["type"] == "BOOKMARK"
            annotations = end["object"]["metadata"]["annotations"]
            assert annotations == {"k8s.io/initial-events-end": "true"}

    run_story(story)


def test_a_watch_ends_after_its_time_with_a_bookmark() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        since = await version(asker)
        query = f"resourceVersion={since}&timeoutSeconds=1&allowWatchBookmarks=true"
        async with asker.watch(f"{CONFIG_MAPS}?{query}") as events:
            seen = [event["type"] async for event in events]
        assert seen == ["BOOKMARK"]

    run_story(story)


def test_a_version_that_left_the_history_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "HISTORY_CHANGES", 3)

    async def story(asker: Asker, api: SimApi) -> None:
        since = await version(asker)
        for number in range(5):
            await asker.create(CONFIG_MAPS, config_map(f"c{number}"))
        async with asker.watch(f"{CONFIG_MAPS}?resourceVersion={since}") as events:
            event = await anext(events)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert event["object"]["reason"] == "Expired"

    run_story(story)


def test_a_version_from_the_future_is_too_large() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        path = f"{CONFIG_MAPS}?resourceVersion=999999&watch=true"
        refused = await asker.ask("GET", path, status=504)
        assert refused.tree["message"].startswith("Too large resource version: 999999, current:")

    run_story(story)


def test_an_object_that_begins_or_ceases_to_match_is_added_or_deleted() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        since = await version(asker)
        path = f"{CONFIG_MAPS}?labelSelector=l%3Dx&resourceVersion={since}"
        async with asker.watch(path) as events:
            await asker.create(CONFIG_MAPS, config_map("a"))
            await asker.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"l": "x"}}})
            assert await next_of(events) == ("ADDED", "a")
            await asker.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
            assert await next_of(events) == ("MODIFIED", "a")
            await asker.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": None}})
            assert await next_of(events) == ("DELETED", "a")

    run_story(story)


def test_other_namespaces_are_not_watched() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        since = await version(asker)
        async with asker.watch(f"{CONFIG_MAPS}?resourceVersion={since}") as events:
            await asker.create(CONFIG_MAPS.replace("default", "kube-public"), config_map("other"))
            await asker.create(CONFIG_MAPS, config_map("mine"))
            assert await next_of(events) == ("ADDED", "mine")

    run_story(story)


def test_a_watched_table_names_its_columns_once() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        await asker.create(CONFIG_MAPS, config_map("a"))
        async with asker.watch(CONFIG_MAPS, Accept=rest_place.TABLE) as events:
            first = (await anext(events))["object"]
            assert first["columnDefinitions"][0]["name"] == "Name"
            await asker.create(CONFIG_MAPS, config_map("b"))
            second = (await anext(events))["object"]
            assert second["columnDefinitions"] is None
            assert second["rows"][0]["cells"][0] == "b"

    run_story(story)


def test_every_watcher_of_a_kind_sees_every_change_in_order() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        since = await version(asker, "/api/v1/configmaps")
        path = f"/api/v1/configmaps?resourceVersion={since}"
        async with asker.watch(path) as one, asker.watch(path) as other:
            for number in range(50):
                api.put(config_map(f"c{number:02}"))
            seen = [[await next_of(events) for _ in range(50)] for events in (one, other)]
        assert seen[0] == seen[1] == [("ADDED", f"c{number:02}") for number in range(50)]

    run_story(story)


def test_a_watch_of_core_events_shows_core_events() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        async with asker.watch("/api/v1/namespaces/default/events") as events:
            api.put(
                {
                    "apiVersion": "events.k8s.io/v1",
                    "kind": "Event",
                    "metadata": {"name": "e"},
                    "note": "hello",
                    "regarding": {"kind": "Pod", "name": "a"},
                }
            )
            event = (await anext(events))["object"]
        assert (event["apiVersion"], event["message"]) == ("v1", "hello")
        assert msgspec.json.encode(event["involvedObject"]) == b'{"kind":"Pod","name":"a"}'

    run_story(story)


def test_changes_of_other_kinds_do_not_make_a_version_old() -> None:
    async def story(asker: Asker, api: SimApi) -> None:
        secrets = "/api/v1/secrets"
        since = await version(asker, secrets)  # none was ever stored
        await asker.create(CONFIG_MAPS, config_map("a"))
        async with asker.watch(f"{secrets}?resourceVersion={since}") as events:
            api.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
            assert await next_of(events) == ("ADDED", "s")

    run_story(story)


def test_controllers_run_once_for_all_changes_of_a_turn() -> None:
    async def main() -> None:
        api = SimApi(clocks.SystemClock())
        seen: list[int] = []
        async with rest_place.asked(api, settle=lambda: seen.append(api.shelf.revision)) as asker:
            await asker.get("/version")
            before = len(seen)
            for number in range(20):
                api.put(config_map(f"c{number}"))
            await asker.get("/version")
            assert seen[before:] == [api.shelf.revision]

    asyncio.run(main())


class FullDisk:
    """A journal that cannot write any more."""

    is_full = False

    def commit(self) -> None:
        if self.is_full:
            raise OSError("no space left")


def test_a_write_that_cannot_be_kept_is_an_error_and_the_last_one() -> None:
    async def main() -> None:
        api, journal = SimApi(clocks.SystemClock()), FullDisk()
        async with rest_place.asked(api, journal=journal) as asker, asyncio.timeout(60):
            await asker.create(CONFIG_MAPS, config_map("a"))
            journal.is_full = True
            lost = await asker.ask("POST", CONFIG_MAPS, config_map("b"), status=500)
            assert lost.tree["message"] == "the state cannot be written: no space left"
            journal.is_full = False
            await asker.ask("POST", CONFIG_MAPS, config_map("c"), status=500)
            await asker.ask("DELETE", f"{CONFIG_MAPS}/a", status=500)
            assert (await asker.ask("GET", "/readyz")).status == 500
            await asker.get(f"{CONFIG_MAPS}/a")

    asyncio.run(main())


def test_events_end_an_hour_after_they_were_last_seen() -> None:
    clock = VirtualClock()
    api = SimApi(clock)

    def event(name: str, **more: Any) -> None:
        tree = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name}}
        api.put({**tree, **more})

    async def main() -> None:
        event("single")
        later = clock.now() + datetime.timedelta(minutes=50)
        event("repeated", series={"count": 2, "lastObservedTime": later.isoformat()})
        await clock.advance(3_500)
        event("young")
        assert event_expiry.expire(api.shelf) == 0
        await clock.advance(200)
        assert event_expiry.expire(api.shelf) == 1
        assert [found.metadata.name for found in api.all(registry.EVENT)] == ["repeated", "young"]

    asyncio.run(main())
