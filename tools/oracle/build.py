"""Builds the upstream oracle once and prints where it is.

Given nothing but this directory and a Go toolchain, it decides whether a finished build of exactly these
sources exists in the user's cache and otherwise makes one. It never names a download host: modules come
from wherever the environment's Go settings say. Exit codes: 0 path printed, 1 build failed, 3 no Go.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
BUILD_FAILED = 1
GO_MISSING = 3
PROGRESS_SECONDS = 5.0


class GoMissing(Exception):
    """There is no Go toolchain on PATH."""


class BuildFailed(Exception):
    """The Go toolchain could not build the oracle; the message holds what it said."""


def main() -> int:
    """The command line: the path on stdout, talk on stderr."""
    try:
        print(binary())
    except GoMissing as missing:
        print(missing, file=sys.stderr)
        return GO_MISSING
    except BuildFailed as failed:
        print(failed, file=sys.stderr)
        return BUILD_FAILED
    return 0


def binary() -> Path:
    """The path of a finished oracle, built first if need be. Safe to call from several processes at once."""
    go = shutil.which("go")
    if go is None:
        raise GoMissing(
            "the upstream oracle needs Go 1.26 or newer and there is no `go` on PATH; "
            "install Go, or run without the tests that ask the oracle"
        )
    home = cache_home() / fingerprint(go)
    finished = home / "oracle"
    if finished.exists():
        return finished
    home.mkdir(parents=True, exist_ok=True)
    with only_one_builder(home / "lock"):
        if not finished.exists():
            build(go, finished)
    return finished


def cache_home() -> Path:
    """Where finished builds are kept, one directory per fingerprint."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "dovetail" / "oracle"


def fingerprint(go: str) -> str:
    """A name that changes with every source file, pinned module and Go version."""
    digest = hashlib.sha256(go_version(go).encode())
    for source in sorted([*SOURCES.glob("*.go"), SOURCES / "go.mod", SOURCES / "go.sum"]):
        content = source.read_bytes()
        digest.update(f"{source.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:20]


def go_version(go: str) -> str:
    """What `go version` says inside the module, where a toolchain line may choose another Go."""
    asked = subprocess.run([go, "version"], cwd=SOURCES, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise BuildFailed(f"`go version` failed: {asked.stderr.strip()}")
    return asked.stdout.strip()


@contextmanager
def only_one_builder(lock: Path) -> Iterator[None]:
    """Holds a file lock: the second builder waits and then finds the work done."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build(go: str, finished: Path) -> None:
    """Builds beside the final place and renames, so that a broken build is never taken for a finished one."""
    with tempfile.TemporaryDirectory(dir=finished.parent) as scratch:
        unfinished = Path(scratch) / "oracle"
        log = Path(scratch) / "log"
        with log.open("w") as sink:
            command = [go, "build", "-trimpath", "-buildvcs=false", "-o", str(unfinished), "."]
            code = watched(subprocess.Popen(command, cwd=SOURCES, stdout=sink, stderr=subprocess.STDOUT))
        if code != 0:
            raise BuildFailed(f"building the upstream oracle failed:\n{log.read_text().strip()}")
        unfinished.rename(finished)


def watched(building: subprocess.Popen[bytes]) -> int:
    """Waits for the build and says every few seconds that it is still going on."""
    began = time.monotonic()
    say("building the upstream oracle (first time takes minutes) …")
    while True:
        try:
            code = building.wait(timeout=PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"building the upstream oracle (first time takes minutes) … {time.monotonic() - began:.0f} s")
            continue
        except BaseException:
            building.kill()
            raise
        say(f"upstream oracle build ended after {time.monotonic() - began:.0f} s")
        return code


def say(text: str) -> None:
    """One line of talk, which never mixes with the path on stdout."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
