"""Files that mean harm, at every door of the command line: each ends with exit code 0, 1 or 2 and words.

A door is a kind of file and the commands that read it. Real files are mutated as trees, as text and as compressed
bytes, and handed to the command in this process; anything raised, any other exit code, an ending without words, a
defect that a command admits, and any sign that steers a terminal is a finding, made as small as it can be. A run of its
own works in child processes with bounded memory, and with bounded processor time for each file, so that what ends a
process or never ends is a finding too: `python -m tests.fuzz.doors --count 20000 --record`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import logging
import multiprocessing
import multiprocessing.connection
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp.http_exceptions
import click.testing
import msgspec

from dovetail.cli import main as command_line
from tests.fuzz import doors_given as given
from tests.fuzz import process_steps
from tests.fuzz.findings import AGREE, ROOT, Finding, Tally

BATCH: Final = 1_000
RESULTS: Final = ROOT / "bench" / "results" / "fuzz-doors.json"
MEMORY_BYTES: Final = 2 << 30  # of a child; the interpreter and its libraries take a tenth of it
CASE_SECONDS: Final = (
    30.0  # of processor time; the slowest fair file, a fleet of thousands of nodes, takes a few
)
SILENT_SECONDS: Final = 600.0  # until a child that does not even notice its own bound is ended
SHRINKING_STEPS: Final = 120
DEFECTS: Final = (
    command_line.DEFECT,
    "which is a defect of it",
    "Traceback (most recent call last)",
)


class Case(NamedTuple):
    """One file to hand over: by which door, and the number that everything else of it follows from."""

    door: str
    seed: int


class Problem(NamedTuple):
    """What must not be: in a word, and in full."""

    kind: str
    detail: str

    @property
    def symptom(self) -> str:
        """What two findings of one cause share."""
        return (
            f"{self.kind}: {self.detail.strip().splitlines()[-1][:60]}"
            if self.detail.strip()
            else self.kind
        )


class TooLong(BaseException):
    """A case had all the processor time it may have."""


def cases(
    rng: random.Random, count: int, doors: tuple[str, ...] = tuple(given.DOORS)
) -> list[Case]:
    """So many files for every door."""
    return [Case(door, rng.getrandbits(48)) for door in doors for _ in range(count)]


def run(
    oracle: object,
    batch: list[Case],
    *,
    tally: Tally,
    seed: int,
    counts: Counter[str] | None = None,
) -> None:
    """Hands over all of them, here and without bounds. Upstream is not asked."""
    folder = tempfile.TemporaryDirectory(prefix="dovetail-doors-", dir=given.FAST_FOLDER)
    with folder, Handing(Path(folder.name)) as handing:
        for case in batch:
            outcome = handing.hand_over(case)
            _count(case, outcome, handing=handing, tally=tally, seed=seed)
            if counts is not None:
                ending = outcome.kind if isinstance(outcome, Problem) else outcome
                counts[f"{case.door}: {ending}"] += 1


class Handing:
    """A place to lay files into, and the commands that read them. Ends the clusters it started with its block."""

    def __init__(self, folder: Path, *, seconds: float | None = None) -> None:
        self._places: dict[str, given.Place] = {}
        self._open = contextlib.ExitStack()
        self._faults = _Faults()
        self._folder = folder
        self._seconds = seconds

    def __enter__(self) -> Handing:
        logging.getLogger().addHandler(self._faults)
        self._open.callback(logging.getLogger().removeHandler, self._faults)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def hand_over(self, case: Case) -> str | Problem:
        """How it ended: `exit 0`, `exit 1`, `exit 2`, or what must not be."""
        rng = random.Random(case.seed)
        content = given.DOORS[case.door].content(rng)
        return self.tried(case, content, rng)

    def tried(self, case: Case, content: bytes, rng: random.Random | None = None) -> str | Problem:
        """The same for any content; `rng` chooses among the door's commands."""
        rng = rng or self._after_content(case)
        door = given.DOORS[case.door]
        place = self._place(case.door)
        door.lay(place, content, rng)
        for arguments in door.commands(place, rng):
            problem = self._ended(arguments, place)
            if isinstance(problem, Problem):
                return problem
        return problem

    def smallest(self, case: Case, problem: Problem) -> bytes:
        """The content without whatever the problem does not need, within so many steps."""
        rng = random.Random(case.seed)
        content = given.DOORS[case.door].content(rng)
        width, steps = max(1, len(content) // 2), SHRINKING_STEPS
        while width and steps > 0:
            at = 0
            while at < len(content) and steps > 0:
                less = content[:at] + content[at + width :]
                steps -= 1
                still = self.tried(case, less)
                if isinstance(still, Problem) and still.symptom == problem.symptom:
                    content = less
                else:
                    at += width
            width //= 2
        return content

    def _after_content(self, case: Case) -> random.Random:
        """The generator as it stands once the content was made, so that a smaller content meets the same commands."""
        rng = random.Random(case.seed)
        given.DOORS[case.door].content(rng)
        return rng

    def _place(self, door: str) -> given.Place:
        if door not in self._places:
            folder = self._folder / door
            folder.mkdir(mode=0o700)
            self._places[door] = self._open.enter_context(given.DOORS[door].prepared(folder))
        return self._places[door]

    def _ended(self, arguments: tuple[str, ...], place: given.Place) -> str | Problem:
        shown = " ".join(arguments)
        try:
            # Processor time of every thread counts, that of a cluster in this process included.
            with _bounded(self._seconds):
                ending = invoked(arguments, place)
        except TooLong:
            return Problem("too long", f"{shown}\nmore than {self._seconds:g} s of processor time")
        except MemoryError:
            return Problem("memory", f"{shown}\nmore than {MEMORY_BYTES >> 20} MiB")
        if place.cluster is not None and not place.cluster.is_running:
            return Problem(
                "cluster ended", f"{shown}\nthe cluster ended: {place.cluster.failure!r}"
            )
        if faults := self._faults.taken():
            return Problem("raised", f"{shown}\n{faults[0]}")
        return judged(arguments, ending)


class _Faults(logging.Handler):
    """Tracebacks that a cluster in this process writes into its log; the rest of the log is dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the traceback of a record that has one, unless a client sent what is not HTTP."""
        error = record.exc_info[1] if record.exc_info else None
        is_fault = record.levelno >= logging.ERROR and error is not None
        if is_fault and not isinstance(error, aiohttp.http_exceptions.HttpProcessingError):
            self._texts.append("".join(traceback.format_exception(error)))

    def taken(self) -> list[str]:
        """Those since the last call."""
        texts, self._texts = self._texts, []
        return texts


class Ending(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str
    raised: str  # a traceback, or nothing


def invoked(arguments: tuple[str, ...], place: given.Place) -> Ending:
    """The command in this process, without what `main` would hide."""
    is_step = arguments[0] in process_steps.PLACES
    program = process_steps.group if is_step else command_line.cli
    runner = click.testing.CliRunner(env={"DOVETAIL_STATE": str(place.state), "NO_COLOR": "1"})
    result = runner.invoke(program, arguments)
    if isinstance(result.exception, MemoryError | TooLong):
        raise result.exception
    is_raised = result.exception is not None and not isinstance(result.exception, SystemExit)
    raised = (
        "".join(traceback.format_exception(result.exception))
        if is_raised and result.exception
        else ""
    )
    return Ending(result.exit_code, result.stdout, result.stderr, raised)


def judged(arguments: tuple[str, ...], ending: Ending) -> str | Problem:
    """The exit code as a word, or what must not be."""
    shown = " ".join(arguments)
    if ending.raised:
        return Problem("raised", f"{shown}\n{ending.raised}")
    if ending.code not in (0, 1, 2):
        return Problem("exit code", f"{shown}\nexit {ending.code}")
    if defects := [words for words in DEFECTS if words in ending.out + ending.err]:
        line = next(line for line in (ending.out + ending.err).splitlines() if defects[0] in line)
        return Problem("defect", f"{shown}\n{line[line.index(defects[0]) :]}")
    if ending.code and not ending.err.strip():
        return Problem("silent", f"{shown}\nexit {ending.code} without a word")
    if (
        not ending.out.isascii()
        or not ending.err.isascii()
        or not ending.out.replace("\n", "").isprintable()
    ):
        steering = {
            sign
            for sign in ending.out + ending.err
            if not sign.isprintable() and sign not in "\n\t"
        }
        if steering:
            return Problem("steers", f"{shown}\n{min(steering)!a}")
    elif not ending.err.replace("\n", "").replace("\t", "").isprintable():
        return Problem("steers", f"{shown}\non stderr")
    return f"exit {ending.code}"


@contextlib.contextmanager
def _bounded(seconds: float | None) -> Iterator[None]:
    """Raises TooLong inside once the block has had so much processor time."""
    if seconds is None:
        yield
        return

    def end(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _count(
    case: Case, outcome: str | Problem, *, handing: Handing, tally: Tally, seed: int
) -> None:
    tally.counts[outcome.kind if isinstance(outcome, Problem) else AGREE] += 1
    if isinstance(outcome, Problem) and tally.wants(outcome.kind, f"{case.door} {outcome.symptom}"):
        slow = outcome.kind in ("too long", "memory")
        small = (
            given.DOORS[case.door].content(random.Random(case.seed))
            if slow
            else handing.smallest(case, outcome)
        )
        tally.add(finding(case, outcome, small, seed=seed))


def finding(case: Case, problem: Problem, content: bytes, *, seed: int) -> Finding:
    """What to keep: enough to do it again."""
    shown = {
        "door": case.door,
        "seed": case.seed,
        "content": base64.b64encode(content[:100_000]).decode(),
    }
    return Finding(
        what="doors", kind=problem.kind, seed=seed, case=shown, ours=problem.detail, theirs=None
    )


# A run with bounds


def main(arguments: list[str] | None = None) -> int:
    """0 when nothing was found, 1 when something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.doors", description=__doc__)
    parser.add_argument("--door", choices=(*given.DOORS, "all"), default="all")
    parser.add_argument("--seed", type=int, default=1, help="the first round's seed")
    parser.add_argument("--count", type=int, default=20_000, help="files for each door")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    expected = parser.parse_args(arguments)
    doors = tuple(given.DOORS) if expected.door == "all" else (expected.door,)
    tally, counts, began = Tally("doors"), Counter[str](), time.perf_counter()
    with contextlib.suppress(KeyboardInterrupt):
        for door in doors:
            given.warm(door)  # once for all children
            for number, seed in enumerate(
                range(expected.seed, expected.seed + -(-expected.count // BATCH)), start=1
            ):
                _round(
                    cases(random.Random(f"{door} {seed}"), BATCH, (door,)),
                    seed,
                    tally=tally,
                    counts=counts,
                )
                _progress(door, number * BATCH, tally, time.perf_counter() - began)
    outcomes = _outcomes(counts, doors)
    print(msgspec.json.format(msgspec.json.encode(outcomes), indent=2).decode())
    if expected.record:
        _record(
            outcomes, tally, seeds=(expected.seed, expected.seed - 1 + -(-expected.count // BATCH))
        )
    return 1 if tally.disagreements else 0


def _round(batch: list[Case], seed: int, *, tally: Tally, counts: Counter[str]) -> None:
    """One batch in a child; what ends the child is a finding, and a new one goes on behind it."""
    context = multiprocessing.get_context("spawn" if not _can_fork() else "fork")
    while batch:
        near, far = context.Pipe()
        # The folder is this process's: a child that is killed cleans up nothing.
        with tempfile.TemporaryDirectory(prefix="dovetail-doors-", dir=given.FAST_FOLDER) as folder:
            child = context.Process(target=_work, args=(batch, far, Path(folder)), daemon=True)
            child.start()
            far.close()
            batch = _followed(batch, near, child, seed, tally=tally, counts=counts)
            if child.is_alive():
                child.kill()
            child.join()


def _followed(
    batch: list[Case],
    near: multiprocessing.connection.Connection,
    child: Any,
    seed: int,
    *,
    tally: Tally,
    counts: Counter[str],
) -> list[Case]:
    """Takes the child's reports; answers the cases it did not come to."""
    for number, case in enumerate(batch):
        try:
            report = near.recv() if near.poll(SILENT_SECONDS) else None
        except EOFError:
            report = None
        if report is None:
            child.kill()
            child.join()
            problem = Problem("ended", f"the process ended or hung (exit code {child.exitcode})")
            content = given.DOORS[case.door].content(random.Random(case.seed))
            report = problem, content
        outcome, content = report
        counts[f"{case.door}: {outcome.kind if isinstance(outcome, Problem) else outcome}"] += 1
        tally.counts[outcome.kind if isinstance(outcome, Problem) else AGREE] += 1
        if isinstance(outcome, Problem):
            if content is not None and tally.wants(outcome.kind, f"{case.door} {outcome.symptom}"):
                tally.add(finding(case, outcome, content, seed=seed))
            if outcome.kind in (
                "ended",
                "memory",
                "too long",
            ):  # a process that was in such trouble is not reused
                return batch[number + 1 :]
    return []


def _work(batch: list[Case], far: multiprocessing.connection.Connection, folder: Path) -> None:
    """The child: hands over one file after the other and reports each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shrunk: Counter[str] = Counter()
    with Handing(folder, seconds=CASE_SECONDS) as handing:
        for case in batch:
            outcome = handing.hand_over(case)
            content = None
            if isinstance(outcome, Problem):
                shrunk[outcome.symptom] += 1
                if outcome.kind in ("memory", "too long"):
                    content = given.DOORS[case.door].content(random.Random(case.seed))
                elif shrunk[outcome.symptom] <= 1:
                    content = handing.smallest(case, outcome)
            far.send((outcome, content))


def _can_fork() -> bool:
    return "fork" in multiprocessing.get_all_start_methods()


def _progress(door: str, done: int, tally: Tally, seconds: float) -> None:
    rate = sum(tally.counts.values()) / seconds
    print(
        f"{door}: {done} files, {rate:.0f}/s, {tally.disagreements} in trouble",
        file=sys.stderr,
        flush=True,
    )


def _outcomes(counts: Counter[str], doors: tuple[str, ...]) -> dict[str, dict[str, int]]:
    by_door: dict[str, dict[str, int]] = {door: {} for door in doors}
    for name, number in sorted(counts.items()):
        door, _, outcome = name.partition(": ")
        by_door[door][outcome] = number
    return by_door


def _record(outcomes: dict[str, dict[str, int]], tally: Tally, *, seeds: tuple[int, int]) -> None:
    """Puts these doors into the record; others keep what was recorded of them."""
    before = json.loads(RESULTS.read_bytes()) if RESULTS.exists() else {}
    doors = before.get("doors", {})
    for door, result in outcomes.items():
        lines = [
            item.ours.strip().splitlines()[-1][:200]
            for item in tally.findings
            if item.case["door"] == door
        ]
        doors[door] = {
            "files": sum(result.values()),
            "seeds": {"first": seeds[0], "last": seeds[1], "files_per_seed": BATCH},
            "outcomes": result,
            "findings": lines,
        }
    summary = {
        "files": sum(item["files"] for item in doors.values()),
        "bounds": {"memory_bytes": MEMORY_BYTES, "processor_seconds": CASE_SECONDS},
        "doors": {door: doors[door] for door in given.DOORS if door in doors},
    }
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
