"""Documents of the API server into structs, so that one bad object never takes others down.

Given raw JSON; answers structs with apiVersion and kind filled in, or tells a callback which object could not be read
and why. Never drops an object silently.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.kube import partial
from dovetail.model import kinds, meta, objects
from dovetail.ports import failures

SLICE_BYTES: Final = 256 * 1024  # decoded between two yields to the loop: about 2 ms
DEEPEST: Final = 10_000  # levels; Go's encoding/json, and so an API server, reads no deeper
_OWN_FRAMES: Final = 2_000
# Halves of characters, as JSON escapes spell them, and a half that stands alone. Begins with what is fixed: the search
# for it then passes over everything else without trying.
_FIRST_HALF: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_SECOND_HALF: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_HALF: Final = re.compile(
    rb"\\u[dD](?:"
    rb"[89abAB][0-9a-fA-F]{2}(?!" + _SECOND_HALF + rb")"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!" + _FIRST_HALF + _SECOND_HALF + rb"))"
)
_NO_JSON: Final = b"\0"  # a byte that no JSON text holds

Unreadable = Callable[[str, str], None]  # name, problem


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """What a list says about itself."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    """A list or a part of one, its items not read yet."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct, frozen=True):
    """One line of a watch, its object not read yet."""

    type: str
    object: msgspec.Raw


_PAGE: Final = msgspec.json.Decoder(Page)
_EVENT: Final = msgspec.json.Decoder(Event)


def read_all_depths() -> None:
    """Lets this process read whatever an API server stores. Called where one is spoken to.

    A claim's parameters are anybody's to nest, and Python's own limit is a tenth of what a server takes: one such claim
    would hide all others of its list.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEPEST + _OWN_FRAMES))


def mended(document: bytes) -> bytes:
    """The document with halves of characters replaced, as Go reads them. Linear; hardly any document holds one.

    A server passes a claim's parameters on as they were written, and JSON can spell what no text can hold: one such
    claim would make its whole list unreadable.
    """
    if b"\\ud" not in document and b"\\uD" not in document:
        return document
    if _NO_JSON in document:
        return document  # whoever reads it says so
    # Escaped backslashes are set aside first: then each backslash that is left begins an escape, and one expression
    # finds lone halves and nothing else, without a call for each escape in between.
    aside = document.replace(rb"\\", _NO_JSON * 2)
    return _LONE_HALF.sub(rb"\\ufffd", aside).replace(_NO_JSON * 2, rb"\\")


def event(line: bytes) -> Event:
    """A line's frame. Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError for what is none."""
    return _EVENT.decode(mended(line))


def page(body: bytes, *, doing: str) -> Page:
    """A list's frame."""
    try:
        return _PAGE.decode(mended(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise failures.Unavailable(f"{doing}: the answer is not a list: {error}") from None


async def structs(kind: kinds.Kind, items: Sequence[msgspec.Raw], *, unreadable: Unreadable) -> list[Any]:
    """The items that can be read, or part of which can. Lets others run in between."""
    made: list[Any] = []
    since = 0
    for raw in items:
        document = bytes(raw)
        found, problem = attempted(kind, document)
        if found is not None:
            made.append(found)
        if problem:
            unreadable(name_of(document), problem)
        since += len(document)
        if since >= SLICE_BYTES:
            since = 0
            await asyncio.sleep(0)
    return made


def attempted(kind: kinds.Kind, document: bytes) -> tuple[Any | None, str]:
    """The object and nothing, or what can be read of it, if that is of use, and why the rest cannot."""
    problem = ""
    try:
        struct = objects.decode_struct(kind.struct, document)
    except errors.InputError as error:
        problem = str(error)
        struct = partial.read(kind, document, problem)
        if struct is None:
            return None, problem
    if not struct.kind:  # items of typed lists leave out what the list says; nobody else has seen the struct yet
        msgspec.structs.force_setattr(struct, "api_version", kind.api_version)
        msgspec.structs.force_setattr(struct, "kind", kind.name)
    return struct, problem


def metadata(document: bytes) -> meta.ObjectMeta | None:
    """The metadata alone, of an object whose rest may be unreadable."""
    try:
        return objects.decode_struct(objects.Generic, document).metadata
    except errors.InputError:
        return None


def bare(kind: kinds.Kind, about: meta.ObjectMeta) -> Any:
    """An object of which only the identity matters, for example because it is gone."""
    return kind.struct(api_version=kind.api_version, kind=kind.name, metadata=about)


def name_of(document: bytes) -> str:
    """namespace/name, or name, or a placeholder."""
    about = metadata(document)
    if about is None or not about.name:
        return "<unnamed>"
    return f"{about.namespace}/{about.name}" if about.namespace else about.name
