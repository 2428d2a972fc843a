"""The user behind a request. Never shown with a token."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

How = Literal["link", "token", "proxy"]


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and how the server knows.

    `token` is the user's own bearer token for the API server, if they gave one: writes are sent with it. The user of a
    link is the one who started the dashboard, and acts by its connection.
    """

    name: str
    how: How
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    token: str = ""
    session: str = ""  # the id of the session, if there is one

    def __repr__(self) -> str:
        return f"User(name={self.name!r}, how={self.how!r})"

    @property
    def key(self) -> str:
        """Equal for requests with the same rights: for budgets and caches of rights."""
        subject = (self.how, self.name, self.uid, self.groups, self.extra)
        return hashlib.sha256(repr(subject).encode()).hexdigest()[:24]
