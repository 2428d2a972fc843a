"""A watch that goes on whatever the server does: each story is a script the server plays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from dovetail.kube.watching import watch, watch_history
from tests.kube import script, serving
from tests.kube.script import (
    CUT,
    HOLD,
    added,
    bookmark,
    deleted,
    error,
    event,
    listed,
    modified,
    node,
)
from tests.support import jumping, waiting

Lists = Sequence[dict[str, Any] | web.Response]


def follow(
    lists: Lists,
    *watches: Sequence[script.Action],
    until: Callable[[script.Followed, script.Server], object],
    idle_timeout: float = 30.0,
) -> tuple[script.Followed, script.Server]:
    """What a follower's sink got, and what it requested, when the condition came true."""
    server = script.Server(lists, watches)

    async def main() -> script.Followed:
        async with script.following(server, idle_timeout=idle_timeout) as followed:
            await waiting.until(
                lambda: until(followed, server),
                "what the test is about",
                pause=0.001,
                so_far=lambda: f"calls: {followed.sink.calls}\nasked: {server.asked}",
            )
            return followed

    return jumping.run(main()), server


def test_lists_then_watches_from_there() -> None:
    followed, server = follow(
        [listed(10, node("a", 5), node("b", 7))],
        [added("c", 11), modified("a", 12), deleted("b", 13), HOLD],
        until=lambda followed, _: len(followed.sink.calls) == 4,
    )
    assert followed.sink.calls == [
        ("replaced", ["a", "b"], "10"),
        ("changed", "c", 11),
        ("changed", "a", 12),
        ("deleted", "b", "uid-b"),
    ]
    assert followed.clock.slept == []
    (query,) = server.watches
    assert query["resourceVersion"] == "10"
    assert query["allowWatchBookmarks"] == "true"
    assert 270 <= int(query["timeoutSeconds"]) <= 330
    assert "resourceVersion" not in server.lists[0], "the list must be consistent"


def test_items_of_lists_know_their_kind() -> None:
    followed, _ = follow(
        [listed(10, node("a", 5))], [HOLD], until=lambda followed, _: followed.sink.calls
    )
    assert (followed.sink.structs[0].api_version, followed.sink.structs[0].kind) == ("v1", "Node")


def test_after_a_normal_end_it_goes_on_without_a_list_or_a_complaint() -> None:
    followed, server = follow(
        [listed(10)],
        [added("a", 11), bookmark(20)],
        [added("b", 21), HOLD],
        until=lambda followed, _: "b" in followed.sink.objects,
    )
    assert [query["resourceVersion"] for query in server.watches] == ["10", "20"]
    assert len(server.lists) == 1
    assert followed.sink.named("broken") == []
    assert followed.clock.slept == []


def test_a_loss_in_the_middle_of_a_line_loses_nothing() -> None:
    half = added("b", 12)[:40]
    followed, server = follow(
        [listed(10)],
        [added("a", 11), half, CUT],
        [added("a", 11), added("b", 12), HOLD],
        until=lambda followed, _: "b" in followed.sink.objects,
    )
    assert followed.sink.objects == {"a": 11, "b": 12}
    assert len(server.lists) == 1
    assert len(followed.sink.named("broken")) == 1
    assert followed.restored == 1
    assert len(followed.clock.slept) == 1
    assert followed.clock.slept[0] <= watch.FIRST_PAUSE_SECONDS


def test_what_is_heard_again_after_a_loss_is_dropped_and_counted() -> None:
    followed, _ = follow(
        [listed(10)],
        [added("a", 11), deleted("a", 12), added("b", 13), CUT],
        [added("a", 11), deleted("a", 12), added("b", 13), added("c", 14), HOLD],
        until=lambda followed, _: "c" in followed.sink.objects,
    )
    assert followed.sink.named("changed", "deleted") == [
        ("changed", "a", 11),
        ("deleted", "a", "uid-a"),
        ("changed", "b", 13),
        ("changed", "c", 14),
    ]
    assert followed.meter.counts["dovetail_watch_dropped_total"] == 3
    assert followed.meter.counts["dovetail_watch_events_total"] == 4


