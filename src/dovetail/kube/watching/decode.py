"""Decodes documents of the API server into structs, so that one bad object never affects others.

Given raw JSON; returns structs with apiVersion and kind filled in, or passes the unreadable object and the reason to a
callback. Never drops an object silently.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.kube.watching import partial_decode
from dovetail.kubetypes import codec, meta, registry
from dovetail.ports import failures

SLICE_BYTES: Final = 256 * 1024  # decoded between two yields to the loop: about 2 ms
DEEPEST: Final = 10_000  # levels; Go's encoding/json, and so an API server, reads no deeper
_OWN_FRAMES: Final = 2_000
# Surrogates as JSON escapes, and one that stands alone. The pattern begins with a fixed prefix, so that the search
# skips everything else quickly.
_FIRST_HALF: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_SECOND_HALF: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_HALF: Final = re.compile(
    rb"\\u[dD](?:"
    rb"[89abAB][0-9a-fA-F]{2}(?!" + _SECOND_HALF + rb")"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!" + _FIRST_HALF + _SECOND_HALF + rb"))"
)
_NO_JSON: Final = b"\0"  # a byte that no JSON text holds

Unreadable = Callable[[str, str], None]  # name, problem
# Receives each decoded object with its document, for callers that keep fields which no struct models.
KeepDocument = Callable[[Any, bytes], None]


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """A list or a page of one, its items not decoded yet."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct, frozen=True):
    """One line of a watch, its object not decoded yet."""

    type: str
    object: msgspec.Raw


_PAGE: Final = msgspec.json.Decoder(Page)
_EVENT: Final = msgspec.json.Decoder(Event)


def read_all_depths() -> None:
    """Raises the recursion limit, so that this process reads whatever an API server stores.

    Users may nest a claim's parameters, and Python's limit is a tenth of a server's: one such claim would make its
    whole list unreadable.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEPEST + _OWN_FRAMES))


def replace_lone_surrogates(document: bytes) -> bytes:
    """The document with lone surrogates replaced, as Go reads them. Linear; hardly any document holds one.

    A server passes a claim's parameters on as they were written, and JSON can spell lone surrogates: one such claim
    would make its whole list unreadable.
    """
    if b"\\" not in document:
        return document  # one byte is found at the speed of memory, a word is not
    if b"\\ud" not in document and b"\\uD" not in document:
        return document
    if _NO_JSON in document:
        return document  # decoding it reports the problem
    # Escaped backslashes are set aside first: then every remaining backslash begins an escape, and one expression
    # finds lone surrogates only, without a call for each escape in between.
    aside = document.replace(rb"\\", _NO_JSON * 2)
    return _LONE_HALF.sub(rb"\\ufffd", aside).replace(_NO_JSON * 2, rb"\\")


def event(line: bytes) -> Event:
    """The event of a line. Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError if it is not one."""
    return _EVENT.decode(replace_lone_surrogates(line))


def page(body: bytes, *, doing: str) -> Page:
    """The page of a document."""
    try:
        return _PAGE.decode(replace_lone_surrogates(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise failures.Unavailable(f"{doing}: the answer is not a list: {error}") from None


def keep_no_document(item: Any, document: bytes) -> None:
    """For callers that need the structs alone."""


async def structs(
    kind: registry.Kind,
    items: Sequence[msgspec.Raw],
    *,
    unreadable: Unreadable,
    keep_document: KeepDocument = keep_no_document,
) -> list[Any]:
    """The items that can be decoded, at least in part. Yields to the event loop in between."""
    structs: list[Any] = []
    since = 0
    for raw in items:
        document = bytes(raw)
        struct, problem = decode_or_problem(kind, document)
        if struct is not None:
            structs.append(struct)
            keep_document(struct, document)
        if problem:
            unreadable(name_of(document), problem)
        since += len(document)
        if since >= SLICE_BYTES:
            since = 0
            await asyncio.sleep(0)
    return structs


def decode_or_problem(kind: registry.Kind, document: bytes) -> tuple[Any | None, str]:
    """The object and no problem; or its readable part, if that is of use, and the problem."""
    problem = ""
    try:
        struct = codec.decode_struct(kind.struct, document)
    except errors.InputError as error:
        problem = str(error)
        struct = partial_decode.read(kind, document, problem)
        if struct is None:
            return None, problem
    if not struct.kind:
        # Items of typed lists leave out apiVersion and kind. No other code has seen the struct yet.
        msgspec.structs.force_setattr(struct, "api_version", kind.api_version)
        msgspec.structs.force_setattr(struct, "kind", kind.name)
    return struct, problem


def metadata(document: bytes) -> meta.ObjectMeta | None:
    """The metadata of an object whose other parts may be unreadable."""
    try:
        return codec.decode_struct(codec.Generic, document).metadata
    except errors.InputError:
        return None


def bare(kind: registry.Kind, about: meta.ObjectMeta) -> Any:
    """An object with its identity only, for example because it was deleted."""
    return kind.struct(api_version=kind.api_version, kind=kind.name, metadata=about)


def name_of(document: bytes) -> str:
    """namespace/name, or name, or a placeholder."""
    about = metadata(document)
    if about is None or not about.name:
        return "<unnamed>"
    return f"{about.namespace}/{about.name}" if about.namespace else about.name
