"""Claim and health services for the stories: small, real implementations of the Protocols that record and wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from dovetail.node.kubelet.claim_service import (
    ClaimReference,
    DeviceHealth,
    Failed,
    HealthState,
    Prepared,
    PreparedDevice,
)

NAMESPACE = "train"


def claim(number: int) -> tuple[str, str, str]:
    """Namespace, name and uid of a claim."""
    return (NAMESPACE, f"claim-{number}", f"uid-{number}")


def device(uid: str, *, share: str | None = None) -> PreparedDevice:
    """The GPU that `GpuClaims` prepares for a claim."""
    return PreparedDevice(
        request_names=("gpu",),
        pool_name="node-a",
        device_name="gpu-0",
        cdi_device_ids=(f"k8s.gpu.nvidia.com/claim={uid}-gpu-0",),
        share_id=share,
    )


class GpuClaims:
    """Prepares one GPU per claim; claims named in `refused` fail, and `broken` ones raise."""

    def __init__(self, *, refused: Sequence[str] = (), broken: Sequence[str] = ()) -> None:
        self.refused = refused
        self.broken = broken
        self.prepared: set[str] = set()
        self.asked: list[ClaimReference] = []
        self.share: str | None = None

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Prepared | Failed]:
        return {claim.uid: self._prepare(claim) for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Failed | None]:
        return {claim.uid: self._unprepare(claim) for claim in claims}

    def _prepare(self, reference: ClaimReference) -> Prepared | Failed:
        self.asked.append(reference)
        if reference.name in self.broken:
            raise RuntimeError("the disk is on fire")
        if reference.name in self.refused:
            return Failed(f"claim {reference}: gpu-0 is in use")
        self.prepared.add(reference.uid)
        return Prepared((device(reference.uid, share=self.share),))

    def _unprepare(self, reference: ClaimReference) -> Failed | None:
        if reference.name in self.broken:
            raise RuntimeError("the disk is on fire")
        if reference.name in self.refused:
            return Failed("a process still uses gpu-0")
        self.prepared.discard(reference.uid)
        return None


class SlowClaims(GpuClaims):
    """Waits in the middle of a preparation until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.released = asyncio.Event()

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Prepared | Failed]:
        self.entered.set()
        await self.released.wait()
        return await super().prepare(claims)


class ForgetfulClaims(GpuClaims):
    """Answers about no claim at all."""

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Prepared | Failed]:
        return {}


class Healths:
    """The state of one device; `set` changes it."""

    def __init__(self) -> None:
        self._state = HealthState.HEALTHY
        self._message = ""
        self._version = 0
        self._changed = asyncio.Condition()
        self.open_count = 0

    async def set(self, state: HealthState, message: str) -> None:
        async with self._changed:
            self._state = state
            self._message = message
            self._version += 1
            self._changed.notify_all()

    async def changes(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        self.open_count += 1
        try:
            while True:
                sent = self._version
                yield [
                    DeviceHealth(
                        pool_name="node-a",
                        device_name="gpu-0",
                        state=self._state,
                        last_updated_seconds=1_800_000_000,
                        message=self._message,
                    )
                ]
                async with self._changed:
                    await self._changed.wait_for(lambda sent=sent: self._version != sent)  # type: ignore[misc]
        finally:
            self.open_count -= 1
