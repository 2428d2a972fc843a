"""Recognises programs that take GPU memory before they need it: their measured memory is a setting, not a need.

Given the pods of a family as plain trees, or only what was measured. vLLM and SGLang take a share of the device for
their cache, JAX and TensorFlow nearly all of it unless a variable says otherwise; a memory line that is flat just below
the limit is taken for the same. Never reads a program's own metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

FLAT: Final = 0.97  # of the largest: what a program that took all in advance never falls below
WARMING_UP: Final = 0.05  # of the samples, while it starts
NEAR_LIMIT: Final = 0.8  # vLLM takes 0.9 by default, JAX 0.75 to 0.9, less what the driver keeps
FEWEST_SAMPLES: Final = 20

_OPTION: Final = re.compile(r"--(gpu-memory-utilization|mem-fraction-static)[= ]?([0-9.]*)")
_IMAGES: Final[dict[str, str]] = {  # a part of the image's name -> how its program takes memory
    "vllm": "vLLM takes 90 % of the device unless --gpu-memory-utilization says otherwise",
    "sglang": "SGLang takes most of the device unless --mem-fraction-static says otherwise",
    "jax": "JAX takes 75 % of the device unless XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "tensorflow": "TensorFlow takes the whole device unless TF_FORCE_GPU_ALLOW_GROWTH=true",
}
_GROWS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {  # variable -> image, values that end it
    "XLA_PYTHON_CLIENT_PREALLOCATE": ("jax", ("false", "0")),
    "TF_FORCE_GPU_ALLOW_GROWTH": ("tensorflow", ("true", "1")),
}
_SHARES: Final = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")

Tree = Mapping[str, Any]


def by_program(pods: Iterable[Tree]) -> str:
    """How the program of one of these pods takes memory; empty where nothing says so."""
    for pod in pods:
        spec = pod.get("spec") or {}
        for container in spec.get("containers") or ():
            if words := _of_container(container):
                return words
    return ""


def by_line(memory: Sequence[int], limit_bytes: int) -> str:
    """The same by the samples of memory, ascending: flat, and just below what the device has."""
    if len(memory) < FEWEST_SAMPLES or not limit_bytes:
        return ""
    largest = memory[-1]
    is_flat = memory[int(WARMING_UP * len(memory))] >= FLAT * largest
    if is_flat and largest >= NEAR_LIMIT * limit_bytes:
        part = 100 * largest / limit_bytes
        return f"memory is flat at {part:.0f} % of the device, as of a program that preallocates"
    return ""


def _of_container(container: Tree) -> str:
    words = " ".join(_texts(container.get("command")) + _texts(container.get("args")))
    variables = {
        str(entry.get("name")): str(entry.get("value") or "")
        for entry in container.get("env") or ()
    }
    option = _OPTION.search(words)
    if option is not None:
        value = f" {option[2]}" if option[2] else ""
        return f"--{option[1]}{value} sets how much memory it takes"
    for name in _SHARES:
        if name in variables:
            return f"{name}={variables[name]} sets how much memory it takes"
    for name, (image, values) in _GROWS.items():
        if name not in variables:
            continue
        if variables[name].lower() not in values:
            return f"{name}={variables[name]} makes it take memory in advance"
        if image in str(container.get("image")).lower():
            return ""
    name = str(container.get("image") or "").lower()
    return next((how for image, how in _IMAGES.items() if image in f"{name} {words}"), "")


def _texts(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []
