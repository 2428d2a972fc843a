"""A source of device utilisation: Prometheus, a script in tests, or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from dovetail.model.idle import Device, Sample


class Metrics(Protocol):
    """May raise as any external service does; the caller then continues without measurements."""

    async def utilisation(self, devices: Collection[Device]) -> Mapping[Device, Sequence[Sample]]:
        """Recent samples of these devices. Devices without measurements are left out."""
        ...


class NoMetrics:
    """Measures nothing, so no pod is ever idle."""

    async def utilisation(self, devices: Collection[Device]) -> Mapping[Device, Sequence[Sample]]:
        """No samples."""
        return {}
