"""Builds Go programs once and keeps them in the user's cache.

Given the sources of one Go module and what to build of it, decides whether a finished build of exactly those
sources exists and otherwise makes one. Never names a download host: modules come from wherever the
environment's Go settings say. Needs nothing but the standard library, so that any Python can run it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.devcluster import build_lock

PROGRESS_SECONDS: Final = 5.0
MINIMUM_GO: Final = "1.26"  # what the go.mod files of Kubernetes 1.36 and 1.37 ask for

BUILD_FAILED: Final = 1  # exit codes of the builders in tools/
GO_MISSING: Final = 3

Say = Callable[[str], None]


class GoMissing(errors.DovetailError):
    """There is no Go toolchain on PATH."""


class BuildFailed(errors.DovetailError):
    """The Go toolchain could not build; the message holds what it said."""


class Recipe(NamedTuple):
    """What to build: `title` is for people, `name` and `sources` decide where the programs are kept.

    `programs` are the files a finished build has; `renamed` maps the name Go gives one to ours.
    """

    name: str
    title: str
    directory: Path
    sources: tuple[Path, ...]
    programs: tuple[str, ...]
    package: str = "."
    link_flags: str = ""
    renamed: Mapping[str, str] = {}


def say_on_stderr(text: str) -> None:
    """One message line, which never mixes with data on stdout."""
    print(text, file=sys.stderr, flush=True)


def finished(recipe: Recipe, *, say: Say = say_on_stderr) -> Path:
    """The directory of the finished programs, built first if need be. Safe to call from several processes at once."""
    go = shutil.which("go")
    if go is None:
        raise GoMissing(
            f"{recipe.title} needs Go {MINIMUM_GO} or newer to be built, and there is no `go` on PATH"
        )
    home = cache_home() / recipe.name
    done = home / fingerprint(go, recipe)
    if _is_complete(done, recipe):
        return done
    try:
        home.mkdir(parents=True, exist_ok=True)
        with build_lock.held(done.with_suffix(".lock"), title=recipe.title, say=say):
            if not _is_complete(done, recipe):
                _build(go, recipe, done=done, say=say)
    except OSError as error:
        raise BuildFailed(
            f"{recipe.title} cannot be kept in {home}: {error.strerror or error}"
        ) from error
    return done


def cache_home() -> Path:
    """Where finished builds are kept, one directory per recipe and fingerprint."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail"


def fingerprint(go: str, recipe: Recipe) -> str:
    """A name that changes with every source file, pinned module, flag and Go version."""
    digest = hashlib.sha256(_go_version(go, recipe.directory).encode())
    digest.update(" ".join(_arguments(recipe)).encode())
    for source in sorted(recipe.sources):
        content = source.read_bytes()
        digest.update(f"{source.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:20]


def _go_version(go: str, directory: Path) -> str:
    """What `go version` says inside the module, where a toolchain line may choose another Go."""
    answer = subprocess.run(  # noqa: S603 - no shell reads it
        [go, "version"], cwd=directory, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise BuildFailed(f"`go version` failed: {answer.stderr.strip()}")
    return answer.stdout.strip()


def _arguments(recipe: Recipe) -> list[str]:
    flags = [f"-ldflags={recipe.link_flags}"] if recipe.link_flags else []
    return ["-trimpath", "-buildvcs=false", *flags, recipe.package]


def _is_complete(done: Path, recipe: Recipe) -> bool:
    return all((done / program).exists() for program in recipe.programs)


def _build(go: str, recipe: Recipe, *, done: Path, say: Say) -> None:
    """Builds next to the final path and renames, so that a broken build is never mistaken for a finished one."""
    with tempfile.TemporaryDirectory(dir=done.parent, prefix="unfinished-") as scratch:
        unfinished = Path(scratch) / "programs"
        unfinished.mkdir()
        log = Path(scratch) / "log"
        *flags, package = _arguments(recipe)
        command = [go, "build", *flags, "-o", f"{unfinished}/", package]
        with log.open("w") as sink:
            building = subprocess.Popen(  # noqa: S603 - no shell reads it
                command, cwd=recipe.directory, stdout=sink, stderr=subprocess.STDOUT
            )
            code = _watched(building, recipe, record=_record(recipe), say=say)
        if code != 0:
            raise BuildFailed(f"building {recipe.title} failed:\n{log.read_text().strip()}")
        for go_name, ours in recipe.renamed.items():
            (unfinished / go_name).rename(unfinished / ours)
        if not _is_complete(unfinished, recipe):
            built = ", ".join(sorted(path.name for path in unfinished.iterdir())) or "nothing"
            raise BuildFailed(
                f"building {recipe.title} made {built}; expected {', '.join(recipe.programs)}"
            )
        if done.exists():  # lacks a program, else nothing would have been built
            shutil.rmtree(done)
        unfinished.rename(done)


def _watched(building: subprocess.Popen[bytes], recipe: Recipe, *, record: Path, say: Say) -> int:
    """Waits for the build, says every few seconds that it is still going on, and records how long it took."""
    began = time.monotonic()
    announcement = f"building {recipe.title} ({_expectation(record)}) …"
    say(announcement)
    while True:
        try:
            code = building.wait(timeout=PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            say(f"{announcement} {build_lock.duration_text(time.monotonic() - began)}")
            continue
        except BaseException:
            building.kill()
            building.wait()
            raise
        seconds = time.monotonic() - began
        say(f"the build of {recipe.title} ended after {build_lock.duration_text(seconds)}")
        if code == 0:
            record.write_text(f"{seconds:.1f}\n", encoding="utf-8")
        return code


def _record(recipe: Recipe) -> Path:
    """The file with the duration of the last build: next to the builds, by title, since it outlives their sources."""
    return cache_home() / recipe.name / f"{recipe.title.replace(' ', '-')}.seconds"


def _expectation(record: Path) -> str:
    """What to expect of a build, from the last one."""
    try:
        return (
            f"took {build_lock.duration_text(float(record.read_text(encoding='utf-8')))} last time"
        )
    except (OSError, ValueError):
        return "the first time takes minutes"


def printed(builds: Iterable[Callable[[], Path]], *, without_go: str = "") -> int:
    """A builder's command line: each path on stdout as soon as it is built, talk on stderr; the exit code."""
    try:
        for build in builds:
            print(build(), flush=True)
    except GoMissing as missing:
        print(f"{missing}; {without_go}" if without_go else missing, file=sys.stderr)
        return GO_MISSING
    except BuildFailed as failed:
        print(failed, file=sys.stderr)
        return BUILD_FAILED
    return 0
