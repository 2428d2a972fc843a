"""What a test run says in the end: which recorded data was not there; for `tools/test.py`, the counts of outcomes.

Reads the reports pytest has collected; with xdist the controlling process has those of all workers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import shared

REPORT_VARIABLE: Final = "DOVETAIL_TEST_REPORT"  # the file `tools/test.py` reads
OUTCOMES: Final = ("failed", "passed", "skipped", "xfailed", "xpassed", "error")


def write(reporter: pytest.TerminalReporter) -> None:
    """Names the absent data on the terminal; writes the counts where they are asked for."""
    absent = absent_data(reporter.stats.get("skipped", ()))
    if absent:
        count = sum(absent.values())
        reporter.section("recorded data")
        reporter.write_line(
            f"not in {shared.folder()}; {count} tests skipped (set DOVETAIL_SHARED to its folder):"
        )
        for name in sorted(absent):
            reporter.write_line(f"  {name}: {absent[name]}")

    if path := os.environ.get(REPORT_VARIABLE):
        counts = {outcome: len(reporter.stats.get(outcome, ())) for outcome in OUTCOMES}
        Path(path).write_text(json.dumps({"counts": counts, "absent": absent}), encoding="utf-8")


def absent_data(skips: Sequence[Any]) -> Mapping[str, int]:
    """How many tests skipped for want of each recorded file."""
    result: dict[str, int] = {}
    for report in skips:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _, is_absent, name = reason.partition(shared.ABSENT)
        if is_absent:
            result[name] = result.get(name, 0) + 1
    return result