def test_an_event_overtaken_before_a_loss_is_asked_for_again() -> None:
    """12 came before 11, and the connection broke in between: going on after 12 would lose 11."""
    _, server = follow(
        [listed(10)],
        [added("b", 12), CUT],
        [HOLD],
        until=lambda _, server: len(server.watches) == 2,
    )
    assert server.watches[1]["resourceVersion"] == "10"


def test_duplicates_and_late_events_are_dropped() -> None:
    followed, _ = follow(
        [listed(10, node("a", 5))],
        [
            modified("a", 12),
            modified("a", 12),
            modified("a", 11),
            deleted("a", 14),
            modified("a", 13),
            deleted("a", 14),
            added("a", 9),
            added("z", 15),
            HOLD,
        ],
        until=lambda followed, _: "z" in followed.sink.objects,
    )
    assert followed.sink.named("changed", "deleted") == [
        ("changed", "a", 12),
        ("deleted", "a", "uid-a"),
        ("changed", "z", 15),
    ]
    assert followed.meter.counts["dovetail_watch_dropped_total"] == 5


def test_a_new_bearer_of_a_name_comes_after_the_end_of_the_old_one() -> None:
    followed, _ = follow(
        [listed(10, node("a", 5, uid="old"))],
        [added("a", 13, uid="new"), deleted("a", 12, uid="old"), added("z", 15), HOLD],
        until=lambda followed, _: "z" in followed.sink.objects,
    )
    assert followed.sink.named("changed", "deleted") == [
        ("deleted", "a", "old"),
        ("changed", "a", 13),
        ("changed", "z", 15),
    ]


@pytest.mark.parametrize(
    "end",
    [
        [error(410, "Expired")],
        [error(500, "InternalError")],
        [serving.refusal(410, "Expired")],
        [b"this is not JSON\n"],
        [b'{"type":"ADDED"}\n'],
        [event("DELETED", {"metadata": {"name": 7}})],
        [bookmark(30), bookmark(20)],
    ],
    ids=[
        "410 event",
        "error event",
        "410 answer",
        "no JSON",
        "no object",
        "unreadable deletion",
        "versions went back",
    ],
)
def test_it_lists_again_where_continuing_would_leave_a_gap(end: list[script.Action]) -> None:
    followed, server = follow(
        [listed(10, node("a", 5)), listed(50, node("b", 40))],
        [added("c", 11), *end] if isinstance(end[0], bytes) else end,
        [HOLD],
        until=lambda _, server: len(server.watches) == 2,
    )
    assert len(server.lists) == 2
    assert followed.sink.objects == {"b": 40}
    assert [entry[0] for entry in followed.sink.calls if entry[0] != "changed"] == [
        "replaced",
        "broken",
        "replaced",
    ]
    assert server.watches[1]["resourceVersion"] == "50"


def test_a_server_restored_from_a_backup_is_believed() -> None:
    followed, _ = follow(
        [listed(1000, node("a", 900)), listed(50, node("a", 40))],
        [added("b", 1001), bookmark(1002), bookmark(51)],
        [modified("a", 52), HOLD],
        until=lambda followed, _: followed.sink.objects.get("a") == 52,
    )
    assert followed.sink.objects == {"a": 52}


def test_pauses_grow_spread_and_start_over_after_success() -> None:
    followed, _ = follow(
        [*[serving.refusal(503) for _ in range(12)], listed(10)],
        [added("a", 11), CUT],
        until=lambda followed, _: len(followed.clock.slept) == 13,
    )
    *first, again = followed.clock.slept
    for number, seconds in enumerate(first):
        longest = min(watch.LONGEST_PAUSE_SECONDS, watch.FIRST_PAUSE_SECONDS * 2**number)
        assert longest / 2 <= seconds <= longest
    assert len(set(first)) == len(first)
    assert again <= watch.FIRST_PAUSE_SECONDS
    assert len(followed.sink.named("broken")) == 13


def test_a_server_that_asks_for_patience_gets_it() -> None:
    throttled = serving.refusal(429, "TooManyRequests", retryAfterSeconds=7)
    followed, _ = follow(
        [throttled, listed(10)], until=lambda followed, _: followed.sink.named("replaced")
    )
    assert 7 <= followed.clock.slept[0] <= 8


