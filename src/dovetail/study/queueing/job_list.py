"""Reads a list of jobs from CSV text: when each is submitted, how long it runs, how many GPUs it needs.

Refuses what it cannot use with the file, line and column, and says what it expected. Never opens a file, never decides.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dovetail import errors
from dovetail.kubetypes import names

REQUIRED: Final = ("submit_s", "duration_s", "num_gpus")
OPTIONAL: Final = ("name", "queue", "priority", "gpus_per_pod", "est_duration_s")
COLUMNS: Final = (*REQUIRED, *OPTIONAL)
GPUS_PER_POD: Final = 8  # the largest pod where the list does not state it
MAX_SECONDS: Final = 3_153_600_000  # a hundred years
MAX_GPUS: Final = 100_000
MAX_PRIORITY: Final = 1_000_000_000  # of a PriorityClass; higher ones are the system's
NAME_CHARACTERS: Final = 57  # a pod's name adds a number


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that start together and run equally long. Times are whole seconds."""

    name: str
    submit_seconds: int
    duration_seconds: int
    gpus: int
    pods: int
    queue: str = ""
    priority: int = 0
    expected_seconds: int | None = None  # what the scheduler may know about its duration

    @property
    def gpus_per_pod(self) -> int:
        """GPUs of each of its pods."""
        return self.gpus // self.pods


class _Cell(NamedTuple):
    file: str
    line: int
    column: str
    text: str

    def problem(self, expected: str) -> errors.InputError:
        place = f"{self.file}: line {self.line}, column {self.column}"
        return errors.InputError(f'{place}: expected {expected}, got "{self.text}"')

    def number(self, *, least: int, most: int) -> int:
        try:
            value = round(float(self.text))
        except (ValueError, OverflowError):
            raise self.problem(f"a number from {least} to {most}") from None
        if not least <= value <= most:
            raise self.problem(f"a number from {least} to {most}")
        return value


def equal_pods(gpus: int, *, most: int = GPUS_PER_POD) -> int:
    """The fewest equal pods of at most so many GPUs each."""
    fewest = -(-gpus // most)
    return next(pods for pods in range(fewest, gpus + 1) if gpus % pods == 0)


def read(text: str, *, file: str) -> tuple[Job, ...]:
    """The jobs, in the order of their submission; those of one second in the order of the file."""
    rows = csv.DictReader(text.splitlines())
    _check_header(rows.fieldnames or (), file)
    jobs = list(_jobs(rows, file))
    if not jobs:
        raise errors.InputError(f"{file}: holds no jobs; add a line below the header")
    return tuple(sorted(jobs, key=lambda job: job.submit_seconds))


def _check_header(columns: Sequence[str], file: str) -> None:
    missing = [column for column in REQUIRED if column not in columns]
    if missing:
        raise errors.InputError(
            f"{file}: line 1: no column {', '.join(missing)}; "
            f"expected {', '.join(REQUIRED)}, and optionally {', '.join(OPTIONAL)}"
        )
    repeated = sorted({column for column in columns if columns.count(column) > 1})
    if repeated:
        raise errors.InputError(f"{file}: line 1: column {repeated[0]} stands there twice")


def _jobs(rows: csv.DictReader[str], file: str) -> Iterator[Job]:
    lines_by_name: dict[str, int] = {}
    for row in rows:
        line = rows.line_num
        job = _job(row, file=file, line=line)
        first_line = lines_by_name.setdefault(job.name, line)
        if first_line != line:
            cell = _Cell(file, line, "name", job.name)
            raise cell.problem(f"a name that line {first_line} does not use")
        yield job


def _job(row: Mapping[str, str | None], *, file: str, line: int) -> Job:
    cells = {
        column: _Cell(file, line, column, (row.get(column) or "").strip()) for column in COLUMNS
    }
    gpus = cells["num_gpus"].number(least=1, most=MAX_GPUS)
    expected = cells["est_duration_s"]
    priority = cells["priority"]
    return Job(
        name=_name(cells["name"], line),
        submit_seconds=cells["submit_s"].number(least=0, most=MAX_SECONDS),
        duration_seconds=cells["duration_s"].number(least=1, most=MAX_SECONDS),
        gpus=gpus,
        pods=_pods(cells["gpus_per_pod"], gpus),
        queue=_queue(cells["queue"]),
        priority=priority.number(least=0, most=MAX_PRIORITY) if priority.text else 0,
        expected_seconds=expected.number(least=1, most=MAX_SECONDS) if expected.text else None,
    )


def _name(cell: _Cell, line: int) -> str:
    name = cell.text or f"job-{line:07d}"
    if len(name) > NAME_CHARACTERS or not names.is_dns_label(name):
        raise cell.problem(f'lower-case letters, digits and "-", at most {NAME_CHARACTERS}')
    return name


def _queue(cell: _Cell) -> str:
    if cell.text and not names.is_dns_label(cell.text):
        raise cell.problem('lower-case letters, digits and "-"')
    return cell.text


def _pods(cell: _Cell, gpus: int) -> int:
    """How many pods: as stated, else the fewest equal ones of at most 8 GPUs."""
    if cell.text:
        per_pod = cell.number(least=1, most=gpus)
        if gpus % per_pod:
            raise cell.problem(f"a divisor of num_gpus ({gpus})")
        return gpus // per_pod
    return equal_pods(gpus)
