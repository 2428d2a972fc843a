"""Fixtures: machines of fake GPUs, built with gcc on first use."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.fakenvml import nvml
from tests.support import real

MakeHardware = Callable[..., Hardware]


@pytest.fixture
def make_hardware(tmp_path: Path) -> MakeHardware:
    """Makes machines, each in its own directory."""
    if shutil.which("gcc") is None:
        real.missing("gcc, to build the fake libnvidia-ml with")

    def make(**options: Any) -> Hardware:
        return Hardware.create(tmp_path / f"machine-{len(list(tmp_path.iterdir()))}", **options)

    return make


@pytest.fixture
def hopper(make_hardware: MakeHardware) -> Hardware:
    """Two H100 in MIG mode."""
    return make_hardware(machine="dgx-h100", gpus=2, mig=True)


@pytest.fixture
def client(hopper: Hardware) -> Iterator[nvml.Nvml]:
    """A client of those."""
    with nvml.client(hopper) as connected:
        yield connected
