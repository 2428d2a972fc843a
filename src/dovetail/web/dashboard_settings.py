"""What a dashboard is started with: where it listens, whom it believes, and whether it may change anything."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from dovetail.web import answering, event_stream
from dovetail.web.security import rate_limit, reviews, sessions, trusted_proxy

Means = Literal["link", "token", "proxy"]
MEANS: Final = ("link", "token", "proxy")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `hosts` are names that users reach it by, besides localhost and the address it listens on."""

    address: str = "127.0.0.1"
    port: int = 0
    hosts: frozenset[str] = frozenset()
    auth: frozenset[Means] = frozenset({"link"})
    access_token: str = ""
    link_user: str = ""
    proxy: trusted_proxy.TrustedProxy | None = None
    allow_writes: bool = False
    is_secure: bool = False  # users reach it by https
    session_secret: str = ""  # if empty, sessions end with the process
    session_seconds: float = sessions.SESSION_SECONDS
    reviews_kept_seconds: float = reviews.KEPT_SECONDS
    user_rate: rate_limit.Rate = rate_limit.USERS
    most_waiting: int = answering.MOST_WAITING
    most_streams: int = 1000
    most_streams_of_user: int = 250
    longest_stream_seconds: float = event_stream.LONGEST_SECONDS

    def __repr__(self) -> str:
        return f"Settings(address={self.address!r}, port={self.port}, auth={sorted(self.auth)})"
