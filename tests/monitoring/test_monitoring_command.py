"""`dovetail monitoring` prints the files that the repository ships, and refuses what it does not have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.monitoring.dashboards import all_dashboards
from dovetail.monitoring.rules import rules_file
from tools import monitoring


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("rules",), monitoring.RULES),
        (("counters",), monitoring.COUNTERS),
        (("routes",), monitoring.ROUTES),
        (("dashboards", "fleet"), monitoring.DASHBOARDS / "fleet.json"),
    ],
    ids=lambda words: str(words[0]) if isinstance(words, tuple) else "",
)
def test_what_is_printed_is_what_is_shipped(
    words: tuple[str, ...], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["monitoring", *words]) == 0
    assert capsys.readouterr().out == file.read_text(encoding="utf-8")


def test_all_dashboards_are_written_into_a_directory(tmp_path: Path) -> None:
    target = tmp_path / "dashboards"
    assert main.main(["monitoring", "dashboards", "--directory", str(target)]) == 0
    names = {path.name for path in target.iterdir()}
    assert names == {f"dovetail-{name}" for name in all_dashboards.files()}


def test_alerts_are_a_table_for_people_and_json_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [alert.name for alert in rules_file.alerts()]
    assert main.main(["monitoring", "alerts"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert main.main(["monitoring", "alerts", "-o", "json"]) == 0
    assert [alert["name"] for alert in json.loads(capsys.readouterr().out)] == names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dashboards", "absent"), 'no dashboard "absent"; there are fleet, queues'),
        (("dashboards", "fleet", "-d", "x"), "exclude each other"),
    ],
)
def test_what_cannot_be_meant_is_usage(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["monitoring", *words]) == 2
    assert message in capsys.readouterr().err
