"""URLs: which texts are URLs, and their parts.

Given text; returns a Url or raises CelError. Accepts what upstream accepts: absolute URLs and absolute paths.
Works on UTF-8 bytes, each held as one character, so that escapes can be decoded and encoded again.
"""

from __future__ import annotations

import string
from typing import Final, NamedTuple

from dovetail.cel.check.declarations import Overload, function, member
from dovetail.cel.evaluate.values import CelError, Url
from dovetail.cel.library import gotext, network

MAX_QUERY_PARAMETERS: Final = 10_000  # Go's net/url; beyond it the query reads as empty
_UNRESERVED: Final = frozenset(string.ascii_letters + string.digits + "-._~")
_PATH: Final = _UNRESERVED | frozenset("$&+,/:;=@")
_HOST: Final = _UNRESERVED | frozenset("!\"$&'()*+,;<=>:[]")
_USER: Final = _UNRESERVED | frozenset("$&+,;=")
_FRAGMENT: Final = _UNRESERVED | frozenset("!$&()*+,/:;=?@")
_ENCODED_EXTRAS: Final = frozenset("!$&'()*+,;=:@[]%")
_USERINFO: Final = _UNRESERVED | frozenset(":!$&'()*+,;=%@")
_HEX: Final = frozenset(string.hexdigits)


class UrlError(ValueError):
    """Why a text is not a URL, in upstream's words."""


class _Parts(NamedTuple):
    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    host: str = ""
    raw_path: str = ""
    raw_query: str = ""
    forces_query: bool = False
    omits_host: bool = False
    fragment: str = ""


def parse(text: str) -> Url:
    """The URL a text spells."""
    raw = _to_bytes(text)
    check(text)
    before, _, fragment = raw.partition("#")
    try:
        parts = _parse(before, is_request=False)
        unescaped = _unescape(fragment)
    except UrlError as error:
        raise _refused(before if fragment == "" else raw, error) from None
    parts = parts._replace(fragment=_escaped_as_written(fragment, unescaped, _FRAGMENT))
    hostname, port = _split_port(parts.host)
    return Url(
        text=_to_text(_written(parts)),
        scheme=parts.scheme,
        host=_to_text(parts.host),
        hostname=_to_text(hostname),
        port=port,
        escaped_path=_escaped_path(parts.raw_path),
        query=_query(parts.raw_query),
    )


def is_url(text: str) -> bool:
    """Whether a text is an absolute URL or path."""
    return problem(text) is None


def problem(text: str) -> str | None:
    """Upstream's error for a text as a URL; None if it is valid."""
    try:
        _parse(_to_bytes(text), is_request=True)
    except UrlError as error:
        return f"parse {gotext.quoted(text)}: {error}"
    return None


def check(text: str) -> None:
    """Raises CelError if a text is not an absolute URL or path."""
    wrong = problem(text)
    if wrong is not None:
        raise CelError(f"URL parse error during conversion from string: {wrong}")


