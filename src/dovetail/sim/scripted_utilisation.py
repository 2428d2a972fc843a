"""Scripted utilisation of simulated devices: a percentage per device, sampled on request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from dovetail.model.idle import Device, Sample
from dovetail.ports import clock as clocks


class Scripted:
    """Returns percentages from a script: each holds until it is changed; None for devices without metrics."""

    def __init__(self, clock: clocks.Clock, *, usual: float | None = None) -> None:
        self._clock = clock
        self._usual = usual  # of devices the script does not name
        self._script: dict[Device, float | None] = {}
        self.fails: Callable[[], Exception | None] = lambda: None

    def set(self, device: Device, percent: float | None) -> None:
        """Sets the device's utilisation from now on; None removes its metrics."""
        self._script[device] = percent

    async def utilisation(self, devices: Collection[Device]) -> Mapping[Device, Sequence[Sample]]:
        """One sample per device, at this time."""
        if (error := self.fails()) is not None:
            raise error
        now = self._clock.now()
        percents = {device: self._script.get(device, self._usual) for device in devices}
        return {
            device: (Sample(now, percent),)
            for device, percent in percents.items()
            if percent is not None
        }
