"""A state directory per test, and one with the sample fleet, started once and copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli import running


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A state directory nobody used yet."""
    return tmp_path / "state"


@pytest.fixture(scope="session")
def _sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("sample") / "state"
    assert running.inside(state, "up", "--empty").code == 0
    return state


@pytest.fixture
def state(_sample: Path, tmp_path: Path) -> Path:
    """A state directory with the sample fleet and nothing on it, this test's own."""
    return Path(shutil.copytree(_sample, tmp_path / "state"))
