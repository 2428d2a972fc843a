"""Checks that need no user: where a request was meant to go, and from which site it comes.

Given headers as a browser sends them. The Host header must name this server, else a page of another site could reach it
by a name that resolves here (DNS rebinding). Requests that change something need a header that no other site can set,
and the Origin of this server. Never looks at credentials.
"""

from __future__ import annotations

import ipaddress
import urllib.parse
from collections.abc import Mapping
from typing import Final

from dovetail.web import problems

CONFIRMATION: Final = "dovetail-request"
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"", "same-origin", "none"})  # none: typed, or a bookmark
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def host_of(header: str) -> str:
    """The name in a Host header or an Origin, without the port, in lower case; empty if it cannot be read."""
    try:
        name = urllib.parse.urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
    is_plain = "@" not in header and "/" not in header
    return name.lower().rstrip(".") if is_plain else ""


def check_host(header: str, *, listens_on: str, hosts: frozenset[str]) -> None:
    """Raises unless the header names this server.

    Ports are not compared: a tunnel or `kubectl port-forward` has another one, and rebinding needs a name.
    """
    name = host_of(header)
    if name and (name in LOCAL_NAMES or name in hosts or _same_address(name, listens_on)):
        return
    raise problems.misdirected(
        f'the Host header "{header[:100]}" is not a name of this server; '
        "--host adds one that users reach it by"
    )


def check_site(method: str, headers: Mapping[str, str], *, has_ambient_credentials: bool) -> None:
    """Raises for what another site makes a browser send.

    Programs that send a bearer token have no Origin; a cookie or a proxy's header comes with every request of a
    browser, so there an Origin is required.
    """
    site = headers.get("sec-fetch-site", "")
    if site not in _OWN_SITES:
        raise problems.forbidden("requests from other sites are refused")
    if method in SAFE_METHODS:
        return
    if headers.get(CONFIRMATION) != "1":
        raise problems.forbidden("this needs the header Dovetail-Request: 1")
    origin = headers.get("origin")
    if origin is None and not has_ambient_credentials:
        return
    if origin is None or not _is_own_origin(origin, headers.get("host", "")):
        raise problems.forbidden("the Origin header must be this server's own address")


def _is_own_origin(origin: str, host: str) -> bool:
    """Whether scheme://host[:port] is where the request went. The scheme may differ: a proxy may have ended TLS."""
    scheme, _, place = origin.partition("://")
    if scheme not in ("http", "https") or not place:
        return False
    default = {"http": 80, "https": 443}[scheme]
    try:
        mine, theirs = urllib.parse.urlsplit(f"//{host}"), urllib.parse.urlsplit(f"//{place}")
        return (mine.hostname, mine.port or default) == (theirs.hostname, theirs.port or default)
    except ValueError:
        return False


def _same_address(name: str, listens_on: str) -> bool:
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(listens_on)
    except ValueError:
        return False