def test_a_server_that_hangs_up_at_once_is_not_asked_in_a_tight_loop() -> None:
    followed, _ = follow(
        [listed(10)], [], [], [], [], until=lambda followed, _: len(followed.clock.slept) == 4
    )
    assert followed.clock.slept[3] > watch.FIRST_PAUSE_SECONDS


def test_a_server_that_always_says_expired_is_not_listed_in_a_tight_loop() -> None:
    expired = [[error(410, "Expired")] for _ in range(6)]
    followed, _ = follow([listed(10)], *expired, until=lambda _, server: len(server.lists) == 7)
    assert followed.clock.slept[5] > watch.FIRST_PAUSE_SECONDS * 8


def test_silence_is_a_dead_connection() -> None:
    def silence_after_the_first(followed: script.Followed, server: script.Server) -> bool:
        if "a" in followed.sink.objects and not silences:
            silences.append(61)
            jumping.jump(61)
        return "b" in followed.sink.objects

    silences: list[int] = []
    followed, server = follow(
        [listed(10)],
        [added("a", 11), HOLD],
        [added("b", 12), HOLD],
        until=silence_after_the_first,
        idle_timeout=60,
    )
    assert "silent" in followed.sink.named("broken")[0][1]
    assert len(server.lists) == 1


def test_refused_and_missing_kinds_are_asked_for_again() -> None:
    followed, _ = follow(
        [
            serving.refusal(403, "Forbidden", "may not"),
            serving.refusal(404, "NotFound"),
            listed(10),
        ],
        until=lambda followed, _: followed.sink.named("replaced"),
    )
    assert "may not" in followed.sink.named("broken")[0][1]


def test_an_unreadable_object_affects_no_other() -> None:
    bad = {
        "metadata": {"name": "bad", "resourceVersion": "6", "uid": "u"},
        "status": {"capacity": {"cpu": "much"}},
    }
    followed, server = follow(
        [listed(10, node("a", 5), bad)],
        [
            event("MODIFIED", {**bad, "metadata": {**bad["metadata"], "resourceVersion": "12"}}),
            added("c", 13),
            HOLD,
        ],
        until=lambda followed, _: "c" in followed.sink.objects,
    )
    messages = followed.sink.named("unreadable")
    assert [entry[1] for entry in messages] == ["bad", "bad"]
    assert "status.capacity" in messages[0][2]
    assert len(server.lists) == 1
    assert followed.sink.objects == {"a": 5, "c": 13}


def test_the_deletion_of_an_unreadable_object_is_reported() -> None:
    bad = {
        "metadata": {"name": "bad", "resourceVersion": "12", "uid": "u"},
        "status": {"capacity": {"cpu": "much"}},
    }
    followed, _ = follow(
        [listed(10)],
        [event("DELETED", bad), HOLD],
        until=lambda followed, _: followed.sink.named("deleted"),
    )
    assert followed.sink.named("deleted") == [("deleted", "bad", "u")]
    assert followed.sink.structs[0].kind == "Node"


def test_an_unreadable_state_is_not_overtaken_by_an_older_one() -> None:
    bad = {
        "metadata": {"name": "a", "resourceVersion": "13", "uid": "uid-a"},
        "status": {"capacity": {"cpu": "much"}},
    }
    followed, _ = follow(
        [listed(10, node("a", 5))],
        [event("MODIFIED", bad), modified("a", 12), event("MODIFIED", bad), added("z", 15), HOLD],
        until=lambda followed, _: "z" in followed.sink.objects,
    )
    assert followed.sink.objects["a"] == 5
    assert len(followed.sink.named("unreadable")) == 1


def test_an_event_of_an_unknown_type_is_reported_and_skipped() -> None:
    followed, server = follow(
        [listed(10)],
        [event("RENAMED", node("a", 11)), added("b", 12), HOLD],
        until=lambda followed, _: "b" in followed.sink.objects,
    )
    assert followed.sink.named("unreadable")[0][1] == "a"
    assert len(server.lists) == 1


def test_a_long_list_comes_in_pages_of_one_moment() -> None:
    followed, server = follow(
        [
            listed(10, node("a", 5), token="more"),
            listed(10, node("b", 6), token="last"),
            listed(10, node("c", 7)),
        ],
        [HOLD],
        until=lambda _, server: server.watches,
    )
    assert followed.sink.calls == [("replaced", ["a", "b", "c"], "10")]
    assert [query.get("continue") for query in server.lists] == [None, "more", "last"]
    assert server.watches[0]["resourceVersion"] == "10"


def test_pages_that_expire_are_replaced_by_one_whole_list() -> None:
    followed, server = follow(
        [
            listed(10, node("a", 5), token="more"),
            serving.refusal(410, "Expired"),
            listed(20, node("b", 15)),
        ],
        [HOLD],
        until=lambda _, server: server.watches,
    )
    assert followed.sink.calls == [("replaced", ["b"], "20")]
    assert "limit" not in server.lists[-1]


def test_huge_objects_pass() -> None:
    followed, _ = follow(
        [listed(10)],
        [added("a", 11, note="x" * 3_000_000), HOLD],
        until=lambda followed, _: "a" in followed.sink.objects,
    )
    assert len(followed.sink.structs[0].metadata.labels["note"]) == 3_000_000


def test_others_run_during_a_burst() -> None:
    """Between any two of their turns a task that only yields sees at most a few events more."""
    burst = b"".join(added(f"n{number}", 11 + number) for number in range(5000))
    server = script.Server([listed(10)], [[burst, HOLD]])

    async def main() -> int:
        most = before = 0
        async with script.following(server) as followed:
            async with asyncio.timeout(20):
                while before < 5000:
                    await asyncio.sleep(0)
                    now = len(followed.sink.named("changed"))
                    most, before = max(most, now - before), now
        return most

    assert asyncio.run(main()) <= watch.YIELD_EVENTS


@pytest.mark.parametrize("seed", range(8))
def test_disorder_and_losses_end_at_the_truth(seed: int) -> None:
    """A server whose stream repeats, reorders within a window and breaks, yet offers everything after a version."""
    chance = random.Random(seed)
    events: list[tuple[int, bytes]] = []
    truth: dict[str, int] = {}
    uids: dict[str, str] = {}
    for version in range(11, 411):
        name = f"n{chance.randrange(12)}"
        if name in truth and chance.random() < 0.3:
            truth.pop(name)
            events.append((version, deleted(name, version, uids[name])))
        else:
            if name not in truth:
                uids[name] = f"uid-{name}-{version}"
            truth[name] = version
            events.append((version, modified(name, version, uids[name])))
    server = Unreliable(events, chance)

    async def main() -> None:
        async with script.following(server) as followed:  # type: ignore[arg-type]
            await serving.eventually(lambda: followed.sink.objects == truth)
            assert len(followed.sink.named("replaced")) == 1

    asyncio.run(main())
    assert server.connections > 3


class Unreliable:
    """Serves the events after the asked version with repetitions and disorder, and breaks often at first."""

    def __init__(self, events: list[tuple[int, bytes]], chance: random.Random) -> None:
        self._events = events
        self._chance = chance
        self.connections = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """A list of nothing, or a stretch of the stream."""
        if "watch" not in request.query:
            return serving.answer(listed(10))
        self.connections += 1
        after = int(request.query["resourceVersion"])
        stream = [entry for entry in self._events if entry[0] > after]
        stream += self._chance.choices(stream, k=len(stream) // 5) if stream else []
        # Disorder stays within what a follower hears again after a loss.
        window = watch_history.REPLAYED_EVENTS // 4
        stream.sort(key=lambda entry: entry[0] + self._chance.randrange(window))
        is_cut = self.connections < 12
        if is_cut:
            stream = stream[: self._chance.randrange(1, 150)]
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"".join(line for _, line in stream))
        assert request.transport is not None
        while request.transport.get_write_buffer_size():
            await asyncio.sleep(0)
        if is_cut:
            request.transport.abort()
            return response
        await asyncio.Event().wait()
        return response
