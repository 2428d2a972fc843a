"""Which requests are refused before anything is looked at: host, user, site, rate. One story for each property."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dovetail import errors
from dovetail.sim.server.api_server import SimApi
from dovetail.web.security import link_tokens, rate_limit, request_checks, trusted_proxy
from tests.web.serving_dashboards import ACCESS_TOKEN, CONFIRMED, Client, story

SECRET = "a-secret-of-the-proxy-and-us"


def test_a_name_that_was_made_to_resolve_here_is_refused() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for host in (
            "evil.example",
            f"evil.example:{client.port}",
            "localhost.evil.example",
            "a@b",
        ):
            answer = await client.get("/api/v1/pods", Host=host)
            assert answer.status == 421, host
            assert (await client.get("/", Host=host)).status == 421
        for host in ("localhost", "localhost:9999", f"127.0.0.1:{client.port}", "LOCALHOST."):
            assert (await client.get("/api/v1/pods", Host=host)).status == 200, host
        assert (await client.get("/healthz", Host="10.1.2.3:8080")).status == 200

    story(tell)


def test_a_configured_name_is_accepted() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        assert (await client.get("/api/v1/pods", Host="gpus.example:443")).status == 200
        assert (await client.get("/api/v1/pods", Host="example")).status == 421

    story(tell, hosts=frozenset({"gpus.example"}))


def test_without_a_token_nothing_of_the_cluster_is_shown() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for path in ("/api/v1/pods", "/api/v1/session", "/api/v1/stream", "/api/v1/count"):
            answer = await client.get(path, token="")
            assert answer.status == 401, path
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert "dovetail dashboard" in answer.tree["next"]
            assert (await client.get(path, token="wrong")).status == 401
        for path in ("/", "/workloads", "/openapi.json", "/healthz"):
            assert (await client.get(path, token="")).status == 200, path

    story(tell)


def test_a_link_works_once_and_becomes_a_session() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        body = {"token": client.link_token()}
        headers = CONFIRMED | {"Origin": client.url}

        async def sign_in() -> Any:
            return await client.ask("POST", "/api/v1/session", token="", headers=headers, body=body)

        first = await sign_in()
        assert first.status == 200
        cookie = first.headers["Set-Cookie"]
        assert cookie.startswith(f"dovetail-{client.port}=")
        for attribute in ("HttpOnly", "SameSite=Strict", "Path=/"):
            assert attribute in cookie
        assert "Secure" not in cookie  # plain HTTP on loopback
        assert (await sign_in()).status == 401

        session = {"Cookie": cookie.partition(";")[0]}
        answer = await client.ask("GET", "/api/v1/session", token="", headers=session)
        assert (answer.status, answer.tree["user"]) == (200, "tester")

    story(tell)


def test_a_link_of_another_run_or_time_is_refused() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        boot = client.dashboard.source.feed.boot
        wrong = (
            link_tokens.link_token(ACCESS_TOKEN, "another", 4e9),
            link_tokens.link_token(ACCESS_TOKEN, boot, 1000.0),
            link_tokens.link_token("another-token", boot, 4e9),
            "a" * 42,
            "",
        )
        for token in wrong:
            answer = await client.ask(
                "POST", "/api/v1/session", token="", headers=CONFIRMED, body={"token": token}
            )
            assert answer.status == 401, token

    story(tell)


def test_a_session_ends_with_its_time_or_by_signing_out() -> None:
    async def expired(client: Client, api: SimApi) -> None:
        cookie = await client.signed_in()
        answer = await client.ask("GET", "/api/v1/pods", token="", headers=cookie)
        assert answer.status == 401

    story(expired, session_seconds=-1.0)

    async def signed_out(client: Client, api: SimApi) -> None:
        cookie = await client.signed_in()
        headers = cookie | CONFIRMED | {"Origin": client.url}
        answer = await client.ask("DELETE", "/api/v1/session", token="", headers=headers)
        assert answer.status == 204
        assert "Max-Age=0" in answer.headers["Set-Cookie"]
        again = await client.ask("GET", "/api/v1/pods", token="", headers=cookie)
        assert again.status == 401

    story(signed_out)


def test_a_cookie_that_was_changed_is_no_session() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        name, _, value = (await client.signed_in())["Cookie"].partition("=")
        for wrong in (value[:-4] + "AAAA", "AAAA", "", "a" * 5000, value[8:]):
            cookie = {"Cookie": f"{name}={wrong}"}
            answer = await client.ask("GET", "/api/v1/pods", token="", headers=cookie)
            assert answer.status == 401

    story(tell)


def test_a_session_survives_a_restart_where_the_secret_is_kept() -> None:
    kept: dict[str, str] = {}

    async def before(client: Client, api: SimApi) -> None:
        kept.update(await client.signed_in(), port=str(client.port))

    story(before, session_secret="kept")

    async def after(client: Client, api: SimApi) -> None:
        cookie = {"Cookie": kept["Cookie"]}
        assert (await client.ask("GET", "/api/v1/pods", token="", headers=cookie)).status == 200

    story(after, session_secret="kept", port=int(kept["port"]))


def test_changes_need_the_header_and_the_own_origin() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        cookie = await client.signed_in()

        async def status(**headers: str) -> int:
            given = cookie | {name.replace("_", "-"): value for name, value in headers.items()}
            answer = await client.ask(
                "POST", "/api/v1/echo", token="", headers=given, body={"text": "a"}
            )
            return answer.status

        own = client.url
        assert await status(Dovetail_Request="1", Origin=own) == 200
        assert await status(Origin=own) == 403
        assert await status(Dovetail_Request="1") == 403
        assert await status(Dovetail_Request="1", Origin="null") == 403
        assert await status(Dovetail_Request="1", Origin="http://evil.example") == 403
        assert await status(Dovetail_Request="1", Origin="http://127.0.0.1:1") == 403
        assert await status(Dovetail_Request="1", Origin=own, Sec_Fetch_Site="cross-site") == 403
        assert await status(Dovetail_Request="1", Origin=own, Sec_Fetch_Site="same-origin") == 200

        program = await client.ask("POST", "/api/v1/echo", headers=CONFIRMED, body={})
        assert program.status == 200  # a bearer token is sent on purpose
        page = CONFIRMED | {"Origin": "http://evil.example"}
        assert (await client.ask("POST", "/api/v1/echo", headers=page, body={})).status == 403

    story(tell)


def test_another_site_may_not_even_read_with_a_cookie() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        cookie = await client.signed_in()
        for site in ("cross-site", "same-site"):  # a page on another port of localhost is same-site
            headers = cookie | {"Sec-Fetch-Site": site}
            answer = await client.ask("GET", "/api/v1/pods", token="", headers=headers)
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers

    story(tell)


def test_every_response_says_what_a_browser_may_do() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for path in ("/", "/api/v1/pods", "/api/v1/nothing", "/openapi.json", "/healthz"):
            headers = (await client.get(path)).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert "Server" not in headers

    story(tell)


def test_where_users_come_by_https_cookies_are_for_https_only() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        answer = await client.ask(
            "POST",
            "/api/v1/session",
            token="",
            headers=CONFIRMED,
            body={"token": client.link_token()},
        )
        assert answer.headers["Set-Cookie"].startswith("__Host-dovetail=")
        assert "Secure" in answer.headers["Set-Cookie"]
        assert "max-age" in answer.headers["Strict-Transport-Security"]

    story(tell, is_secure=True)


def test_a_user_who_asks_too_often_is_slowed_down() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        answers = [await client.get("/api/v1/session") for _ in range(6)]
        assert [answer.status for answer in answers[-2:]] == [429, 429]
        assert int(answers[-1].headers["Retry-After"]) >= 1
        assert answers[-1].tree["type"].endswith("too-many-requests")
        assert (await client.get("/healthz")).status == 200

    story(tell, user_rate=rate_limit.Rate(4, 0.001))


def test_an_address_that_tries_tokens_is_slowed_down() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        tries = [client.get("/api/v1/pods", token=f"guess-{number}") for number in range(40)]
        statuses = [answer.status for answer in await asyncio.gather(*tries)]
        assert set(statuses) == {401, 429}
        assert (await client.get("/api/v1/pods")).status == 200  # the right one still works

    story(tell)


def test_a_spoofed_proxy_header_is_not_believed() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        for headers in (
            {"X-Forwarded-User": "admin"},
            {"X-Forwarded-User": "admin", "Dovetail-Proxy-Secret": "guess"},
            {"X-Forwarded-User": "admin", "Dovetail-Proxy-Secret": ""},
        ):
            answer = await client.ask("GET", "/api/v1/session", token="", headers=headers)
            assert answer.status == 401
        right = {"X-Forwarded-User": "alice", "Dovetail-Proxy-Secret": SECRET}
        answer = await client.ask("GET", "/api/v1/session", token="", headers=right)
        assert (answer.status, answer.tree["user"]) == (200, "alice")

    story(tell, auth=frozenset({"proxy"}), proxy=trusted_proxy.TrustedProxy(secret=SECRET))


def test_a_proxy_of_another_address_is_not_believed() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        headers = {"X-Forwarded-User": "alice", "Dovetail-Proxy-Secret": SECRET}
        answer = await client.ask("GET", "/api/v1/session", token="", headers=headers)
        assert answer.status == 401

    proxy = trusted_proxy.TrustedProxy(networks=("192.0.2.0/24",), secret=SECRET)
    story(tell, auth=frozenset({"proxy"}), proxy=proxy)


def test_a_proxy_may_not_name_users_of_kubernetes_itself() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        base = {"Dovetail-Proxy-Secret": SECRET}
        admin = base | {"X-Forwarded-User": "system:admin"}
        assert (await client.ask("GET", "/api/v1/session", token="", headers=admin)).status == 403
        masters = base | {"X-Forwarded-User": "a", "X-Forwarded-Groups": "x, system:masters"}
        assert (await client.ask("GET", "/api/v1/session", token="", headers=masters)).status == 403

    story(tell, auth=frozenset({"proxy"}), proxy=trusted_proxy.TrustedProxy(secret=SECRET))


def test_a_proxy_header_that_is_there_twice_is_refused() -> None:
    proxy = trusted_proxy.TrustedProxy(secret=SECRET)
    headers = [
        (b"dovetail-proxy-secret", SECRET.encode()),
        (b"x-forwarded-user", b"alice"),
        (b"x-forwarded-user", b"admin"),
    ]
    with pytest.raises(errors.DovetailError, match="twice"):
        proxy.user_of(headers, "127.0.0.1")


def test_a_proxy_without_address_and_secret_cannot_be_configured() -> None:
    with pytest.raises(errors.InputError, match="claim to be anyone"):
        trusted_proxy.TrustedProxy()
    with pytest.raises(errors.InputError, match="16"):
        trusted_proxy.TrustedProxy(secret="short")


def test_a_link_is_no_way_in_where_only_a_proxy_is() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        assert (await client.get("/api/v1/session")).status == 401
        answer = await client.ask(
            "POST",
            "/api/v1/session",
            token="",
            headers=CONFIRMED,
            body={"token": client.link_token()},
        )
        assert answer.status == 401

    story(tell, auth=frozenset({"proxy"}), proxy=trusted_proxy.TrustedProxy(secret=SECRET))


def test_the_audit_log_says_who_asked_what_and_holds_no_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def tell(client: Client, api: SimApi) -> None:
        token = client.link_token()
        await client.ask(
            "POST", "/api/v1/session", token="", headers=CONFIRMED, body={"token": token}
        )
        await client.get("/api/v1/pods?namespace=train")
        await client.get("/api/v1/pods", token="wrong-token")
        lines = [record.__dict__ for record in caplog.records if record.name == "dovetail.audit"]
        asked = [line for line in lines if line["query"] == "namespace=train"]
        assert [(line["user"], line["path"], line["status"]) for line in asked] == [
            ("tester", "/api/v1/pods", 200)
        ]
        assert any(line["status"] == 401 for line in lines)
        for secret in (token, ACCESS_TOKEN, "wrong-token"):
            assert all(secret not in str(line) for line in lines)

    with caplog.at_level(logging.INFO, logger="dovetail.audit"):
        story(tell)


def test_nothing_is_written_without_the_flag() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        patch = [{"object": {"apiVersion": "v1", "kind": "Pod", "namespace": "train", "name": "a"}}]
        fix = await client.ask("POST", "/api/v1/fixes", headers=CONFIRMED, body=patch)
        assert (fix.status, fix.tree["next"]) == (403, "start it with --allow-writes")
        work = {"manifest": "kind: Pod"}
        answer = await client.ask("POST", "/api/v1/work", headers=CONFIRMED, body=work)
        assert answer.status == 403

    story(tell)


def test_a_user_of_a_proxy_without_a_token_of_their_own_changes_nothing() -> None:
    async def tell(client: Client, api: SimApi) -> None:
        headers = CONFIRMED | {
            "X-Forwarded-User": "alice",
            "Dovetail-Proxy-Secret": SECRET,
            "Origin": client.url,
        }
        answer = await client.ask("POST", "/api/v1/fixes", token="", headers=headers, body=[])
        assert answer.status == 403
        assert "own token" in answer.tree["detail"]

    story(
        tell,
        auth=frozenset({"proxy"}),
        proxy=trusted_proxy.TrustedProxy(secret=SECRET),
        allow_writes=True,
    )


def test_names_are_read_from_host_headers_without_tricks() -> None:
    names = {
        "localhost": "localhost",
        "LocalHost:80": "localhost",
        "[::1]:80": "::1",
        "127.0.0.1": "127.0.0.1",
        "user@localhost": "",
        "localhost/evil": "",
        "[::1": "",
        "": "",
    }
    assert {header: request_checks.host_of(header) for header in names} == names
