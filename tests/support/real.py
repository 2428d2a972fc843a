"""What a test does when a real part or shared data is missing: skip, or fail when REQUIRE_REAL=1."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Ends the test: skipped for a developer without the part, failed where all parts are required."""
    if os.environ.get("REQUIRE_REAL") == "1":
        pytest.fail(f"required but missing: {what}", pytrace=False)
    pytest.skip(f"missing: {what}")
