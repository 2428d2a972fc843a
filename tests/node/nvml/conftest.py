"""Fake machines for tests of the boundary to the hardware."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.nvml import control, session
from tests.support import real, waiting


class Machine:
    """Fake hardware, and the agent's control of it."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        # A deadline that only something broken misses, however busy the machine of the tests is.
        self.session = session.Session(hardware.driver_root, call_seconds=waiting.GIVE_UP_SECONDS)
        self.control = control.NvmlControl(self.session, sysfs_root=hardware.sysfs_root)


MakeMachine = Callable[..., Machine]


def require_compiler() -> None:
    """Ends the test where the fake driver cannot be built."""
    if shutil.which("gcc") is None:
        real.missing("gcc, to build the fake libnvidia-ml with")


@pytest.fixture
def make_machine(tmp_path: Path) -> Iterator[MakeMachine]:
    """Makes a machine: make_machine("dgx-h100", gpus=2)."""
    require_compiler()
    with contextlib.ExitStack() as closing:

        def make(machine: str = "dgx-h100", **facts: Any) -> Machine:
            hardware = Hardware.create(tmp_path / "machine", machine=machine, **facts)
            node = Machine(hardware)
            closing.callback(node.session.close)
            closing.callback(hardware.release)
            return node

        yield make
