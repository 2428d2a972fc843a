"""Writes a line for each job of each run to a CSV or Parquet file, by the ending of its name.

Given logs of runs as they end. Parquet needs pyarrow, which is asked for before anything runs.
"""

from __future__ import annotations

import csv
import importlib
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.study.queueing import job_log

COLUMNS: Final = ("policy", *(field.name for field in msgspec.structs.fields(job_log.JobRow)))


class RowsFile:
    """The rows of all policies."""

    def __init__(self, file: str) -> None:
        self._path = Path(file)
        self._rows: list[dict[str, Any]] = []
        self._pyarrow: Any = None
        if self._path.suffix == ".parquet":
            self._pyarrow = _pyarrow(file)
        elif self._path.suffix != ".csv":
            raise errors.InputError(f"--rows {file}: expected a name that ends in .csv or .parquet")

    def add(self, policy: str, log: job_log.Log) -> None:
        """All jobs of one run."""
        self._rows += [
            {"policy": policy, **msgspec.structs.asdict(row)} for row in log.rows.values()
        ]

    def write(self) -> None:
        """Replaces the file."""
        try:
            if self._pyarrow is None:
                self._write_csv()
            else:
                self._write_parquet()
        except OSError as error:
            raise errors.InputError(f"{self._path}: cannot be written: {error}") from None

    def _write_csv(self) -> None:
        with self._path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows)

    def _write_parquet(self) -> None:
        parquet = importlib.import_module("pyarrow.parquet")
        parquet.write_table(self._pyarrow.Table.from_pylist(self._rows), self._path)


def _pyarrow(file: str) -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError:
        raise errors.InputError(
            f"--rows {file}: Parquet needs pyarrow; install it with: "
            "pip install 'dovetail[parquet]', or name a .csv file"
        ) from None
