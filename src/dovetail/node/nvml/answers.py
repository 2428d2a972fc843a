"""Optional answers: what an old driver or another GPU does not know is None instead of an error.

Given a call into NVML. Losing the GPU, or the driver, is never an absence. Never repeats a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.node.nvml import nvml_errors
from dovetail.node.nvml.session import Opened


def optional(opened: Opened, call: Callable[..., Any], *arguments: Any) -> Any | None:
    """What the call returns; None where this driver or GPU has no such thing."""
    try:
        return call(*arguments)
    except opened.nvml.NVMLError as error:
        if nvml_errors.code_of(error) in nvml_errors.ABSENT:
            return None
        raise


def existing(opened: Opened, call: Callable[..., Any], *arguments: Any) -> Any | None:
    """As `optional`; also None for a partition that is gone: others make and destroy them meanwhile."""
    try:
        return optional(opened, call, *arguments)
    except opened.nvml.NVMLError_NotFound:
        return None


def text(value: str | bytes) -> str:
    """The binding returns text, or bytes where NVIDIA forgot to decode them."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
