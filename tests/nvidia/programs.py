"""NVIDIA's programs for tests: built on first use, run with their own view of a few fixed paths.

Given fake hardware, a program finds it where it would find a GPU: the driver root by flag, NVML by the loader's path,
capabilities in /proc/driver, sockets and CDI files below /var. The fixed paths are mounted in a private mount
namespace, so that nothing of the machine's own changes.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from dovetail.devcluster import processes
from tests.support import real
from tests.support.waiting import wait_until
from tools.nvidia import build

ROOT: Final = Path(__file__).resolve().parents[2]
GO_MISSING: Final = 3  # exit code of the build driver
STOP_SECONDS: Final = 20.0
LIBRARIES: Final = Path("usr/lib/x86_64-linux-gnu")
HOOK: Final = "/usr/bin/nvidia-cdi-hook"  # what the specs shall name; the hook itself is not run

# Arguments: pairs of source and mount point, `--`, the program. An empty directory is mounted where the source is
# `tmpfs`, so that a mount point below it can be made without a trace on the machine.
_WITH_MOUNTS: Final = """
set -e
while [ "$1" != -- ]; do
  if [ "$1" = tmpfs ]; then mount -t tmpfs tmpfs "$2"
  else mkdir -p "$2"; mount --bind "$1" "$2"; fi
  shift 2
done
shift
exec "$@"
"""


def program(name: str) -> Path:
    """One of NVIDIA's programs by its file name. Skips, or fails under REQUIRE_REAL=1, where it cannot be had."""
    group = next(group for group in build.GROUPS if name in build.recipe(group).programs)
    return _directory(group) / name


@functools.cache
def _directory(group: str) -> Path:
    real.refuse_unbuilt(f"nvidia-{group}")
    command = [sys.executable, str(ROOT / "tools" / "nvidia" / "build.py"), group]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == GO_MISSING:
        real.missing("a Go toolchain to build NVIDIA's programs with")
    if done.returncode != 0:
        pytest.fail(f"NVIDIA's {group} could not be built; what Go said is above", pytrace=False)
    return Path(done.stdout.strip())


def require_mounts() -> None:
    """Ends the test where a program cannot get mounts of its own."""
    if os.geteuid() != 0:
        real.missing("root, to mount the fake /proc/driver for one program alone")
    for tool in ("unshare", "setpriv"):
        if shutil.which(tool) is None:
            real.missing(f"{tool}, to mount the fake /proc/driver for one program alone")


def wrapped(
    command: Sequence[str | Path],
    *,
    mounts: Sequence[tuple[str | Path, str]],
    environment: Mapping[str, str | Path],
) -> list[str]:
    """The command line that runs a program with its own mounts and variables."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    pairs = [str(part) for mount in mounts for part in mount]
    private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _WITH_MOUNTS, "sh"]
    return ["env", *variables, *private, *pairs, "--", *map(str, command)]


def hardware_mounts(hardware: Any) -> list[tuple[str | Path, str]]:
    """What every program sees instead of the machine's own."""
    return [(hardware.proc_root / "driver", "/proc/driver"), (hardware.sysfs_root, "/sys")]


def hardware_environment(hardware: Any) -> dict[str, str | Path]:
    """Variables by which NVIDIA's programs find what is not below the driver root."""
    return {
        "LD_LIBRARY_PATH": hardware.driver_root / LIBRARIES,
        "NVIDIA_DRA_SYSFS_ROOT": hardware.sysfs_root,
        "ALT_PROC_DEVICES_PATH": hardware.proc_root / "devices",
    }


class Running:
    """A program that goes on until `stop` or `kill`. Its output is kept in a log."""

    def __init__(self, command: Sequence[str], *, log: Path) -> None:
        self._log = log
        self._name = log.stem
        self._process = processes.start(command, log=log, is_tethered=True)

    def wait_until(self, condition: Any, what: str) -> Any:
        """Waits for the condition, or fails as soon as the program has ended."""

        def value() -> Any:
            assert self._process.poll() is None, f"{self._name} ended:\n{self.log()}"
            return condition()

        return wait_until(value, what, so_far=self.log)

    @property
    def pid(self) -> int:
        """The id of the process itself: shell and unshare have been replaced by it."""
        return self._process.pid

    def log(self) -> str:
        """The last lines it wrote."""
        return processes.tail_of(self._log)

    def full_log(self) -> str:
        """All it wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Asks it to end, and kills it if that does not suffice."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._process.kill()
        self._process.wait()


def finished(command: Sequence[str]) -> str:
    """What a program that ends by itself printed; its complaint fails the test."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command[-6:])}: {done.stderr.strip()}"
    return done.stdout
