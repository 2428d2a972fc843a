"""Compares the live World with one rebuilt from fresh lists: they must be equal at all times.

Given a function that lists a kind. An object that changed between listing and comparing is no inconsistency, so the
comparison is repeated a few times. Never repairs anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from dovetail.kubetypes import registry
from dovetail.ports import clock as clocks
from dovetail.world import dump
from dovetail.world.world import World

TRIES: Final = 10
PAUSE_SECONDS: Final = 0.5
MAX_SHOWN: Final = 5

Lister = Callable[[registry.Kind], Awaitable[list[Any]]]


class Verdict(msgspec.Struct, frozen=True):
    """Whether the worlds are equal, and where they are not."""

    consistent: bool
    differences: tuple[str, ...] = ()
    tries: int = 1
    assumed: int = 0


async def check(
    world: World, listed: Lister, clock: clocks.Clock, watched: tuple[registry.Kind, ...]
) -> Verdict:
    """The verdict; takes a few seconds on a busy cluster."""
    differing: tuple[str, ...] = ()
    for attempt in range(1, TRIES + 1):
        objects: list[Any] = []
        for kind in watched:
            objects += await listed(kind)

        differing = differences(world, objects)
        if not differing:
            return Verdict(True, tries=attempt, assumed=len(world.assumed))
        await clock.sleep(PAUSE_SECONDS)
    return Verdict(False, differing[:MAX_SHOWN], TRIES, len(world.assumed))


def differences(world: World, facts: list[Any]) -> tuple[str, ...]:
    """Where the live World differs from one built of these objects and its own assumptions."""
    live, fresh = dump.dump(world), dump.dump(dump.rebuilt(facts, world))
    return tuple(_differences(live, fresh, ""))


def _differences(live: Any, fresh: Any, path: str) -> list[str]:
    if live == fresh:
        return []
    if not isinstance(live, dict) or not isinstance(fresh, dict):
        return [f"{path}: live {str(live)[:200]}, rebuilt {str(fresh)[:200]}"]

    unmatched = sorted(live.keys() ^ fresh.keys(), key=str)
    lines = [f"{path}/{key}: only in one of them" for key in unmatched]
    for key in sorted(live.keys() & fresh.keys(), key=str):
        lines += _differences(live[key], fresh[key], f"{path}/{key}")
    return lines
