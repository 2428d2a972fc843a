"""Reads the objects that a read-only command needs, kind by kind and side by side, into one set.

Given a connection and the lists to read, each with the selectors the server applies. A kind that the server does not
serve, or an optional one that may not be read, is empty and named; an object that cannot be decoded is left out and
named. Never writes, never watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.kube import client
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import decode
from dovetail.kubetypes import codec, object_set, registry
from dovetail.ports import failures

MAX_VERSION_DIGITS: Final = 20  # API servers count versions in 64 bits
CONCURRENCY: Final = 16
FORBIDDEN: Final = 403


class Reading(NamedTuple):
    """What was read, the kinds the server does not serve, and what could not be decoded."""

    objects: object_set.ObjectSet
    unserved: tuple[registry.Kind, ...]
    unreadable: tuple[str, ...]


class _List(NamedTuple):
    stored: list[codec.Stored]
    version: int
    is_served: bool
    unreadable: list[str]


async def read(
    connection: client_config.Connection, reads: Iterable[object_set.Read], *, cluster: str = ""
) -> Reading:
    """Reads all lists at once. Raises ApiFailure where the cluster is unreachable or refuses."""
    async with transport.Transport(
        connection, concurrency=CONCURRENCY, user_agent="dovetail", is_brief=True
    ) as over:
        return await read_over(over, reads, cluster=cluster or connection.server)


async def read_over(
    over: transport.Transport, reads: Iterable[object_set.Read], *, cluster: str
) -> Reading:
    """As `read`, over connections that are open already."""
    wanted = tuple(dict.fromkeys(reads))
    tasks = [asyncio.create_task(_list(over, each)) for each in wanted]
    try:
        lists = await asyncio.gather(*tasks)
    finally:  # the first failure ends the others before the connections are closed
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    objects = object_set.of(
        cluster,
        (stored for listed in lists for stored in listed.stored),
        revision=max((listed.version for listed in lists), default=0),
    )
    unserved = [
        each.kind for each, listed in zip(wanted, lists, strict=True) if not listed.is_served
    ]
    unreadable = [name for listed in lists for name in listed.unreadable]
    return Reading(objects, tuple(dict.fromkeys(unserved)), tuple(unreadable))


async def _list(over: transport.Transport, read: object_set.Read) -> _List:
    """One list, in the newest version of the kind that the server serves."""
    for api_version in (read.kind.api_version, *read.kind.older_versions):
        kind = read.kind._replace(api_version=api_version)
        try:
            documents, version = await client.list_documents(
                over, kind, namespace=read.namespace, params=read.params
            )
        except failures.Missing:
            continue
        except failures.Refused as refused:
            if read.is_optional and refused.status == FORBIDDEN:
                break
            raise
        stored, unreadable = _decoded(kind, documents)
        return _List(stored, number_of(version), True, unreadable)
    return _List([], 0, False, [])


def _decoded(
    kind: registry.Kind, documents: Iterable[bytes]
) -> tuple[list[codec.Stored], list[str]]:
    stored: list[codec.Stored] = []
    unreadable: list[str] = []
    for document in documents:
        try:
            stored.append(object_set.stored_item(kind, document))
        except errors.InputError as error:
            unreadable.append(f"{kind.name} {decode.name_of(document)}: {error}")
    return stored, unreadable


def number_of(version: str) -> int:
    """A resource version as a number; 0 for one that no API server writes."""
    is_counted = version.isdecimal() and len(version) <= MAX_VERSION_DIGITS
    return int(version) if is_counted else 0
