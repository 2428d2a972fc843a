"""The secrets of a dashboard on one machine: its access token, one-time links, and the key of session cookies.

The access token is a file that its owner alone may read, or lives in memory. A link carries a token that is good once,
for one process of the server and for a limited time; users who can read the access token can make one. Never
logs any of them.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.files import private_files, small_files

LINK_SECONDS: Final = 3600.0
MOST_USED: Final = 4096  # remembered until they expire
_SHORTEST: Final = 32  # characters of an access token
# A link must fit a line of a terminal: 12 characters of chance, 8 of time, 22 (128 bits) of signature.
_FORM: Final = re.compile(
    r"(?P<nonce>[\w-]{12})(?P<until>[0-9a-f]{8})(?P<signature>[\w-]{22})", re.ASCII
)
_SIGNATURE_BYTES: Final = 16


def kept_in(path: Path) -> str:
    """The secret of a file, which is created if it does not exist. Raises InputError for one that can be guessed."""
    try:
        token = small_files.content(path).decode(errors="replace").strip()
    except FileNotFoundError:
        token = new()
        private_files.replace(path, f"{token}\n".encode())
    if len(token) < _SHORTEST:
        raise errors.InputError(
            f"{path}: holds {len(token)} characters; at least {_SHORTEST} are needed, "
            "or no such file: then one is made"
        )
    return token


def owner_name() -> str:
    """What the user who runs this process is called."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in containers
        return f"uid {os.getuid()}"


def new() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def link_token(access_token: str, boot: str, now: float) -> str:
    """A token for one link, for the server process with this boot id. `now` in seconds since the epoch."""
    nonce = secrets.token_urlsafe(9)
    until = f"{int(now + LINK_SECONDS):08x}"
    return f"{nonce}{until}{_signature(access_token, boot, nonce, until)}"


class LinkTokens:
    """Accepts each link token once."""

    def __init__(self, access_token: str, boot: str, clock: Callable[[], float]) -> None:
        self._access_token = access_token
        self._boot = boot
        self._clock = clock
        self._used: dict[str, float] = {}  # nonce -> when it expires

    def is_access_token(self, token: str) -> bool:
        """Whether it is the access token itself, which programs send as a bearer token."""
        return hmac.compare_digest(token.encode(), self._access_token.encode())

    def redeem(self, token: str) -> bool:
        """Whether the token of a link is good; from now on it is not."""
        parts = _FORM.fullmatch(token)
        if parts is None:
            return False
        nonce, until = parts["nonce"], int(parts["until"], 16)
        expected = _signature(self._access_token, self._boot, nonce, parts["until"])
        if not hmac.compare_digest(parts["signature"].encode(), expected.encode()):
            return False
        now = self._clock()
        if until < now or nonce in self._used:
            return False
        self._used = {used: end for used, end in self._used.items() if end >= now}
        if len(self._used) >= MOST_USED:
            return False  # forgetting one would make it good again
        self._used[nonce] = until
        return True


def _signature(access_token: str, *parts: str) -> str:
    text = "\n".join(("link", *parts))
    digest = hmac.new(access_token.encode(), text.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest[:_SIGNATURE_BYTES]).decode().rstrip("=")
