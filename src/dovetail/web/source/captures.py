"""What a source hands out: all objects at one version, without copying or sorting more than has changed.

Built on the event loop, read on worker threads: a capture is never changed after it was handed out.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from dovetail.ask import cluster_view
from dovetail.kubetypes import codec, object_set, registry
from dovetail.web import change_feed

Kind = Literal["embedded", "kubernetes", "snapshot"]
Table = Mapping[object_set.Key, codec.Stored]


class Capture(NamedTuple):
    """The objects of one version, by kind, in no order. A kind that did not change is the same mapping as before."""

    version: int
    now: datetime.datetime
    by_kind: Mapping[str, Table]
    revision: int
    unserved: tuple[registry.Kind, ...] = ()
    server_version: str = ""  # of the API server, where it is known


class Source(Protocol):
    """One cluster."""

    @property
    def kind(self) -> Kind: ...

    @property
    def name(self) -> str: ...

    @property
    def feed(self) -> change_feed.ChangeFeed: ...

    def capture(self) -> Capture | None:
        """The objects as they are; None until they were read once."""
        ...

    def trouble(self) -> str:
        """Why there is nothing to capture yet, or why it may be out of date."""
        ...

    async def run(self) -> None:
        """Keeps the objects up to date until cancelled."""
        ...


def view_of(
    capture: Capture, source: Source, sorted_tables: Mapping[str, Table]
) -> cluster_view.View:
    """The capture as answers look at it."""
    objects = object_set.ObjectSet(source.name, capture.revision, sorted_tables)
    return cluster_view.View(
        objects=objects,
        now=capture.now,
        name=source.name,
        is_embedded=source.kind == "embedded",
        unserved=capture.unserved,
        is_snapshot=source.kind == "snapshot",
        server_version=capture.server_version,
    )
