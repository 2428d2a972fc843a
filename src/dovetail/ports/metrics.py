"""How busy devices are, as loops ask for it: Prometheus, a script in tests, or nobody."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from dovetail.model.idling import Device, Sample


class Metrics(Protocol):
    """May fail as anything outside does; whoever asks goes on without an answer then."""

    async def utilisation(self, devices: Collection[Device]) -> Mapping[Device, Sequence[Sample]]:
        """Recent samples of these devices. One that nobody measures is left out."""
        ...


class NoMetrics:
    """Measures nothing: so nothing is ever idle."""

    async def utilisation(self, devices: Collection[Device]) -> Mapping[Device, Sequence[Sample]]:
        """Nothing."""
        return {}
