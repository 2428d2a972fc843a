"""One state for all processes: what one does, the others see; one that is killed leaves no harm behind."""

from __future__ import annotations

import functools
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.devcluster.fake_gpus import fake_library
from dovetail.devcluster.fake_gpus.hardware import CHANGE_PLACES, HOME_VARIABLE, Hardware
from dovetail.devcluster.fake_gpus.hardware_state import MachineState
from tests.fakenvml import nvml
from tests.fakenvml.ownership import Owners
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_two_processes_see_the_same_partitions(hopper: Hardware, client: nvml.Nvml) -> None:
    client.do("gi = nvml.nvmlDeviceCreateGpuInstance(gpus[0], 9)")
    client.do("ci = nvml.nvmlGpuInstanceCreateComputeInstance(gi, 2)")
    with nvml.client(hopper) as second:
        own = client.do(
            "nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], 0))"
        )
        order = "nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], 0))"
        assert second.do(order) == own
        second.do("gi = nvml.nvmlDeviceGetGpuInstanceById(gpus[0], 2)")
        second.do(
            "nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(gi, 0))"
        )
        second.do("nvml.nvmlGpuInstanceDestroy(gi)")
    assert client.refusal("nvml.nvmlGpuInstanceGetInfo(gi)") == "InvalidArgument"


def test_the_history_names_the_writer_and_what_it_did(hopper: Hardware, client: nvml.Nvml) -> None:
    client.do("gi = nvml.nvmlDeviceCreateGpuInstance(gpus[1], 9)")
    last = hopper.history()[-1]
    assert (last.event, last.gpu, last.pid) == ("gpu-instance-created", 1, client.process.pid)
    assert last.facts["profile"] == "3g.40gb"
    assert [change.sequence for change in hopper.history()] == [1, 2]


HOLD = """
import sys
from pathlib import Path
from dovetail.devcluster.fake_gpus import fake_library
fake_library.command(Path(sys.argv[1]), *sys.argv[2:])
"""


@pytest.mark.parametrize("words", [("hold",), ("hold", "draft")])
def test_a_process_killed_while_it_holds_the_lock_blocks_no_other(
    words: tuple[str, ...], hopper: Hardware, client: nvml.Nvml
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(hopper.home), *words], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    client.send("nvml.nvmlDeviceGetTemperature(gpus[0], 0)")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert client.answer() == 32  # and not the 999 of the unfinished change
    hopper.set_temperature(0, 50)
    assert client.do("nvml.nvmlDeviceGetTemperature(gpus[0], 0)") == 50


@pytest.mark.parametrize("place", CHANGE_PLACES)
def test_a_change_cut_short_counts_wholly_or_not_at_all(
    place: str, hopper: Hardware, client: nvml.Nvml
) -> None:
    """Its line is complete in the history, or there is no trace of it; and the next change follows."""
    hopper.kill_within_change(place)
    client.send("nvml.nvmlDeviceCreateGpuInstance(gpus[0], 9)")
    assert client.process.wait() == -signal.SIGKILL
    hopper.release(place)
    state = hopper.snapshot()
    is_done = place in ("change-after-history", "change-in-force")
    assert len(state.gpus[0].gpu_instances) == int(is_done)
    _assert_same(Owners().read(hopper.home / "history.jsonl"), state)
    _assert_files_match(hopper, state)

    hopper.create_mig(1, 0)
    _assert_same(Owners().read(hopper.home / "history.jsonl"), hopper.snapshot())


WORKER = """
import random, sys
import pynvml as nvml
nvml.nvmlInit()
gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
chance = random.Random(int(sys.argv[1]))
print("ready", flush=True)
while True:
    gpu = chance.choice(gpus)
    profile, compute = chance.choice([(19, 0), (14, 1), (9, 2), (15, 0), (5, 3)])
    try:
        gi = nvml.nvmlDeviceCreateGpuInstance(gpu, profile)
        nvml.nvmlGpuInstanceCreateComputeInstance(gi, compute)
    except nvml.NVMLError_InsufficientResources:
        pass
    except nvml.NVMLError_InvalidArgument:
        pass  # another worker destroyed it in between
    for number in chance.sample(range(15), 8):
        try:
            gi = nvml.nvmlDeviceGetGpuInstanceById(gpu, number)
        except nvml.NVMLError_NotFound:
            continue
        # An instance whose maker was killed has no compute instance, and has to go as well.
        for destroy in (
            lambda: nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(gi, 0)),
            lambda: nvml.nvmlGpuInstanceDestroy(gi),
        ):
            try:
                destroy()
            except nvml.NVMLError:
                pass
"""


