"""Runs lives of the lifecycle process, each a forked process of its own that may kill itself at one of its writes.

A program: reads one order per line, forks a life, writes its process id, and when it has ended its exit code. Forking a
process that has everything imported makes hundreds of lives affordable. The kill is a SIGKILL on itself, right before a
write is sent or right after its answer came, before anything is done with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import datetime
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from dovetail.boot import clocks, lifecycle
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.upgrade import upgrade_loop

PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One life."""

    kubeconfig: str
    lease: str
    clock: str  # a file with the seconds by which the clock is wrong
    log: str
    pause_seconds: float
    kill_at: int = 0  # its n-th write; 0: it lives until a signal
    is_before: bool = False


class SetClock:
    """The clock of the machine, set by a file."""

    def __init__(self, path: Path) -> None:
        self._system = clocks.SystemClock()
        self._path = path

    def now(self) -> datetime.datetime:
        """The time of day, wrong by what the file says."""
        wrong = float(self._path.read_text() or 0)
        return self._system.now() + datetime.timedelta(seconds=wrong)

    def monotonic(self) -> float:
        """As the machine has it: to set a clock does not change it."""
        return self._system.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Real time."""
        await self._system.sleep(seconds)


def is_counted(method: str, path: str) -> bool:
    """Whether a request is a write of the upgrade: neither the Lease nor an event."""
    return method != "GET" and "/leases" not in path and "/events" not in path


def main() -> None:
    """Serves orders until the input ends."""
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        pid = os.fork()
        if pid == 0:
            _live(order)
        _say(pid=pid)
        _, status = os.waitpid(pid, 0)
        _say(code=os.waitstatus_to_exitcode(status))


def _say(**words: int) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(words) + b"\n")
    sys.stdout.buffer.flush()


def _live(order: Order) -> None:
    ctypes.CDLL(None).prctl(
        PR_SET_PDEATHSIG, signal.SIGKILL
    )  # ends with the program that forked it
    try:
        logging.basicConfig(filename=order.log, level=logging.INFO, force=True)
        upgrade_loop.BUSY_SECONDS = order.pause_seconds  # type: ignore[misc]
        upgrade_loop.IDLE_SECONDS = order.pause_seconds  # type: ignore[misc]
        if order.kill_at:
            _arm(order)
        namespace, _, name = order.lease.partition("/")
        connection = client_config.load(order.kubeconfig, context=None)
        process = lifecycle.Lifecycle(
            connection, lifecycle.Settings(namespace, name), clock=SetClock(Path(order.clock))
        )
        asyncio.run(process.run())
    except BaseException:
        logging.exception("life.failed")
        os._exit(1)
    os._exit(0)


def _arm(order: Order) -> None:
    """Counts writes where they leave the process, and ends it at one of them."""
    real = transport.Transport.request
    writes = 0

    async def request(self: transport.Transport, method: str, path: str, **options: Any) -> Any:
        nonlocal writes
        if not is_counted(method, path):
            return await real(self, method, path, **options)
        writes += 1
        is_last = writes == order.kill_at
        if is_last and order.is_before:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await real(self, method, path, **options)
        finally:
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)

    transport.Transport.request = request  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
