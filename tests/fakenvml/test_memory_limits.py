"""Memory limits for a cgroup, which newer drivers offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.devcluster.fake_gpus.hardware_state import MemoryLimit, Process
from tests.fakenvml import nvml
from tests.fakenvml.conftest import MakeHardware

pytestmark = pytest.mark.slow

ORDERS = """
import ctypes
def set_limits(cgroup, soft, hard):
    request = nvml.c_nvmlSetMemoryLimits_v1_t()
    request.nameSpace, request.softLimit, request.hardLimit = cgroup.encode(), soft, hard
    function = nvml._nvmlGetFunctionPointer("nvmlDeviceSetMemoryLimits_v1")
    nvml._nvmlCheckReturn(function(gpus[0], ctypes.byref(request)))
def limits(cgroup):
    request = nvml.c_nvmlGetMemoryLimits_v1_t()
    request.nameSpace = cgroup.encode()
    function = nvml._nvmlGetFunctionPointer("nvmlDeviceGetMemoryLimits_v1")
    nvml._nvmlCheckReturn(function(gpus[0], ctypes.byref(request)))
    return [request.softLimit, request.hardLimit, request.currentUsed]
"""
NO_LIMIT = 2**64 - 1
GIB = 1 << 30


def test_a_cgroup_gets_a_limit_and_loses_it(make_hardware: MakeHardware, tmp_path: Path) -> None:
    hardware = make_hardware(machine="dgx-h100", gpus=1, driver_version="615.71")
    cgroup = tmp_path / "pod"
    cgroup.mkdir()
    (cgroup / "cgroup.procs").write_text("77\n")
    hardware.set_processes(
        0, [Process(pid=77, memory_bytes=3 * GIB), Process(pid=78, memory_bytes=GIB)]
    )
    with nvml.client(hardware) as client:
        client.do(ORDERS)
        assert client.refusal(f"limits({str(cgroup)!r})") == "NotFound"
        client.do(f"set_limits({str(cgroup)!r}, {4 * GIB}, {8 * GIB})")
        assert client.do(f"limits({str(cgroup)!r})") == [4 * GIB, 8 * GIB, 3 * GIB]
        assert hardware.snapshot().memory_limits == (MemoryLimit(0, 4 * GIB, 8 * GIB, str(cgroup)),)
        assert (
            client.refusal(f"set_limits({str(cgroup)!r}, {9 * GIB}, {8 * GIB})")
            == "InvalidArgument"
        )
        assert client.refusal(f"set_limits({str(cgroup)!r}, 0, {800 * GIB})") == "InvalidArgument"
        assert client.refusal("set_limits('/no/such/cgroup', 0, 1)") == "OperatingSystem"
        client.do(f"set_limits({str(cgroup)!r}, 0, {NO_LIMIT})")
    assert hardware.snapshot().memory_limits == ()
    events = [change.event for change in hardware.history()]
    assert events[-2:] == ["memory-limit", "memory-limit-cleared"]


def test_an_older_driver_has_no_memory_limits(make_hardware: MakeHardware, tmp_path: Path) -> None:
    with nvml.client(make_hardware(machine="dgx-h100", gpus=1)) as client:
        client.do(ORDERS)
        assert client.refusal(f"set_limits({str(tmp_path)!r}, 0, {GIB})") == "NotSupported"
