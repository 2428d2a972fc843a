"""Runs something that starts an event loop in a thread of its own.

Notebooks run cells inside an event loop, in which another one cannot be started. Ctrl-C ends the waiting at once; the
thread goes on to the end of its request and its result is dropped. Never repeats anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run(work: Callable[[], T]) -> T:
    """What the work returns or raises."""
    results: list[T] = []
    failures: list[BaseException] = []

    def keep() -> None:
        try:
            results.append(work())
        except BaseException as failure:  # raised again in the caller's thread
            failures.append(failure)

    thread = threading.Thread(target=keep, name="dovetail-sdk", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
