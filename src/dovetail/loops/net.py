"""A net below the hints: from time to time all parked pods are asked about again, whether or not anything happened.

Remembers which pods only the net asked about, so that a pod which starts by it is counted: some news was not taken as
such, and the hints lack a row. State in, answers out; time is given. Never decides about pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from dovetail.model import plan


class Catch(NamedTuple):
    """What a decision did that nothing but the net had asked for."""

    started: tuple[plan.PodRef, ...] = ()
    evicted: tuple[plan.PodRef, ...] = ()


class Net:
    """When it is cast next, and which pods are in it."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._last = now  # when all parked pods were last asked about
        self._pods: set[str] = set()  # asked about by the net alone, and not decided about yet

    def is_due(self, now: float) -> bool:
        """Whether parked pods were left alone for long enough; never where the net is turned off."""
        return self._seconds > 0 and now - self._last >= self._seconds

    def cast(self, ids: Iterable[str], now: float) -> None:
        """These pods are asked about, for no other reason."""
        self._pods = set(ids)
        self._last = now

    def put_off(self, now: float) -> None:
        """All parked pods are asked about, because something happened."""
        self._last = now

    def free(self, ids: Collection[str] | None = None) -> None:
        """Something happened that could help these pods, or all: they would have been asked about anyway."""
        if ids is None:
            self._pods.clear()
        else:
            self._pods.difference_update(ids)

    def catch(self, decided: plan.Plan, asked: Collection[str]) -> Catch:
        """What of a decision only the net brought about; those asked about are in it no longer."""
        inside = self._pods.intersection(asked)
        self._pods -= inside
        if not inside:
            return Catch()
        started = tuple(one.pod for one in decided.placements if one.pod.uid in inside)
        is_of_net = inside.issuperset(asked)
        return Catch(started, tuple(one.pod for one in decided.evictions) if is_of_net else ())
