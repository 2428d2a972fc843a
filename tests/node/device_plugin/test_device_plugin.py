"""The agent in device plugin mode on fake GPUs: counts, shares, health, a kubelet that starts again, both modes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
import yaml

from tests.node.agent import agent_node
from tests.node.agent.agent_node import Agent, AgentNode
from tests.node.device_plugin.counting_kubelet import CountingKubelet
from tests.node.kubelet import kubelet_side
from tests.support import real

pytestmark = pytest.mark.slow

Story = Callable[[AgentNode, CountingKubelet], Awaitable[None]]


@asynccontextmanager
async def kubelet_of(node: AgentNode) -> AsyncIterator[CountingKubelet]:
    kubelet = CountingKubelet(node.kubelet_root / "device-plugins")
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()


def run(story: Story, *, gpus: int = 2) -> None:
    if shutil.which("gcc") is None:
        real.missing("gcc")

    async def talk(node: AgentNode) -> None:
        async with kubelet_of(node) as kubelet:
            await story(node, kubelet)

    agent_node.run(talk, gpus=gpus)


def start(node: AgentNode, *options: str) -> Agent:
    return node.start("--mode=device-plugin", *options)


def cdi_names(node: AgentNode) -> set[str]:
    (path,) = node.cdi.glob("*.yaml")
    tree = yaml.safe_load(path.read_text())
    return {f"{tree['kind']}={device['name']}" for device in tree["devices"]}


def test_gpus_are_counted_allocated_and_described_for_the_runtime() -> None:
    async def story(node: AgentNode, kubelet: CountingKubelet) -> None:
        agent = start(node)
        await agent.until(lambda: kubelet.count("nvidia.com/gpu") == 4, "four GPUs")
        (request,) = kubelet.requests
        assert (request.version, request.endpoint) == ("v1beta1", "dovetail-gpu.sock")
        assert request.options.get_preferred_allocation_available
        ids = sorted(kubelet.devices["nvidia.com/gpu"])
        assert all(len(kubelet.numa[id_]) == 1 for id_ in ids)

        chosen = await kubelet.prefer("nvidia.com/gpu", 2)
        assert len(chosen) == 2
        first, second = await kubelet.allocate("nvidia.com/gpu", [ids[0]], [ids[1], ids[2]])
        assert first == [f"k8s.device-plugin.nvidia.com/gpu={ids[0]}"]
        assert {*first, *second} < cdi_names(node)
        assert not await node.slices(), "counted GPUs are not published as devices as well"

        assert await agent.stop() == 0
        assert not list((node.kubelet_root / "device-plugins").glob("dovetail-*"))

    run(story, gpus=4)


def test_an_id_that_is_not_there_is_refused_and_the_agent_goes_on() -> None:
    async def story(node: AgentNode, kubelet: CountingKubelet) -> None:
        agent = start(node)
        await agent.until(lambda: kubelet.count("nvidia.com/gpu") == 2, "two GPUs")
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await kubelet.allocate("nvidia.com/gpu", ["GPU-of-last-year"])
        assert refusal.value.code() == grpc.StatusCode.NOT_FOUND
        assert "GPU-of-last-year" in (refusal.value.details() or "")
        ids = sorted(kubelet.devices["nvidia.com/gpu"])
        assert await kubelet.allocate("nvidia.com/gpu", ids[:1])

    run(story)


def test_replicas_share_a_gpu_and_two_of_them_are_one_device() -> None:
    async def story(node: AgentNode, kubelet: CountingKubelet) -> None:
        agent = start(node, "--replicas=4")
        await agent.until(lambda: kubelet.count("nvidia.com/gpu.shared") == 8, "eight shares")
        assert "nvidia.com/gpu" not in kubelet.devices
        ids = sorted(kubelet.devices["nvidia.com/gpu.shared"])
        (names,) = await kubelet.allocate("nvidia.com/gpu.shared", ids[:2])
        assert names == [f"k8s.device-plugin.nvidia.com/gpu={ids[0].partition('::')[0]}"]
        assert len(cdi_names(node)) == 2

    run(story)


def test_mig_devices_are_counted_by_profile_while_they_come_and_go() -> None:
    async def story(node: AgentNode, kubelet: CountingKubelet) -> None:
        agent = start(node)
        await agent.until(lambda: kubelet.count("nvidia.com/gpu") == 2, "two GPUs")
        node.hardware.set_mig_mode(0, True)
        instance, _ = node.hardware.create_mig(0, 19)
        resource = "nvidia.com/mig-1g.10gb"
        await agent.until(lambda: kubelet.count(resource) == 1, "the MIG device")
        await agent.until(lambda: kubelet.count("nvidia.com/gpu") == 1, "one whole GPU")
        (id_,) = kubelet.devices[resource]
        (names,) = await kubelet.allocate(resource, [id_])
        assert set(names) < cdi_names(node)

        node.hardware.destroy_mig(0, instance)
        await agent.until(lambda: kubelet.count(resource) == 0, "no MIG device")

    run(story)


def test_a_faulty_gpu_is_not_counted() -> None:
    async def story(node: AgentNode, kubelet: CountingKubelet) -> None:
        agent = start(node)
        await agent.until(lambda: kubelet.count("nvidia.com/gpu") == 2, "two GPUs")
        node.hardware.inject_xid(1, 79)
        await agent.until(lambda: kubelet.count("nvidia.com/gpu") == 1, "one fit GPU")
        assert len(kubelet.devices["nvidia.com/gpu"]) == 2

    run(story)


def test_a_kubelet_that_starts_again_gets_a_new_registration() -> None:
    async def story(node: AgentNode, kubelet: CountingKubelet) -> None:
        agent = start(node)
        await agent.until(lambda: kubelet.count("nvidia.com/gpu") == 2, "two GPUs")
        await kubelet.stop()
        async with kubelet_of(node) as again:
            await agent.until(lambda: again.count("nvidia.com/gpu") == 2, "two GPUs again")
            ids = sorted(again.devices["nvidia.com/gpu"])
            assert await again.allocate("nvidia.com/gpu", ids)

    run(story)


def test_a_kubelet_that_comes_later_is_found() -> None:
    async def story(node: AgentNode) -> None:
        agent = start(node)
        await agent.logged("agent.started")
        async with kubelet_of(node) as kubelet:
            await agent.until(lambda: kubelet.count("nvidia.com/gpu") == 2, "two GPUs")

    agent_node.run(story)


def test_the_modes_refuse_each_other_on_one_node() -> None:
    async def story(node: AgentNode, kubelet: CountingKubelet) -> None:
        claims = node.start()
        endpoint = await claims.registered()
        part = await node.claim("part", "gpu-0")
        async with kubelet_side.connected(endpoint) as client:
            assert (await client.prepare(part))[part[2]].devices

        refused = start(node, "--log-format=json")
        assert await asyncio.to_thread(refused.process.wait, 120) == 1
        assert "a DRA driver serves this node's GPUs" in refused.log.read_text()
        assert await claims.stop() == 0

        refused = start(node)
        assert await asyncio.to_thread(refused.process.wait, 120) == 1
        log = refused.log.read_text()
        assert "claims prepared on this node: 1" in log
        assert "default/part" in log
        assert kubelet.requests == []

        again = node.start()
        async with kubelet_side.connected(await again.registered()) as client:
            await client.unprepare(part)
        assert await again.stop() == 0
        counting = start(node)
        await counting.until(lambda: kubelet.count("nvidia.com/gpu") == 2, "two GPUs")

        refused = node.start()
        assert await asyncio.to_thread(refused.process.wait, 120) == 1
        assert "a device plugin serves this node's GPUs" in refused.log.read_text()

    run(story)
