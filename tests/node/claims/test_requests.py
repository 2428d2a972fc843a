"""Requests of the kubelet beside each other: GPUs in parallel, requests given up, two agents, status and metadata."""

from __future__ import annotations

import asyncio
import datetime
import fcntl
import json
from typing import Any

import msgspec

from dovetail.kubetypes import registry
from dovetail.node.claims.claim_status import ClaimStatus
from dovetail.node.claims.gpu_locks import GpuLocks
from dovetail.node.kubelet.claim_service import Failed, Prepared
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.node.claims.conftest import MakeNode
from tests.node.claims.node import Node, mps, share
from tests.support.waiting import until

# ---- beside each other


def test_a_gpu_that_is_slow_does_not_hold_up_the_others(node: Node) -> None:
    slow = node.allocate("slow", "gpu-0")
    quick = node.allocate("quick", "gpu-1")

    async def story() -> list[str]:
        finished: list[str] = []

        async def prepare(reference: Any) -> None:
            await node.agent.prepare([reference])
            finished.append(reference.name)

        async with node.agent._locks.held([0]):  # as while a partition of GPU 0 is being made
            task = asyncio.create_task(prepare(slow))
            await prepare(quick)
            assert finished == ["quick"]
        await task
        return finished

    assert node.run(story()) == ["quick", "slow"]


def test_a_request_that_was_given_up_is_finished_all_the_same(node: Node) -> None:
    reference = node.allocate("eval", "gpu-0-mig-1g10gb-19-0")

    async def story() -> None:
        async with node.agent._locks.held([0]):
            task = asyncio.create_task(node.agent.prepare([reference]))
            await until(lambda: node.agent._running, "the request is being served")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await node.agent.close()

    node.run(story())
    assert node.instances() == [("1g.10gb", 0)]
    assert node.checkpoint()["claims"][reference.uid]["state"] == "PrepareCompleted"


def test_many_requests_for_one_claim_prepare_it_once(node: Node) -> None:
    reference = node.allocate("eval", "gpu-0-mig-1g10gb-19-0")

    async def story() -> list[Any]:
        return await asyncio.gather(*(node.agent.prepare([reference]) for _ in range(5)))

    answers = node.run(story())
    assert len({str(answer) for answer in answers}) == 1
    assert node.events("gpu-instance-created") == ["gpu-instance-created"]


