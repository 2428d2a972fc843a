"""Runs the tests, and builds what they need meanwhile: the work behind `make test` and `make test-skew`.

The fast tests run while the real parts are built in the background; then the tests that need them run. Under
REQUIRE_REAL=1 a part that cannot be built fails the run, else the tests that need it skip. The last line counts the
tests of all stages in pytest's words; the exit code is the worst of them. Ctrl-C and SIGTERM end all children.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, NoReturn

from dovetail.devcluster import go_build, kube_binaries
from tools import realparts

ROOT: Final = realparts.ROOT
NEWEST, *OLDER = kube_binaries.VERSIONS

WAITING_LINE_SECONDS: Final = 15.0  # between two lines that say what is still being built
ENDING_SECONDS: Final = 30.0  # that a child has to end after it was interrupted
LOG_TAIL_LINES: Final = 40
INTERRUPTED: Final = 130  # as a shell reports it

# Servers in Go collect their garbage less often: a fifth less processor time, for memory that is there.
COLLECTING_SELDOM: Final = {"GOGC": "400"}
REPORT_VARIABLE: Final = "DOVETAIL_TEST_REPORT"  # read in tests/support/closing.py
NOT_BUILT_VARIABLE: Final = "DOVETAIL_NOT_BUILT"  # read in tests/support/real.py


class Stage(NamedTuple):
    """One run of pytest."""

    title: str
    selection: str
    needs_parts: bool
    options: tuple[str, ...] = ()


class Workers(NamedTuple):
    """How many test processes run at once, as pytest-xdist takes it."""

    fast: str
    real: str


STEALING: Final = (
    "--dist",
    "worksteal",
)  # an idle worker takes over: these tests differ much in length
# A connection that a test leaves open is found by the collector during a later test. It is listed with the test that
# opened it; failing the later one would blame a test that only runs then. Fast tests, which share no servers, do fail.
LEFT_OPEN: Final = ("-W", "default::pytest.PytestUnraisableExceptionWarning")
FAST: Final = Stage("fast tests", "not slow and not skew", needs_parts=False)
REAL: Final = Stage(
    "tests with real parts", "slow and not skew", needs_parts=True, options=(*STEALING, *LEFT_OPEN)
)
SKEW: Final = Stage(
    f"tests on Kubernetes {', '.join(OLDER)}",
    "skew",
    needs_parts=True,
    options=(*STEALING, *LEFT_OPEN),
)


class Result(NamedTuple):
    """How a stage ended. Without counts pytest did not get as far as its summary."""

    title: str
    exit_code: int
    seconds: float
    counts: Counter[str]
    absent: dict[str, int]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--skew", action="store_true", help="the tests on the older Kubernetes versions"
    )
    parser.add_argument(
        "--after-check", action="store_true", help="without the fast tests, which `make check` ran"
    )
    parser.add_argument("--workers", default="2", help="test processes of the fast tests")
    parser.add_argument(
        "--real-workers", default="3", help="of tests with real parts, which often wait for those"
    )
    options = parser.parse_args()

    if options.skew:
        stages, versions = [SKEW], OLDER
    elif options.after_check:
        print("the fast tests are left out: they have passed in `make check`", flush=True)
        stages, versions = [REAL], [NEWEST]
    else:
        stages, versions = [FAST, REAL], [NEWEST]

    build = [sys.executable, "-m", "tools.realparts", *versions]
    workers = Workers(options.workers, options.real_workers)
    return run(stages, build, workers=workers)


def run(stages: Sequence[Stage], build: Sequence[str], *, workers: Workers) -> int:
    """Runs the stages, those that need no real part while the builder works; the worst exit code."""
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(
        signal.SIGINT, _interrupted
    )  # which a shell ignores for what runs in the background
    try:
        results, not_built = _results(stages, build, workers=workers)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED

    print_summary(results, not_built)
    return max(abs(result.exit_code) for result in results)


def _results(
    stages: Sequence[Stage], build: Sequence[str], *, workers: Workers
) -> tuple[list[Result], list[str]]:
    """How the stages ended, and which parts were not built. A stage that lacks a required part is not run."""
    results: list[Result] = []
    not_built: list[str] = []
    with child(build, stdout=subprocess.PIPE) as building:
        for stage in stages:
            if stage.needs_parts:
                not_built = waited_for(building)
                if not_built and os.environ.get("REQUIRE_REAL") == "1":
                    results.append(not_run(stage))
                    continue
            results.append(ran(stage, workers=workers, not_built=not_built))
    return results, not_built


@contextlib.contextmanager
def child(
    command: Sequence[str], *, stdout: int | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process in a separate session: Ctrl-C reaches it through us, once, and all it started ends with it."""
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=stdout, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                _end_session(process)


