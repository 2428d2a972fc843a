"""What a test does when a real part is missing: skip, or fail when REQUIRE_REAL=1."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

NOT_BUILT_VARIABLE = (
    "DOVETAIL_NOT_BUILT"  # the parts whose build failed before the tests began, with commas between
)


def missing(what: str) -> NoReturn:
    """Ends the test: skipped for a developer without the part, failed where all parts are required."""
    if os.environ.get("REQUIRE_REAL") == "1":
        pytest.fail(f"required but missing: {what}", pytrace=False)
    pytest.skip(f"missing: {what}")


def refuse_unbuilt(part: str) -> None:
    """Ends the test if the build of the part has failed already: no test tries it again, which may take minutes."""
    if part in os.environ.get(NOT_BUILT_VARIABLE, "").split(","):
        missing(f"{part}, whose build failed")
