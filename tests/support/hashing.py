"""Whether something depends on the order of sets and dictionaries: the same program under two hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from dovetail.model import plan
from dovetail.quantity import quantity


def as_text(done: plan.Plan) -> str:
    """A plan as one line of text."""
    return msgspec.json.encode(done, enc_hook=quantity.encode_hook).decode()


def printed(code: str) -> set[str]:
    """Everything a program prints, under either seed: one text if it does not depend on it."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
