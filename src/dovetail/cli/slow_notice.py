"""A line on a terminal while a command has nothing to show yet, so that no one wonders whether it runs.

Given the words of the command line. Comes after a moment where stderr is a terminal, and goes before the first output,
the first picture or the end; a file or pipe never gets it. Never says anything about the answer.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Sequence

AFTER_SECONDS = 0.25
READING = "reading the cluster ..."
ASKING = "reading the cluster, asking the scheduler's engine ..."
CHECKING = "checking the objects, asking the cluster ..."
WAITING = "waiting ..."
NOTICES = {
    "get": READING,
    "describe": READING,
    "explain": READING,
    "doctor": READING,
    "cancel": READING,
    "top": READING,
    "logs": READING,
    "snapshot": READING,
    "migrate": READING,
    "apply": CHECKING,
    "create": CHECKING,
    "delete": CHECKING,
    "wait": WAITING,
    "queue": ASKING,
    "why": ASKING,
    "when": ASKING,
    "what-if": ASKING,
    "capacity": ASKING,
    "run": ASKING,
}
_STDIN = "-"  # what a person types there is not to be mixed with a notice

_lock = threading.Lock()
_timer: threading.Timer | None = None
_shown = ""


def start(words: Sequence[str]) -> None:
    """Shows the notice of a command after a moment, unless `end` comes first."""
    global _timer
    notice = NOTICES.get(words[0]) if words else None
    if notice is None or _STDIN in words:
        return
    # Not stdout: who pipes the answer into a pager still sees the notice.
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return
    _timer = threading.Timer(AFTER_SECONDS, _show, (notice,))
    _timer.daemon = True
    _timer.start()


def end() -> None:
    """Takes the notice away, or keeps it from coming."""
    global _timer, _shown
    if _timer is None:
        return
    from dovetail.cli import output

    with _lock:
        _timer.cancel()
        _timer = None
        if _shown:
            with contextlib.suppress(OSError, ValueError):  # the terminal is gone
                output.blank_notice(_shown)
            _shown = ""


def _show(notice: str) -> None:
    global _shown
    from dovetail.cli import output  # not before: help needs nothing of it

    with _lock:
        if _timer is not None:
            _shown = notice
            with contextlib.suppress(OSError, ValueError):
                output.show_notice(notice)
