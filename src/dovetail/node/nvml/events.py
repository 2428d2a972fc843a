"""Waits for what the driver reports by itself: XIDs and uncorrectable memory errors.

Given a session. One event set for all GPUs, made again after the driver was replaced or GPUs came or went. Never judges
an event.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Final

from dovetail.node.health_reading import GpuEvent
from dovetail.node.nvml import nvml_errors
from dovetail.node.nvml.answers import optional, text
from dovetail.node.nvml.session import CALL_SECONDS, Opened, Session

LANE: Final = "events"
_MOST_AT_ONCE: Final = 256
_NO_INSTANCE: Final = 0xFFFFFFFF  # the event is of the whole GPU


class EventWaiter:
    """The events of one node."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opened: Opened | None = None
        self._set: Any = None
        self._is_stale = False
        self._uuids: dict[int | None, str] = {}

    def wait(self, seconds: float) -> list[GpuEvent]:
        """Those that come within this time, as soon as there are any. Blocks. Raises GpuFailure and its kin."""

        def job(opened: Opened) -> list[GpuEvent]:
            if self._opened is not opened or self._is_stale:
                self._register(opened)
            return self._collected(opened, round(seconds * 1000))

        limit = seconds + CALL_SECONDS
        return self._session.read(LANE, job, doing="wait for events", seconds=limit)

    def register_again(self) -> None:
        """The next wait covers the GPUs that are there then."""
        self._is_stale = True

    def _register(self, opened: Opened) -> None:
        nvml = opened.nvml
        # A set of an earlier opening went with it, and must not be freed.
        if self._set is not None and self._opened is opened:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(self._set)
        self._opened, self._set = None, None
        self._is_stale = False
        self._set = nvml.nvmlEventSetCreate()
        self._uuids = {}
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError_GpuIsLost):
                self._register_gpu(opened, index, wanted)
        self._opened = opened

    def _register_gpu(self, opened: Opened, index: int, wanted: int) -> None:
        nvml = opened.nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        supported = optional(opened, nvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
        if supported & wanted:
            nvml.nvmlDeviceRegisterEvents(handle, supported & wanted, self._set)
            self._uuids[_address(handle)] = text(nvml.nvmlDeviceGetUUID(handle))

    def _collected(self, opened: Opened, milliseconds: int) -> list[GpuEvent]:
        events: list[GpuEvent] = []
        while len(events) < _MOST_AT_ONCE:
            # The first is waited for; what is there already comes with it.
            patience = 0 if events else milliseconds
            try:
                data = opened.nvml.nvmlEventSetWait_v2(self._set, patience)
            except opened.nvml.NVMLError as error:
                if nvml_errors.code_of(error) == nvml_errors.TIMEOUT:
                    break
                raise
            events.append(self._event(opened, data))
        return events

    def _event(self, opened: Opened, data: Any) -> GpuEvent:
        nvml = opened.nvml
        is_xid = bool(data.eventType & nvml.nvmlEventTypeXidCriticalError)
        return GpuEvent(
            uuid=self._uuids.get(_address(data.device), ""),
            xid=int(data.eventData) if is_xid else None,
            is_double_bit_error=bool(data.eventType & nvml.nvmlEventTypeDoubleBitEccError),
            gi_id=_instance(data.gpuInstanceId),
            ci_id=_instance(data.computeInstanceId),
        )


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
