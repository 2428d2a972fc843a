"""Server-side apply: what is sent; transient failures are retried, refusals are not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from dovetail.kube import server_side_apply
from dovetail.kube.http import transport
from dovetail.kubetypes import codec, registry
from dovetail.ports import api, failures
from tests.kube import serving

CONFIG = registry.Kind("v1", "ConfigMap", "configmaps", is_namespaced=True, struct=codec.Generic)
TARGET = api.Target(CONFIG, "here", "one")
TREE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
PASSING = [
    serving.status(429, "TooManyRequests", "storage is (re)initializing"),
    serving.status(503, "ServiceUnavailable", "not yet"),
]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_side_apply, "RETRY_SECONDS", 0.001)


def asked(
    work: Callable[[transport.Transport], Awaitable[Any]], *statuses: dict[str, Any]
) -> tuple[Any, list[web.Request]]:
    """What came of asking a server that gives these refusals first and then succeeds; and what it was asked."""
    left, seen = list(statuses), []

    async def handler(request: web.Request) -> web.StreamResponse:
        await request.read()
        seen.append(request)
        if left:
            refused = left.pop(0)
            return serving.refusal(refused["code"], refused["reason"], refused["message"])
        return serving.answer(
            {"metadata": {"name": "one"}, "items": [{"metadata": {"name": "one"}}]}
        )

    async def main() -> Any:
        async with (
            serving.serving(handler) as url,
            transport.Transport(serving.connection(url)) as over,
        ):
            return await work(over)

    return asyncio.run(main()), seen


def test_what_fails_in_passing_is_repeated() -> None:
    result, seen = asked(lambda over: server_side_apply.apply(over, TARGET, TREE), *PASSING)
    assert result["metadata"] == {"name": "one"}
    assert [item.method for item in seen] == ["PATCH"] * 3
    assert seen[0].query == {"fieldManager": "dovetail-install", "fieldValidation": "Strict"}
    assert seen[0].content_type == "application/apply-patch+yaml"


def test_it_is_not_repeated_endlessly() -> None:
    with pytest.raises(failures.Throttled):
        asked(
            lambda over: server_side_apply.read(over, TARGET),
            *PASSING[:1] * server_side_apply.ATTEMPTS,
        )


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (serving.status(409, "Conflict", 'conflict with "kubectl"'), failures.Conflict),
        (serving.status(422, "Invalid", "no"), failures.Refused),
        (serving.status(500, "", ".spec.request: field not declared in schema"), failures.Refused),
    ],
)
def test_a_refusal_is_reported_at_once(
    refusal: dict[str, Any], expected: type[failures.ApiFailure]
) -> None:
    with pytest.raises(expected):
        asked(lambda over: server_side_apply.apply(over, TARGET, TREE), refusal)


def test_a_rehearsal_and_force_are_asked_for() -> None:
    _, seen = asked(
        lambda over: server_side_apply.apply(over, TARGET, TREE, is_rehearsal=True, is_forced=True)
    )
    assert (seen[0].query["dryRun"], seen[0].query["force"]) == ("All", "true")


def test_lists_ask_for_metadata_only() -> None:
    result, seen = asked(
        lambda over: server_side_apply.listed(over, CONFIG, namespace="here", selector="a=b")
    )
    assert result == [{"metadata": {"name": "one"}}]
    assert seen[0].path_qs == "/api/v1/namespaces/here/configmaps?labelSelector=a%3Db"
    assert "PartialObjectMetadataList" in seen[0].headers["Accept"]


def test_what_is_not_there_is_none() -> None:
    assert (
        asked(
            lambda over: server_side_apply.read(over, TARGET),
            serving.status(404, "NotFound", "none"),
        )[0]
        is None
    )
    assert (
        asked(
            lambda over: server_side_apply.served(over, "a/v1"),
            serving.status(404, "NotFound", "none"),
        )[0]
        == ()
    )
