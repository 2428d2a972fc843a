"""The monitor passes changes on, survives a driver that fails, and remembers faults across restarts of the agent."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from pathlib import Path

from dovetail.node import gpu_control
from dovetail.node.health.health_monitor import DeviceHealthStream, HealthMonitor
from dovetail.node.health.health_record import HealthRecord
from dovetail.node.health.policy_table import HealthPolicy
from dovetail.node.health.readings import Event, GpuReading, GpuReset, XidEvent
from dovetail.node.kubelet.claim_service import DeviceHealth, HealthState

POLICY = HealthPolicy()
WELL = (GpuReading(minor=0), GpuReading(minor=1))


class StillClock:
    """Time stands until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.seconds, datetime.UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


class ScriptedSource:
    """Reads well, or fails with the failure a test sets."""

    def __init__(self) -> None:
        self.failure: gpu_control.GpuFailure | None = None

    def readings(self) -> tuple[GpuReading, ...]:
        if self.failure:
            raise self.failure
        return WELL

    def wait_for_events(self, seconds: float) -> tuple[Event, ...]:
        raise gpu_control.GpuUnsupported("no events here")


def monitor(folder: Path, clock: StillClock, *, boot_id: str = "boot-1") -> HealthMonitor:
    record = HealthRecord(folder / "health.json", boot_id=boot_id)
    return HealthMonitor(ScriptedSource(), policy=POLICY, record=record, clock=clock)


def names(watched: HealthMonitor) -> dict[int, list[str]]:
    return {
        minor: [fault.name for fault in health.faults] for minor, health in watched.healths.items()
    }


def test_faults_outlive_the_agent_but_not_the_boot(tmp_path: Path) -> None:
    clock = StillClock()

    async def story() -> None:
        await monitor(tmp_path, clock).observe(WELL, [XidEvent(code=48, minor=1)])

    asyncio.run(story())
    assert names(monitor(tmp_path, clock)) == {0: [], 1: ["xid-48"]}
    assert names(monitor(tmp_path, clock, boot_id="boot-2")) == {}


def test_a_damaged_record_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "health.json").write_bytes(b'{"boot_id": 3')
    assert names(monitor(tmp_path, StillClock())) == {}


def test_an_xid_without_a_gpu_concerns_all_and_a_reset_ends_it_for_one(tmp_path: Path) -> None:
    watched = monitor(tmp_path, StillClock())

    async def story() -> None:
        await watched.observe(WELL)
        await watched.observe((), [XidEvent(code=119)])
        assert names(watched) == {0: ["xid-119"], 1: ["xid-119"]}
        await watched.observe((), [GpuReset(minor=0)])

    asyncio.run(story())
    assert names(watched) == {0: [], 1: ["xid-119"]}


def test_the_kubelet_gets_the_whole_list_at_once_and_after_each_change(tmp_path: Path) -> None:
    clock = StillClock()
    watched = monitor(tmp_path, clock)
    stream = DeviceHealthStream(
        watched,
        policy=POLICY,
        pool_name="node-a",
        devices_of=lambda minor: [f"gpu-{minor}", f"gpu-{minor}-mig-1g10gb-19-0"],
        clock=clock,
    )

    async def story() -> list[Sequence[DeviceHealth]]:
        await watched.observe(WELL)
        changes = aiter(stream.changes())
        first = await anext(changes)
        following = asyncio.ensure_future(anext(changes))
        await watched.observe((), [XidEvent(code=79, minor=1)])
        async with asyncio.timeout(60):
            while not any(device.state is HealthState.UNHEALTHY for device in await following):
                following = asyncio.ensure_future(anext(changes))
        second = following.result()
        await changes.aclose()
        return [first, second]

    first, second = asyncio.run(story())
    assert [device.state for device in first] == [HealthState.HEALTHY] * 4
    assert [device.state for device in second] == [HealthState.HEALTHY] * 2 + [
        HealthState.UNHEALTHY
    ] * 2
    assert second[2].message == "gpu-1: xid 79: drain the node and reboot it"


def test_a_driver_that_does_not_answer_makes_gpus_unmonitored_not_the_agent_stop(
    tmp_path: Path,
) -> None:
    clock = StillClock()
    source = ScriptedSource()
    record = HealthRecord(tmp_path / "health.json", boot_id="boot-1")
    watched = HealthMonitor(source, policy=POLICY, record=record, clock=clock)

    async def story() -> None:
        await watched.observe(WELL)
        source.failure = gpu_control.GpuUnresponsive("nvmlDeviceGetCount did not answer in 10 s")
        running = asyncio.ensure_future(watched.run())
        async with asyncio.timeout(60):
            async for healths in watched.changes():
                if all(health.fault("unmonitored") for health in healths.values()):
                    break
        assert not running.done()
        running.cancel()

    asyncio.run(story())
    assert names(watched) == {0: ["unmonitored"], 1: ["unmonitored"]}


def test_a_seen_again_reading_is_no_change(tmp_path: Path) -> None:
    hot = (GpuReading(minor=0, temperature_celsius=97),)
    hotter = (GpuReading(minor=0, temperature_celsius=98),)
    watched = monitor(tmp_path, StillClock())

    async def story() -> int:
        await watched.observe(hot)
        changes = aiter(watched.changes())
        await anext(changes)
        await watched.observe(hotter)
        following = asyncio.ensure_future(anext(changes))
        done, _ = await asyncio.wait({following}, timeout=0)
        following.cancel()
        return len(done)

    assert asyncio.run(story()) == 0
