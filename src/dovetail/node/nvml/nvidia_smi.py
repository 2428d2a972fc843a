"""Runs nvidia-smi of the driver for the one setting that NVML does not have: the time slice of a GPU.

Given a driver's root. The program gets the driver's own library, which the loader of a container would not find. Its
exit code says what went wrong.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from dovetail.node import gpu_control
from dovetail.node.inventory import TimeSlice
from dovetail.node.nvml import library

SECONDS: Final = 20.0
_NUMBERS: Final = {
    TimeSlice.DEFAULT: 0,
    TimeSlice.SHORT: 1,
    TimeSlice.MEDIUM: 2,
    TimeSlice.LONG: 3,
}
_EXIT_CODES: Final[dict[int, type[gpu_control.GpuFailure]]] = {
    3: gpu_control.GpuUnsupported,  # not available on this GPU
    6: gpu_control.GpuGone,  # no such GPU
    9: gpu_control.DriverUnavailable,
    12: gpu_control.DriverUnavailable,  # no NVML library
    15: gpu_control.GpuGone,  # fallen off the bus
}


def set_time_slice(driver_root: Path, uuid: str, time_slice: TimeSlice) -> None:
    """Sets how long a process keeps the GPU."""
    number = str(_NUMBERS[time_slice])
    run(driver_root, "compute-policy", "-i", uuid, "--set-timeslice", number)


def run(driver_root: Path, *arguments: str) -> str:
    """What the program prints. Raises GpuFailure and its kin."""
    program = library.program_under(driver_root, "nvidia-smi")
    environment = {
        "LD_PRELOAD": str(library.library_under(driver_root)),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    doing = f"nvidia-smi {' '.join(arguments)}"
    try:
        finished = subprocess.run(  # noqa: S603 - no shell reads it
            [program, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise gpu_control.GpuUnresponsive(f"{doing}: no answer within {SECONDS:g} s") from None
    except OSError as error:
        raise gpu_control.DriverUnavailable(f"{doing}: {error}") from error
    if finished.returncode != 0:
        kind = _EXIT_CODES.get(finished.returncode, gpu_control.GpuFailure)
        words = " ".join(finished.stdout.split())
        raise kind(f"{doing}: exit code {finished.returncode}: {words[:300]}")
    return finished.stdout
