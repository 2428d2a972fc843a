"""Responses of the interface: bodies with a version (ETag), compressed where the client reads that, and refusals.

Given encoded bodies. A weak ETag names the process, the version of the objects, what the user may see, and the query;
a client that has it already gets 304 and nothing is computed. Never caches on behalf of others.
"""

from __future__ import annotations

import gzip
import hashlib
import math
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from dovetail.quantity import quantity
from dovetail.web import asked, problems

JSON: Final = "application/json"
SMALLEST_GZIP: Final = 1024  # bytes
GZIP_LEVEL: Final = 5
_CACHE: Final = "private, no-cache"  # to be kept, and asked about each time
_VARY: Final = "Accept-Encoding, Authorization, Cookie"


class Body:
    """An encoded result. Compressed when it is made, on the worker thread; shared by all who may see the same."""

    def __init__(self, plain: bytes, media_type: str, headers: Mapping[str, str]) -> None:
        self.media_type = media_type
        self.headers = headers
        self.plain = plain
        self.zipped: bytes | None = None
        if len(plain) >= SMALLEST_GZIP:
            self.zipped = gzip.compress(plain, compresslevel=GZIP_LEVEL, mtime=0)


def encoded(value: object) -> bytes:
    """A struct as JSON."""
    return msgspec.json.encode(value, enc_hook=quantity.encode_hook)


def entity_tag(boot: str, version: int, slot: int, may: asked.Visibility, query: str) -> str:
    """The weak ETag."""
    claims = may.claim_namespaces
    seen = (
        may.sees_all,
        sorted(may.namespaces),
        may.cluster_kinds and sorted(may.cluster_kinds),
        claims if claims is None else sorted(claims),
    )
    digest = hashlib.blake2b(f"{seen!r}\n{query}".encode(errors="replace"), digest_size=9)
    return f'W/"{boot}-{version}-{slot}-{digest.hexdigest()}"'


def has_tag(header: str, tag: str) -> bool:
    """Whether If-None-Match names the tag. Weak comparison."""
    tags = [each.strip().removeprefix("W/") for each in header.split(",")]
    return "*" in tags or tag.removeprefix("W/") in tags


def unchanged(tag: str) -> Response:
    """304."""
    headers = {"ETag": tag, "Cache-Control": _CACHE, "Vary": _VARY}
    return Response(status_code=304, headers=headers)


def sent(body: Body, tag: str, accept_encoding: str) -> Response:
    """200 with the body."""
    headers = {"ETag": tag, "Cache-Control": _CACHE, "Vary": _VARY, **body.headers}
    content = body.plain
    if body.zipped is not None and _reads_gzip(accept_encoding):
        content = body.zipped
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=body.media_type, headers=headers)


def json_response(value: object, *, status: int = 200) -> Response:
    """A result that is not kept."""
    headers = {"Cache-Control": "no-store"}
    return Response(encoded(value), status_code=status, media_type=JSON, headers=headers)


def refused(refusal: problems.Refusal) -> Response:
    """The problem as a response."""
    headers = {"Cache-Control": "no-store"}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(refusal.retry_after)))
    if refusal.problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(
        encoded(refusal.problem),
        status_code=refusal.problem.status,
        media_type=problems.MEDIA_TYPE,
        headers=headers,
    )


def _reads_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
