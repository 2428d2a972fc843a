"""That a GPU was reset shows in its readings: they forget what only a reset clears."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.node.health.driver_source import DriverSource
from dovetail.node.health.readings import GpuReset, XidEvent
from dovetail.node.nvml import control, events, session
from tests.node.nvml.conftest import require_compiler
from tests.support import waiting

RESET_GPU, NODE_REBOOT = 1, 2  # NVML_GPU_RECOVERY_ACTION_*


class Machine:
    """Fake GPUs and the source that watches them."""

    def __init__(self, folder: Path) -> None:
        self.hardware = Hardware.create(folder, gpus=2)
        self.session = session.Session(
            self.hardware.driver_root, call_seconds=waiting.GIVE_UP_SECONDS
        )
        gpu_control = control.NvmlControl(self.session, sysfs_root=self.hardware.sysfs_root)
        waiter = events.EventWaiter(self.session)
        self.source = DriverSource(
            gpu_control.health,
            waiter.wait,
            waiter.register_again,
            read_all=gpu_control.healths,
        )
        self.source.update(gpu_control.inventory())
        self.source.readings()

    def resets(self) -> list[int]:
        """The GPUs that were reset since the last call, by their minor numbers."""
        self.source.readings()
        seen = self.source.wait_for_events(0.0)
        return [event.minor for event in seen if isinstance(event, GpuReset)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    require_compiler()
    machine = Machine(tmp_path / "machine")
    yield machine
    machine.session.close()


def test_a_gpu_whose_driver_asks_for_a_reset_no_more_was_reset(machine: Machine) -> None:
    machine.hardware.set_recovery_action(1, RESET_GPU)
    assert machine.resets() == []
    machine.hardware.reset(1)
    assert machine.resets() == [1]
    assert machine.resets() == []


def test_a_gpu_that_has_forgotten_its_errors_was_reset(machine: Machine) -> None:
    machine.hardware.set_ecc(0, uncorrected=2)
    assert machine.resets() == []
    machine.hardware.reset(0)
    assert machine.resets() == [0]


def test_a_greater_demand_than_a_reset_is_no_reset(machine: Machine) -> None:
    machine.hardware.set_recovery_action(0, RESET_GPU)
    machine.resets()
    machine.hardware.set_recovery_action(0, NODE_REBOOT)
    assert machine.resets() == []


def test_an_xid_names_its_gpu(machine: Machine) -> None:
    machine.source.wait_for_events(0.0)  # events count from the first call on
    machine.hardware.inject_xid(1, 48)
    assert machine.source.wait_for_events(1.0) == (XidEvent(code=48, minor=1),)


def test_a_lost_gpu_does_not_hide_the_reading_of_another(machine: Machine) -> None:
    machine.hardware.lose(1)
    readings = machine.source.readings()
    assert [(reading.minor, reading.is_lost) for reading in readings] == [(0, False), (1, True)]
    machine.hardware.restore(1)
    assert not any(reading.is_lost for reading in machine.source.readings())
