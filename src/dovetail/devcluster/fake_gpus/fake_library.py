"""Builds the fake libnvidia-ml.so.1 and its programs with gcc, once, into the user's cache; and talks to it.

Given the C sources, decides whether a finished build of exactly those exists and otherwise makes one, in seconds. Loads
the library into this process to command a machine. Never opens an NVML session.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dovetail import errors
from dovetail.devcluster import build_lock, go_build

LIBRARY: Final = "libnvidia-ml.so.1"
PROGRAMS: Final = ("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
# Libraries of the driver that programs look for by name; what they would do needs a real GPU.
EMPTY_LIBRARIES: Final = (
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvidia-allocator.so.1",
    "libnvidia-cfg.so.1",
    "libnvidia-gpucomp.so",
    "libnvidia-nvvm.so.4",
    "libnvidia-opencl.so.1",
    "libnvidia-ptxjitcompiler.so.1",
)
SUCCESS: Final = 0
CODES: Final = {
    2: "invalid argument",
    3: "not supported",
    6: "not found",
    7: "no room for more",
    9: "there is no machine, or one of another version of the library",
    17: "the operating system refused",
    19: "in use",
    23: "insufficient resources",
}

_HERE: Final = Path(__file__).resolve().parent
_FLAGS: Final = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wno-missing-field-initializers")
_REPLY_BYTES: Final = 256


class CompilerMissing(errors.DovetailError):
    """There is no gcc on PATH."""


class BuildFailed(errors.DovetailError):
    """gcc could not build the fake library; the message holds what it said."""


class Refused(errors.DovetailError):
    """The hardware refused a command; `code` is NVML's number for the reason."""

    def __init__(self, command: str, code: int) -> None:
        """Words for the code, if there are any."""
        super().__init__(f"{command}: {CODES.get(code, 'refused')} (NVML code {code})")
        self.code = code


def finished(hidden: Sequence[str] = ()) -> Path:
    """The directory with the library, the programs and the empty libraries. `hidden` functions are not exported."""
    gcc = shutil.which("gcc")
    if gcc is None:
        raise CompilerMissing("the fake GPUs need gcc to be built, and there is none on PATH")
    home = go_build.cache_home() / "fakenvml"
    done = home / _fingerprint(gcc, sorted(hidden))
    if done.is_dir():
        return done
    home.mkdir(parents=True, exist_ok=True)
    lock = done.with_suffix(".lock")
    with build_lock.held(lock, title="the fake libnvidia-ml", say=go_build.say_on_stderr):
        if not done.is_dir():
            _build(gcc, done, sorted(hidden))
    return done


def symbols() -> tuple[str, ...]:
    """The functions of nvml.h: all that the library exports."""
    return tuple((_sources() / "symbols.txt").read_text(encoding="ascii").split())


def command(home: Path, *words: str) -> str:
    """Sends one command to the machine in a directory; what it answered. Raises Refused."""
    arguments = [word.encode() for word in words]
    vector = (ctypes.c_char_p * len(arguments))(*arguments)
    reply = ctypes.create_string_buffer(_REPLY_BYTES)
    code = _loaded().fake_control(
        os.fsencode(home), len(arguments), vector, reply, ctypes.c_size_t(_REPLY_BYTES)
    )
    if code != SUCCESS:
        raise Refused(" ".join(words[:3])[:80], code)
    return reply.value.decode()


def snapshot(home: Path) -> bytes:
    """The whole state of a machine as JSON."""
    size = 1 << 16
    while True:
        text = ctypes.create_string_buffer(size)
        needed = _loaded().fake_snapshot(os.fsencode(home), text, ctypes.c_size_t(size))
        if needed < 0:
            raise Refused("snapshot", 9)
        if needed < size:
            return text.value
        size = needed + 1


def layouts() -> str:
    """Sizes and offsets of the structures, one line each: name, size, member=offset ..."""
    size = 1 << 16
    text = ctypes.create_string_buffer(size)
    _loaded().fake_layouts(text, ctypes.c_size_t(size))
    return text.value.decode()


