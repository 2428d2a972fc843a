"""How long campaigns go on: short in `make test`, in full in `make test-long`.

A short campaign has every kind of fault, attack and story, but fewer of each. DOVETAIL_TEST_LENGTH=full asks for all.
"""

from __future__ import annotations

import os
from typing import Final, TypeVar

IS_FULL: Final = os.environ.get("DOVETAIL_TEST_LENGTH", "") == "full"

Length = TypeVar("Length")


def length(*, short: Length, full: Length) -> Length:
    """The length for this run."""
    return full if IS_FULL else short
