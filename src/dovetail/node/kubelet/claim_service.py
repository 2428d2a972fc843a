"""What the kubelet asks about claims and devices, apart from gRPC: the interface `node/claims` and `node/health` serve.

Structs and Protocols only. Versions of the wire format are the business of the servers in this folder.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec


class ClaimReference(NamedTuple):
    """A ResourceClaim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})"


class PreparedDevice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One allocated device, ready for containers."""

    request_names: tuple[str, ...]
    pool_name: str
    device_name: str
    cdi_device_ids: tuple[str, ...]
    share_id: str | None = None


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A claim that is ready; empty if none of its devices are this driver's."""

    devices: tuple[PreparedDevice, ...]


class Failed(msgspec.Struct, frozen=True, gc=False):
    """A claim that is not ready, with a message for the pod's owner. The kubelet repeats the request."""

    message: str


class ClaimService(Protocol):
    """Prepares and unprepares claims. Idempotent; every claim asked about has an entry in the answer.

    Called concurrently, and by two instances of the agent during a rolling update: it excludes what must not overlap.
    """

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Prepared | Failed]:
        """By claim uid."""
        ...

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Failed | None]:
        """By claim uid; None is success, also for a claim that was never prepared."""
        ...


class HealthState(StrEnum):
    """As the kubelet knows it."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


class DeviceHealth(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The state of one device of the pool."""

    pool_name: str
    device_name: str
    state: HealthState
    last_updated_seconds: int  # Unix time
    message: str = ""  # at most 1,024 characters


class HealthService(Protocol):
    """Devices and their state."""

    def changes(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """The whole list at once, then again after each change and at least every 20 seconds."""
        ...
