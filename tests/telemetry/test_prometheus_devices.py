"""What only Prometheus brings with it: a clock of its own, tokens, refusals, long windows.

What both sources of utilisation have in common is in `test_idle_sources.py`.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.model.accounting.records import MICRO_GPU, Allocation, Form, Owner
from dovetail.model.idle import Device, IdleStage
from dovetail.telemetry import prometheus_devices
from dovetail.telemetry.prometheus_api import Endpoint, Prometheus, PrometheusFailure
from tests.batch.test_history import Watch
from tests.schedule import build
from tests.telemetry.idle_lab import DEVICE, LABELS, Lab
from tests.telemetry.scripted_prometheus import ScriptedPrometheus, served


def tell(story: Callable[[Lab], Awaitable[None]], *, skew: float = 0.0) -> None:
    async def main() -> None:
        watch = Watch()
        script = ScriptedPrometheus(lambda: watch.now().timestamp() + skew)
        async with served(script), Prometheus(Endpoint(url=script.url)) as prometheus:
            source = prometheus_devices.PrometheusDevices(prometheus, clock=watch)
            await story(Lab(script, watch, source))

    asyncio.run(main())


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
