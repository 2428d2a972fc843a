"""Utilisation makes work idle, and nothing else does: no dead exporter, gap or frozen reading, from either source.

The sources: a Prometheus that scrapes an exporter, and node agents that are asked directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dovetail.live.report import idle_watch
from dovetail.model.idle import IdleStage
from dovetail.telemetry import agent_devices, prometheus_devices
from dovetail.telemetry.prometheus_api import Endpoint, Prometheus
from tests.batch.test_history import Watch
from tests.telemetry import scripted_agent
from tests.telemetry.idle_lab import Lab
from tests.telemetry.scripted_prometheus import ScriptedPrometheus, served

Story = Callable[[Lab], Awaitable[None]]
Tell = Callable[[Story], None]


async def with_prometheus(story: Story) -> None:
    watch = Watch()
    script = ScriptedPrometheus(lambda: watch.now().timestamp())
    async with served(script), Prometheus(Endpoint(url=script.url)) as prometheus:
        source = prometheus_devices.PrometheusDevices(prometheus, clock=watch)
        await story(Lab(script, watch, source))


async def with_agents(story: Story) -> None:
    watch = Watch()
    agent = scripted_agent.ScriptedAgent()
    async with scripted_agent.served(agent):
        source = agent_devices.AgentDevices(agent.targets, agent_devices.Access(), clock=watch)
        async with source:
            lab = Lab(agent, watch, source)
            agent.is_alive = lambda: lab.exports
            await story(lab)


@pytest.fixture(params=[with_prometheus, with_agents])
def tell(request: pytest.FixtureRequest) -> Tell:
    return lambda story: asyncio.run(request.param(story))


def test_a_gpu_that_does_nothing_makes_its_pod_warned_then_preemptible(tell: Tell) -> None:
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


def test_an_exporter_that_dies_makes_nothing_idle(tell: Tell) -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(8)
        lab.exports = False
        await lab.minutes(20)
        assert lab.stage is None
        assert lab.events == []

    tell(story)


def test_after_an_exporter_died_idle_work_is_no_longer_evicted(tell: Tell) -> None:
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


def test_a_grace_period_does_not_pass_without_measurements(tell: Tell) -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(12)
        assert lab.stage is IdleStage.WARNED
        lab.exports = False
        await lab.minutes(4)
        assert lab.stage is IdleStage.WARNED, "6 minutes after the warning, 2 of them measured"

    tell(story)


def test_an_exporter_that_repeats_itself_makes_nothing_idle(tell: Tell) -> None:
    async def story(lab: Lab) -> None:
        lab.is_frozen = True
        await lab.minutes(30)
        assert lab.stage is None
        assert lab.events == []

    tell(story)


def test_a_gap_starts_the_window_again(tell: Tell) -> None:
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


def test_a_source_that_is_down_makes_nothing_idle(tell: Tell) -> None:
    async def story(lab: Lab) -> None:
        await lab.minutes(8)
        lab.exporter.failure = (503, "starting")
        await lab.minutes(20)
        assert lab.stage is None

    tell(story)
