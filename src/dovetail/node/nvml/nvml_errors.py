"""What an error code of NVML means for the caller.

Given NVIDIA's exception, returns one of `gpu_control`'s, with the operation, the GPU and the driver's own words in its
message. Never decides whether to repeat.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail.node import gpu_control

# Codes of nvml.h; the binding has them as NVML_ERROR_*.
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
LIB_RM_VERSION_MISMATCH: Final = 18
IN_USE: Final = 19
INSUFFICIENT_RESOURCES: Final = 23
GPU_NOT_FOUND: Final = 28

# Old drivers lack functions, other GPUs lack what a function asks for: both mean that there is no answer.
ABSENT: Final = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, INVALID_ARGUMENT})

_KINDS: Final[dict[int, type[gpu_control.GpuFailure]]] = {
    UNINITIALIZED: gpu_control.DriverUnavailable,
    DRIVER_NOT_LOADED: gpu_control.DriverUnavailable,
    LIBRARY_NOT_FOUND: gpu_control.DriverUnavailable,
    LIB_RM_VERSION_MISMATCH: gpu_control.DriverUnavailable,
    NOT_SUPPORTED: gpu_control.GpuUnsupported,
    FUNCTION_NOT_FOUND: gpu_control.GpuUnsupported,
    TIMEOUT: gpu_control.GpuUnresponsive,
    GPU_IS_LOST: gpu_control.GpuGone,
    GPU_NOT_FOUND: gpu_control.GpuGone,
    IN_USE: gpu_control.GpuInUse,
    # NVML's answer for a placement that is occupied.
    INSUFFICIENT_RESOURCES: gpu_control.GpuInUse,
}


def code_of(error: BaseException) -> int | None:
    """NVML's code, or None for an exception that is not NVML's."""
    value: Any = getattr(error, "value", None)
    is_nvml = type(error).__name__.startswith("NVMLError")
    return value if is_nvml and isinstance(value, int) else None


def failure(code: int, words: str, doing: str) -> gpu_control.GpuFailure:
    """The failure to raise for a code."""
    kind = _KINDS.get(code, gpu_control.GpuFailure)
    return kind(f"{doing}: {words} (NVML error {code})")
