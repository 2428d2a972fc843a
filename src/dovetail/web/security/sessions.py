"""Session cookies: the user, sealed with a key that only the server has (AES-GCM), so that no server state is needed.

A cookie holds who signed in and, in a cluster, the bearer token they gave, until it expires. Its content cannot be read
or changed by the browser. A session that was signed out is remembered until it would have expired. With a key that is
kept, sessions survive a restart. Never puts a token anywhere else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import aead

from dovetail.web import problems
from dovetail.web.security import identities

SESSION_SECONDS: Final = 12 * 3600.0
MOST_BYTES: Final = 3800  # browsers keep 4096 of a cookie, its name and attributes included
MOST_ENDED: Final = 4096
_NONCE_BYTES: Final = 12


class _Sealed(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    how: identities.How
    name: str
    until: float
    token: str = ""


class Sessions:
    """Seals and opens cookies."""

    def __init__(
        self,
        secret: str,
        *,
        port: int,
        is_secure: bool,
        clock: Callable[[], float],
        seconds: float = SESSION_SECONDS,
    ) -> None:
        key = hmac.new(secret.encode(), b"dovetail dashboard session", hashlib.sha256).digest()
        self._cipher = aead.AESGCM(key)
        self._clock = clock
        self._is_secure = is_secure
        self._seconds = seconds
        self._ended: dict[str, float] = {}
        # Cookies ignore ports: two dashboards on one machine must not overwrite each other's.
        self.cookie_name = "__Host-dovetail" if is_secure else f"dovetail-{port}"

    def cookie(self, user: identities.User) -> str:
        """The Set-Cookie header that signs the user in."""
        sealed = _Sealed(
            id=secrets.token_hex(8),
            how=user.how,
            name=user.name,
            until=self._clock() + self._seconds,
            token=user.token,
        )
        nonce = secrets.token_bytes(_NONCE_BYTES)
        content = nonce + self._cipher.encrypt(nonce, msgspec.json.encode(sealed), None)
        value = base64.urlsafe_b64encode(content).decode().rstrip("=")
        if len(value) > MOST_BYTES:
            raise problems.bad_request(
                "the token is too long for a cookie; send it in the Authorization header instead",
                field="token",
            )
        return self._header(value, int(self._seconds))

    def cleared_cookie(self) -> str:
        """The Set-Cookie header that signs the user out."""
        return self._header("", 0)

    def opened(self, value: str) -> identities.User | None:
        """The user of a cookie; None if it is not ours, has expired or was signed out."""
        try:
            content = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
            nonce, sealed = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
            plain = self._cipher.decrypt(nonce, sealed, None)
            session = msgspec.json.decode(plain, type=_Sealed)
        except (ValueError, binascii.Error, InvalidTag, msgspec.MsgspecError):
            return None
        if session.until < self._clock() or session.id in self._ended:
            return None
        return identities.User(
            name=session.name, how=session.how, token=session.token, session=session.id
        )

    def end(self, session: str) -> None:
        """Signs a session out."""
        now = self._clock()
        self._ended = {known: until for known, until in self._ended.items() if until > now}
        if len(self._ended) < MOST_ENDED:
            self._ended[session] = now + self._seconds

    def _header(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return (
            f"{self.cookie_name}={value}; Path=/; Max-Age={seconds}; HttpOnly; "
            f"SameSite=Strict{secure}"
        )
