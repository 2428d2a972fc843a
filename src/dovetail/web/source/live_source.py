"""A running cluster as a source: its objects by list and watch, kept up to date, and what is wrong meanwhile.

Given a function that chooses the cluster, called again while it cannot be reached: an embedded cluster that was started
again has another address. A kind that the cluster does not serve, or an optional one that may not be read, is empty
and asked for again each minute. Leases change all the time and mean little: they make no new version. Runs on one
event loop. Never writes to the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from dovetail import errors
from dovetail.boot import clocks, cluster_choice
from dovetail.kube import discovery, read_objects
from dovetail.kube.http import paths, status_errors, transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import codec, object_set, registry
from dovetail.ports import failures
from dovetail.web import change_feed
from dovetail.web.source import captures

LOG = logging.getLogger("dovetail.dashboard")
GRACE_SECONDS: Final = 2.0  # a watch that breaks and resumes within it is not worth a word
RECONNECT_SECONDS: Final = 1.0
ABSENT_SECONDS: Final = 60.0
FORBIDDEN: Final = 403
QUIET: Final = frozenset({registry.LEASE.unique_name})
# Of leases, those of leaders: kubelets renew theirs every ten seconds.
LEADER_LEASES: Final = "metadata.namespace!=kube-node-lease"

Choose = Callable[[], cluster_choice.Choice]
Table = dict[object_set.Key, codec.Stored]


class LiveSource:
    """Implements `captures.Source`."""

    def __init__(
        self,
        choose: Choose,
        reads: Sequence[object_set.Read],
        *,
        name: str,
        kind: captures.Kind = "kubernetes",
        boot: str = "",
    ) -> None:
        self.name = name
        self.kind = kind
        self.feed = change_feed.ChangeFeed(boot)
        self.choice: cluster_choice.Choice | None = None  # once it was reached
        self._over: transport.Transport | None = None
        self._choose = choose
        self._reads = tuple(map(_narrowed, reads))
        self._clock = clocks.SystemClock()
        self._tables: dict[object_set.Read, Table] = {}
        self._captured: dict[str, captures.Table] = {}
        self._changed_kinds: set[str] = set()
        self._unsynced = set(self._reads)
        self._unserved: set[registry.Kind] = set()
        self._troubles: dict[object_set.Read | None, str] = {
            None: "the cluster was not reached yet"
        }
        self._troubled_at: datetime.datetime | None = self._clock.now()
        self._grace: asyncio.TimerHandle | None = None
        self._revision = 0
        self._server_version = ""

    # What others ask

    def capture(self) -> captures.Capture | None:
        """The objects as they are. Copies the tables of changed kinds only."""
        if self._unsynced:
            return None
        for kind in self._changed_kinds:
            tables = [
                table for read, table in self._tables.items() if read.kind.unique_name == kind
            ]
            joined: Table = {}
            for table in tables:
                joined |= table
            self._captured[kind] = joined
        self._changed_kinds.clear()
        return captures.Capture(
            version=self.feed.version,
            now=self._clock.now(),
            by_kind=dict(self._captured),
            revision=self._revision,
            unserved=tuple(sorted(self._unserved)),
            server_version=self._server_version,
        )

    def trouble(self) -> str:
        """The first thing that is wrong; empty if nothing is."""
        return next(iter(self._troubles.values()), "")

    def connected(self) -> transport.Transport:
        """The connections to the cluster. Raises Unavailable while there are none."""
        if self._over is None:
            raise failures.Unavailable(self.trouble() or "the cluster was not reached yet")
        return self._over

    # Life

    async def run(self) -> None:
        """Follows the cluster until cancelled."""
        while True:
            try:
                choice = self._choose()
            except errors.DovetailError as error:
                self._note_trouble(None, str(error))
                await self._clock.sleep(RECONNECT_SECONDS / 5)
                continue
            try:
                await self._follow(choice)
            except errors.DovetailError as error:  # such as an authority that cannot be read
                self._note_trouble(None, str(error))
                await self._clock.sleep(RECONNECT_SECONDS)

    async def _follow(self, choice: cluster_choice.Choice) -> None:
        """Follows one address of the cluster, until it has another one."""
        self.choice = choice
        self._clear_trouble(None)
        async with transport.Transport(choice.connection, user_agent="dovetail-dashboard") as over:
            self._over = over
            tasks = [asyncio.create_task(self._follow_read(over, read)) for read in self._reads]
            tasks.append(asyncio.create_task(self._learn_version(over)))
            try:
                await self._moved(choice)
            finally:
                self._over = None
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _learn_version(self, over: transport.Transport) -> None:
        """Asks for the server's version once per connection; without it answers say that it is unknown."""
        with contextlib.suppress(errors.DovetailError):
            self._server_version = (await discovery.version(over)).git_version

    async def _moved(self, choice: cluster_choice.Choice) -> None:
        """Returns when the same cluster has another address; looked at only while something is wrong."""
        while True:
            await self._clock.sleep(RECONNECT_SECONDS)
            if not self._troubles:
                continue
            with contextlib.suppress(errors.DovetailError):  # no cluster now: look again later
                if self._choose().connection != choice.connection:
                    return

    async def _follow_read(self, over: transport.Transport, read: object_set.Read) -> None:
        """One list, once the server serves it."""
        while True:
            try:
                kind = await self._served(over, read)
            except failures.ApiFailure as failure:
                self._note_trouble(read, str(failure))
                await self._clock.sleep(failure.retry_after or RECONNECT_SECONDS)
                continue
            if kind is not None:
                break
            self._unserved.add(read.kind)
            self._clear_trouble(read)
            self._note_synced(read)
            await self._clock.sleep(ABSENT_SECONDS)
        self._unserved.discard(read.kind)
        sink = _Sink(self, read, kind)
        await watch.follow(
            over,
            kind,
            sink,
            clock=self._clock,
            namespace=read.namespace,
            params=read.params,
            restored=lambda: self._clear_trouble(read),
            keep_document=sink.keep_document,
        )

    async def _served(
        self, over: transport.Transport, read: object_set.Read
    ) -> registry.Kind | None:
        """The kind in the newest version that the server serves; None if it serves none, or we may not read it."""
        for api_version in (read.kind.api_version, *read.kind.older_versions):
            kind = read.kind._replace(api_version=api_version)
            path = paths.collection(kind, read.namespace)
            answer = await over.request("GET", path, params=read.params | {"limit": "1"})
            if answer.is_success:
                return kind
            failure = status_errors.failure_of(
                answer.status, answer.body, headers=answer.headers, doing=f"list {kind.plural}"
            )
            if isinstance(failure, failures.Missing):
                continue
            if read.is_optional and answer.status == FORBIDDEN:
                return None
            raise failure
        return None

    # What the sinks report

    def replace(self, read: object_set.Read, table: Table, version: str) -> None:
        """A complete list."""
        self._tables[read] = table
        self._note_change(read, version)
        self._clear_trouble(read)
        self._note_synced(read)

    def put(self, read: object_set.Read, stored: codec.Stored) -> None:
        """An object that is new or changed."""
        self._tables[read][object_set.key_of(stored.struct)] = stored
        self._note_change(read, stored.struct.metadata.resource_version)

    def drop(self, read: object_set.Read, struct: codec.Object) -> None:
        """An object that is gone."""
        self._tables[read].pop(object_set.key_of(struct), None)
        self._note_change(read, struct.metadata.resource_version)

    def broken(self, read: object_set.Read, reason: str) -> None:
        """The list may be out of date."""
        self._note_trouble(read, reason)

    def _note_change(self, read: object_set.Read, version: str) -> None:
        kind = read.kind.unique_name
        self._revision = max(self._revision, read_objects.number_of(version))
        self._changed_kinds.add(kind)
        if kind not in QUIET and not self._unsynced:
            self.feed.changed((kind,))

    def _note_synced(self, read: object_set.Read) -> None:
        if read not in self._unsynced:
            return
        self._unsynced.discard(read)
        if not self._unsynced:
            LOG.info("dashboard.cluster.read", extra={"cluster": self.name})
            self.feed.changed(kind.unique_name for kind in {read.kind for read in self._reads})

    # Trouble

    def _note_trouble(self, read: object_set.Read | None, reason: str) -> None:
        if not self._troubles:
            self._troubled_at = self._clock.now()
        if self._troubles.get(read) != reason:
            LOG.warning("dashboard.cluster.trouble", extra={"why": reason})
        self._troubles[read] = reason
        if self._grace is None and self.feed.stale_since is None:
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(GRACE_SECONDS, self._report_stale)

    def _report_stale(self) -> None:
        self._grace = None
        if self._troubles and self._troubled_at is not None:
            self.feed.stale(self._troubled_at)

    def _clear_trouble(self, read: object_set.Read | None) -> None:
        self._troubles.pop(read, None)
        if self._troubles:
            return
        self._troubled_at = None
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        self.feed.fresh()


