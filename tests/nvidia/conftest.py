"""Fixtures of these tests: machines of fake hardware, and NVIDIA's programs on them, ended with each test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster import control_plane
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.nvidia import device_plugin, dra_driver
from tests.support import cluster

Build = Callable[..., Hardware]
StartDra = Callable[..., dra_driver.DraOracle]
StartPlugin = Callable[..., device_plugin.DevicePluginOracle]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds a machine with two GPUs unless the options of Hardware.create say otherwise."""

    def built(machine: str, **options: Any) -> Hardware:
        options.setdefault("gpus", 2)
        directory = tmp_path / f"hardware-{uuid.uuid4().hex[:6]}"
        return Hardware.create(directory, machine=machine, **options)

    return built


@pytest.fixture
def plane() -> control_plane.ControlPlane:
    """The shared control plane of the newest pinned Kubernetes."""
    return cluster.control_plane()


@pytest.fixture
def start_dra(plane: control_plane.ControlPlane) -> Iterator[StartDra]:
    """Starts NVIDIA's DRA driver on a machine, each time for a node of its own."""
    started: list[dra_driver.DraOracle] = []

    def start(hardware: Hardware, **options: Any) -> dra_driver.DraOracle:
        node = f"node-{uuid.uuid4().hex[:8]}"
        started.append(dra_driver.DraOracle(hardware, plane, node, **options))
        return started[-1]

    yield start
    for oracle in started:
        oracle.stop()


@pytest.fixture
def start_plugin() -> Iterator[StartPlugin]:
    """Starts NVIDIA's device plugin on a machine."""
    started: list[device_plugin.DevicePluginOracle] = []

    def start(hardware: Hardware, **options: Any) -> device_plugin.DevicePluginOracle:
        started.append(device_plugin.DevicePluginOracle(hardware, **options))
        return started[-1]

    yield start
    for oracle in started:
        oracle.stop()
