"""Fake machines for tests of the boundary to the hardware."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.nvml import control, session
from tests.support import waiting


class Machine:
    """Fake hardware, and the agent's control of it."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        # A deadline that only something broken misses, however busy the machine of the tests is.
        self.session = session.Session(hardware.driver_root, call_seconds=waiting.GIVE_UP_SECONDS)
        self.control = control.NvmlControl(self.session, sysfs_root=hardware.sysfs_root)


MakeMachine = Callable[..., Machine]


@pytest.fixture
def make_machine(tmp_path: Path) -> Iterator[MakeMachine]:
    """Makes a machine: make_machine("dgx-h100", gpus=2)."""
    with contextlib.ExitStack() as made:

        def make(machine: str = "dgx-h100", **facts: Any) -> Machine:
            hardware = Hardware.create(tmp_path / "machine", machine=machine, **facts)
            node = Machine(hardware)
            made.callback(node.session.close)
            made.callback(hardware.release)
            return node

        yield make