@functools.cache
def _loaded() -> ctypes.CDLL:
    return ctypes.CDLL(str(finished() / LIBRARY))


def _sources() -> Path:
    # A wheel has the sources next to this file; a checkout has them under tools/.
    for sources in (_HERE / "sources", _HERE.parents[3] / "tools" / "fakenvml"):
        if (sources / "fake.h").is_file():
            return sources
    raise BuildFailed("the sources of the fake libnvidia-ml are not part of this installation")


def _fingerprint(gcc: str, hidden: Sequence[str]) -> str:
    version = subprocess.run(  # noqa: S603 - no shell reads it
        [gcc, "--version"], capture_output=True, text=True, check=False
    )
    digest = hashlib.sha256(version.stdout.encode())
    recipe = (*_FLAGS, *PROGRAMS, *EMPTY_LIBRARIES, "hidden", *hidden)
    digest.update(" ".join(recipe).encode())
    for source in sorted(_sources().rglob("*")):
        if source.suffix in {".c", ".h", ".def", ".txt"}:
            digest.update(f"{source.name}\n".encode() + source.read_bytes())
    return digest.hexdigest()[:20]


def _build(gcc: str, done: Path, hidden: Sequence[str]) -> None:
    """Builds next to the final path and renames, so that a broken build is never mistaken for a finished one."""
    with tempfile.TemporaryDirectory(dir=done.parent, prefix="unfinished-") as scratch:
        directory = Path(scratch) / "build"
        directory.mkdir()
        _build_library(gcc, directory, hidden)
        for program in PROGRAMS:
            _build_program(gcc, directory, program)
        for name in EMPTY_LIBRARIES:
            _run(
                gcc,
                "-shared",
                f"-Wl,-soname,{name}",
                "-o",
                str(directory / name),
                "-xc",
                "/dev/null",
            )
        directory.rename(done)


def _build_library(gcc: str, directory: Path, hidden: Sequence[str]) -> None:
    sources = sorted(str(path) for path in _sources().glob("*.c"))
    stubs = directory / "stubs.c"
    stubs.write_text(_stubs(), encoding="ascii")
    exports = directory / "exports.map"
    hidden_part = f" local: {' '.join(f'{name};' for name in hidden)}" if hidden else ""
    exports.write_text(f"{{ global: nvml*; fake_*;{hidden_part} }};\n", encoding="ascii")
    _run(
        gcc, *_FLAGS, "-fPIC", "-fvisibility=hidden", "-shared", f"-Wl,-soname,{LIBRARY}",
        f"-Wl,--version-script,{exports}", f"-I{_sources()}", "-o", str(directory / LIBRARY),
        str(stubs), *sources, "-lpthread", "-ldl",
    )  # fmt: skip
    stubs.unlink()
    exports.unlink()


def _stubs() -> str:
    """A weak function for every name: one that the sources define takes its place."""
    lines = ['#include "fake.h"', "nvmlReturn_t unsupported(const char *function);"]
    for name in symbols():
        body = "{ return unsupported(__func__); }"
        lines.append(f"EXPORT __attribute__((weak)) nvmlReturn_t {name}(void) {body}")
    return "\n".join(lines) + "\n"


def _build_program(gcc: str, directory: Path, program: str) -> None:
    source = _sources() / "programs" / f"{program}.c"
    _run(
        gcc, *_FLAGS, f"-I{_sources()}", "-o", str(directory / program), str(source), f"-L{directory}",
        f"-l:{LIBRARY}", "-Wl,-rpath,$ORIGIN/../lib/x86_64-linux-gnu:$ORIGIN",
    )  # fmt: skip


def _run(*arguments: str) -> None:
    compiling = subprocess.run(arguments, capture_output=True, text=True, check=False)  # noqa: S603
    if compiling.returncode != 0:
        raise BuildFailed(f"building the fake libnvidia-ml failed:\n{compiling.stderr.strip()}")
