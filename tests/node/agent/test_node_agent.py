"""`dovetail node-agent` as a process on fake GPUs: publishes, prepares, reports health, survives, ends in order."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
import yaml

from dovetail.kubetypes import registry
from dovetail.ports.api import Target
from tests.node.agent import agent_node
from tests.node.agent.agent_node import AgentNode, run
from tests.node.kubelet import kubelet_side
from tests.support import waiting

pytestmark = pytest.mark.slow

PARTITION = "gpu-0-mig-1g10gb-19-0"


def cdi_files(node: AgentNode) -> list[Path]:
    return sorted(node.cdi.glob("*.yaml"))


def instances(node: AgentNode) -> int:
    """How many MIG devices the hardware has."""
    return sum(len(gpu.gpu_instances) for gpu in node.hardware.snapshot().gpus)


def test_a_node_publishes_its_gpus_and_prepares_claims_on_them() -> None:
    async def story(node: AgentNode) -> None:
        agent = node.start()
        endpoint = await agent.registered()
        await agent.until(node.devices, "the slices")
        published = await waiting.until(_all_of(node, 52), "all slices")
        assert {"gpu-0", "gpu-1", PARTITION} <= set(published)
        whole = await node.claim("whole", "gpu-1")
        part = await node.claim("part", PARTITION)
        async with kubelet_side.connected(endpoint) as client:
            entries = await client.prepare(whole, part)
            assert [entry.error for entry in entries.values()] == ["", ""]
            assert instances(node) == 1
            names = [
                device["name"]
                for path in cdi_files(node)
                for device in yaml.safe_load(path.read_text())["devices"]
            ]
            assert sorted(names) == sorted([f"{whole[2]}-gpu-1", f"{part[2]}-{PARTITION}"])

            stolen = await node.claim("stolen", "gpu-1")
            refused = (await client.prepare(stolen))[stolen[2]]
            assert "gpu-1" in refused.error
            assert whole[2] in refused.error

            await client.unprepare(whole, part)
            assert cdi_files(node) == []
            assert instances(node) == 0
        assert await agent.stop() == 0
        assert await node.devices(), "an agent that ends leaves its slices to the next"
        assert "Traceback" not in agent.log.read_text()

    run(story)


def test_an_error_of_a_gpu_taints_its_devices_and_reaches_the_health_stream() -> None:
    async def story(node: AgentNode) -> None:
        agent = node.start()
        endpoint = await agent.registered()
        await agent.until(_all_of(node, 52), "all slices")
        async with kubelet_side.connected(endpoint) as client:
            stream = client.health()
            first = await stream.read()
            assert {device.health for device in first.devices} == {1}
            assert len(first.devices) == 52

            node.hardware.inject_xid(1, 79)
            states: dict[str, int] = {}
            while states.get("gpu-1") != 2:
                report = await stream.read()
                states = {device.device.device_name: device.health for device in report.devices}
            assert states["gpu-0"] == 1
            assert states["gpu-1-mig-1g10gb-19-0"] == 2
            stream.cancel()

        async def tainted() -> list[str]:
            devices = await node.devices()
            return sorted(name for name, device in devices.items() if device.get("taints"))

        names = await agent.until(tainted, "the taint")
        assert "gpu-1" in names
        assert not [name for name in names if name.startswith("gpu-0")]

    run(story)


def test_slices_that_another_writer_deletes_come_back() -> None:
    async def story(node: AgentNode) -> None:
        agent = node.start("--mig=off")
        await agent.registered()
        (before,) = await agent.until(node.slices, "the slice")
        await node.api.delete(Target(registry.SLICE, name=before["metadata"]["name"]))
        after = await agent.until(node.slices, "the slice again")
        assert after[0]["metadata"]["uid"] != before["metadata"]["uid"]
        assert set(await node.devices()) == {"gpu-0", "gpu-1"}

    run(story)


def test_a_killed_agent_is_followed_by_one_that_knows_its_claims() -> None:
    async def story(node: AgentNode) -> None:
        first = node.start()
        part = await node.claim("part", PARTITION)
        async with kubelet_side.connected(await first.registered()) as client:
            assert (await client.prepare(part))[part[2]].devices
        await first.stop(signal.SIGKILL)
        target = Target(registry.CLAIM, namespace="default", name="part")
        await node.api.delete(target)

        second = node.start(pod_uid="second")
        async with kubelet_side.connected(await second.registered()) as client:
            assert instances(node) == 1
            assert (await client.unprepare(part))[part[2]].error == ""
        assert instances(node) == 0
        assert cdi_files(node) == []

    run(story)


def test_two_instances_of_a_rolling_update_never_work_on_one_gpu_at_once() -> None:
    async def story(node: AgentNode) -> None:
        old, new = node.start(pod_uid="old"), node.start(pod_uid="new")
        part = await node.claim("part", PARTITION)
        async with (
            kubelet_side.connected(await old.registered()) as to_old,
            kubelet_side.connected(await new.registered()) as to_new,
        ):
            node.hardware.slow("nvmlDeviceCreateGpuInstanceWithPlacement", 500)
            answers = await asyncio.gather(to_old.prepare(part), to_new.prepare(part))
            assert [answer[part[2]].error for answer in answers] == ["", ""]
            assert instances(node) == 1
            events = [change.event for change in node.hardware.history()]
            assert events.count("gpu-instance-created") == 1, (
                "the second instance made one of its own"
            )

            assert await old.stop() == 0
            assert (await to_new.unprepare(part))[part[2]].error == ""
            assert instances(node) == 0

    run(story)


def test_without_a_driver_the_agent_waits_and_ends_when_asked() -> None:
    async def story(node: AgentNode) -> None:
        library = node.hardware.library
        hidden = library.with_name("hidden")
        library.rename(hidden)
        agent = node.start()
        await agent.logged("gpus.found driver=none")
        assert await agent.stop() == 0
        assert not (node.kubelet_root / "plugins_registry").exists()
        assert await node.slices() == []

    run(story)


def test_the_health_endpoint_says_what_is_missing(tmp_path: Path) -> None:
    async def story(node: AgentNode) -> None:
        agent = node.start("--metrics=127.0.0.1:0")
        line = await agent.logged("http.serving")
        port = int(line.rpartition("port=")[2])
        await waiting.until(
            lambda: (node.kubelet_root / "plugins_registry/gpu.nvidia.com-reg.sock").exists(),
            "the socket",
            so_far=agent.log.read_text,
        )
        unready = await _http(port, "/readyz")
        assert "[-]registered failed" in unready
        await agent.registered()
        await agent.until(_is_ready(port), "readiness")
        assert "ok" in await _http(port, "/healthz")
        part = await node.claim("part", PARTITION)
        endpoint = node.kubelet_root / "plugins/gpu.nvidia.com/dra.sock"
        async with kubelet_side.connected(endpoint) as client:
            assert (await client.prepare(part))[part[2]].devices
            await client.unprepare(part)
        metrics = await waiting.until(_metrics_of(port, "unprepare"), "the metrics")
        assert 'dovetail_node_claims_total{operation="prepare",result="ok"} 1.0' in metrics

    run(story)


def _all_of(node: AgentNode, count: int):  # type: ignore[no-untyped-def]
    async def devices() -> dict[str, agent_node.Tree] | None:
        published = await node.devices()
        return published if len(published) == count else None

    return devices


def _is_ready(port: int):  # type: ignore[no-untyped-def]
    async def ready() -> bool:
        return (await _http(port, "/readyz")).endswith("ok\n")

    return ready


def _metrics_of(port: int, operation: str):  # type: ignore[no-untyped-def]
    async def metrics() -> str | None:
        text = await _http(port, "/metrics")
        wanted = f'dovetail_node_claims_total{{operation="{operation}",result="ok"}} 1.0'
        return text if wanted in text else None

    return metrics


async def _http(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text