def test_processes_killed_at_any_moment_never_give_silicon_two_owners(hopper: Hardware) -> None:
    chance = random.Random(7)
    history = hopper.home / "history.jsonl"
    for round_number in range(12):
        workers = [_worker(hopper, round_number * 10 + number) for number in range(3)]
        grown = history.stat().st_size + chance.randrange(2_000, 30_000)
        try:
            wait_until(functools.partial(_is_longer, history, grown), "changes by the workers")
        finally:
            for worker in workers:
                _kill(worker)
        state = hopper.snapshot()  # takes the lock over from the dead, and repairs
        _assert_same(Owners().read(history), state)
        _assert_files_match(hopper, state)


def _is_longer(path: Path, size: int) -> bool:
    return path.stat().st_size > size


def _kill(worker: subprocess.Popen[str]) -> None:
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    if worker.stdout is not None:
        worker.stdout.close()


def _worker(hardware: Hardware, seed: int) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(seed)],
        env=hardware.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def _assert_same(owners: Owners, state: MachineState) -> None:
    """The history, read from its start, ends in the state that is in force."""
    assert owners.lines == state.sequence
    standing = {(gpu.index, gi.id) for gpu in state.gpus for gi in gpu.gpu_instances}
    computes = {
        (gpu.index, gi.id, ci.id)
        for gpu in state.gpus
        for gi in gpu.gpu_instances
        for ci in gi.compute_instances
    }
    assert set(owners.instances) == standing
    assert set(owners.computes) == computes


def _assert_files_match(hardware: Hardware, state: MachineState) -> None:
    capabilities = hardware.proc_root / "driver/nvidia/capabilities"
    for gpu in state.gpus:
        shown = {path.name for path in (capabilities / f"gpu{gpu.minor}" / "mig").iterdir()}
        assert shown == {f"gi{gi.id}" for gi in gpu.gpu_instances}


def test_the_library_finds_its_machine_by_its_own_place(hopper: Hardware) -> None:
    order = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).nvmlInit_v2())"
    environment = {"PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", order, str(hopper.library)]
    begun = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert begun.stdout == "0\n"


def test_without_a_machine_the_driver_is_not_loaded(hopper: Hardware, tmp_path: Path) -> None:
    build = fake_library.finished()
    order = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).nvmlInit_v2())"
    command = [sys.executable, "-c", order, str(build / fake_library.LIBRARY)]
    for environment in ({}, {HOME_VARIABLE: str(tmp_path / "nowhere")}):
        begun = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert begun.stdout == "9\n"


def test_a_hanging_function_goes_on_when_it_is_released(
    hopper: Hardware, client: nvml.Nvml
) -> None:
    hopper.hang("nvmlDeviceGetUUID")
    client.send("nvml.nvmlDeviceGetUUID(gpus[0])")
    with nvml.client(hopper) as other:  # other functions and processes are not held up
        assert other.do("nvml.nvmlDeviceGetName(gpus[0])").startswith("NVIDIA")
    hopper.release("nvmlDeviceGetUUID")
    assert client.answer().startswith("GPU-")


def test_a_failing_function_returns_the_code_until_released(
    hopper: Hardware, client: nvml.Nvml
) -> None:
    hopper.fail("nvmlDeviceGetPowerUsage", 999)
    assert client.refusal("nvml.nvmlDeviceGetPowerUsage(gpus[0])") == "Unknown"
    hopper.release()
    assert client.do("nvml.nvmlDeviceGetPowerUsage(gpus[0])") == 70_000


def test_a_slow_function_takes_at_least_its_time(hopper: Hardware, client: nvml.Nvml) -> None:
    hopper.slow("nvmlDeviceGetSerial", 200)
    client.do("import time")
    order = "began = time.monotonic(); nvml.nvmlDeviceGetSerial(gpus[0]); time.monotonic() - began"
    assert client.do(order) >= 0.2


def test_a_session_cannot_begin_when_initialisation_fails(hopper: Hardware) -> None:
    hopper.fail("nvmlInitWithFlags", 9)
    idle = nvml.Nvml(hopper)
    try:
        assert idle.refusal("nvml.nvmlInit()") == "DriverNotLoaded"
    finally:
        idle.close()


def test_a_reloaded_driver_has_no_partitions_and_refuses_old_handles_and_libraries(
    hopper: Hardware, client: nvml.Nvml
) -> None:
    hopper.create_mig(0, 9)
    hopper.reload_driver("590.44.01", "13.1")
    assert client.refusal("nvml.nvmlDeviceGetUUID(gpus[0])") == "InvalidArgument"
    assert client.refusal("nvml.nvmlInit()") == "LibRmVersionMismatch"
    with nvml.client(hopper) as later:
        assert later.do("nvml.nvmlSystemGetDriverVersion()") == "590.44.01"
        assert later.do("nvml.nvmlSystemGetCudaDriverVersion()") == 13010
        assert later.do("list(nvml.nvmlDeviceGetMigMode(gpus[0]))") == [0, 0]
    assert hopper.library.resolve().name == "libnvidia-ml.so.590.44.01"
