"""Answers over HTTP: parameters, pages, versions, formats, refusals. Real sockets, a server in memory behind them."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io

from dovetail.sim.server.api_server import SimApi
from dovetail.web.wire import csv_rows
from tests.support import waiting
from tests.web.serving_dashboards import Client, Echo, Held, pod, story


def test_a_list_is_answered_with_its_version_and_time() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        api.put(pod("a", "train"))
        await _until_listed(client, 1)
        answer = await client.get("/api/v1/pods")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/json"
        tree = answer.tree
        assert tree["items"] == [
            {"namespace": "train", "name": "a", "nodeName": None, "labels": {}}
        ]
        assert (tree["total"], tree["next"]) == (1, None)
        assert tree["asOf"].endswith("Z")
        assert tree["version"] >= 1

    story(tell)


def test_a_list_is_cut_into_pages_that_go_on_after_the_last_item() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for name in "abcdef":
            api.put(pod(name, "train"))
        await _until_listed(client, 6)
        first = (await client.get("/api/v1/pods?limit=2&sort=name")).tree
        assert [item["name"] for item in first["items"]] == ["a", "b"]
        assert first["total"] == 6
        api.put(pod("aa", "train"))  # before the second page
        await _until_listed(client, 7)
        second = (await client.get(f"/api/v1/pods?limit=2&sort=name&cursor={first['next']}")).tree
        assert [item["name"] for item in second["items"]] == ["c", "d"]
        other = await client.get(f"/api/v1/pods?limit=2&sort=-name&cursor={first['next']}")
        assert (other.status, other.tree["field"]) == (400, "cursor")

    story(tell)


def test_items_are_sorted_by_a_field_absent_values_last() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        api.put(pod("a", "train"))
        api.put(pod("b", "train", node="n1"))
        api.put(pod("c", "train", node="n2"))
        await _until_listed(client, 3)
        down = (await client.get("/api/v1/pods?sort=-nodeName")).tree
        assert [item["nodeName"] for item in down["items"]] == ["n2", "n1", None]
        wrong = await client.get("/api/v1/pods?sort=shape")
        assert wrong.status == 400
        assert "nodeName" in wrong.tree["detail"]
        assert (await client.get("/api/v1/pods?sort=labels")).status == 400

    story(tell)


def test_csv_holds_the_same_rows() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        api.put(pod("a", "train", team="vision"))
        api.put(pod("b", "serve"))
        await _until_listed(client, 2)
        answer = await client.get("/api/v1/pods?format=csv&sort=name&limit=1")
        assert answer.headers["Content-Type"].startswith("text/csv")
        assert "pods.csv" in answer.headers["Content-Disposition"]
        rows = list(csv.reader(io.StringIO(answer.body.decode())))
        assert rows == [
            ["namespace", "name", "nodeName", "labels"],
            ["train", "a", "", '{"team":"vision"}'],
        ]
        rest = await client.get(
            f"/api/v1/pods?format=csv&sort=name&cursor={answer.headers['Dovetail-Next']}"
        )
        assert list(csv.reader(io.StringIO(rest.body.decode())))[1][1] == "b"

    story(tell)


def test_csv_text_is_no_formula() -> None:
    item = Echo(text="=cmd()|' /C calc'!A0", numbers=(-1,))
    rows = list(csv.reader(io.StringIO(csv_rows.written([item], Echo).decode())))
    assert rows == [["text", "numbers"], ["'=cmd()|' /C calc'!A0", "[-1]"]]


def test_a_client_that_has_the_version_gets_304_until_something_changes() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        api.put(pod("a", "train"))
        await _until_listed(client, 1)
        first = await client.get("/api/v1/pods")
        tag = first.headers["ETag"]
        assert tag.startswith('W/"')
        same = await client.get("/api/v1/pods", If_None_Match=tag)
        assert (same.status, same.body) == (304, b"")
        other_query = await client.get("/api/v1/pods?limit=1", If_None_Match=tag)
        assert other_query.status == 200
        api.put(pod("b", "train"))
        await _until_listed(client, 2)
        assert (await client.get("/api/v1/pods", If_None_Match=tag)).status == 200

    story(tell)


def test_long_bodies_are_compressed_for_clients_that_read_it() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for number in range(40):
            api.put(pod(f"pod-{number}", "train"))
        await _until_listed(client, 40)
        plain = await client.get("/api/v1/pods", Accept_Encoding="identity")
        assert "Content-Encoding" not in plain.headers
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(
            b"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Accept-Encoding: br;q=1, gzip;q=0.5\r\n"
            b"Authorization: Bearer an-access-token-of-tests-that-is-long-enough\r\n\r\n"
        )
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert b"content-encoding: gzip" in head
        assert gzip.decompress(body) == plain.body

    story(tell)


def test_wrong_parameters_are_refused_by_name() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        unknown = await client.get("/api/v1/pods?nmespace=train")
        assert unknown.status == 400
        assert unknown.headers["Content-Type"] == "application/problem+json"
        assert unknown.tree["field"] == "nmespace"
        assert "namespace" in unknown.tree["detail"]
        assert (await client.get("/api/v1/pods?most=many")).tree["field"] == "most"
        assert (await client.get("/api/v1/pods?limit=0")).tree["field"] == "limit"
        assert (await client.get("/api/v1/pods?limit=5001")).status == 400
        assert (await client.get("/api/v1/pods?namespace=a&namespace=b")).status == 400
        assert (await client.get("/api/v1/pods?cursor=x")).tree["field"] == "cursor"

    story(tell)


def test_a_body_is_read_strictly() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        headers = {"Dovetail-Request": "1"}
        good = {"text": "a", "numbers": [1, 2]}
        answer = await client.ask("POST", "/api/v1/echo", headers=headers, body=good)
        assert (answer.status, answer.tree) == (200, good)
        for wrong in ({"text": 1}, {"numbers": ["1"]}, {"other": 1}, [], "x"):
            answer = await client.ask("POST", "/api/v1/echo", headers=headers, body=wrong)
            assert answer.status == 400, wrong
        long = {"text": "x" * (3 << 20)}
        answer = await client.ask("POST", "/api/v1/echo", headers=headers, body=long)
        assert answer.status == 413

    story(tell)


def test_what_does_not_exist_is_a_problem_document() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for path in ("/api/v1/nothing", "/api/v2/pods", "/api/v1/pods/train/absent"):
            answer = await client.get(path)
            assert answer.status == 404
            assert answer.tree["status"] == 404
            assert answer.tree["type"] == "urn:dovetail:problem:not-found"
        answer = await client.ask("DELETE", "/api/v1/pods", headers={"Dovetail-Request": "1"})
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")

    story(tell)


def test_the_replica_follows_the_cluster() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        assert (await client.get("/api/v1/count")).tree["pods"] == 0
        api.put(pod("a", "train"))
        api.put(pod("b", "train"))
        await _until_listed(client, 2)
        assert (await client.get("/api/v1/count")).tree["pods"] == 2

    story(tell)


def test_the_same_question_at_one_version_is_answered_once() -> None:
    held = Held()

    async def tell(client: Client, api: SimApi) -> None:
        asking = [asyncio.create_task(client.get("/api/v1/held?text=a")) for _ in range(5)]
        await waiting.until(lambda: held.calls, "the first call")
        held.let_go.set()
        answers = await asyncio.gather(*asking)
        assert [answer.status for answer in answers] == [200] * 5
        assert held.calls == 1

    story(tell, given=(held.endpoint,))


def test_too_many_waiting_questions_are_refused_with_the_time_to_come_back() -> None:
    held = Held()

    async def tell(client: Client, api: SimApi) -> None:
        asking = [
            asyncio.create_task(client.get(f"/api/v1/held?text={number}")) for number in range(3)
        ]
        await waiting.until(lambda: client.dashboard._engine.waiting == 3, "three questions")
        refused = await client.get("/api/v1/held?text=more")
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert (await client.get("/healthz")).status == 200  # the event loop is free
        held.let_go.set()
        assert [answer.status for answer in await asyncio.gather(*asking)] == [200] * 3

    story(tell, given=(held.endpoint,), most_waiting=2)


def test_the_session_says_who_asks_about_what() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        tree = (await client.get("/api/v1/session")).tree
        assert tree["user"] == "tester"
        assert (tree["kind"], tree["isLive"], tree["canWrite"]) == ("kubernetes", True, False)
        assert tree["program"].startswith("dovetail ")
        assert tree["version"] >= 1

    story(tell)


async def _until_listed(client: Client, count: int) -> None:
    async def are_listed() -> bool:
        return bool((await client.get("/api/v1/pods")).tree["total"] == count)

    await waiting.until(are_listed, f"{count} pods")
