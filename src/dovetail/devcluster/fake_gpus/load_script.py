"""A script of load for fake GPUs: how busy each GPU and its processes are, step by step over time.

Given as JSON, a list of steps. Each says what one GPU does from its time on, until its next step. `play` carries the
steps out in the machine's directory, so that every program on the machine sees them; `mean_busy` says what a perfect
meter would have measured. Never measures.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from dovetail import errors
from dovetail.devcluster.fake_gpus import hardware, hardware_state


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a GPU does from `at_seconds` on. Percentages of the GPU, or of the slice a process runs in."""

    at_seconds: float
    gpu: int
    gpu_percent: int = 0
    memory_percent: int = 0
    watts: float | None = None
    processes: tuple[hardware_state.Process, ...] = ()


def read(content: bytes) -> list[Step]:
    """The steps in the order of their times. Raises InputError with the place."""
    try:
        steps = msgspec.json.decode(content, type=list[Step])
    except msgspec.DecodeError as error:
        raise errors.InputError(f"not a script of load: {error}") from None
    return sorted(steps, key=lambda step: step.at_seconds)


def play(machine: hardware.Hardware, steps: Sequence[Step]) -> None:
    """Carries the steps out, each at its time from now. Blocks until the last one."""
    begin = time.monotonic()
    for step in steps:
        time.sleep(max(0.0, begin + step.at_seconds - time.monotonic()))
        apply(machine, step)


def apply(machine: hardware.Hardware, step: Step) -> None:
    """Carries one step out now."""
    machine.set_utilisation(
        step.gpu, gpu_percent=step.gpu_percent, memory_percent=step.memory_percent
    )
    machine.set_processes(step.gpu, step.processes)
    if step.watts is not None:
        now_milliseconds = time.time_ns() // 1_000_000
        machine.run_energy(step.gpu, watts=step.watts, now_milliseconds=now_milliseconds)


def mean_busy(steps: Sequence[Step], gpu: int, *, start: float, end: float) -> float:
    """The mean percentage of a GPU between two times of the script."""
    own = [step for step in steps if step.gpu == gpu]
    busy = 0.0
    for number, step in enumerate(own):
        until = own[number + 1].at_seconds if number + 1 < len(own) else end
        span = min(until, end) - max(step.at_seconds, start)
        busy += step.gpu_percent * max(0.0, span)
    return busy / (end - start)
