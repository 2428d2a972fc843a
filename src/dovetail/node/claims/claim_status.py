"""Writes what was prepared into the claims' status.devices: which MIG device a claim got, so that people can find it.

Given completed claims, reads each from the API server, puts our devices beside those of other drivers and patches the
status. A failure never fails the preparation: it is repeated until it succeeds or the claim is gone. Never writes
anything but status.devices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dovetail import errors, timestamps
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.resource import claims
from dovetail.node.claims import checkpoint, configs
from dovetail.ports import failures
from dovetail.ports.api import Api, Target
from dovetail.ports.clock import Clock

LOG = logging.getLogger("dovetail.node.claims")

_FIRST_DELAY_SECONDS: Final = 1.0
_LONGEST_DELAY_SECONDS: Final = 60.0


class ClaimStatus:
    """The writer, a queue of one task."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._waiting: dict[str, checkpoint.Claim] = {}
        self._wakened = asyncio.Event()

    def add(self, claim: checkpoint.Claim) -> None:
        """Wants the status of a completed claim to be written."""
        self._waiting[claim.uid] = claim
        self._wakened.set()

    def drop(self, uid: str) -> None:
        """The claim is no longer prepared."""
        self._waiting.pop(uid, None)

    async def run(self) -> None:
        """Writes until cancelled."""
        delay = _FIRST_DELAY_SECONDS
        while True:
            await self._wakened.wait()
            self._wakened.clear()
            if await self.write_waiting():
                delay = _FIRST_DELAY_SECONDS
                continue
            await self._clock.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY_SECONDS)
            self._wakened.set()

    async def write_waiting(self) -> bool:
        """Writes everything that waits, once. False if something is left to repeat."""
        for claim in tuple(self._waiting.values()):
            if await self._is_settled(claim) and self._waiting.get(claim.uid) is claim:
                del self._waiting[claim.uid]
        return not self._waiting

    async def _is_settled(self, claim: checkpoint.Claim) -> bool:
        target = Target(registry.CLAIM, claim.namespace, claim.name)
        try:
            document = await self._api.get(target)
            current = codec.decode_struct(claims.ResourceClaim, document)
            if current.metadata.uid != claim.uid or current.status.allocation is None:
                return True
            patch = self._patch(claim, current)
            if patch is not None:
                await self._api.patch(target._replace(subresource="status"), patch, brief=True)
        except failures.Missing:
            return True
        except failures.Refused as error:
            LOG.warning("claim.status_refused", extra={"claim": str(claim), "why": str(error)})
            return True
        except (failures.ApiFailure, errors.InputError) as error:
            LOG.info("claim.status_not_written", extra={"claim": str(claim), "why": str(error)})
            return False
        return True

    def _patch(self, claim: checkpoint.Claim, current: claims.ResourceClaim) -> bytes | None:
        """A merge patch replaces the list, so it carries the version it was made for; None if nothing changes."""
        theirs = [
            device for device in current.status.devices if not _is_ours(device, claim.devices)
        ]
        now = timestamps.to_text(self._clock.now())
        ours = [_entry(held, claim, now) for held in claim.devices]
        written = {_key(device): _decoded(device.data) for device in current.status.devices}
        if all(written.get(_key_of(held)) == _data(held) for held in claim.devices):
            return None
        others: Any = msgspec.json.decode(msgspec.json.encode(theirs))
        document = {
            "metadata": {"resourceVersion": current.metadata.resource_version},
            "status": {"devices": [*others, *ours]},
        }
        return msgspec.json.encode(document)


def _entry(held: checkpoint.HeldDevice, claim: checkpoint.Claim, now: str) -> dict[str, Any]:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Prepared",
        "message": _message(held, claim),
        "lastTransitionTime": now,
    }
    entry: dict[str, Any] = {
        "driver": configs.DRIVER,
        "pool": held.pool,
        "device": held.device,
        "conditions": [condition],
        "data": _data(held),
    }
    if held.share_id is not None:
        entry["shareID"] = held.share_id
    return entry


def _message(held: checkpoint.HeldDevice, claim: checkpoint.Claim) -> str:
    if held.share_id is None:
        return f"{held.device} is prepared"
    group = claim.sharing[held.group] if held.group is not None else None
    if group is not None and held.device in group.memory_limits:
        return f"a share of {held.device} is prepared; MPS enforces its memory limit per process"
    return f"a share of {held.device} is prepared; its capacity is accounting only, nothing enforces it"


def _data(held: checkpoint.HeldDevice) -> dict[str, Any]:
    data: dict[str, Any] = {"uuid": held.gpu_uuid, "pciBusID": held.pci_bus_id}
    if held.instance is not None:
        data |= {
            "uuid": held.instance.uuid,
            "parentUUID": held.gpu_uuid,
            "profile": held.profile,
            "placement": {"start": held.first_slice, "size": held.slice_count},
        }
    return data


def _decoded(data: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(data) if data else None
    except msgspec.DecodeError:
        return None


def _is_ours(device: claims.AllocatedDeviceStatus, held: Sequence[checkpoint.HeldDevice]) -> bool:
    return any(_key(device) == _key_of(ours) for ours in held)


def _key(device: claims.AllocatedDeviceStatus) -> tuple[str, str, str, str | None]:
    return (device.driver, device.pool, device.device, device.share_id)


def _key_of(held: checkpoint.HeldDevice) -> tuple[str, str, str, str | None]:
    return (configs.DRIVER, held.pool, held.device, held.share_id)
