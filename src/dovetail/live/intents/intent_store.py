"""Stores a gang's planned writes as Intents, so that a new leader can finish or undo them.

Given the placements of one gang, or a finished Intent. An Intent is deleted once the last write is answered; the next
leader lists those that remain. On a server without the Intent CRD nothing is stored, which is logged once: after a
crash the gang's own policy then decides. Never writes claims or bindings.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dovetail import timestamps
from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.custom import intents
from dovetail.live.bind import binder, write_retry
from dovetail.live.intents import intent_parts
from dovetail.model import plan
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures
from dovetail.quantity import durations

LOG = logging.getLogger("dovetail.schedule")
MAX_REMEMBERED: Final = 10_000  # gangs whose attempts are counted: many are deleted meanwhile
MAX_BASE: Final = 200  # of an object's name, so that the suffix still fits

Listing = Callable[[], Awaitable[Sequence[intents.Intent]]]


async def no_intents() -> Sequence[intents.Intent]:
    """Lists nothing, for schedulers without a predecessor."""
    return ()


class IntentStore:
    """Writes and deletes Intents."""

    def __init__(
        self,
        writer: write_retry.Writer,
        clock: clocks.Clock,
        *,
        listing: Listing,
        seconds: float,
        part_bytes: int = intent_parts.MAX_PART_BYTES,
    ) -> None:
        self._writer = writer
        self._part_bytes = part_bytes
        self._clock = clock
        self._listing = listing
        self._seconds = seconds
        self._attempts: dict[plan.GangRef, int] = {}
        self._is_missed = False  # whether the CRD was reported as missing

    async def list_stored(self) -> Sequence[intents.Intent]:
        """The Intents a predecessor left; none on a server without the CRD."""
        try:
            return await self._writer.with_retry("intents", self._listing)
        except failures.Missing:
            return ()
        except failures.Refused as refused:
            LOG.error(
                "gang.intents.unreadable: unfinished gangs of the last leader are not restored",
                extra={"why": str(refused)},
            )
            return ()

    async def write(
        self, gang: plan.GangRef, loads: Sequence[binder.PodBinding]
    ) -> intent_parts.GangStart | None:
        """Stores all planned writes of a gang; None without the CRD. Raises Refused where RBAC forbids it."""
        if len(self._attempts) >= MAX_REMEMBERED:
            self._attempts.clear()

        attempt = self._attempts[gang] = self._attempts.get(gang, 0) + 1
        deadline = deadline_text(self._clock.now(), self._seconds)
        spec = intents.IntentSpec(
            gang=gang.name, attempt=attempt, deadline=deadline, members=_members(loads)
        )
        specs = intent_parts.split(spec, most_bytes=self._part_bytes)
        parts = tuple(intent_of(gang.namespace, part) for part in specs)
        start = intent_parts.GangStart(gang, parts)

        try:
            for intent in parts:
                if not await self.persist(intent):
                    return None
            if len(parts) > 1:
                await self._check_parts(parts[0])
        except failures.Fenced:
            raise
        except failures.ApiFailure:
            await self.remove_all(start)  # also the one without an answer: it may have been stored
            raise
        return start

    async def _check_parts(self, intent: intents.Intent) -> None:
        """Raises Refused on a server that prunes the part fields: a new leader could not join the parts."""
        target = apis.Target(registry.INTENT, intent.metadata.namespace, intent.metadata.name)
        try:
            document = await self._writer.with_retry("read", lambda: self._writer.api.get(target))
        except failures.Missing:
            return  # deleted by another writer: which fields were stored cannot be known

        if codec.decode_struct(intents.Intent, document).spec.parts != intent.spec.parts:
            raise failures.Refused(
                f"the gang needs an intent in {intent.spec.parts} parts; the Intent definition in "
                "this cluster is too old for that: update the custom resource definitions"
            )

    async def persist(self, intent: intents.Intent, *, patience_seconds: float = math.inf) -> bool:
        """Whether it is stored. Raises Refused where RBAC forbids it, Unavailable after the patience."""
        target = apis.Target(registry.INTENT, intent.metadata.namespace)
        body = codec.encode_struct(intent)
        try:
            await self._writer.with_retry(
                "intent",
                lambda: self._writer.api.create(target, body, brief=True),
                patience_seconds=patience_seconds,
            )
        except failures.AlreadyThere:
            pass  # our own, sent twice: the name is a hash of the content
        except failures.Missing as missing:
            if not self._is_missed:
                LOG.warning(
                    "gang.intents.missing: the server has no Intent CRD; after a crash gangs cannot "
                    "be resumed",
                    extra={"why": str(missing)},
                )
            self._is_missed = True
            return False
        return True

    async def try_persist(
        self, intent: intents.Intent, *, patience_seconds: float = math.inf
    ) -> bool:
        """Like `put_down` for optional Intents: a refusal is logged, and the fact lives in memory only."""
        try:
            return await self.persist(intent, patience_seconds=patience_seconds)
        except failures.Refused as refused:
            gang = f"{intent.metadata.namespace}/{intent.spec.gang}"
            LOG.error(
                "gang.intents.refused: a new leader will not know of this intent",
                extra={"gang": gang, "why": str(refused)},
            )
            return False

    async def remove(self, intent: intents.Intent | None) -> None:
        """Deletes an Intent that is finished or undone."""
        if intent is None:
            return
        target = apis.Target(registry.INTENT, intent.metadata.namespace, intent.metadata.name)
        try:
            await self._writer.with_retry("intent_delete", lambda: self._writer.api.delete(target))
        except failures.Missing:
            pass  # deleted by a request whose answer was lost
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            LOG.error(
                "gang.intents.not_deleted",
                extra={"intent": str(target), "why": str(failure)},
            )

    async def remove_all(self, start: intent_parts.GangStart | None) -> None:
        """Deletes all its parts."""
        if start is None:
            return
        for intent in start.parts:
            await self.remove(intent)

    def reset_attempts(self, gang: plan.GangRef) -> None:
        """The gang runs: its attempts are counted from zero again."""
        self._attempts.pop(gang, None)


def _members(loads: Sequence[binder.PodBinding]) -> tuple[intents.Member, ...]:
    members: list[intents.Member] = []
    for load in loads:
        keys = {*load.uses, *binder.allocations_of(load.placement)}
        names = tuple(sorted(name for _, name in keys))
        pod = load.placement.pod
        members.append(
            intents.Member(pod=pod.name, uid=pod.uid, node=load.placement.node, claims=names)
        )
    return tuple(members)


def intent_of(namespace: str, spec: intents.IntentSpec) -> intents.Intent:
    """The object, under a name that is derived from its content."""
    return intents.Intent(
        api_version=registry.INTENT.api_version,
        kind=registry.INTENT.name,
        metadata=meta.ObjectMeta(namespace=namespace, name=_name(spec)),
        spec=spec,
    )


def _name(spec: intents.IntentSpec) -> str:
    """The gang's name for people, and a hash of the whole content."""
    base = re.sub(r"[^a-z0-9-]+", "-", spec.gang.lower()).strip("-")[:MAX_BASE]
    digest = hashlib.sha256(codec.encode_struct(spec)).hexdigest()[:10]
    return f"{base or 'gang'}-{digest}"


def deadline_text(now: datetime.datetime, after: float) -> str:
    """The time this many seconds later, as RFC 3339 text."""
    deadline = durations.later(durations.in_utc(now), after)
    return timestamps.to_text(deadline)
