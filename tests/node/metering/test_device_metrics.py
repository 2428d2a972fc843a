"""The agent's process exports the use of fake GPUs: whole, partitioned, shared, lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
import pytest

from dovetail.devcluster import free_ports
from dovetail.devcluster.fake_gpus.hardware_state import Process
from dovetail.kubetypes import registry
from dovetail.ports.api import Target
from tests.node.agent.agent_node import Agent, AgentNode, run
from tests.node.kubelet import kubelet_side

pytestmark = pytest.mark.slow

GIB = 1 << 30
LINE = re.compile(r"^(DCGM_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Found = list[tuple[dict[str, str], float]]


class Endpoint:
    """The agent's /metrics."""

    def __init__(self, node: AgentNode, *options: str) -> None:
        self.port = free_ports.reserve()
        self.agent: Agent = node.start(
            f"--metrics=127.0.0.1:{self.port}", "--device-metrics=0.1", *options
        )

    async def text(self) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}/metrics") as answer,
        ):
            return await answer.text()

    async def until(self, name: str, holds: Callable[[Found], Any], what: str) -> Found:
        """The series of a metric once the condition holds."""

        async def current() -> Found | None:
            try:
                found = series(await self.text(), name)
            except aiohttp.ClientError:
                return None
            return found if holds(found) else None

        result: Found = await self.agent.until(current, what)
        return result


def series(text: str, name: str) -> Found:
    return [
        (dict(LABEL.findall(labels)), float(value))
        for metric, labels, value in LINE.findall(text)
        if metric == name
    ]


async def reserve(node: AgentNode, claim: str, *pods: str) -> list[str]:
    """Makes pods and reserves a claim for them, as a scheduler does; returns their uids."""
    consumers: list[dict[str, str]] = []
    for name in pods:
        tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "none"}]},
        }
        stored = await node.api.create(
            Target(registry.POD, namespace="default"), msgspec.json.encode(tree)
        )
        uid = msgspec.json.decode(stored)["metadata"]["uid"]
        consumers.append({"resource": "pods", "name": name, "uid": uid})
    target = Target(registry.CLAIM, namespace="default", name=claim, subresource="status")
    await node.api.patch(target, msgspec.json.encode({"status": {"reservedFor": consumers}}))
    return [consumer["uid"] for consumer in consumers]


def place_in_pod(node: AgentNode, pid: int, uid: str) -> None:
    folder = node.hardware.proc_root / str(pid)
    folder.mkdir(parents=True)
    scope = f"kubepods-besteffort-pod{uid.replace('-', '_')}.slice/cri-containerd-abc.scope"
    (folder / "cgroup").write_text(f"0::/kubepods.slice/kubepods-besteffort.slice/{scope}\n")


def test_a_whole_gpu_shows_its_use_under_the_pod_that_holds_it() -> None:
    async def story(node: AgentNode) -> None:
        endpoint = Endpoint(node)
        socket = await endpoint.agent.registered()
        claim = await node.claim("whole", "gpu-1")
        (uid,) = await reserve(node, "whole", "train-0")
        async with kubelet_side.connected(socket) as client:
            await client.prepare(claim)
        node.hardware.set_utilisation(1, gpu_percent=73, memory_percent=31)
        node.hardware.set(1, power_usage_milliwatts=412_500, energy_millijoules=2**40 + 1)
        node.hardware.inject_xid(1, 43)

        util = await endpoint.until(
            "DCGM_FI_DEV_GPU_UTIL", lambda found: 73.0 in [value for _, value in found], "73 %"
        )
        by_gpu = {labels["gpu"]: labels for labels, _ in util}
        assert len(util) == 2
        assert "pod" not in by_gpu["0"]
        held = by_gpu["1"]
        assert held["device"] == "nvidia1"
        assert held["modelName"] == "NVIDIA H100 80GB HBM3"
        assert held["Hostname"] == held["dra_pool_name"] == "node-a"
        assert (held["dra_claim_namespace"], held["dra_claim_name"]) == ("default", "whole")
        assert (held["dra_driver_name"], held["dra_device_name"]) == ("gpu.nvidia.com", "gpu-1")
        assert (held["namespace"], held["pod"], held["pod_uid"]) == ("default", "train-0", uid)

        active = await endpoint.until(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE", lambda found: 0.73 in [v for _, v in found], "GPM"
        )
        assert len(active) == 2
        await endpoint.until(
            "DCGM_FI_DEV_XID_ERRORS", lambda found: 43.0 in [v for _, v in found], "the XID"
        )
        text = await endpoint.text()
        values = {
            name: {labels["gpu"]: value for labels, value in series(text, name)}["1"]
            for name in re.findall(r"^# TYPE (DCGM_\w+)", text, re.MULTILINE)
        }
        assert values["DCGM_FI_DEV_POWER_USAGE"] == 412.5
        assert f"}} {2**40 + 1}\n" in text, "counters keep every digit"
        assert values["DCGM_FI_DEV_MEM_COPY_UTIL"] == 31
        total = values["DCGM_FI_DEV_FB_TOTAL"]
        parts = ("FB_USED", "FB_FREE", "FB_RESERVED")
        assert sum(values[f"DCGM_FI_DEV_{part}"] for part in parts) == pytest.approx(total, abs=2)
        assert 'dovetail_node_device_readings_total{result="ok"}' in text

    run(story)


