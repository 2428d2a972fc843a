"""Keeps the faults of a node's GPUs across restarts of the agent; a reboot of the node ends them.

One small file, written atomically. A file that cannot be read counts as none: the next readings show what lasts, and
the loss is reported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from dovetail.node.health.gpu_health import GpuHealth

_LOG: Final = logging.getLogger(__name__)


class _Record(msgspec.Struct, frozen=True, gc=False):
    boot_id: str
    gpus: tuple[GpuHealth, ...] = ()


class HealthRecord:
    """The file, and what was written last."""

    def __init__(self, path: Path, *, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id
        self._written = b""

    def read(self) -> dict[int, GpuHealth]:
        """By minor number; empty after a reboot, or where there is no readable file."""
        try:
            content = self._path.read_bytes()
            record = msgspec.json.decode(content, type=_Record)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            _LOG.warning("health.record.unreadable %s: %s", self._path, error)
            return {}
        if record.boot_id != self._boot_id:
            return {}
        return {gpu.minor: gpu for gpu in record.gpus}

    def write(self, healths: Mapping[int, GpuHealth]) -> None:
        """Replaces the file if anything differs; raises OSError."""
        gpus = tuple(healths[minor] for minor in sorted(healths))
        content = msgspec.json.encode(_Record(self._boot_id, gpus))
        if content == self._written:
            return
        scratch = self._path.with_suffix(".new")
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self._path)
        self._written = content
