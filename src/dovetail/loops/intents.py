"""Keeps what is meant on the API server: what a gang is about to be given, until its last write is answered, and more.

Given placements of one gang, or an intent as it is. Whoever schedules next lists what was begun. On a server that does
not know intents nothing is kept, which is said once: a crash then leaves it to the gang's own policy. Never writes
claims or bindings.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dovetail.loops import carry, parts, settle
from dovetail.model import durations, intents, kinds, meta, objects, plan
from dovetail.ports import api as apis
from dovetail.ports import clock as clocks
from dovetail.ports import failures

LOG = logging.getLogger("dovetail.schedule")
MOST_REMEMBERED: Final = 10_000  # gangs whose attempts are counted: many are gone without a word
MAX_BASE: Final = 200  # of an object's name, so that what is appended still fits

Listing = Callable[[], Awaitable[Sequence[intents.Intent]]]


async def nothing() -> Sequence[intents.Intent]:
    """For those who keep no intents of others."""
    return ()


class Keeper:
    """Writes and removes intents."""

    def __init__(
        self,
        settler: settle.Settler,
        clock: clocks.Clock,
        *,
        listing: Listing,
        seconds: float,
        part_bytes: int = parts.MOST_BYTES,
    ) -> None:
        self._settler = settler
        self._part_bytes = part_bytes
        self._clock = clock
        self._listing = listing
        self._seconds = seconds
        self._attempts: dict[plan.GangRef, int] = {}
        self._is_missed = False

    async def found(self) -> Sequence[intents.Intent]:
        """What was begun and is not over; nothing on a server that does not know intents."""
        try:
            return await self._settler.answered("intents", self._listing)
        except failures.Missing:
            return ()
        except failures.Refused as refused:
            LOG.error("what was begun for gangs cannot be read", extra={"why": str(refused)})
            return ()

    async def write(self, gang: plan.GangRef, loads: Sequence[carry.Load]) -> parts.Begun | None:
        """Puts down what is about to be written, all of it. Raises Refused where that is not allowed."""
        if len(self._attempts) >= MOST_REMEMBERED:
            self._attempts.clear()
        attempt = self._attempts[gang] = self._attempts.get(gang, 0) + 1
        deadline = stamp(self._clock.now(), self._seconds)
        spec = intents.IntentSpec(gang=gang.name, attempt=attempt, deadline=deadline, members=_members(loads))
        specs = parts.split(spec, most_bytes=self._part_bytes)
        begun = parts.Begun(gang, tuple(intent_of(gang.namespace, one) for one in specs))
        try:
            for intent in begun.parts:
                if not await self.put_down(intent):
                    return None
            if len(begun.parts) > 1:
                await self._check_parts(begun.parts[0])
        except failures.Fenced:
            raise
        except failures.ApiFailure:
            await self.end(begun)  # one that got no answer may be there as well
            raise
        return begun

    async def _check_parts(self, intent: intents.Intent) -> None:
        """Raises Refused on a server that leaves out what parts have in common: a new leader could not join them."""
        place = apis.Target(kinds.INTENT, intent.metadata.namespace, intent.metadata.name)
        try:
            document = await self._settler.answered("read", lambda: self._settler.api.get(place))
        except failures.Missing:
            return  # removed by hand: what was kept is not known
        if objects.decode_struct(intents.Intent, document).spec.parts != intent.spec.parts:
            said = "its intent has to be in parts, which the definition of intents in this cluster is too old to keep"
            raise failures.Refused(f"{said}: update the custom resource definitions")

    async def put_down(self, made: intents.Intent, *, patience_seconds: float = math.inf) -> bool:
        """Whether it is kept from now on. Raises Refused where that is not allowed, Unavailable after the patience."""
        place, body = apis.Target(kinds.INTENT, made.metadata.namespace), objects.encode_struct(made)
        try:
            await self._settler.answered(
                "intent",
                lambda: self._settler.api.create(place, body, brief=True),
                patience_seconds=patience_seconds,
            )
        except failures.AlreadyThere:
            pass  # our own, sent twice: the name follows from what is in it
        except failures.Missing as missing:
            if not self._is_missed:
                LOG.warning("gangs start without intents", extra={"why": str(missing)})
            self._is_missed = True
            return False
        return True

    async def tried(self, made: intents.Intent, *, patience_seconds: float = math.inf) -> bool:
        """The same for what goes on without it too: where it is refused, that is said and lives in memory only."""
        try:
            return await self.put_down(made, patience_seconds=patience_seconds)
        except failures.Refused as refused:
            name = f"{made.metadata.namespace}/{made.spec.gang}"
            LOG.error("a new leader will not know of this", extra={"gang": name, "why": str(refused)})
            return False

    async def remove(self, intent: intents.Intent | None) -> None:
        """It is over, one way or the other."""
        if intent is None:
            return
        place = apis.Target(kinds.INTENT, intent.metadata.namespace, intent.metadata.name)
        try:
            await self._settler.answered("intent_delete", lambda: self._settler.api.delete(place))
        except failures.Missing:
            pass  # deleted by a request whose answer was lost
        except failures.Fenced:
            raise
        except failures.ApiFailure as failure:
            LOG.error("an intent stays", extra={"intent": str(place), "why": str(failure)})

    async def end(self, begun: parts.Begun | None) -> None:
        """All parts of it are over."""
        for intent in begun.parts if begun is not None else ():
            await self.remove(intent)

    def is_complete(self, gang: plan.GangRef) -> None:
        """The gang runs: its attempts are counted anew."""
        self._attempts.pop(gang, None)


def _members(loads: Sequence[carry.Load]) -> tuple[intents.Member, ...]:
    return tuple(
        intents.Member(
            pod=load.placement.pod.name,
            uid=load.placement.pod.uid,
            node=load.placement.node,
            claims=tuple(sorted(name for _, name in {*load.uses, *carry.allocations_of(load.placement)})),
        )
        for load in loads
    )


def intent_of(namespace: str, spec: intents.IntentSpec) -> intents.Intent:
    """The object, under a name that follows from what is in it."""
    return intents.Intent(
        api_version=kinds.INTENT.api_version,
        kind=kinds.INTENT.name,
        metadata=meta.ObjectMeta(namespace=namespace, name=_name(spec)),
        spec=spec,
    )


def _name(spec: intents.IntentSpec) -> str:
    """Says the gang to people, and differs for whatever else is in it."""
    said = re.sub(r"[^a-z0-9-]+", "-", spec.gang.lower()).strip("-")[:MAX_BASE]
    return f"{said or 'gang'}-{hashlib.sha256(objects.encode_struct(spec)).hexdigest()[:10]}"


def stamp(now: datetime.datetime, after: float) -> str:
    """So many seconds later, as text."""
    moment = durations.later(durations.in_utc(now), after)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
