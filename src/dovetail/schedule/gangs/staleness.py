"""Remembers since when gangs have fewer pods on nodes than their minimum, and tells the World.

Given the World before a decision, which takes back what was incomplete for too long. A gang that only waits is not
incomplete. In memory: a new leader begins to count anew. Never takes anything back.
"""

from __future__ import annotations

import datetime

from dovetail.model import gangs, plan
from dovetail.schedule.gangs import minimum
from dovetail.world.world import World


def note(world: World, now: datetime.datetime) -> None:
    """Looks at all gangs of several pods. Linear in their pods."""
    stamp = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for key in [*world.gangs.keys()]:
        if gangs.is_shared(key):
            is_short = minimum.is_short(plan.GangRef(*key), world)
            world.gangs.note_stale(key, (world.gangs.stale_since(key) or stamp) if is_short else None)
