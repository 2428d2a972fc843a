"""The examples run as they are, on the cluster that the environment names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import embedded, running

EXAMPLES = sorted((running.EXAMPLES / "sdk").glob("*.py"))
SHOWS = {
    "what_is_free": "H100 80GB HBM3",
    "morning_report": "pod speech/big waits: ",
    "buy_four_nodes": "cost per hour: ",
    "room_for_a_gang": "a gang of 8 waits: ",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_its_answer(path: Path, running_cluster: embedded.Embedded) -> None:
    done = subprocess.run(
        [sys.executable, str(path)],
        env={"DOVETAIL_STATE": str(running_cluster.directory), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SHOWS[path.stem] in done.stdout


def test_there_is_an_example_for_every_question() -> None:
    assert {path.stem for path in EXAMPLES} == set(SHOWS)
