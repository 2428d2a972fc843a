"""Group commit: the changes of one turn of the event loop become durable together, then watches receive them.

Given a store, a journal and the watches; an answer or an event leaves the server only after the change it reports is
durable. Controllers run once after each turn that changed something. Never drops a change; a journal that fails stops
all writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from dovetail.ports import failures
from dovetail.sim.server.object_store import Change, ObjectStore

LOG = logging.getLogger("dovetail.apiserver")


class Journal(Protocol):
    """Makes the changes it heard of durable."""

    def commit(self) -> None:
        """Returns once every change so far is durable. Raises if it cannot be."""
        ...


class CommitTurns:
    """The turns of one server."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        journal: Journal | None,
        publish: Callable[[list[Change]], None],
        settle: Callable[[], object],
    ) -> None:
        self._store = store
        self._journal = journal
        self._publish = publish
        self._settle = settle
        self._pending: list[Change] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_settling_due = False
        self.broken: Exception | None = None  # why nothing can be written any more
        self.published = store.revision  # the newest revision that clients may know of
        store.listen(self._note)

    def start(self) -> None:
        """Commits what happened so far; from now on every turn of the running loop commits."""
        self._loop = asyncio.get_running_loop()
        self._commit()
        self._settle_soon()

    def stop(self) -> None:
        """Commits what is pending."""
        if self._loop is not None:
            self._commit()
            self._loop = None

    async def committed(self) -> None:
        """Returns once everything done so far is durable and published. Raises if it cannot be."""
        if self._pending and self._loop is not None:
            future = self._loop.create_future()
            self._waiting.append(future)
            await future
        self.check()

    def check(self) -> None:
        """Raises Unavailable if the journal has failed."""
        if self.broken is not None:
            raise failures.Unavailable(
                f"the state cannot be written: {self.broken}", status=500, reason="InternalError"
            )

    def _note(self, change: Change) -> None:
        if not self._pending and self._loop is not None:
            self._loop.call_soon(self._commit)
        self._pending.append(change)

    def _commit(self) -> None:
        changes, self._pending = self._pending, []
        waiting, self._waiting = self._waiting, []
        if self._journal is not None and self.broken is None:
            try:
                self._journal.commit()
            except Exception as error:
                self._break(error)
        if changes and self.broken is None:
            self.published = changes[-1].revision
            self._publish(changes)
            self._settle_soon()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _settle_soon(self) -> None:
        if self._loop is not None and not self._is_settling_due:
            self._is_settling_due = True
            self._loop.call_soon(self._settle_now)

    def _settle_now(self) -> None:
        self._is_settling_due = False
        try:
            self._settle()
        except Exception:
            # One object a controller cannot handle must not end the others' service.
            LOG.exception("apiserver.controller_failed")

    def _break(self, error: Exception) -> None:
        self.broken = error
        LOG.critical("apiserver.journal_failed: no more writes", extra={"why": str(error)})