class _Sink:
    """Receives one watch, and keeps the documents: answers read fields that no struct models."""

    def __init__(self, source: LiveSource, read: object_set.Read, kind: registry.Kind) -> None:
        self._source = source
        self._read = read
        self._kind = kind
        self._documents: dict[int, bytes] = {}  # by the struct, until the sink receives it

    def keep_document(self, item: Any, document: bytes) -> None:
        """The document of an object that comes next."""
        self._documents[id(item)] = document

    def replaced(self, objects: list[Any], resource_version: str, /) -> None:
        documents = self._documents
        self._documents = {}
        # Items of typed lists leave out apiVersion and kind, all of them or none; events of a watch never do.
        first = documents[id(objects[0])] if objects else b"{}"
        if not codec.decode_struct(codec.Generic, first).kind:
            documents = {
                key: object_set.with_types(self._kind, document)
                for key, document in documents.items()
            }
        stored = [codec.Stored(each, documents[id(each)]) for each in objects]
        table = {object_set.key_of(each.struct): each for each in stored}
        self._source.replace(self._read, table, resource_version)

    def changed(self, item: Any, /) -> None:
        document = self._documents.pop(id(item))
        self._source.put(self._read, codec.Stored(item, document))

    def deleted(self, item: Any, /) -> None:
        self._source.drop(self._read, item)

    def broken(self, reason: str, /) -> None:
        self._source.broken(self._read, reason)

    def unreadable(self, name: str, problem: str, /) -> None:
        LOG.warning(
            "dashboard.object.unreadable",
            extra={"kind": self._kind.name, "object": name, "problem": problem},
        )


def _narrowed(read: object_set.Read) -> object_set.Read:
    return read._replace(fields=LEADER_LEASES) if read.kind == registry.LEASE else read
