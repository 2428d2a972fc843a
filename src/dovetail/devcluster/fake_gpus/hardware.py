"""Fake GPU hardware in a directory, and the hand of its owner: faults, failures, an administrator's commands.

Given a directory, makes a machine in it or opens one. NVML programs pointed at its driver root, or started with
FAKE_NVML_HOME, see its GPUs and share its state. Every change is one line of its history. Never acts on its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dovetail.devcluster.fake_gpus import driver_root, fake_library, gpu_machines, hardware_state
from dovetail.devcluster.fake_gpus.fake_library import Refused

__all__ = ["HOME_VARIABLE", "Hardware", "Refused"]

HOME_VARIABLE: Final = "FAKE_NVML_HOME"
DRIVER_VERSION: Final = "580.95.05"
CUDA_VERSION: Final = "13.0"
NO_INSTANCE: Final = 0xFFFFFFFF
LOST_XID: Final = 79  # the GPU has fallen off the bus

EVENT_SINGLE_BIT_ECC, EVENT_DOUBLE_BIT_ECC, EVENT_XID = 0x1, 0x2, 0x8
EVENT_RECOVERY_ACTION: Final = 0x8000
MEMORY_LIMITS_SINCE: Final = 610  # the driver branch; an estimate, the header names none
FAULT_KILLS: Final = -9
CHANGE_PLACES: Final = (
    "change-before-history",
    "change-within-history",
    "change-after-history",
    "change-in-force",
)
PROCESS_KINDS: Final = {"compute": 0, "graphics": 1, "mps": 2}


class Hardware:
    """One fake machine. Commands that the hardware does not allow raise Refused with NVML's code."""

    def __init__(self, directory: Path) -> None:
        """A machine that exists; see `create` and `open`."""
        self.home = directory.absolute()

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        machine: str | gpu_machines.Machine = "dgx-h100",
        gpus: int | None = None,
        driver_version: str = DRIVER_VERSION,
        cuda_version: str = CUDA_VERSION,
        mig: bool = False,
        name: str | None = None,
        hidden: Sequence[str] = (),
    ) -> Hardware:
        """Makes a machine of a kind, with its usual number of GPUs or another. `mig`: MIG mode on from the start.

        `name` tells two machines of a kind apart: UUIDs and serial numbers follow it.
        """
        kind = gpu_machines.named(machine) if isinstance(machine, str) else machine
        if name is not None:
            kind = msgspec.structs.replace(kind, name=name)
        directory.mkdir(parents=True, exist_ok=True)
        hardware = cls(directory)
        text = gpu_machines.description(
            kind,
            count=len(kind.slots) if gpus is None else gpus,
            driver_version=driver_version,
            nvml_version=_nvml_version(driver_version, cuda_version),
            cuda_version=_cuda_number(cuda_version),
            mig=mig,
        )
        (hardware.home / "history.jsonl").unlink(missing_ok=True)
        hardware._do("make", text)
        hardware._offer_what_the_driver_has()
        driver_root.write(hardware.home, hardware.snapshot(), fake_library.finished(hidden))
        return hardware

    @classmethod
    def open(cls, directory: Path) -> Hardware:
        """A machine that was made before."""
        hardware = cls(directory)
        hardware.snapshot()
        return hardware

    # ---- where programs find it

    @property
    def driver_root(self) -> Path:
        """The root of the driver's files: libraries, programs, device nodes."""
        return driver_root.driver_of(self.home)

    @property
    def sysfs_root(self) -> Path:
        """Stands for /sys."""
        return self.home / "sys"

    @property
    def proc_root(self) -> Path:
        """Stands for /proc: `devices` and `driver/`."""
        return self.home / "proc"

    @property
    def library_directory(self) -> Path:
        """For LD_LIBRARY_PATH."""
        return self.driver_root / driver_root.LIBRARIES

    @property
    def library(self) -> Path:
        """libnvidia-ml.so.1."""
        return self.library_directory / fake_library.LIBRARY

    @property
    def nvidia_smi(self) -> Path:
        """The fake nvidia-smi."""
        return self.driver_root / driver_root.BINARIES / "nvidia-smi"

    @property
    def mps_control(self) -> Path:
        """The fake nvidia-cuda-mps-control."""
        return self.driver_root / driver_root.BINARIES / "nvidia-cuda-mps-control"

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Variables with which a program finds this machine by the loader's path."""
        directory = str(self.library_directory)
        inherited = base.get("LD_LIBRARY_PATH")
        path = f"{directory}:{inherited}" if inherited else directory
        return {**base, "LD_LIBRARY_PATH": path, HOME_VARIABLE: str(self.home)}

    # ---- what it is and was

    def snapshot(self) -> hardware_state.MachineState:
        """The state at this moment."""
        return hardware_state.read_state(fake_library.snapshot(self.home))

    def history(self) -> list[hardware_state.Change]:
        """Every change since the machine was made, oldest first."""
        content = (self.home / "history.jsonl").read_bytes()
        return [hardware_state.read_change(line) for line in content.splitlines()]

    # ---- health

    def inject_xid(
        self, gpu: int, xid: int, *, gi: int | None = None, ci: int | None = None
    ) -> None:
        """An XID error of a GPU, or of one of its instances."""
        self._event(gpu, EVENT_XID, xid, gi=gi, ci=ci)

    def set_ecc(
        self, gpu: int, *, corrected: int | None = None, uncorrected: int | None = None
    ) -> None:
        """Error counts since the last reset; the lifetime counts grow with them, and watchers get an event."""
        if corrected is not None:
            self.set(gpu, ecc_corrected_volatile=corrected, ecc_corrected_aggregate=corrected)
            self._event(gpu, EVENT_SINGLE_BIT_ECC, corrected)
        if uncorrected is not None:
            self.set(
                gpu, ecc_uncorrected_volatile=uncorrected, ecc_uncorrected_aggregate=uncorrected
            )
            self._event(gpu, EVENT_DOUBLE_BIT_ECC, uncorrected)

    def set_row_remap(
        self,
        gpu: int,
        *,
        correctable: int = 0,
        uncorrectable: int = 0,
        pending: bool = False,
        failure: bool = False,
    ) -> None:
        """Remapped rows; a pending remap takes effect at the next reset, a failure never goes away."""
        self.set(
            gpu,
            remapped_correctable=correctable,
            remapped_uncorrectable=uncorrectable,
            remap_pending=int(pending),
            remap_failure=int(failure),
        )

    def set_recovery_action(self, gpu: int, action: int) -> None:
        """What the driver asks for: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset ..."""
        self.set(gpu, recovery_action=action)
        self._event(gpu, EVENT_RECOVERY_ACTION, action)

    def set_fabric(
        self,
        gpu: int,
        *,
        state: int | None = None,
        status: int | None = None,
        cluster: str | None = None,
        clique: int | None = None,
        health_mask: int | None = None,
    ) -> None:
        """Registration with the NVLink fabric; what is not given stays."""
        given = {
            "fabric_state": state,
            "fabric_status": status,
            "fabric_cluster": cluster,
            "fabric_clique": clique,
            "fabric_health_mask": health_mask,
        }
        self.set(gpu, **{name: value for name, value in given.items() if value is not None})

    def set_temperature(self, gpu: int, degrees: int, *, memory: int | None = None) -> None:
        """Degrees Celsius of the GPU, and of its memory."""
        self.set(gpu, temperature=degrees, memory_temperature=degrees if memory is None else memory)

    def set_throttle_reasons(self, gpu: int, reasons: int) -> None:
        """The mask of reasons why clocks are lower than they could be."""
        self.set(gpu, throttle_reasons=reasons)

    def set_power(self, gpu: int, *, watts: float, energy_joules: float | None = None) -> None:
        """The power it draws, and the energy it has used since the driver was loaded."""
        self.set(gpu, power_usage_milliwatts=round(watts * 1000))
        if energy_joules is not None:
            self.set(gpu, energy_millijoules=round(energy_joules * 1000))

    def run_energy(self, gpu: int, *, watts: float, now_milliseconds: int) -> None:
        """From now on it draws this power, and its energy counter runs."""
        state = self.snapshot().gpus[gpu]
        energy = state.energy_millijoules
        if since := state.energy_since_milliseconds:
            elapsed = max(0, now_milliseconds - since)
            energy += state.power_usage_milliwatts * elapsed // 1000
        self.set(
            gpu,
            energy_millijoules=energy,
            energy_since_milliseconds=now_milliseconds,
            power_usage_milliwatts=round(watts * 1000),
        )

    def set_utilisation(self, gpu: int, *, gpu_percent: int, memory_percent: int = 0) -> None:
        """How busy it is."""
        self.set(gpu, gpu_utilisation=gpu_percent, memory_utilisation=memory_percent)

    def set_nvlinks_down(self, gpu: int, links: Iterable[int]) -> None:
        """Which links are inactive; all others are up."""
        self.set(gpu, nvlink_down=sum(1 << link for link in set(links)))

    def set_processes(self, gpu: int, processes: Sequence[hardware_state.Process]) -> None:
        """What runs on the GPU, in place of what ran before."""
        listed = "".join(_process_text(process) for process in processes)
        self._do("processes", str(gpu), listed)

    def set_holders(self, gpu: int, count: int) -> None:
        """Monitoring programs that keep the GPU open, which blocks MIG mode changes and resets."""
        self.set(gpu, holders=count)

    def set(self, gpu: int, **figures: int | str) -> None:
        """Any figure of fields.def, by its name."""
        for name, value in figures.items():
            self._do("set", str(gpu), name, str(value))

    def lose(self, gpu: int, *, xid: int | None = LOST_XID) -> None:
        """The GPU falls off the bus: an XID, then every question about it fails."""
        if xid is not None:
            self.inject_xid(gpu, xid)
        self._do("lose", str(gpu))

    def restore(self, gpu: int) -> None:
        """A lost GPU is back, as it was."""
        self._do("restore", str(gpu))

    # ---- the machine

    def add_gpu(self, *, machine: str | gpu_machines.Machine, mig: bool = False) -> int:
        """Plugs in one more GPU of a machine's board; its index."""
        kind = gpu_machines.named(machine) if isinstance(machine, str) else machine
        index = len(self.snapshot().gpus)
        self._do("add", "\n".join(gpu_machines.gpu_lines(kind, index, mig=mig)))
        driver_root.write(self.home, self.snapshot(), fake_library.finished())
        return index

    def reload_driver(
        self, driver_version: str | None = None, cuda_version: str = CUDA_VERSION
    ) -> None:
        """Unloads the driver and loads this version: partitions are gone, old handles and old libraries fail."""
        version = driver_version or self.snapshot().driver_version
        nvml_version = _nvml_version(version, cuda_version)
        self._do("reload", version, nvml_version, str(_cuda_number(cuda_version)))
        self._offer_what_the_driver_has()
        driver_root.write(self.home, self.snapshot(), fake_library.finished())

    def reset(self, gpu: int) -> None:
        """Resets an idle GPU: pending modes come into force."""
        self._do("reset", str(gpu))

    def destroy(self) -> None:
        """Removes the machine's directory."""
        shutil.rmtree(self.home, ignore_errors=True)

    # ---- an administrator by hand

    def set_mig_mode(self, gpu: int, is_on: bool) -> int:
        """NVML's activation status: 0 in force, 16 needs a reset, 19 in use."""
        return int(self._do("mig-mode", str(gpu), str(int(is_on))))

    def create_mig(self, gpu: int, profile_id: int, start: int | None = None) -> tuple[int, int]:
        """A GPU instance and a compute instance as wide as it; their ids."""
        place = () if start is None else (str(start),)
        gi = self._do("gi-create", str(gpu), str(profile_id), *place)
        ci = self._do("ci-create", str(gpu), gi)
        return int(gi), int(ci)

    def destroy_mig(self, gpu: int, gi: int) -> None:
        """Destroys a GPU instance with its compute instances."""
        instances = {instance.id: instance for instance in self.snapshot().gpus[gpu].gpu_instances}
        for compute in instances[gi].compute_instances if gi in instances else ():
            self._do("ci-destroy", str(gpu), str(gi), str(compute.id))
        self._do("gi-destroy", str(gpu), str(gi))

    # ---- faults of the library

    def slow(self, function: str, milliseconds: int) -> None:
        """Every call of an NVML function takes this much longer."""
        self._do("fault", function, "0", str(milliseconds), "0")

    def hang(self, function: str) -> None:
        """Every call of an NVML function hangs until `release`."""
        self._do("fault", function, "0", "0", "1")

    def fail(self, function: str, code: int) -> None:
        """Every call of an NVML function returns this code."""
        self._do("fault", function, str(code), "0", "0")

    def kill_within_change(self, place: str) -> None:
        """The next process that changes the hardware dies by SIGKILL at this place of the change."""
        if place not in CHANGE_PLACES:
            raise ValueError(f'unknown place "{place}"; known: {", ".join(CHANGE_PLACES)}')
        self._do("fault", place, str(FAULT_KILLS), "0", "0")

    def release(self, function: str | None = None) -> None:
        """Ends the faults of one function, or of all."""
        self._do("clear-faults", *([function] if function else []))

    def hide_symbols(self, functions: Sequence[str]) -> None:
        """An older driver: programs started from now on find a library without these functions."""
        build = fake_library.finished(functions)
        driver_root.write_libraries(self.home, self.snapshot().driver_version, build)

    # ---- inside

    def _do(self, *words: str) -> str:
        return fake_library.command(self.home, *words)

    def _offer_what_the_driver_has(self) -> None:
        state = self.snapshot()
        has_limits = _major(state.driver_version) >= MEMORY_LIMITS_SINCE
        for gpu in state.gpus:
            if gpu.memory_limits_supported != has_limits:
                self.set(gpu.index, memory_limits_supported=int(has_limits))

    def _event(
        self, gpu: int, kind: int, data: int, *, gi: int | None = None, ci: int | None = None
    ) -> None:
        places = [str(NO_INSTANCE if place is None else place) for place in (gi, ci)]
        self._do("event", str(gpu), str(kind), str(data), *places)


def _process_text(process: hardware_state.Process) -> str:
    gi = NO_INSTANCE if process.gi is None else process.gi
    ci = NO_INSTANCE if process.ci is None else process.ci
    numbers = (
        process.pid,
        PROCESS_KINDS[process.kind],
        gi,
        ci,
        process.memory_bytes,
        process.sm_utilisation,
        process.memory_utilisation,
    )
    return " ".join(str(number) for number in numbers) + ";"


def _major(driver_version: str) -> int:
    return int(driver_version.split(".")[0])


def _cuda_number(version: str) -> int:
    """13.0 is 13000."""
    major, minor = version.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def _nvml_version(driver_version: str, cuda_version: str) -> str:
    """CUDA's major version in front of the driver's."""
    return f"{cuda_version.split('.')[0]}.{driver_version}"
