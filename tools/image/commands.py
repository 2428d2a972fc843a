"""Runs the programs of which the image is built, one at a time, and says how long each took.

Given a command line; what it prints goes into the message of a failure and nowhere else. Each runs in namespaces of its
own: what it mounts, and what it has started, is gone when it ends, also when it is killed. Never uses a shell.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dovetail.devcluster import build_lock, go_build

TAIL_LINES: Final = 60
NAMESPACES: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def run(command: Sequence[str], *, title: str, scratch: Path, say: go_build.Say) -> None:
    """Runs a command to its end, with temporary files in `scratch`. Raises BuildFailed with what it printed last."""
    say(f"building {title} …")
    began = time.monotonic()
    done = subprocess.run(
        [*NAMESPACES, "--", *command],
        env=os.environ | {"TMPDIR": str(scratch)},
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
    duration = build_lock.duration_text(time.monotonic() - began)
    say(f"building {title} … {command[0]} took {duration}")
