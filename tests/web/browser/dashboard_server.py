"""`dovetail dashboard` as a process of its own, which can end and begin again on the same port."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cli import running

LINK = "dashboard: "


class Server:
    """The process, and the newest link to it. Sessions survive its restarts."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.link = ""
        self._options = [
            *("--no-open", "--token-file", str(folder / "token")),
            *("--session-key-file", str(folder / "key")),
            *options,
        ]
        self._environment = os.environ | environment
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it and waits for its link."""
        port = self.link.partition("#")[0].rstrip("/").rpartition(":")[2] or "0"
        self._process = subprocess.Popen(
            [*running.PROGRAM, "dashboard", "--port", port, *self._options],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout
        line = self._process.stdout.readline().strip()
        assert line.startswith(LINK), line
        self.link = line.removeprefix(LINK)

    def end(self) -> None:
        """Ends it and waits for the end."""
        if self._process is not None:
            with self._process as process:
                process.terminate()
        self._process = None


@contextlib.contextmanager
def started(folder: Path, *options: str, **environment: str) -> Iterator[Server]:
    """A server while the block lasts; the folder keeps its token and key."""
    server = Server(folder, *options, **environment)
    server.start()
    try:
        yield server
    finally:
        server.end()
