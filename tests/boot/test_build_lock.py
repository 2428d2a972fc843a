"""Of two builders of the same programs one builds; the other says for whom it waits, and keeps saying it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from dovetail.devcluster import build_lock
from tests.support.waiting import wait_until


def test_a_second_builder_names_the_first_at_once_and_repeats_it(tmp_path: Path) -> None:
    lock = tmp_path / "programs.lock"
    messages: list[str] = []

    def build_too() -> None:
        with build_lock.held(lock, title="a greeting", say=messages.append, repeat_seconds=0.01):
            messages.append("acquired")

    second = threading.Thread(target=build_too)
    with build_lock.held(lock, title="a greeting", say=messages.append):
        assert messages == []  # the first waits for no other
        second.start()
        wait_until(lambda: len(messages) >= 3, "the second builder repeats that it waits")
        assert "acquired" not in messages
    second.join()

    announcement = f"process {os.getpid()} is building a greeting already; waiting for it …"
    assert messages[0] == announcement
    assert messages[1].removeprefix(announcement).strip().endswith("s")  # with the time waited
    assert messages[-1] == "acquired"


def test_the_lock_of_a_builder_that_was_killed_is_free(tmp_path: Path) -> None:
    lock = tmp_path / "programs.lock"
    lock.write_text("4711\n")  # what a killed builder leaves behind
    messages: list[str] = []
    with build_lock.held(lock, title="a greeting", say=messages.append):
        assert messages == []
        assert lock.read_text() == f"{os.getpid()}\n"
