"""The node agent as one process: serves the kubelet, runs background work, and ends in order.

Given the work of a mode, which `node_parts.py` makes from the options. Sockets are served before the API server
answers, and background work that fails is logged and started again: a node keeps its GPUs whatever else is broken.
SIGTERM and SIGINT withdraw the registration, let the kubelet's calls finish, and end the process with 0. Never decides
about a device.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from dovetail.ports import meter

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
Mode: TypeAlias = Literal["dra", "device-plugin"]
MigMode: TypeAlias = Literal["dynamic", "static", "off"]

LOG = logging.getLogger("dovetail.node")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line and the environment say."""

    node_name: str
    kubeconfig: str | None = None
    context: str | None = None
    pod_uid: str = ""  # with it, two instances can serve during a rolling update
    mode: Mode = "dra"
    mig: MigMode = "dynamic"
    shares: str = "off"  # off, memory, or how many
    replicas: int = 1  # of each GPU, in device plugin mode
    device_metadata: bool = False  # files in containers that describe their devices (KEP-5304)
    kubelet_root: Path = Path("/var/lib/kubelet")
    plugins_registry: Path | None = None  # plugins_registry of the kubelet's root
    cdi_directory: Path = Path("/var/run/cdi")
    driver_root: Path = Path("/")  # as the host sees it
    driver_root_container: Path | None = None  # as this process sees it; the same if not given
    sysfs_root: Path = Path("/sys")
    proc_root: Path = Path("/proc")
    boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id")
    nvidia_cdi_hook: Path = Path("/usr/bin/nvidia-cdi-hook")
    health_policy: Path | None = None  # the administrator's rules, which go before ours
    reset_command: str = ""  # carries out the healer's resets; {gpus} and {pci} stand for the GPUs
    reboot_command: str = ""
    hook_seconds: float = 300.0  # until such a command is ended
    metrics_address: str = ""  # HOST:PORT; empty serves none
    device_metrics: float = 5.0  # seconds between readings of the GPUs' use; 0 exports none

    @property
    def visible_driver_root(self) -> Path:
        """Where this process finds the driver's files."""
        return self.driver_root_container or self.driver_root


class Serving(Protocol):
    """What the kubelet talks to."""

    async def start(self) -> None:
        """Serves."""
        ...

    async def stop(self) -> None:
        """Withdraws the registration, finishes calls in flight, ends."""
        ...


class Work(NamedTuple):
    """What the process runs. Each of the loops runs until it is cancelled."""

    serving: Serving
    loops: Mapping[str, Callable[[], Awaitable[None]]] = {}
    ready: Callable[[], Mapping[str, bool]] = dict
    device_metrics: Callable[[], Awaitable[str]] | None = None


async def run(
    work: Work,
    *,
    http: AbstractAsyncContextManager[object] | None = None,
    meter_: meter.Meter | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT."""
    stopping = asyncio.create_task(_signalled())
    async with contextlib.AsyncExitStack() as open_:
        if http is not None:
            await open_.enter_async_context(http)
        await open_.enter_async_context(_running(work.loops, meter_ or meter.NoMeter()))

        starting = asyncio.create_task(work.serving.start())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            # The loops end after it: a call in flight may need them.
            open_.push_async_callback(work.serving.stop)
            LOG.info("agent.started")
            await stopping
        else:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        LOG.info("agent.stopping")
    LOG.info("agent.stopped")


@contextlib.asynccontextmanager
async def _running(
    loops: Mapping[str, Callable[[], Awaitable[None]]], meter_: meter.Meter
) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(_kept_up(name, loop, meter_)) for name, loop in loops.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _kept_up(name: str, loop: Callable[[], Awaitable[None]], meter_: meter.Meter) -> None:
    """Starts the loop again after an error, with growing pauses while it keeps failing."""
    pause_seconds = FIRST_PAUSE_SECONDS
    now = asyncio.get_running_loop().time
    while True:
        started = now()
        try:
            await loop()
            LOG.error("agent.work.ended: it should not end by itself", extra={"work": name})
        except Exception:
            LOG.exception("agent.work.failed", extra={"work": name, "again_seconds": pause_seconds})
        meter_.count("dovetail_node_restarts_total", work=name)
        if now() - started > LONGEST_PAUSE_SECONDS:
            pause_seconds = FIRST_PAUSE_SECONDS
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


async def _signalled() -> None:
    """Returns at the first SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await stopping.wait()
