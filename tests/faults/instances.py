"""The scheduler as separate processes, each with a user and a proxy of its own, to be killed, stopped and asked."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from dovetail.devcluster import free_ports, processes
from tests.faults.proxy import Proxy
from tests.support.waiting import comes_true_within

READY_SECONDS: Final = 60.0
END_SECONDS: Final = 10.0
LEASE: Final = {"leaseDurationSeconds": 3, "renewDeadlineSeconds": 2, "retryPeriodSeconds": 0.5}
LEASE_SLOWNESS: Final = 2.0  # of the machine, that this lease still serves
LONGEST_STRETCH: Final = 5  # beyond it a takeover would last longer than the bounds of gangs


class Files(NamedTuple):
    """What a process is started with."""

    kubeconfig: Path
    configuration: Path
    port: int  # for health and questions


Command = Callable[[Files], list[str]]


def ours(files: Files) -> list[str]:
    """The scheduler under test."""
    paths = ["--kubeconfig", str(files.kubeconfig), "--config", str(files.configuration)]
    return [sys.executable, "-m", "dovetail.boot.scheduler", *paths]


# The wall clock of the process jumps by up to a day, forwards and backwards, each time it was read so often; steady
# time goes on.
STEPPING: Final = """
import datetime, itertools, runpy, sys
from dovetail.boot import clocks
STEPS = (0, 3600, -3600, 86400, 1, -86400)
READS_PER_STEP = 20
reads = itertools.count()
true_now = clocks.SystemClock.now
def stepped(self):
    steps, rest = divmod(next(reads), READS_PER_STEP)
    step = STEPS[steps % len(STEPS)]
    if not rest:
        print(f"wall clock stepped by {step} s", file=sys.stderr, flush=True)
    return true_now(self) + datetime.timedelta(seconds=step)
clocks.SystemClock.now = stepped
runpy.run_module("dovetail.boot.scheduler", run_name="__main__")
"""


def with_stepping_clock(files: Files) -> list[str]:
    """The scheduler under test on a machine whose time of day is set again and again."""
    _, _, _, *arguments = ours(files)
    return [sys.executable, "-c", STEPPING, *arguments]


def lease(slowness: float) -> dict[str, float]:
    """The times of an election. On a starved machine a renewal takes seconds, and no leader keeps a short lease."""
    return {name: seconds * stretch_for(slowness) for name, seconds in LEASE.items()}


def stretch_for(slowness: float) -> int:
    """How many times as long as on a machine with a free core a lease of a few seconds must be."""
    return min(max(1, math.ceil(slowness / LEASE_SLOWNESS)), LONGEST_STRETCH)


class Instance:
    """One replica: a process now and then, the same user always."""

    def __init__(
        self,
        user: str,
        token: str,
        *,
        ca: Path,
        directory: Path,
        proxy: Proxy,
        command: Command = ours,
    ) -> None:
        self.user = user
        self.proxy = proxy
        self.has_election = False
        self._token = token
        self._ca = ca
        self._directory = directory
        self._command = command
        self._port = free_ports.reserve()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What the processes have to say, one after the other."""
        return self._directory / f"{self.user}.log"

    def start(self, *, has_election: bool, slowness: float, command: Command | None = None) -> None:
        """Starts a process, in the usual way or by another command, on a machine that is so much slower than usual."""
        self.has_election = has_election
        files = self._files(slowness)
        self._process = processes.start(
            (command or self._command)(files), log=self.log, is_tethered=True
        )

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    async def ready(self) -> bool:
        """Waits until the process answers; False where it ends instead, or does not answer within the bound."""

        async def is_decided() -> bool:
            return self.exit_code() is not None or await self._asked("/healthz") is not None

        return (
            await comes_true_within(is_decided, seconds=READY_SECONDS) and self.exit_code() is None
        )

    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        """Ends the process as a power cut would; it is gone when this returns."""
        if self.is_running:
            assert self._process is not None
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Stops the process, or lets it go on."""
        assert self._process is not None
        self._process.send_signal(number)

    async def end(self) -> None:
        """Ends the process in good order, or else."""
        if not self.is_running:
            return
        assert self._process is not None
        self._process.terminate()
        if not await comes_true_within(lambda: not self.is_running, seconds=END_SECONDS):
            self.kill()

    async def consistent(self) -> dict[str, Any] | None:
        """What the scheduler finds when it compares its picture with a fresh list; None where it does not answer."""
        return await self._asked("/debug/consistent", seconds=30)

    async def _asked(self, path: str, *, seconds: float = 2) -> dict[str, Any] | None:
        try:
            timeout = aiohttp.ClientTimeout(total=seconds)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self._port}{path}") as answer,
            ):
                text = await answer.text()
                if answer.status != 200:
                    return None
                tree: dict[str, Any] = json.loads(text) if text.startswith("{") else {"text": text}
                return tree
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    def _files(self, slowness: float) -> Files:
        kubeconfig, configuration = (
            self._directory / f"{self.user}.{name}" for name in ("kubeconfig", "config")
        )
        place = {
            "server": f"https://127.0.0.1:{self.proxy.port}",
            "certificate-authority": str(self._ca),
        }
        named = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": place}],
            "users": [{"name": "u", "user": {"token": self._token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        kubeconfig.write_text(json.dumps(named), encoding="utf-8")
        chosen = {
            "apiVersion": "dovetail.dev/v1alpha1",
            "kind": "SchedulerConfiguration",
            "leaderElection": {"enabled": self.has_election, **lease(slowness)},
            "serving": {"port": self._port},
        }
        configuration.write_text(json.dumps(chosen), encoding="utf-8")
        return Files(kubeconfig, configuration, self._port)