def _parse(raw: str, *, is_request: bool) -> _Parts:
    if any(byte < " " or byte == "\x7f" for byte in raw):
        raise UrlError("net/url: invalid control character in URL")
    if not raw and is_request:
        raise UrlError("empty url")
    if raw == "*":
        return _Parts(raw_path="*")
    scheme, after_scheme = _split_scheme(raw)
    forces_query = after_scheme.endswith("?") and after_scheme.count("?") == 1
    after_scheme, _, query = after_scheme.partition("?")
    parts = _Parts(scheme=scheme.lower(), raw_query=query, forces_query=forces_query)
    if not after_scheme.startswith("/"):
        if scheme:
            return parts._replace(opaque=after_scheme)
        if is_request:
            raise UrlError("invalid URI for request")
        if ":" in after_scheme.partition("/")[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    if after_scheme.startswith("//") and (
        scheme or not (is_request or after_scheme.startswith("///"))
    ):
        authority, slash, path = after_scheme[2:].partition("/")
        user, host = _authority(parts.scheme, authority)
        parts, after_scheme = parts._replace(user=user, host=host), slash + path
    elif scheme and after_scheme.startswith("/"):
        parts = parts._replace(omits_host=True)
    _unescape(after_scheme)
    return parts._replace(raw_path=after_scheme)


def _split_scheme(raw: str) -> tuple[str, str]:
    for at, byte in enumerate(raw):
        if byte == ":":
            if at == 0:
                raise UrlError("missing protocol scheme")
            return raw[:at], raw[at + 1 :]
        is_letter = byte.isascii() and byte.isalpha()
        if not is_letter and (at == 0 or byte not in "0123456789+-."):
            break
    return "", raw


def _authority(scheme: str, authority: str) -> tuple[str | None, str]:
    userinfo, at, host = authority.rpartition("@")
    host = _host(scheme, host)
    if not at:
        return None, host
    if not _USERINFO.issuperset(userinfo):
        raise UrlError("net/url: invalid userinfo")
    name, colon, password = userinfo.partition(":")
    return _escape(_unescape(name), _USER) + colon + _escape(_unescape(password), _USER), host


def _host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise UrlError("invalid IP-literal")
    if bracket == 0:
        return _ip_literal(host)
    first = host.find(":")
    if first >= 0:
        colon = first if scheme in ("http", "https") else host.rfind(":")
        _check_port(host[colon:])
    return _unescape(host, is_host=True)


def _ip_literal(host: str) -> str:
    end = host.rfind("]")
    if end < 0:
        raise UrlError("missing ']' in host")
    _check_port(host[end + 1 :])
    port = _unescape(host[end + 1 :], is_host=True)
    name, percent, zone = host[1:end].partition("%25")
    address = _unescape(name, is_host=True) + _unescape(percent + zone, is_host=True, is_zone=True)
    unpacked = network.unpack(_to_text(address))
    if unpacked is None:
        raise UrlError(
            f"invalid host: ParseAddr({gotext.quoted(_to_text(address))}): unable to parse IP"
        )
    if len(unpacked[0]) == 4:
        raise UrlError("invalid IP-literal")
    return f"[{address}]{port}"


def _check_port(port: str) -> None:
    if not _is_port(port):
        raise UrlError(f"invalid port {gotext.quoted(_to_text(port))} after host")


def _is_port(port: str) -> bool:
    return not port or (port[0] == ":" and all(byte in string.digits for byte in port[1:]))


def _split_port(host: str) -> tuple[str, str]:
    colon = host.rfind(":")
    name, port = (
        (host[:colon], host[colon + 1 :]) if colon >= 0 and _is_port(host[colon:]) else (host, "")
    )
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return name, port


def _unescape(
    raw: str, *, is_host: bool = False, is_zone: bool = False, is_query: bool = False
) -> str:
    if not is_host and "%" not in raw and not (is_query and "+" in raw):
        return raw
    written: list[str] = []
    at = 0
    while at < len(raw):
        byte = raw[at]
        if byte == "%":
            written.append(_escaped_byte(raw[at : at + 3], is_host=is_host, is_zone=is_zone))
            at += 3
            continue
        if is_host and byte < "\x80" and byte not in _HOST:
            raise UrlError(f"invalid character {gotext.quoted(byte)} in host name")
        written.append(" " if is_query and byte == "+" else byte)
        at += 1
    return "".join(written)


def _escaped_byte(escape: str, *, is_host: bool, is_zone: bool) -> str:
    if len(escape) < 3 or not _HEX.issuperset(escape[1:]):
        raise UrlError(f"invalid URL escape {gotext.quoted(_to_text(escape))}")
    byte = chr(int(escape[1:], 16))
    if is_zone:
        is_allowed = escape == "%25" or byte == " " or byte in _HOST
    else:
        is_allowed = not is_host or escape == "%25" or byte >= "\x80"
    if not is_allowed:
        raise UrlError(f"invalid URL escape {gotext.quoted(escape)}")
    return byte


def _escape(raw: str, unescaped_signs: frozenset[str]) -> str:
    return "".join(byte if byte in unescaped_signs else f"%{ord(byte):02X}" for byte in raw)


def _escaped_as_written(written: str, unescaped: str, unescaped_signs: frozenset[str]) -> str:
    """As written if that is a valid encoding, otherwise encoded again."""
    if (unescaped_signs | _ENCODED_EXTRAS).issuperset(written):
        return written
    return _escape(unescaped, unescaped_signs)


def _escaped_path(path: str) -> str:
    return _escaped_as_written(path, _unescape(path), _PATH)


def _query(raw: str) -> dict[str, list[str]]:
    parameters: dict[str, list[str]] = {}
    if raw.count("&") + 1 > MAX_QUERY_PARAMETERS:
        return parameters
    for pair in raw.split("&"):
        if not pair or ";" in pair:
            continue
        name, _, value = pair.partition("=")
        try:
            key, text = _unescape(name, is_query=True), _unescape(value, is_query=True)
        except UrlError:
            continue
        parameters.setdefault(_to_text(key), []).append(_to_text(text))
    return parameters


def _written(parts: _Parts) -> str:
    query = f"?{parts.raw_query}" if parts.forces_query or parts.raw_query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    prefix = f"{parts.scheme}:" if parts.scheme else ""
    if parts.opaque:
        return prefix + parts.opaque + query + fragment
    if not parts.omits_host or parts.host or parts.user is not None:
        if parts.host or parts.user is not None or (parts.scheme and parts.raw_path):
            prefix += "//"
        prefix += f"{parts.user}@" if parts.user is not None else ""
        prefix += _escape(parts.host, _HOST)
    path = _escaped_path(parts.raw_path)
    if path and path[0] != "/" and parts.host:
        path = "/" + path
    return prefix + path + query + fragment


def _to_bytes(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _to_text(raw: str) -> str:
    return raw.encode("latin-1").decode("utf-8", "surrogateescape")


def _refused(raw: str, error: UrlError) -> CelError:
    quoted = gotext.quoted(_to_text(raw))
    return CelError(f"URL parse error during conversion from string: parse {quoted}: {error}")


def _scheme(url: Url) -> str:
    return url.scheme


def _host_of(url: Url) -> str:
    return url.host


def _hostname(url: Url) -> str:
    return url.hostname


def _port(url: Url) -> str:
    return url.port


def _path(url: Url) -> str:
    return url.escaped_path


def _query_of(url: Url) -> dict[str, list[str]]:
    return url.query


OVERLOADS: tuple[Overload, ...] = (
    function("url", "string_to_url", "string -> url", parse),
    member("getScheme", "url_get_scheme", "url -> string", _scheme),
    member("getHost", "url_get_host", "url -> string", _host_of),
    member("getHostname", "url_get_hostname", "url -> string", _hostname),
    member("getPort", "url_get_port", "url -> string", _port),
    member("getEscapedPath", "url_get_escaped_path", "url -> string", _path),
    member("getQuery", "url_get_query", "url -> map(string, list(string))", _query_of),
    function("isURL", "is_url_string", "string -> bool", is_url),
)
