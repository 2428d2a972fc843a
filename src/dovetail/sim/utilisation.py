"""Utilisation by script: what each simulated device does from when on, sampled whenever somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from dovetail.model.idling import Device, Sample
from dovetail.ports import clock as clocks


class Scripted:
    """Answers from a script: a percentage that stands until it is changed, or nothing where nobody measures."""

    def __init__(self, clock: clocks.Clock, *, usual: float | None = None) -> None:
        self._clock = clock
        self._usual = usual  # of devices the script does not name
        self._script: dict[Device, float | None] = {}
        self.fails: Callable[[], Exception | None] = lambda: None

    def set(self, device: Device, percent: float | None) -> None:
        """From now on the device is so busy; None: nobody measures it."""
        self._script[device] = percent

    async def utilisation(self, devices: Collection[Device]) -> Mapping[Device, Sequence[Sample]]:
        """One sample each, of now."""
        if (error := self.fails()) is not None:
            raise error
        now = self._clock.now()
        found = {one: self._script.get(one, self._usual) for one in devices}
        return {one: (Sample(now, percent),) for one, percent in found.items() if percent is not None}
