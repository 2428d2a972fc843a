"""The library's surface: every name of nvml.h, every structure as nvidia-ml-py lays it out."""

from __future__ import annotations

import ctypes

import pynvml
import pytest

from dovetail.devcluster.fake_gpus import fake_library
from dovetail.devcluster.fake_gpus.hardware import Hardware
from tests.fakenvml import nvml
from tests.fakenvml.conftest import MakeHardware

pytestmark = pytest.mark.slow

OUR_OWN = {
    "nvmlGpuInstanceProfileInfo_v3_t",
    "nvmlComputeInstanceProfileInfo_v3_t",
}  # newer than nvidia-ml-py


def test_every_function_of_the_header_is_exported(hopper: Hardware) -> None:
    library = ctypes.CDLL(str(hopper.library))
    missing = [name for name in fake_library.symbols() if not hasattr(library, name)]
    assert missing == []
    assert len(fake_library.symbols()) > 400


def test_a_function_the_machine_lacks_is_not_supported(client: nvml.Nvml) -> None:
    assert client.refusal("nvml.nvmlDeviceGetFanSpeed(gpus[0])") == "NotSupported"
    assert client.refusal("nvml.nvmlDeviceGetActiveVgpus(gpus[0])") == "NotSupported"


def test_before_a_session_everything_is_uninitialized(hopper: Hardware) -> None:
    idle = nvml.Nvml(hopper)
    try:
        idle.do("nvml.nvmlInit(); nvml.nvmlShutdown()")
        assert idle.refusal("nvml.nvmlDeviceGetCount()") == "Uninitialized"
        assert idle.refusal("nvml.nvmlDeviceGetFanSpeed(None)") == "Uninitialized"
    finally:
        idle.close()


def test_structures_have_the_sizes_and_offsets_of_nvidia_ml_py(hopper: Hardware) -> None:
    compared = 0
    for line in fake_library.layouts().splitlines():
        name, size, *members = line.split()
        if name in OUR_OWN:
            continue
        theirs = getattr(pynvml, name)
        offsets = {field[0]: getattr(theirs, field[0]).offset for field in theirs._fields_}
        assert {**dict(_pair(member) for member in members)} == offsets, name
        assert int(size) == ctypes.sizeof(theirs), name
        compared += 1
    assert compared > 30


def _pair(member: str) -> tuple[str, int]:
    name, offset = member.split("=")
    return name, int(offset)


def test_third_versions_follow_the_second_with_their_own_size(client: nvml.Nvml) -> None:
    """What nvidia-ml-py has no class for: written down as the header has it."""
    order = """
import ctypes
class Third(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in ("version", "id", "sliceCount", "instanceCount", "sm", "ce", "dec",
                                                  "enc", "jpeg", "ofa")]
    _fields_ += [("memory", ctypes.c_ulonglong), ("name", ctypes.c_char * 96), ("capabilities", ctypes.c_uint)]
third = Third(version=ctypes.sizeof(Third) | 3 << 24)
function = nvml._nvmlGetFunctionPointer("nvmlDeviceGetGpuInstanceProfileInfoV")
code = function(gpus[0], 0, ctypes.byref(third))
[code, third.id, third.sliceCount, third.memory, third.name.decode(), third.capabilities]
"""
    assert client.do(order) == [0, 19, 1, 9984, "MIG 1g.10gb", 0]
    assert client.do("third.version = 1; function(gpus[0], 0, ctypes.byref(third))") == 25


def test_an_older_driver_lacks_newer_functions(make_hardware: MakeHardware) -> None:
    hidden = ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMemoryInfo_v2")
    hardware = make_hardware(machine="dgx-h100", gpus=1, driver_version="525.85.12", hidden=hidden)
    with nvml.client(hardware) as client:
        assert (
            client.refusal("nvml.nvmlDeviceGetGpuFabricInfoV(gpus[0], None)") == "FunctionNotFound"
        )
        order = "nvml.nvmlDeviceGetMemoryInfo(gpus[0], version=nvml.nvmlMemory_v2)"
        assert client.refusal(order) == "FunctionNotFound"
        assert client.do("nvml.nvmlDeviceGetMemoryInfo(gpus[0]).total") > 0


def test_functions_hidden_later_are_missing_for_programs_started_later(hopper: Hardware) -> None:
    with nvml.client(hopper) as early:
        hopper.hide_symbols(["nvmlDeviceGetModuleId"])
        with nvml.client(hopper) as late:
            assert late.refusal("nvml.nvmlDeviceGetModuleId(gpus[0])") == "FunctionNotFound"
        assert early.do("nvml.nvmlDeviceGetModuleId(gpus[0])") == 1
