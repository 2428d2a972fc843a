"""Errors and usage that the owner of the hardware sets, as an NVML client sees them."""

from __future__ import annotations

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.devcluster.fake_gpus.hardware_state import Process
from tests.fakenvml import nvml
from tests.fakenvml.conftest import MakeHardware

pytestmark = pytest.mark.slow

WATCH = """
events = nvml.nvmlEventSetCreate()
for gpu in gpus:
    nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError, events)
def wait(milliseconds):
    data = nvml.nvmlEventSetWait_v2(events, milliseconds)
    return [nvml.nvmlDeviceGetIndex(data.device), data.eventType, data.eventData, data.gpuInstanceId]
"""
LONG = 120_000
NO_INSTANCE = 0xFFFFFFFF
XID, DOUBLE_BIT = 8, 2


def test_an_xid_reaches_a_process_that_waits_for_it(hopper: Hardware, client: nvml.Nvml) -> None:
    client.do(WATCH)
    client.send(f"wait({LONG})")
    hopper.inject_xid(1, 48)
    assert client.answer() == [1, XID, 48, NO_INSTANCE]
    assert client.refusal("wait(0)") == "Timeout"


def test_an_xid_names_the_instance_it_struck(hopper: Hardware, client: nvml.Nvml) -> None:
    gi, ci = hopper.create_mig(0, 9, 4)
    client.do(WATCH)
    hopper.inject_xid(0, 94, gi=gi, ci=ci)
    assert client.do(f"wait({LONG})") == [0, XID, 94, gi]


def test_events_come_in_order_and_only_those_asked_for(hopper: Hardware, client: nvml.Nvml) -> None:
    hopper.inject_xid(0, 13)  # before the watch: never seen
    client.do(WATCH)
    hopper.set_ecc(0, corrected=3)  # not asked for
    hopper.set_ecc(0, uncorrected=1)
    hopper.inject_xid(0, 95)
    assert client.do(f"wait({LONG})") == [0, DOUBLE_BIT, 1, NO_INSTANCE]
    assert client.do(f"wait({LONG})") == [0, XID, 95, NO_INSTANCE]
    assert client.refusal("wait(0)") == "Timeout"
    assert client.do("nvml.nvmlDeviceGetTotalEccErrors(gpus[0], 1, 0)") == 1


def test_a_lost_gpu_is_reported_to_watchers_and_answers_nothing(
    hopper: Hardware, client: nvml.Nvml
) -> None:
    client.do(WATCH)
    client.send(f"nvml.nvmlEventSetWait_v2(events, {LONG}).eventData")
    hopper.lose(0)
    assert client.answer() == 79
    assert client.refusal(f"wait({LONG})") == "GpuIsLost"
    assert client.refusal("wait(0)") == "Timeout"
    assert client.refusal("nvml.nvmlDeviceGetUUID(gpus[0])") == "GpuIsLost"
    assert client.refusal("nvml.nvmlDeviceGetHandleByIndex(0)") == "GpuIsLost"
    assert client.do("nvml.nvmlDeviceGetCount()") == 2
    hopper.restore(0)
    assert client.do("nvml.nvmlDeviceGetUUID(gpus[0])").startswith("GPU-")


def test_remapped_rows_wait_for_a_reset(hopper: Hardware, client: nvml.Nvml) -> None:
    hopper.set_row_remap(0, uncorrectable=1, pending=True)
    assert client.do("list(nvml.nvmlDeviceGetRemappedRows(gpus[0]))") == [0, 1, 1, 0]
    hopper.reset(0)
    assert client.do("list(nvml.nvmlDeviceGetRemappedRows(gpus[0]))") == [0, 2, 0, 0]


def test_older_boards_retire_pages_instead(make_hardware: MakeHardware) -> None:
    hardware = make_hardware(machine="t4", gpus=1)
    hardware.set(0, retired_double_bit=2)
    with nvml.client(hardware) as client:
        assert client.refusal("nvml.nvmlDeviceGetRemappedRows(gpus[0])") == "NotSupported"
        assert client.do("len(nvml.nvmlDeviceGetRetiredPages(gpus[0], 1))") == 2


def test_the_driver_asks_for_a_recovery_action(hopper: Hardware, client: nvml.Nvml) -> None:
    hopper.set_recovery_action(0, 4)
    order = (
        "nvml.nvmlDeviceGetFieldValues(gpus[0], [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 999])"
    )
    assert client.do(f"[v.value.uiVal for v in {order}][0]") == 4
    assert client.do(f"[v.nvmlReturn for v in {order}]") == [0, 3]


def test_heat_power_and_clocks_are_what_was_set(hopper: Hardware, client: nvml.Nvml) -> None:
    hopper.set_temperature(0, 91)
    hopper.set_throttle_reasons(0, 0x60)
    hopper.set_power(0, watts=640.5, energy_joules=12.0)
    assert client.do("nvml.nvmlDeviceGetTemperature(gpus[0], 0)") == 91
    assert client.do("nvml.nvmlDeviceGetCurrentClocksEventReasons(gpus[0])") == 0x60
    assert client.do("nvml.nvmlDeviceGetPowerUsage(gpus[0])") == 640_500
    assert client.do("nvml.nvmlDeviceGetTotalEnergyConsumption(gpus[0])") == 12_000


def test_processes_count_where_they_run(make_hardware: MakeHardware) -> None:
    hardware = make_hardware(machine="dgx-h100", gpus=1)
    hardware.set_utilisation(0, gpu_percent=80, memory_percent=20)
    hardware.set_processes(
        0,
        [
            Process(pid=11, memory_bytes=1 << 30, sm_utilisation=60),
            Process(pid=12, memory_bytes=2 << 30, sm_utilisation=20, kind="mps"),
        ],
    )
    with nvml.client(hardware) as client:
        assert client.do("[p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpus[0])]") == [
            11
        ]
        assert client.do(
            "[p.pid for p in nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpus[0])]"
        ) == [12]
        assert client.do("nvml.nvmlDeviceGetUtilizationRates(gpus[0]).gpu") == 80
        assert (
            client.do("nvml.nvmlDeviceGetMemoryInfo(gpus[0], version=nvml.nvmlMemory_v2).used")
            == 3 << 30
        )
        order = "[[s.pid, s.smUtil] for s in nvml.nvmlDeviceGetProcessUtilization(gpus[0], 0)]"
        assert client.do(order) == [[11, 60], [12, 20]]


GPM = """
import ctypes
def busy(gi):
    samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
    for sample in samples:
        nvml.nvmlGpmMigSampleGet(gpus[0], gi, sample)
    request = nvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=1, sample1=samples[0], sample2=samples[1])
    request.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
    nvml.nvmlGpmMetricsGet(request)
    return request.metrics[0].value
"""


def test_a_partition_s_own_utilisation_comes_from_its_processes(
    hopper: Hardware, client: nvml.Nvml
) -> None:
    (busy, _), (idle, _) = hopper.create_mig(0, 9, 0), hopper.create_mig(0, 9, 4)
    hopper.set_processes(0, [Process(pid=5, gi=busy, ci=0, sm_utilisation=35)])
    client.do(GPM)
    assert client.do(f"[busy({busy}), busy({idle})]") == [35.0, 0.0]
    assert client.refusal("nvml.nvmlDeviceGetUtilizationRates(gpus[0])") == "NotSupported"
