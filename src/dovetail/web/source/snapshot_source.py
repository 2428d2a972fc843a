"""A saved cluster as a source: read once, never changing, its clock standing at the time it shows.

Given a path of anything that `snapshot/any_snapshot.py` reads. Never watches, never writes.
"""

from __future__ import annotations

import asyncio
import logging

from dovetail.kubetypes import object_set
from dovetail.snapshot import any_snapshot
from dovetail.web import change_feed
from dovetail.web.source import captures

LOG = logging.getLogger("dovetail.dashboard")


class SnapshotSource:
    """Implements `captures.Source`."""

    kind: captures.Kind = "snapshot"

    def __init__(self, saved: any_snapshot.Snapshot, *, boot: str = "") -> None:
        self.name = saved.name
        self.feed = change_feed.ChangeFeed(boot)
        self.feed.version = self.feed.announced = 1
        self._capture = captures.Capture(
            version=1,
            now=saved.taken_at,
            by_kind=_without_secrets(saved.objects),
            revision=saved.objects.revision,
            server_version=saved.server_version,
        )

    def capture(self) -> captures.Capture:
        """Always the same."""
        return self._capture

    def trouble(self) -> str:
        """A snapshot is what it is."""
        return ""

    async def run(self) -> None:
        """There is nothing to do until the server ends."""
        await asyncio.Event().wait()


def read(path: str, *, boot: str = "") -> SnapshotSource:
    """The source of a path. Raises InputError or StateError where it holds no cluster."""
    saved = any_snapshot.read(path)
    for problem in saved.problems:
        LOG.warning("dashboard.snapshot.left_out", extra={"what": problem})
    return SnapshotSource(saved, boot=boot)


def _without_secrets(objects: object_set.ObjectSet) -> dict[str, captures.Table]:
    """Files of objects may hold Secrets; nothing here may show them."""
    return {kind: table for kind, table in objects.by_kind.items() if kind != "Secret"}
