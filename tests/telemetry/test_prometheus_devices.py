"""Utilisation from Prometheus makes work idle, and nothing else does: no dead exporter, gap, restart or wrong clock."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.live.report import idle_watch
from dovetail.model.accounting.records import MICRO_GPU, Allocation, Form, Owner
from dovetail.model.idle import Device, IdleStage
from dovetail.telemetry import metrics, prometheus_devices
from dovetail.telemetry.prometheus_api import Endpoint, Prometheus, PrometheusFailure
from tests.batch import stories
from tests.batch.test_history import Watch
from tests.schedule import build
from tests.telemetry.scripted_prometheus import ScriptedPrometheus, served

POLICY = queues.IdlePolicy(threshold_percent=5, window_seconds=600, grace_seconds=300)
DEVICE = Device(build.DRIVER, "n0", "gpu-0")
LABELS = {
    "UUID": "GPU-a",
    "gpu": "0",
    "Hostname": "n0",
    "dra_driver_name": build.DRIVER,
    "dra_pool_name": "n0",
    "dra_device_name": "gpu-0",
    "job": "dcgm",
}


class Lab:
    """A pod with a GPU in a queue that minds idle work, an exporter scraped every half minute, and a Prometheus."""

    def __init__(self, prometheus: ScriptedPrometheus, watch: Watch, source: Any) -> None:
        self.prometheus = prometheus
        self.watch = watch
        queue = stories.queue("lab", gpu=2, idle=POLICY)
        self.world = stories.world(build.node("n0"), build.gpu_slice("n0", 1), queue)
        stories.runs(self.world, "notebook", "lab", ("n0", "gpu-0"), since=60)
        self.meter = metrics.Metrics(is_strict=True)
        self.events: list[str] = []
        self.idle = idle_watch.IdleWatch(
            self.world, source, clock=watch, record_event=self._record, meter_=self.meter
        )
        self.energy = 1000.0
        self.exports = True
        self.is_frozen = False

    def _record(self, pod: pods.Pod, *, reason: str, note: str, kind: str = "Normal") -> None:
        self.events.append(reason)

    async def minutes(self, count: float, *, percent: float = 0.0) -> None:
        """Time goes by, with the GPU this busy."""
        until = self.watch.seconds + count * 60
        while self.watch.seconds < until:
            if self.exports:
                self.scrape(percent)
            await self.idle.measure()
            await self.watch.sleep(30)

    def scrape(self, percent: float) -> None:
        if not self.is_frozen:
            self.energy += 9000
        self.prometheus.add("DCGM_FI_DEV_GPU_UTIL", percent, **LABELS)
        self.prometheus.add("DCGM_FI_DEV_POWER_USAGE", 300, **LABELS)
        self.prometheus.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", self.energy, **LABELS)

    @property
    def stage(self) -> IdleStage | None:
        state = self.world.idle.get("uid-of-notebook")
        return None if state is None else state.stage


def tell(story: Callable[[Lab], Awaitable[None]], *, skew: float = 0.0) -> None:
    async def main() -> None:
        watch = Watch()
        script = ScriptedPrometheus(lambda: watch.now().timestamp() + skew)
        async with served(script), Prometheus(Endpoint(url=script.url)) as prometheus:
            source = prometheus_devices.PrometheusDevices(prometheus, clock=watch)
            await story(Lab(script, watch, source))

    asyncio.run(main())


def test_a_gpu_that_does_nothing_makes_its_pod_warned_then_preemptible() -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(9)
        assert lab.stage is None
        await lab.minutes(3)
        assert lab.stage is IdleStage.WARNED
        await lab.minutes(6)
        assert lab.stage is IdleStage.PREEMPTIBLE
        assert lab.events == [idle_watch.IDLE, idle_watch.YIELDS]
        assert b'dovetail_idle_pods{stage="Preemptible"} 1.0' in lab.meter.text()
        await lab.minutes(1, percent=80)
        assert lab.stage is None
        assert lab.events[-1] == idle_watch.BUSY

    tell(story)


def test_an_exporter_that_dies_makes_nothing_idle() -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(8)
        lab.exports = False
        await lab.minutes(20)
        assert lab.stage is None
        assert lab.events == []

    tell(story)


def test_after_an_exporter_died_idle_work_is_no_longer_evicted() -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(18)
        assert lab.stage is IdleStage.PREEMPTIBLE
        lab.exports = False
        await lab.minutes(4)
        assert lab.stage is IdleStage.WARNED, "too old to evict by"
        await lab.minutes(4)
        assert lab.stage is None
        assert lab.events[-1] == idle_watch.UNKNOWN

    tell(story)


def test_a_grace_period_does_not_pass_without_measurements() -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(12)
        assert lab.stage is IdleStage.WARNED
        lab.exports = False
        await lab.minutes(4)
        assert lab.stage is IdleStage.WARNED, "6 minutes after the warning, 2 of them measured"

    tell(story)


def test_an_exporter_that_repeats_itself_makes_nothing_idle() -> None:
    async def story(lab: Lab) -> None:
        lab.is_frozen = True
        await lab.minutes(30)
        assert lab.stage is None
        assert lab.events == []

    tell(story)


def test_a_gap_starts_the_window_again() -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(8)
        lab.exports = False
        await lab.minutes(6)
        lab.exports = True
        await lab.minutes(8)
        assert lab.stage is None, "8 minutes after the gap are less than the window"
        await lab.minutes(3)
        assert lab.stage is IdleStage.WARNED

    tell(story)


def test_a_driver_that_was_loaded_again_proves_nothing_about_before() -> None:
    async def story(lab: Lab) -> None:
        lab.scrape(0)
        await lab.watch.sleep(30)
        lab.scrape(0)
        await lab.watch.sleep(30)
        lab.energy = 0.0
        lab.scrape(0)
        samples = await lab.idle._metrics.utilisation([DEVICE])
        assert len(samples[DEVICE]) == 1, "only the sample since the counter started again"

    tell(story)


def test_prometheus_down_makes_nothing_idle() -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(8)
        lab.prometheus.failure = (503, "starting")
        await lab.minutes(20)
        assert lab.stage is None

    tell(story)


@pytest.mark.parametrize("skew", [-1200.0, 1200.0])
def test_a_clock_that_differs_neither_hides_nor_delays_use(skew: float) -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(11.5)
        assert lab.stage is IdleStage.WARNED
        await lab.minutes(0.5, percent=90)
        assert lab.stage is None, "busy now, by either clock"

    tell(story, skew=skew)


def test_a_device_that_is_not_measured_has_no_samples() -> None:
    async def story(lab: Lab) -> None:
        lab.scrape(0)
        other = Device(build.DRIVER, "n0", "gpu-7")
        samples = await lab.idle._metrics.utilisation([DEVICE, other])
        assert set(samples) == {DEVICE}
        (sample,) = samples[DEVICE]
        assert sample.at == lab.watch.now().replace(microsecond=sample.at.microsecond)
        assert sample.at.tzinfo is datetime.UTC

    tell(story)


def ask(story: Callable[[ScriptedPrometheus, Prometheus], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        script = ScriptedPrometheus(lambda: 1000.0)
        async with served(script):
            endpoint = Endpoint(url=script.url, **options)
            async with Prometheus(endpoint) as prometheus:
                await story(script, prometheus)

    asyncio.run(main())


def test_the_token_is_read_again_for_every_query(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")

    async def story(script: ScriptedPrometheus, prometheus: Prometheus) -> None:
        await prometheus.now()
        token.write_text("second\n")
        await prometheus.now()
        assert script.headers == ["Bearer first", "Bearer second"]

    ask(story, token_file=str(token))


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, "", "refuses us (HTTP 403)"),
        (200, "<html>login</html>", "is not a Prometheus (HTTP 200: <html>login</html>)"),
        (
            422,
            '{"status":"error","errorType":"execution","error":"too many samples"}',
            "execution: too many samples",
        ),
    ],
)
def test_refusals_say_what_is_wrong(status: int, body: str, words: str) -> None:
    async def story(script: ScriptedPrometheus, prometheus: Prometheus) -> None:
        script.failure = (status, body)
        with pytest.raises(PrometheusFailure) as raised:
            await prometheus.now()
        assert words in str(raised.value)
        assert prometheus.endpoint.url in str(raised.value)

    ask(story)


def test_a_server_that_is_not_there_is_named() -> None:
    async def main() -> None:
        async with Prometheus(Endpoint(url="http://127.0.0.1:9")) as prometheus:
            with pytest.raises(PrometheusFailure, match=r"http://127.0.0.1:9: cannot be reached"):
                await prometheus.now()

    asyncio.run(main())


def test_a_long_window_is_asked_for_in_parts() -> None:
    async def main() -> None:
        script = ScriptedPrometheus(lambda: 4000.0)
        for at in range(30, 3601, 30):
            script.add("DCGM_FI_DEV_GPU_UTIL", 100 if at > 1800 else 0, at=at, **LABELS)
        owner = Owner(namespace="ml", pod="a", pod_uid="u")
        allocation = Allocation("x", "GPU-a", "n0", MICRO_GPU, Form.WHOLE, owner, start=0)
        async with served(script), Prometheus(Endpoint(url=script.url)) as prometheus:
            source = prometheus_devices.PrometheusDevices(prometheus, clock=Watch())
            result = await source.usage([allocation], ["GPU-a"], start=0, end=3_600_000)
        by_allocation = {usage.allocation: usage for usage in result.usage}
        assert by_allocation["x"].samples == 120
        assert by_allocation["x"].busy_micro == 500_000

    asyncio.run(main())
