"""Users as a proxy in front of the dashboard names them: X-Forwarded-User and X-Forwarded-Groups.

Believed only if the request comes from an address the proxy is configured to have, and carries the secret it is
configured to share; what is not configured is not compared, but one of the two must be. Names of Kubernetes itself
(system:...) are never taken from a header. Never believes a header that is there twice.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from typing import Final

import msgspec

from dovetail import errors
from dovetail.web import problems
from dovetail.web.security import identities

SECRET_HEADER: Final = "dovetail-proxy-secret"  # noqa: S105 - the name of a header
SHORTEST_SECRET: Final = 16
MOST_GROUPS: Final = 1000
_RESERVED: Final = "system:"
_EVERY_USER: Final = "system:authenticated"  # the API server adds it to every user

RawHeaders = Sequence[tuple[bytes, bytes]]


class TrustedProxy(msgspec.Struct, frozen=True, kw_only=True):
    """How the proxy is recognised, and which headers it sets."""

    networks: tuple[str, ...] = ()
    secret: str = ""
    user_header: str = "x-forwarded-user"
    groups_header: str = "x-forwarded-groups"

    def __post_init__(self) -> None:
        if not self.networks and not self.secret:
            raise errors.InputError(
                "--auth proxy: name its addresses by --trusted-proxy or its secret by --proxy-secret-file: "
                "else everyone could claim to be anyone"
            )
        if self.secret and len(self.secret) < SHORTEST_SECRET:
            raise errors.InputError(
                f"--proxy-secret-file: the secret has {len(self.secret)} characters; "
                f"at least {SHORTEST_SECRET} are needed"
            )
        for network in self.networks:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise errors.InputError(f"--trusted-proxy: {error}") from None

    def __repr__(self) -> str:
        return f"TrustedProxy(networks={self.networks!r}, user_header={self.user_header!r})"

    def user_of(self, headers: RawHeaders, address: str) -> identities.User | None:
        """The user that the proxy names; None if it is not the proxy, or names none."""
        if not self._is_proxy(headers, address):
            return None
        names = _values(headers, self.user_header)
        if not names or names == [""]:
            return None
        groups = _values(headers, self.groups_header)
        if len(names) > 1 or len(groups) > 1:
            raise problems.bad_request(
                f"{self.user_header} or {self.groups_header} is there twice: "
                "the proxy must replace what clients send"
            )
        listed = [group.strip() for group in ",".join(groups).split(",") if group.strip()]
        for name in (names[0], *listed):
            if name.startswith(_RESERVED):
                raise problems.forbidden(f'"{name[:100]}" is a name of Kubernetes itself')
        tokens = _values(headers, "authorization")
        scheme, _, token = tokens[0].partition(" ") if len(tokens) == 1 else ("", "", "")
        return identities.User(
            name=names[0],
            how="proxy",
            groups=(*listed[:MOST_GROUPS], _EVERY_USER),
            token=token.strip() if scheme.lower() == "bearer" else "",
        )

    def _is_proxy(self, headers: RawHeaders, address: str) -> bool:
        if self.networks and not self._is_in_network(address):
            return False
        if not self.secret:
            return True
        given = _values(headers, SECRET_HEADER)
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), self.secret.encode())

    def _is_in_network(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(mapped in ipaddress.ip_network(network) for network in self.networks)


def _values(headers: RawHeaders, name: str) -> list[str]:
    wanted = name.lower().encode()
    return [value.decode("utf-8", "replace").strip() for key, value in headers if key == wanted]
