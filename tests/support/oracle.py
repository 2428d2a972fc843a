"""Talks to the upstream oracle: real Kubernetes code behind JSON lines, built on first use.

Given requests, it returns the answers in the same order. It never interprets an answer and never hides a
failure: a request the oracle refuses comes back as a dict with `failure`.
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pytest

from tests.support import real

BUILD = Path(__file__).resolve().parents[2] / "tools" / "oracle" / "build.py"
GO_MISSING = 3  # exit code of the build driver
STOP_SECONDS = 10

Message = dict[str, Any]


class OracleDied(RuntimeError):
    """The process ended in the middle of a conversation; its own words are on stderr."""


class Oracle:
    """One running oracle. `ask` and `ask_many` are for one thread at a time."""

    def __init__(self, binary: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(binary), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, request: Message) -> Message:
        """The answer to one request."""
        return self.ask_many([request])[0]

    def ask_many(self, requests: Iterable[Message]) -> list[Message]:
        """The answers in request order. Writing and reading go on side by side, so no pipe can fill up."""
        if self._process.poll() is not None:
            raise OracleDied(
                f"the oracle has already ended with exit code {self._process.returncode}"
            )
        lines = [msgspec.json.encode(request) + b"\n" for request in requests]
        writer = threading.Thread(target=self._write, args=(lines,), daemon=True)
        writer.start()
        answers = [self._read() for _ in lines]
        writer.join()
        return answers

    def close(self) -> None:
        """Ends the process: its input is closed, and it is killed if that does not suffice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(
            BrokenPipeError
        ):  # it died earlier, and the failed question has reported that
            self._process.stdin.close()
        try:
            self._process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _write(self, lines: Sequence[bytes]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.writelines(lines)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return  # the reader sees the end of output and says so

    def _read(self) -> Message:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OracleDied(
                f"the oracle ended with exit code {self._process.wait()} before it answered"
            )
        return msgspec.json.decode(line, type=Message)


def start() -> Oracle:
    """A new oracle process, built first if need be. Ends the test when Go is missing or the build fails."""
    return Oracle(binary())


@functools.cache
def binary() -> Path:
    """The built program. Skips, or fails under REQUIRE_REAL=1, where there is no Go."""
    real.refuse_unbuilt("oracle")
    built = subprocess.run(
        [sys.executable, str(BUILD)], stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode == GO_MISSING:
        real.missing("a Go toolchain, to build the upstream oracle")
    if built.returncode != 0:
        pytest.fail(
            "the upstream oracle does not build; its build output is on stderr", pytrace=False
        )
    return Path(built.stdout.strip())


@functools.cache
def session() -> Oracle:
    """The one oracle of this test session, started on first use; `stop_session` ends it."""
    return start()


def stop_session() -> None:
    """Ends the session's oracle if one was started. Meant for the teardown of a session fixture."""
    if session.cache_info().currsize:
        session().close()
        session.cache_clear()
