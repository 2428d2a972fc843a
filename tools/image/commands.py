"""Runs the programs of which the image is built, one at a time, and says how long each took.

Given a command line; what it prints goes into the message of a failure and nowhere else. Never uses a shell.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dovetail.devcluster import build_lock, go_build

TAIL_LINES: Final = 60


def run(
    command: Sequence[str],
    *,
    title: str,
    say: go_build.Say,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> None:
    """Runs a command to its end. Raises BuildFailed with the last lines it printed."""
    say(f"building {title} …")
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-TAIL_LINES:])
        raise go_build.BuildFailed(f"building {title} failed: {command[0]}:\n{tail}")
    seconds = build_lock.duration_text(time.monotonic() - began)
    say(f"building {title} … took {seconds}")