def test_slices_show_their_own_use_and_the_gpu_what_only_it_has() -> None:
    async def story(node: AgentNode) -> None:
        endpoint = Endpoint(node)
        socket = await endpoint.agent.registered()
        names = ("gpu-0-mig-3g40gb-9-0", "gpu-0-mig-1g10gb-19-4")
        claims = [await node.claim(f"part-{index}", name) for index, name in enumerate(names)]
        await reserve(node, "part-0", "serve-0")
        async with kubelet_side.connected(socket) as client:
            prepared = await client.prepare(*claims)
        assert [entry.error for entry in prepared.values()] == ["", ""]
        instances = {
            instance.profile: instance
            for instance in node.hardware.snapshot().gpus[0].gpu_instances
        }
        busy = instances["3g.40gb"]
        process = Process(
            pid=4711,
            memory_bytes=6 * GIB,
            sm_utilisation=64,
            gi=busy.id,
            ci=busy.compute_instances[0].id,
        )
        node.hardware.set_processes(0, [process])

        active = await endpoint.until(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE", lambda found: 0.64 in [v for _, v in found], "64 %"
        )
        by_profile = {
            labels["GPU_I_PROFILE"]: (labels, value)
            for labels, value in active
            if "GPU_I_ID" in labels
        }
        labels, value = by_profile["3g.40gb"]
        assert value == 0.64
        assert labels["GPU_I_ID"] == str(busy.id)
        assert labels["dra_mig_profile"] == "3g.40gb"
        assert labels["dra_mig_device_uuid"] == busy.compute_instances[0].uuid
        assert labels["pod"] == "serve-0"
        idle_labels, idle = by_profile["1g.10gb"]
        assert idle == 0.0
        assert idle_labels["dra_claim_name"] == "part-1"
        assert "pod" not in idle_labels, "no pod has reserved it"

        text = await endpoint.text()
        used = {
            labels.get("GPU_I_PROFILE"): v
            for labels, v in series(text, "DCGM_FI_DEV_FB_USED")
            if labels["gpu"] == "0"
        }
        assert used["3g.40gb"] == pytest.approx(6 * 1024, abs=1)
        assert None not in used, "memory of a partitioned GPU is that of its slices"
        power = [
            labels for labels, _ in series(text, "DCGM_FI_DEV_POWER_USAGE") if labels["gpu"] == "0"
        ]
        assert len(power) == 1
        assert "GPU_I_ID" not in power[0]
        assert [labels["gpu"] for labels, _ in series(text, "DCGM_FI_DEV_GPU_UTIL")] == ["1"]

    run(story)


def test_pods_that_share_a_gpu_have_what_their_processes_use_and_sums_stay_right() -> None:
    async def story(node: AgentNode) -> None:
        endpoint = Endpoint(node, "--shares=2")
        socket = await endpoint.agent.registered()
        claim = await node.claim("pair", "gpu-0")
        left, right = await reserve(node, "pair", "left", "right")
        async with kubelet_side.connected(socket) as client:
            (entry,) = (await client.prepare(claim)).values()
            assert entry.error == ""
        for pid, uid in ((101, left), (102, left), (103, right)):
            place_in_pod(node, pid, uid)
        node.hardware.set_utilisation(0, gpu_percent=90)
        processes = [
            Process(pid=101, memory_bytes=2 * GIB, sm_utilisation=20),
            Process(pid=102, memory_bytes=1 * GIB, sm_utilisation=10),
            Process(pid=103, memory_bytes=4 * GIB, sm_utilisation=40),
            Process(pid=999, memory_bytes=1 * GIB, sm_utilisation=20),  # of no pod
        ]
        node.hardware.set_processes(0, processes)

        def of_gpu_0(found: Found) -> dict[str, float]:
            return {labels.get("pod", ""): v for labels, v in found if labels["gpu"] == "0"}

        util = await endpoint.until(
            "DCGM_FI_DEV_GPU_UTIL", lambda found: of_gpu_0(found).get("right") == 40, "shares"
        )
        assert of_gpu_0(util) == {"left": 30, "right": 40, "": 20}
        assert {labels.get("vgpu") for labels, _ in util if labels["gpu"] == "0"} == {
            "0",
            "1",
            None,
        }
        text = await endpoint.text()
        used = of_gpu_0(series(text, "DCGM_FI_DEV_FB_USED"))
        assert (used["left"], used["right"]) == (3 * 1024, 4 * 1024)
        assert sum(used.values()) == pytest.approx(8 * 1024, abs=4)
        for once in ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_FB_FREE"):
            whole = await endpoint.until(once, lambda found: bool(found), once)
            assert len([labels for labels, _ in whole if labels["gpu"] == "0"]) == 1, once

    run(story)


def test_a_gpu_that_is_lost_has_no_series_and_the_others_keep_theirs() -> None:
    async def story(node: AgentNode) -> None:
        endpoint = Endpoint(node)
        await endpoint.agent.registered()
        await endpoint.until("DCGM_FI_DEV_GPU_UTIL", lambda found: len(found) == 2, "both")
        node.hardware.lose(1)
        left = await endpoint.until("DCGM_FI_DEV_GPU_UTIL", lambda found: len(found) == 1, "one")
        assert left[0][0]["gpu"] == "0"
        node.hardware.restore(1)
        await endpoint.until("DCGM_FI_DEV_GPU_UTIL", lambda found: len(found) == 2, "both again")

    run(story)


def test_without_the_option_no_device_is_read() -> None:
    async def story(node: AgentNode) -> None:
        endpoint = Endpoint(node, "--device-metrics=off")
        await endpoint.agent.registered()
        assert "DCGM" not in await endpoint.text()

    run(story)
