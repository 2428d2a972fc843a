"""The stories need the fake GPUs' library, which gcc builds."""

from __future__ import annotations

import shutil

import pytest

from tests.support import real


@pytest.fixture(autouse=True)
def _gcc() -> None:
    if shutil.which("gcc") is None:
        real.missing("gcc")