def test_another_agent_on_the_node_is_waited_for_and_named(node: Node) -> None:
    reference = node.allocate("train", "gpu-0")
    node.agent._locks = GpuLocks(node.plugin, patience=0.2)
    with (node.plugin / "gpu-0.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the other agent does
        answer = node.run(node.agent.prepare([reference]))[reference.uid]
        assert isinstance(answer, Failed)
        assert "another instance of the agent" in answer.message
        assert isinstance(node.prepared("beside", "gpu-1"), Prepared)
    assert isinstance(node.prepare("train"), Prepared)


def test_two_agents_keep_each_others_claims(node: Node) -> None:
    node.prepared("old", "gpu-0")
    before = node.agent
    node.restart()
    node.prepared("new", "gpu-1")
    old = node.allocate("late", "gpu-1")
    answer = node.run(before.prepare([old]))[old.uid]
    assert isinstance(answer, Failed), "the older agent sees what the newer one prepared"
    assert len(node.checkpoint()["claims"]) == 2


# ---- status.devices


def write_status(node: Node) -> bool:
    return node.run(node.agent._status.write_waiting())


def test_the_uuid_of_a_partition_is_written_into_the_claim(node: Node) -> None:
    node.prepared("eval", "gpu-0-mig-3g40gb-9-4")
    assert write_status(node)
    (device,) = node.stored("eval")["status"]["devices"]
    state = node.hardware.snapshot().gpus[0]
    assert device["data"]["uuid"] == state.gpu_instances[0].compute_instances[0].uuid
    assert device["data"]["parentUUID"] == state.uuid
    assert device["data"]["pciBusID"] == state.bus_id
    assert device["conditions"][0]["type"] == "Ready"
    version = node.stored("eval")["metadata"]["resourceVersion"]
    node.restart()
    assert write_status(node)
    assert node.stored("eval")["metadata"]["resourceVersion"] == version, "nothing has changed"


def test_a_status_that_cannot_be_written_fails_no_claim_and_is_repeated(node: Node) -> None:
    refusals: list[str] = []

    def refuse(verb: str, target: Target) -> None:
        if verb == "patch" and target.subresource == "status" and target.name == "eval":
            refusals.append(verb)
            raise failures.Unavailable("the server is away")

    node.allocate("eval", "gpu-0")
    node.api.before = refuse
    assert isinstance(node.prepare("eval"), Prepared)
    assert not write_status(node)
    node.api.before = None
    assert write_status(node)
    assert node.stored("eval")["status"]["devices"][0]["device"] == "gpu-0"
    assert refusals == ["patch"]


def test_entries_of_other_drivers_stay_in_the_status(node: Node) -> None:
    nic = {"device": "eth0", "driver": "nic.example.com", "pool": "nics"}
    node.prepared("both", "gpu-0", nic)
    theirs = {"driver": "nic.example.com", "pool": "nics", "device": "eth0", "data": {"ip": "::1"}}
    target = Target(registry.CLAIM, "default", "both", "status")
    node.run(node.api.patch(target, msgspec.json.encode({"status": {"devices": [theirs]}})))
    assert write_status(node)
    devices = {device["device"]: device for device in node.stored("both")["status"]["devices"]}
    assert devices["eth0"]["data"] == {"ip": "::1"}
    assert "uuid" in devices["gpu-0"]["data"]


def test_the_status_says_whether_a_share_is_enforced(node: Node) -> None:
    node.prepared("free", share("gpu-0", memory="4Gi"))
    node.prepared("bound", share("gpu-1", memory="4Gi"), configs=[mps()])
    assert write_status(node)

    def message(name: str) -> str:
        return str(node.stored(name)["status"]["devices"][0]["conditions"][0]["message"])

    assert "accounting only" in message("free")
    assert "MPS enforces its memory limit" in message("bound")


def test_a_claim_that_is_gone_is_no_longer_written(node: Node) -> None:
    node.prepared("eval", "gpu-0")
    node.delete("eval")
    assert write_status(node)


class JumpingClock:
    """A clock that moves on by each sleep, without waiting."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


def test_the_writer_waits_longer_after_each_failure(node: Node) -> None:
    node.prepared("eval", "gpu-0")
    claim = node.agent._execution.file.read().claims[node.uid("eval")]
    clock = JumpingClock()
    writer = ClaimStatus(node.api, clock)

    def refuse(verb: str, target: Target) -> None:
        if verb == "patch" and len(clock.slept) < 8:
            raise failures.Unavailable("the server is away")

    async def story() -> None:
        node.api.before = refuse
        writer.add(claim)
        task = asyncio.create_task(writer.run())
        await until(lambda: not writer._waiting, "the status is written")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    node.run(story())
    assert clock.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


# ---- device metadata


def test_metadata_files_reach_the_container_and_end_with_the_claim(make_node: MakeNode) -> None:
    node = make_node(writes_metadata=True)
    answer = node.prepared("eval", "gpu-0-mig-1g10gb-19-0", "gpu-1")
    uid = node.uid("eval")
    assert answer.devices[1].cdi_device_ids == (
        f"k8s.gpu.nvidia.com/claim={uid}-gpu-1",
        f"gpu.nvidia.com/metadata={uid}_r1",
    )
    spec = json.loads((node.cdi / f"gpu.nvidia.com_metadata_{uid}_r0.json").read_bytes())
    (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
    folder = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/eval/r0"
    assert mount["containerPath"] == f"{folder}/gpu.nvidia.com-metadata.json"
    with open(mount["hostPath"], "rb") as file:
        document = json.load(file)
    assert document["kind"] == "DeviceMetadata"
    (device,) = document["requests"][0]["devices"]
    assert device["attributes"]["uuid"]["string"].startswith("MIG-")
    assert node.unprepare("eval") is None
    node.assert_clean()
    assert not list((node.plugin / "dra-device-metadata").iterdir())
