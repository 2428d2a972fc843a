"""Users whom the real oauth2-proxy signs in at an OIDC issuer: each sees what the groups of their token may list."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dovetail.devcluster import free_ports
from dovetail.web.security import trusted_proxy
from tests.support import oauth2_proxy
from tests.web import cluster_users, oidc_issuer
from tests.web.serving_dashboards import CONFIRMED, live, served

pytestmark = pytest.mark.slow

SECRET = "the-secret-that-proxy-and-dashboard-share"


def configuration(
    port: int, *, issuer: oidc_issuer.Issuer, upstream: str, secret: Path
) -> dict[str, Any]:
    """What docs/how-to/sign-in-by-a-proxy.md shows, with the addresses of the test."""
    return {
        "server": {"bindAddress": f"127.0.0.1:{port}"},
        "upstreamConfig": {
            "upstreams": [
                {
                    "id": "dashboard",
                    "path": "/",
                    "uri": upstream,
                    "passHostHeader": True,
                    "flushInterval": "100ms",
                }
            ]
        },
        "injectRequestHeaders": [
            {"name": "X-Forwarded-User", "values": [{"claim": "user"}]},
            {"name": "X-Forwarded-Groups", "values": [{"claim": "groups"}]},
            {"name": "Dovetail-Proxy-Secret", "values": [{"fromFile": str(secret)}]},
        ],
        "providers": [
            {
                "id": "oidc",
                "provider": "oidc",
                "clientID": oidc_issuer.CLIENT,
                "clientSecret": oidc_issuer.CLIENT_SECRET,
                "oidcConfig": {
                    "issuerURL": issuer.url,
                    "emailClaim": "email",
                    "groupsClaim": "groups",
                    "userIDClaim": "sub",
                    "audienceClaims": ["aud"],
                },
            }
        ],
    }


class Reader:
    """A browser: keeps the proxy's cookies and follows its redirects."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def sign_in(self) -> None:
        """Opens the first page; the proxy sends a stranger to the issuer and back."""
        async with self._session.get(f"{self._url}/") as answer:
            text = await answer.text()
            assert (answer.status, answer.url.path) == (200, "/"), text
            assert "<title>" in text

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """The status and the document."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent["Accept"] = "application/json"
        async with self._session.get(
            self._url + path, headers=sent, allow_redirects=False
        ) as answer:
            is_document = answer.content_type.endswith("json")
            return answer.status, await answer.json(content_type=None) if is_document else None

    async def namespaces(self, **headers: str) -> set[str]:
        """The namespaces whose pods are shown."""
        status, document = await self.get("/api/v1/pods?limit=5000", **headers)
        assert status == 200, document
        return {item["namespace"] for item in document["items"]}

    async def echo(self, origin: str) -> int:
        """The status of a request that changes nothing, from a page of that origin."""
        headers = CONFIRMED | {"Origin": origin}
        async with self._session.post(
            f"{self._url}/api/v1/echo", json={"text": "a"}, headers=headers
        ) as answer:
            return answer.status

    async def first_event(self) -> bytes:
        """The first line of the event stream."""
        async with self._session.get(f"{self._url}/api/v1/stream") as answer:
            assert answer.status == 200
            async for line in answer.content:
                if line.startswith(b"event:"):
                    return line.strip()
        return b""


def test_users_of_oauth2_proxy_see_what_their_groups_may(tmp_path: Path) -> None:
    oauth2_proxy.program()
    scene = cluster_users.scene()
    group = {"kind": "Group", "name": "gpu-users", "apiGroup": cluster_users.RBAC}
    scene.let(scene.theirs, group, "list")
    trusted = trusted_proxy.TrustedProxy(networks=("127.0.0.0/8",), secret=SECRET)
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    issuer = oidc_issuer.Issuer()
    port = free_ports.reserve()
    url = f"http://127.0.0.1:{port}"
    options = (
        f"--cookie-secret={secrets.token_hex(16)}",
        "--cookie-secure=false",  # loopback without TLS
        "--email-domain=*",
        f"--redirect-url={url}/oauth2/callback",
        "--skip-provider-button",
    )

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def main() -> None:
        async with (
            served(live(scene.choice), auth=frozenset({"proxy"}), proxy=trusted) as dashboard,
            issuer.serving(),
            oauth2_proxy.running(
                tmp_path,
                configuration(port, issuer=issuer, upstream=dashboard.url, secret=secret),
                *options,
            ),
            session() as of_carol,
            session() as of_dave,
            session() as of_a_stranger,
        ):
            await dashboard.is_read()
            carol, dave = Reader(of_carol, url), Reader(of_dave, url)
            for name, reader in (("carol", carol), ("dave", dave)):
                issuer.user = name
                await reader.sign_in()
                status, document = await reader.get("/api/v1/session")
                assert (status, document["user"]) == (200, name)

            assert await carol.namespaces() == {scene.theirs}
            assert await dave.namespaces() == set()
            assert (await Reader(of_a_stranger, url).get("/api/v1/pods"))[0] in (302, 401, 403)

            # What the browser sends in the proxy's name is replaced by it, and not believed without it.
            spoofed = {"X_Forwarded_User": "carol", "X_Forwarded_Groups": "gpu-users"}
            assert await dave.namespaces(**spoofed) == set()
            assert (await dashboard.get("/api/v1/pods", token="", **spoofed)).status == 401

            # Events pass through, and a change needs the own origin, which is the proxy's.
            assert await carol.first_event() == b"event: hello"
            assert await carol.echo(url) == 200
            assert await carol.echo("http://evil.example") == 403

    asyncio.run(main())
