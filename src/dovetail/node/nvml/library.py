"""Finds a driver's files under its root, and loads its NVML library from there.

Given a directory: / on the host, or where a driver container keeps its files. Each load returns a copy of NVIDIA's
Python binding of its own, bound to that one file: two sessions never share handles, and after a driver was replaced the
new file is loaded beside the old one. Never calls into the library.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from dovetail.node import gpu_control

# Where distributions and driver containers install, below the root.
_LIBRARY_FOLDERS: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/wsl/lib",
    "",
)
_PROGRAM_FOLDERS: Final = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin")
_LIBRARY: Final = "libnvidia-ml.so.1"
_BINDING: Final = "pynvml"

_counter = itertools.count(1)


def library_under(root: Path) -> Path:
    """The NVML library's file, links resolved. Raises DriverUnavailable if there is none."""
    places = [root / folder / _LIBRARY for folder in _LIBRARY_FOLDERS]
    return _first(places, f"{_LIBRARY} under {root}").resolve()


def program_under(root: Path, name: str) -> Path:
    """A program of the driver, such as nvidia-smi. Raises DriverUnavailable if there is none."""
    places = [root / folder / name for folder in _PROGRAM_FOLDERS]
    return _first(places, f"{name} under {root}")


def load(library: Path) -> ModuleType:
    """A copy of the binding that calls into this file. Raises DriverUnavailable if the file cannot be loaded."""
    installed = importlib.util.find_spec(_BINDING)
    assert installed is not None, "nvidia-ml-py is a dependency"
    assert installed.origin is not None
    name = f"{_BINDING}_{next(_counter)}"
    specification = importlib.util.spec_from_file_location(name, installed.origin)
    assert specification is not None
    assert specification.loader is not None
    binding = importlib.util.module_from_spec(specification)
    # The binding looks itself up by its name while it is executed.
    sys.modules[name] = binding
    specification.loader.exec_module(binding)
    try:
        # By its path. By its name, the binding would get whichever NVML the process loaded first.
        binding.nvmlLib = ctypes.CDLL(str(library))  # type: ignore[attr-defined]
    except OSError as error:
        raise gpu_control.DriverUnavailable(f"load {library}: {error}") from error
    return binding


def _first(places: list[Path], what: str) -> Path:
    for place in places:
        if place.is_file():
            return place
    raise gpu_control.DriverUnavailable(f"no {what}: is the NVIDIA driver installed there?")
