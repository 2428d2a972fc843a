"""Single objects: what goes over the wire for each verb, and how a fence holds writes back."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from dovetail.kube import client, discovery
from dovetail.kube.http import paths, transport
from dovetail.kube.watching import decode
from dovetail.kubetypes import registry
from dovetail.ports import api as ports_api
from dovetail.ports import failures
from tests.kube import script, serving

POD = ports_api.Target(registry.POD, "team", "a")
TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
Call = Callable[[client.KubeApi], Awaitable[Any]]


class RecordingServer:
    """A server that says yes and remembers."""

    def __init__(
        self, answer: Callable[[], web.Response] = lambda: serving.answer({"ok": True})
    ) -> None:
        self._answer = answer
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []

    async def handle(self, request: web.Request) -> web.Response:
        """Remembers."""
        body = await request.read()
        self.requests.append(
            (
                request.method,
                request.raw_path,
                dict(request.headers),
                msgspec.json.decode(body) if body else None,
            )
        )
        return self._answer()


def call(call: Call, events: RecordingServer, *, fence: client.Fence | None = None) -> Any:
    async def main() -> Any:
        async with (
            serving.serving(events.handle) as url,
            transport.Transport(serving.connection(url)) as over,
        ):
            return await call(client.KubeApi(over, fence=fence))

    return asyncio.run(main())


def test_paths() -> None:
    assert paths.collection(registry.POD) == "/api/v1/pods"
    assert (
        paths.collection(registry.CLAIM, "team")
        == "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    )
    assert paths.of(POD._replace(subresource="binding")) == "/api/v1/namespaces/team/pods/a/binding"
    assert paths.of(ports_api.Target(registry.NODE, "", "../x?y")) == "/api/v1/nodes/..%2Fx%3Fy"


def test_reading_one() -> None:
    events = RecordingServer()
    assert call(lambda server: server.get(POD), events) == b'{"ok":true}'
    method, path, headers, body = events.requests[0]
    assert (method, path, body) == ("GET", "/api/v1/namespaces/team/pods/a", None)
    assert headers["Accept"] == "application/json"


def test_creating_and_posting_to_a_subresource() -> None:
    events = RecordingServer()
    binding = POD._replace(subresource="binding")
    call(lambda server: server.create(binding, b'{"target":{"name":"n"}}'), events)
    method, path, headers, body = events.requests[0]
    assert (method, path, body) == (
        "POST",
        "/api/v1/namespaces/team/pods/a/binding?timeout=10000ms&fieldValidation=Ignore",
        {"target": {"name": "n"}},
    )
    assert headers["Content-Type"] == "application/json"


def test_patching_briefly() -> None:
    events = RecordingServer()
    call(lambda server: server.patch(POD, b'{"a":1}', brief=True), events)
    method, _, headers, body = events.requests[0]
    assert (method, body) == ("PATCH", {"a": 1})
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert (
        headers["Accept"]
        == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    )


def test_deleting_with_and_without_conditions() -> None:
    events = RecordingServer()
    call(lambda server: server.delete(POD), events)
    call(lambda server: server.delete(POD, uid="u", resource_version="7"), events)
    plain, careful = (body for _, _, _, body in events.requests)
    assert plain == {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert careful["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def test_evicting_by_identity_with_the_pods_own_grace_and_rehearsing_it() -> None:
    events = RecordingServer(lambda: serving.answer({"kind": "Status", "status": "Success"}))
    call(lambda server: server.evict(POD, uid="u"), events)
    call(lambda server: server.evict(POD, uid="u", grace_seconds=5, is_rehearsal=True), events)
    (method, real, _, plain), (_, rehearsed, _, careful) = events.requests
    assert method == "POST"
    assert real.startswith("/api/v1/namespaces/team/pods/a/eviction?")
    assert "dryRun" not in real
    assert "dryRun=All" in rehearsed
    assert plain["deleteOptions"] == {"preconditions": {"uid": "u"}}
    assert (plain["apiVersion"], plain["kind"]) == ("policy/v1", "Eviction")
    assert careful["deleteOptions"] == {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 5}


def test_a_refusing_disruption_budget_differs_from_a_busy_server() -> None:
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget kept needs 2 healthy pods and has 2",
    }
    messages = {
        "kind": "Status",
        "status": "Failure",
        "code": 429,
        "reason": "TooManyRequests",
        "message": "no",
    }
    budget = messages | {"details": {"causes": [cause]}}
    two = {
        "kind": "Status",
        "status": "Failure",
        "code": 500,
        "message": TWO_BUDGETS,
    }  # with a code of success
    for document, status, kind in (
        (budget, 429, failures.Protected),
        (messages, 429, failures.Throttled),
        (two, 201, failures.Protected),
    ):
        events = RecordingServer(functools.partial(web.json_response, document, status=status))
        with pytest.raises(kind):
            call(lambda server: server.evict(POD, uid="u"), events)


@pytest.mark.parametrize(
    "asked",
    [
        lambda server: server.get(POD),
        lambda server: server.create(POD, b"{}"),
        lambda server: server.patch(POD, b"{}"),
        lambda server: server.delete(POD),
    ],
)
def test_refusals_are_raised_and_say_what_was_asked(asked: Call) -> None:
    events = RecordingServer(lambda: serving.refusal(409, "Conflict", "another writer was faster"))
    with pytest.raises(
        failures.Conflict,
        match=r"(get|create|patch|delete) pods team/a: 409 Conflict: another writer",
    ):
        call(asked, events)
    assert len(events.requests) == 1


class Fence:
    """Open for a number of questions."""

    def __init__(self, *, opens: int = 1000, remaining: float = math.inf) -> None:
        self._opens = opens
        self._remaining = remaining
        self.unanswered = 0

    def mark_unanswered(self) -> None:
        """Counts up."""
        self.unanswered += 1

    def check(self) -> None:
        """Counts down."""
        self._opens -= 1
        if self._opens < 0:
            raise failures.Fenced("not the leader")

    def remaining(self) -> float:
        """As given."""
        return self._remaining


@pytest.mark.parametrize("opens", [0, 1, 2])
@pytest.mark.parametrize(
    "write",
    [
        lambda server: server.create(POD, b"{}"),
        lambda server: server.patch(POD, b"{}"),
        lambda server: server.delete(POD),
        lambda server: server.evict(POD, uid="u"),
    ],
)
def test_a_shut_fence_holds_every_write_back(write: Call, opens: int) -> None:
    events = RecordingServer()
    with pytest.raises(failures.Fenced, match="not the leader"):
        call(write, events, fence=Fence(opens=opens))
    assert events.requests == []
    call(write, events, fence=(fence := Fence(opens=3)))
    assert len(events.requests) == 1
    assert fence.unanswered == 0


def test_reading_needs_no_fence() -> None:
    call(lambda server: server.get(POD), events := RecordingServer(), fence=Fence(opens=0))
    assert len(events.requests) == 1


def test_a_write_waits_no_longer_than_the_fence_holds() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url)) as over,
        ):
            with pytest.raises(failures.Unavailable, match=r"no answer within 0.05 s"):
                await client.KubeApi(over, fence=fence).patch(POD, b"{}")

    fence = Fence(remaining=0.05)
    asyncio.run(main())
    assert fence.unanswered == 1, "the write may still arrive"


# Lists


def listing(
    *answers: dict[str, Any] | web.Response, **given: Any
) -> tuple[list[Any], str, script.Server]:
    server = script.Server(answers, [])

    async def main() -> tuple[list[Any], str]:
        async with (
            serving.serving(server.handle) as url,
            transport.Transport(serving.connection(url)) as over,
        ):
            return await client.list_all(over, registry.NODE, **given)

    result, version = asyncio.run(main())
    return result, version, server


def test_an_empty_list_and_null_items() -> None:
    assert listing(script.listed(7))[:2] == ([], "7")
    assert listing({**script.listed(7), "items": None})[:2] == ([], "7")


def test_selectors_stay_on_every_page() -> None:
    _, _, server = listing(
        script.listed(7, script.node("a", 1), token="t"),
        script.listed(7, script.node("b", 2)),
        params={"labelSelector": "x=y"},
    )
    assert [query["labelSelector"] for query in server.lists] == ["x=y", "x=y"]


def test_pages_grow_and_shrink_towards_a_size() -> None:
    small = [script.node(f"n{number}", number + 1) for number in range(100)]
    large = [script.node(f"m{number}", number + 1, note="x" * 100_000) for number in range(100)]
    _, _, server = listing(
        script.listed(900, *small, token="1"),
        script.listed(900, *large, token="2"),
        script.listed(900),
    )
    first, second, third = (int(query["limit"]) for query in server.lists)
    assert (first, second) == (client.FIRST_PAGE_ITEMS, client.PAGE_ITEMS)
    assert 1 < third < 100


def test_unreadable_items_are_reported_and_left_out() -> None:
    messages: list[tuple[str, str]] = []
    bad = {"metadata": {"name": "bad", "namespace": "x"}, "spec": {"unschedulable": "yes"}}
    worse = {"metadata": "worse"}
    result, _, _ = listing(
        script.listed(7, script.node("a", 1), bad, worse, script.node("b", 2)),
        unreadable=lambda name, problem: messages.append((name, problem)),
    )
    assert [node.metadata.name for node in result] == ["a", "b"]
    assert [name for name, _ in messages] == ["x/bad", "<unnamed>"]
    assert "spec.unschedulable" in messages[0][1]
    assert len(listing(script.listed(7, bad))[0]) == 0


def test_an_answer_that_is_no_list_is_unavailable() -> None:
    for body in (b"<html>", b'{"items":7}', b"[]"):
        with pytest.raises(failures.Unavailable, match="not a list"):
            decode.page(body, doing="list nodes")


# Discovery


def discovered(
    answers: dict[str, Any], ask: Callable[[transport.Transport], Awaitable[Any]]
) -> Any:
    async def handler(request: web.Request) -> web.Response:
        known = answers.get(request.path)
        return serving.refusal(404, "NotFound") if known is None else serving.answer(known)

    async def main() -> Any:
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url)) as over,
        ):
            return await ask(over)

    return asyncio.run(main())


RESOURCES = {"resources": [{"name": "devicetaintrules"}, {"name": "devicetaintrules/status"}]}


def test_the_version_however_vendors_write_it() -> None:
    for minor, number in (("37", 37), ("37+", 37), ("", 0)):
        result = discovered(
            {"/version": {"major": "1", "minor": minor, "gitVersion": "v"}}, discovery.version
        )
        assert result.number == (1, number)
    with pytest.raises(failures.Refused, match="is the address that of an API server"):
        discovered({"/version": ["hello"]}, discovery.version)


def test_a_kind_in_its_newest_version_or_not_at_all() -> None:
    older = ("resource.k8s.io/v1beta2",)

    def newest(*groups: str) -> Any:
        answers = {f"/apis/resource.k8s.io/{group}": RESOURCES for group in groups}
        return discovered(answers, lambda over: discovery.newest(over, registry.TAINT_RULE, older))

    assert newest("v1", "v1beta2") == registry.TAINT_RULE
    assert newest("v1beta2") == registry.TAINT_RULE._replace(api_version="resource.k8s.io/v1beta2")
    assert newest() is None
