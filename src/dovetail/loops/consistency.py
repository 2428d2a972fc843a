"""Compares the live World with one rebuilt from a fresh list: whatever happened, they must be equal.

Given what lists every kind. A change between listing and comparing is no difference, so it asks again a few times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from dovetail.model import kinds
from dovetail.ports import clock as clocks
from dovetail.world import dump
from dovetail.world.world import World

TRIES: Final = 10
PAUSE_SECONDS: Final = 0.5
MOST_SHOWN: Final = 5

Lister = Callable[[kinds.Kind], Awaitable[list[Any]]]


class Verdict(msgspec.Struct, frozen=True):
    """Whether the worlds are equal, and where they are not."""

    consistent: bool
    differences: tuple[str, ...] = ()
    tries: int = 1
    assumed: int = 0


async def checked(world: World, listed: Lister, clock: clocks.Clock, watched: tuple[kinds.Kind, ...]) -> Verdict:
    """The verdict; takes a few seconds on a busy cluster."""
    found: tuple[str, ...] = ()
    for attempt in range(1, TRIES + 1):
        facts = [one for kind in watched for one in await listed(kind)]
        found = differences(world, facts)
        if not found:
            return Verdict(True, tries=attempt, assumed=len(world.assumed))
        await clock.sleep(PAUSE_SECONDS)
    return Verdict(False, found[:MOST_SHOWN], TRIES, len(world.assumed))


def differences(world: World, facts: list[Any]) -> tuple[str, ...]:
    """Where the live World differs from one made of these facts and its own assumptions."""
    live, fresh = dump.dump(world), dump.dump(dump.rebuilt(facts, world))
    return tuple(_differences(live, fresh, ""))


def _differences(live: Any, fresh: Any, path: str) -> list[str]:
    if live == fresh:
        return []
    if isinstance(live, dict) and isinstance(fresh, dict):
        found = [f"{path}/{key}: only in one of them" for key in sorted(live.keys() ^ fresh.keys(), key=str)]
        for key in sorted(live.keys() & fresh.keys(), key=str):
            found += _differences(live[key], fresh[key], f"{path}/{key}")
        return found
    return [f"{path}: live {str(live)[:200]}, rebuilt {str(fresh)[:200]}"]
