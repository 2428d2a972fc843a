"""Starts and ends lifecycle processes for a story on a real API server: one life at a time, and the next one after it.

Given a control plane and a namespace. The Lease of a life that was killed is deleted, so that the next begins at once;
that a Lease runs out by itself is tested elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from dovetail.devcluster import control_plane
from tests.support import rest

ROOT: Final = Path(__file__).resolve().parents[3]
PAUSE_SECONDS: Final = 0.05  # between passes of a life, in place of seconds
TETHER: Final = ("setpriv", "--pdeathsig", "KILL")  # ends with this process, however that ends


class Lives:
    """The lives of one story, a context manager."""

    def __init__(
        self, plane: control_plane.ControlPlane, api: rest.Rest, namespace: str, directory: Path
    ) -> None:
        self._api = api
        self._namespace = namespace
        self.kubeconfig = plane.kubeconfig
        self._clock = directory / "clock"
        self._clock.write_text("0")
        self.log = directory / "lifecycle.log"
        self.pid = 0
        self.kills = 0
        self.codes: list[int] = []

    def __enter__(self) -> Lives:
        command = [*TETHER, sys.executable, "-m", "tests.upgrade.fleet.lifecycle_life"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(kill=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def begin(self, *, kill_at: int = 0, is_before: bool = False) -> None:
        """Starts a life."""
        order = {
            "kubeconfig": str(self.kubeconfig),
            "lease": f"{self._namespace}/lifecycle",
            "clock": str(self._clock),
            "log": str(self.log),
            "pause_seconds": PAUSE_SECONDS,
            "kill_at": kill_at,
            "is_before": is_before,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        self.pid = self._read()["pid"]
        self._ending = threading.Thread(target=self._wait, daemon=True)
        self._ending.start()

    @property
    def is_alive(self) -> bool:
        """Whether a life goes on."""
        return bool(self.pid)

    def stop(self, *, kill: bool = False) -> None:
        """Ends the present life, and its hold on the Lease."""
        if pid := self.pid:
            with contextlib.suppress(ProcessLookupError):  # it has just killed itself
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
            self._ending.join()

    def set_clock(self, seconds: float) -> None:
        """The clock of all lives is wrong by so much from now on."""
        moved = self._clock.with_suffix(".new")
        moved.write_text(str(seconds))
        moved.replace(self._clock)

    def words(self) -> str:
        """The end of the log."""
        return self.log.read_text()[-3000:] if self.log.exists() else "no log"

    def _wait(self) -> None:
        code = self._read()["code"]
        self.codes.append(code)
        if code == -signal.SIGKILL:
            self.kills += 1
            self._api.delete("leases", "lifecycle", self._namespace)
        self.pid = 0

    def _read(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the program of the lives has ended"
        words: dict[str, int] = json.loads(line)
        return words
