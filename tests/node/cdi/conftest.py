"""A fake driver root for stories about CDI."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dovetail.devcluster.fake_gpus.hardware import Hardware


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    """Two H100."""
    if shutil.which("gcc") is None:
        pytest.skip("the fake GPUs need gcc")
    return Hardware.create(tmp_path / "hw", gpus=2)