def waited_for(building: subprocess.Popen[str]) -> list[str]:
    """Waits for the builder, saying now and then what it is building; the names of the parts that failed."""
    while True:
        try:
            output, _ = building.communicate(timeout=WAITING_LINE_SECONDS)
        except subprocess.TimeoutExpired:
            print(
                f"waiting for the real parts: {_last_line(realparts.LOG)}",
                file=sys.stderr,
                flush=True,
            )
            continue
        break

    if building.returncode == 0:
        return []
    not_built = output.split() or ["real parts"]  # the builder itself failed
    heading = f"not built: {', '.join(not_built)}; the end of {realparts.LOG}:"
    tail = _lines(realparts.LOG)[-LOG_TAIL_LINES:]
    print("\n".join([heading, *tail]), file=sys.stderr, flush=True)
    return not_built


def not_run(stage: Stage) -> Result:
    """A stage that lacks a required part: an error of the whole run."""
    return Result(f"{stage.title}, not run", go_build.BUILD_FAILED, 0.0, Counter(error=1), {})


def ran(stage: Stage, *, workers: Workers, not_built: Sequence[str]) -> Result:
    """One run of pytest, whose output goes straight to the terminal."""
    count = workers.real if stage.needs_parts else workers.fast
    selection = ["-m", stage.selection, "-n", count, "--durations=20", *stage.options]
    print(f"{stage.title}: pytest -m '{stage.selection}'", flush=True)

    with tempfile.TemporaryDirectory(prefix="dovetail-test-") as scratch:
        report = Path(scratch) / "report.json"
        environment = (
            COLLECTING_SELDOM
            | os.environ
            | {
                REPORT_VARIABLE: str(report),
                NOT_BUILT_VARIABLE: ",".join(not_built),
            }
        )
        began = time.monotonic()
        with child([sys.executable, "-m", "pytest", *selection], env=environment) as testing:
            exit_code = testing.wait()
        seconds = time.monotonic() - began
        written = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}

    counts = Counter[str](written.get("counts", {}))
    return Result(stage.title, exit_code, seconds, counts, written.get("absent", {}))


def print_summary(results: Sequence[Result], not_built: Sequence[str]) -> None:
    """What was missing, each stage in a line, and as the last line all of them as pytest would count them."""
    absent: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for result in results:
        absent.update(result.absent)
        total.update(result.counts)
    seconds = sum(result.seconds for result in results)

    print()
    if not_built:
        print(f"not built: {', '.join(not_built)}; see {realparts.LOG}")
    if absent:
        print(
            f"recorded data that was not there ({absent.total()} tests skipped): {', '.join(sorted(absent))}"
        )
    for result in results:
        print(
            f"{result.title}: {_outcomes(result.counts)} in {_clock(result.seconds)}, exit code {result.exit_code}"
        )
    print(f"{_outcomes(total)} in {seconds:.2f}s ({_clock(seconds)})", flush=True)


def _outcomes(counts: Mapping[str, int]) -> str:
    """`1 failed, 20 passed`, in the order and the words of pytest."""
    words = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    return ", ".join(words) or "no tests ran"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _last_line(log: Path) -> str:
    return next(reversed(_lines(log)), "the first build begins")


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def _end_session(process: subprocess.Popen[str]) -> None:
    """Interrupts a child and all it started, so that it can clear up; kills what has not ended in time."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)


def _interrupted(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
