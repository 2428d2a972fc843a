"""The description for programs (OpenAPI 3.1): whatever it allows is answered as it says, never a 5xx, never a hang."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import hypothesis
import pytest
import schemathesis

from dovetail.web import api_endpoints
from dovetail.web.security import rate_limit
from tests.web.api import clusters
from tests.web.serving_dashboards import ACCESS_TOKEN, ALL, Client, cluster, live, pod, served

EXAMPLES = 25  # of each operation
SECONDS = 30.0  # a request that takes longer hangs
CHECKS = [
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
    schemathesis.checks.status_code_conformance,
]
HEADERS = {"Authorization": f"Bearer {ACCESS_TOKEN}", "Dovetail-Request": "1"}


class Server(NamedTuple):
    """A dashboard in a thread of its own, for clients that block."""

    url: str
    description: dict[str, Any]


@contextlib.contextmanager
def serving_in_a_thread() -> Iterator[Server]:
    started: list[Server] = []
    failure: list[BaseException] = []
    is_ready, ending = threading.Event(), threading.Event()
    own = {endpoint.path for endpoint in api_endpoints.all_endpoints()}
    given = (*api_endpoints.all_endpoints(), *(each for each in ALL if each.path not in own))

    async def main() -> None:
        async with (
            cluster("train", "serve") as there,
            served(
                live(there.choice),
                given,
                user_rate=rate_limit.Rate(1e9, 1e9),
                longest_stream_seconds=0.05,
                allow_writes=True,
                accounting=clusters.Accounted(clusters.RECORDED),
            ) as client,
        ):
            for name in "abc":
                there.api.put(pod(name, "train"))
            await client.is_read()
            started.append(Server(client.url, await _described(client)))
            is_ready.set()
            await asyncio.to_thread(ending.wait)

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failure.append(error)
        finally:
            is_ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    is_ready.wait()
    try:
        assert started, failure
        yield started[0]
    finally:
        ending.set()
        thread.join()
    assert not failure


async def _described(client: Client) -> dict[str, Any]:
    answer = await client.get("/openapi.json", token="")
    assert answer.status == 200
    described: dict[str, Any] = answer.tree
    return described


def test_the_description_names_every_path_and_its_refusals() -> None:
    with serving_in_a_thread() as server:
        paths = server.description["paths"]
        assert server.description["openapi"] == "3.1.0"
        for path in ("/api/v1/session", "/api/v1/stream", "/api/v1/fixes", "/api/v1/work"):
            assert path in paths
        listed = paths["/api/v1/pods"]["get"]
        names = {parameter["name"] for parameter in listed["parameters"]}
        assert {"namespace", "limit", "cursor", "sort", "format"} <= names
        assert {"200", "304", "400", "401", "429", "503"} <= set(listed["responses"])
        assert set(listed["responses"]["200"]["content"]) == {"application/json", "text/csv"}
        in_path = paths["/api/v1/pods/{namespace}/{name}"]["get"]["parameters"]
        assert all(parameter["in"] == "path" and parameter["required"] for parameter in in_path)
        assert "Problem" in server.description["components"]["schemas"]


@pytest.mark.slow
def test_whatever_the_description_allows_is_answered_as_it_says() -> None:
    with serving_in_a_thread() as server:
        schema = schemathesis.openapi.from_dict(server.description)
        operations = [result.ok() for result in schema.get_all_operations()]
        asked = {operation.label: _ask(server, operation) for operation in operations}
        assert len(asked) >= len(server.description["paths"])
        assert all(asked.values()), asked


def _ask(server: Server, operation: Any) -> int:
    """Sends what the description allows, and compares each answer with it. Returns how often."""
    count = 0

    @hypothesis.settings(
        max_examples=EXAMPLES, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        nonlocal count
        count += 1
        response = case.call(
            base_url=server.url, headers=HEADERS, timeout=SECONDS, allow_redirects=False
        )
        assert response.status_code < 500, (operation.label, response.text)
        case.validate_response(response, checks=CHECKS)

    ask()
    return count
