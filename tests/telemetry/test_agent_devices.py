"""Node agents that are asked directly: what they may say, how they let us in, where they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dovetail.boot import agent_targets
from dovetail.model import exposition
from dovetail.model.idle import Device
from dovetail.telemetry import agent_devices, exposition_reader
from tests.batch.test_history import Watch
from tests.schedule import build
from tests.telemetry import scripted_agent
from tests.telemetry.idle_lab import DEVICE, LABELS
from tests.telemetry.scripted_agent import ScriptedAgent

UTIL = "DCGM_FI_DEV_GPU_UTIL"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def ask(
    story: Callable[[ScriptedAgent, agent_devices.AgentDevices, Watch], Awaitable[None]],
    **access: Any,
) -> None:
    async def main() -> None:
        watch, agent = Watch(), ScriptedAgent()
        async with scripted_agent.served(agent):
            settings = agent_devices.Access(**access)
            source = agent_devices.AgentDevices(agent.targets, settings, clock=watch)
            async with source:
                await story(agent, source, watch)

    asyncio.run(main())


def test_each_look_adds_a_sample_and_old_ones_are_forgotten() -> None:
    async def story(agent: ScriptedAgent, source: agent_devices.AgentDevices, watch: Watch) -> None:
        for percent in range(10):
            agent.add(UTIL, percent, **LABELS)
            samples = await source.utilisation([DEVICE])
            await watch.sleep(30)
        assert [sample.percent for sample in samples[DEVICE]] == [5, 6, 7, 8, 9]

    ask(story)


def test_a_driver_that_was_loaded_again_proves_nothing_about_before() -> None:
    async def story(agent: ScriptedAgent, source: agent_devices.AgentDevices, watch: Watch) -> None:
        for energy in (1000, 2000, 5):
            agent.add(UTIL, 0, **LABELS)
            agent.add(ENERGY, energy, **LABELS)
            samples = await source.utilisation([DEVICE])
            await watch.sleep(30)
        assert len(samples[DEVICE]) == 1

    ask(story)


def test_an_agent_speaks_for_its_own_node_only() -> None:
    async def story(agent: ScriptedAgent, source: agent_devices.AgentDevices, watch: Watch) -> None:
        agent.add(UTIL, 0, **(LABELS | {"dra_pool_name": "n1", "Hostname": "n1"}))
        other = Device(build.DRIVER, "n1", "gpu-0")
        agent.addresses["n1"] = "127.0.0.1:9"  # where nothing answers
        assert await source.utilisation([DEVICE, other]) == {}

    ask(story)


def test_a_dead_agent_among_others_costs_its_own_devices_only() -> None:
    async def story(agent: ScriptedAgent, source: agent_devices.AgentDevices, watch: Watch) -> None:
        agent.add(UTIL, 7, **LABELS)
        agent.addresses["n1"] = "127.0.0.1:9"
        samples = await source.utilisation([DEVICE, Device(build.DRIVER, "n1", "gpu-0")])
        assert set(samples) == {DEVICE}

    ask(story)


@pytest.mark.parametrize(
    ("failure", "words"), [((403, ""), "HTTP 403"), ((302, ""), "HTTP 302"), ((200, "\xff"), "")]
)
def test_refusals_say_what_is_wrong(failure: tuple[int, str], words: str) -> None:
    async def story(agent: ScriptedAgent, source: agent_devices.AgentDevices, watch: Watch) -> None:
        agent.failure = failure
        if not words:
            assert await source.utilisation([DEVICE]) == {}, "text without series measures nothing"
            return
        with pytest.raises(agent_devices.AgentsFailure) as raised:
            await source.utilisation([DEVICE])
        assert f"none of 1 node agents answers; that of n0: ValueError: {words}" in str(
            raised.value
        )

    ask(story)


def test_no_agents_at_all_is_said() -> None:
    async def story(agent: ScriptedAgent, source: agent_devices.AgentDevices, watch: Watch) -> None:
        agent.addresses.clear()
        with pytest.raises(agent_devices.AgentsFailure, match="no node agent serves metrics"):
            await source.utilisation([DEVICE])

    ask(story)


def test_the_token_is_read_again_for_every_look(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")

    async def story(agent: ScriptedAgent, source: agent_devices.AgentDevices, watch: Watch) -> None:
        await source.utilisation([DEVICE])
        token.write_text("second\n")
        await source.utilisation([DEVICE])
        assert agent.headers == ["Bearer first", "Bearer second"]
        token.unlink()
        with pytest.raises(agent_devices.AgentsFailure, match="cannot be read"):
            await source.utilisation([DEVICE])

    ask(story, token_file=str(token))


@hypothesis.given(
    st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), st.text(min_size=1)),
    st.floats(allow_nan=False),
)
def test_what_is_written_is_read(labels: dict[str, str], value: float) -> None:
    text = exposition.line(UTIL, labels, value) + exposition.line("other", labels, 1)
    (series,) = exposition_reader.read(text, {UTIL}, at=5.0)
    assert series.labels == {"__name__": UTIL, **labels}
    assert series.points == [(5.0, value)]


@pytest.mark.parametrize(
    "line", [f"{UTIL}{{a=b}} 1", f'{UTIL}{{a="b"', f"{UTIL} many", "# TYPE x gauge", "{} 1", UTIL]
)
def test_broken_lines_are_no_series(line: str) -> None:
    assert exposition_reader.read(line, {UTIL}, at=0.0) == []


def test_agents_are_the_ready_endpoints_of_their_service() -> None:
    slice_ = {
        "ports": [{"name": "other", "port": 1}, {"name": "metrics", "port": 9400}],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "nodeName": "a", "conditions": {"ready": True}},
            {"addresses": ["fd00::2"], "nodeName": "b", "conditions": {}},
            {"addresses": ["10.0.0.3"], "nodeName": "c", "conditions": {"ready": False}},
            {"addresses": ["10.0.0.4"]},
        ],
    }
    empty = {"ports": None, "endpoints": None}
    documents = [json.dumps(slice_).encode(), json.dumps(empty).encode()]
    expected = {"a": "10.0.0.1:9400", "b": "[fd00::2]:9400"}
    assert agent_targets.addresses(documents) == expected
