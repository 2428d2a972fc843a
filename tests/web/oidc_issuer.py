"""A small OpenID Connect issuer for tests: it signs in the user that the test names, and no other.

Authorization code flow with RS256, as RFC 6749 and OpenID Connect Core describe it; as much of it as a proxy asks for.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT: Final = "dovetail"
CLIENT_SECRET: Final = "the-secret-of-the-client"
SECONDS: Final = 3600

Tree = dict[str, Any]


class Issuer:
    """The issuer. `user` is who signs in next."""

    GROUPS: ClassVar[dict[str, list[str]]] = {"carol": ["gpu-users", "staff"], "dave": []}

    def __init__(self) -> None:
        self.url = ""
        self.user = ""
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._grants: dict[str, Tree] = {}  # claims by code

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves on loopback while the block lasts."""
        application = web.Application()
        application.router.add_get("/.well-known/openid-configuration", self._describe)
        application.router.add_get("/authorize", self._authorize)
        application.router.add_post("/token", self._grant)
        application.router.add_get("/keys", self._keys)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    async def _describe(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    async def _authorize(self, request: web.Request) -> web.Response:
        query = request.query
        if query["client_id"] != CLIENT or self.user not in self.GROUPS:
            raise web.HTTPForbidden
        code = secrets.token_hex(16)
        self._grants[code] = {"sub": self.user, "nonce": query.get("nonce", "")}
        raise web.HTTPFound(f"{query['redirect_uri']}?code={code}&state={query['state']}")

    async def _grant(self, request: web.Request) -> web.Response:
        form = await request.post()
        claims = self._grants.pop(str(form["code"]))  # a code works once
        now = int(time.time())
        token = self._signed(
            claims
            | {
                "iss": self.url,
                "aud": CLIENT,
                "iat": now,
                "exp": now + SECONDS,
                "email": f"{claims['sub']}@example.com",
                "email_verified": True,
                "groups": self.GROUPS[claims["sub"]],
            }
        )
        return web.json_response(
            {
                "access_token": secrets.token_hex(16),
                "token_type": "Bearer",
                "expires_in": SECONDS,
                "id_token": token,
            }
        )

    async def _keys(self, request: web.Request) -> web.Response:
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256"}
        key |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        return web.json_response({"keys": [key]})

    def _signed(self, claims: Tree) -> str:
        header = {"alg": "RS256", "kid": "one", "typ": "JWT"}
        text = ".".join(_text(msgspec.json.encode(part)) for part in (header, claims))
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_text(signature)}"


def _number(number: int) -> str:
    return _text(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
