"""The real promtool reads the rules, and finds that each alert fires when it should and ends when it should."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dovetail.monitoring.rules import rules_file
from tests.monitoring import stories
from tests.support import real

pytestmark = pytest.mark.slow


def promtool(*arguments: str | Path) -> str:
    """What promtool prints; its complaint fails the test."""
    program = shutil.which("promtool")
    if program is None:
        real.missing("promtool; make system-deps installs it")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def written(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(rules_file.text(), encoding="utf-8")
    count = len(list(rules_file.alerts())) + len(list(rules_file.recordings()))
    assert f"{count} rules found" in promtool("check", "rules", rules)


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    files = []
    for alert in rules_file.alerts():
        rules = written(
            tmp_path / f"{alert.name}.yaml", rules_file.tree_of(stories.groups_of(alert))
        )
        for index, content in enumerate(stories.promtool_tests(alert, str(rules))):
            files.append(written(tmp_path / f"{alert.name}-stories-{index}.yaml", content))
    promtool("test", "rules", *files)
