"""Ends a scheduler process at a chosen write: right before the server gets it, or right after the server answered it.

Runs the fault proxy in a thread of its own, without any other fault, for tests that are not coroutines.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import subprocess
import threading
from collections.abc import Iterator
from typing import NamedTuple

from dovetail.devcluster import control_plane
from tests.faults.injected import Log
from tests.faults.proxy import Proxy, Trap

GIVE_UP_SECONDS = 120.0


class Point(NamedTuple):
    """Where a process ends: at its next write of this class, as `tests.faults.request_classes` names them."""

    what: str
    is_before: bool

    def __str__(self) -> str:
        return f"{'before' if self.is_before else 'after'} {self.what}"


class Crashes:
    """The way of a scheduler to the server, on which it can be made to end."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._is_dead = threading.Event()
        self._write = ""

    @property
    def port(self) -> int:
        """Where the scheduler has to send its requests."""
        return self._proxy.port

    def arm(self, process: subprocess.Popen[bytes], point: Point) -> None:
        """The process will be dead at this point."""
        self._is_dead.clear()

        def kill(write: str) -> None:
            process.kill()
            process.wait()
            self._write = write
            self._is_dead.set()

        self._proxy.trap = Trap(self._proxy.writes + 1, point.is_before, kill, point.what)

    def wait_for_death(self) -> str:
        """The write at which it came: its class and the object. Fails where there is none."""
        assert self._is_dead.wait(GIVE_UP_SECONDS), (
            f"no such write in {GIVE_UP_SECONDS:.0f} s: {self._proxy.trap}"
        )
        return self._write


@contextlib.contextmanager
def crashes(plane: control_plane.ControlPlane) -> Iterator[Crashes]:
    """A proxy before the control plane, until the end of the block."""
    trust = ssl.create_default_context(cafile=str(plane.ca))
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(plane.layout.server.certificate, plane.layout.server.key)
    proxy = Proxy(
        plane.url, trust=trust, serving=serving, token="", chance=random.Random(0), log=Log()
    )

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="crashes")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result(GIVE_UP_SECONDS)
        try:
            yield Crashes(proxy)
        finally:
            asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result(
                GIVE_UP_SECONDS
            )
        assert proxy.bugs == []
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
