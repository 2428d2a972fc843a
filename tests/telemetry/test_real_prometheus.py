"""Fake GPUs with a script of load, the node agent, a real Prometheus, our reader: what comes out is the script.

Idle work is reclaimed, and only idle work, by what Prometheus or the agents themselves say.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest

from dovetail.ask import measured_use
from dovetail.boot import agent_targets, clocks
from dovetail.boot.observing import prometheus_usage
from dovetail.devcluster import free_ports
from dovetail.devcluster.fake_gpus import load_script
from dovetail.devcluster.fake_gpus.hardware_state import Process
from dovetail.history import backfill, stores
from dovetail.kube import client
from dovetail.kubetypes import registry
from dovetail.model.accounting.records import (
    MICRO_GPU,
    Allocation,
    Asset,
    Form,
    Owner,
    Records,
    Usage,
)
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.server import builtin_kinds
from dovetail.telemetry import measured_devices, prometheus_devices
from dovetail.telemetry.prometheus_api import Endpoint, Prometheus
from tests.node.agent import agent_node
from tests.node.agent.agent_node import NODE, AgentNode
from tests.node.kubelet import kubelet_side
from tests.node.metering.test_device_metrics import Endpoint as AgentEndpoint
from tests.node.metering.test_device_metrics import place_in_pod, reserve
from tests.support import prometheus as servers
from tests.support import waiting

pytestmark = pytest.mark.slow

GIB = 1 << 30
SLICE = "gpu-1-mig-3g40gb-9-0"
SAMPLES_A_PHASE = 6
# Target labels as Prometheus' discovery of pods would set them: they hide the exporter's own.
TARGET_LABELS = {"namespace": "monitoring", "pod": "agent-x7", "container": "agent"}


class Phase(NamedTuple):
    """Percentages of one phase of the script: a whole GPU, a slice, two pods that share a GPU."""

    whole: int
    slice_: int
    left: int
    right: int


PHASES = (Phase(90, 10, 40, 0), Phase(10, 70, 5, 45), Phase(50, 0, 20, 30))


class Scripted(NamedTuple):
    """When each phase began, and when the last one was over."""

    began: list[float]
    end: float


async def prepared(node: AgentNode, socket: Path) -> dict[str, str]:
    """Claims on the devices and pods that hold them; uids of pods by name."""
    claims = [
        await node.claim("pair", "gpu-0"),
        await node.claim("part", SLICE),
        await node.claim("whole", "gpu-2"),
    ]
    holders = {"pair": ("left", "right"), "part": ("serve",), "whole": ("train",)}
    uids: dict[str, str] = {}
    for claim, pods in holders.items():
        uids |= dict(zip(pods, await reserve(node, claim, *pods), strict=True))
    async with kubelet_side.connected(socket) as kubelet:
        entries = await kubelet.prepare(*claims)
    assert [entry.error for entry in entries.values()] == ["", "", ""]
    place_in_pod(node, 101, uids["left"])
    place_in_pod(node, 102, uids["right"])
    return uids


def steps(node: AgentNode, phase: Phase) -> list[load_script.Step]:
    (instance,) = node.hardware.snapshot().gpus[1].gpu_instances
    sharing = (
        Process(pid=101, memory_bytes=2 * GIB, sm_utilisation=phase.left),
        Process(pid=102, memory_bytes=3 * GIB, sm_utilisation=phase.right),
    )
    within = Process(
        pid=103,
        memory_bytes=5 * GIB,
        sm_utilisation=phase.slice_,
        gi=instance.id,
        ci=instance.compute_instances[0].id,
    )
    return [
        load_script.Step(
            at_seconds=0,
            gpu=0,
            gpu_percent=phase.left + phase.right,
            watts=300,
            processes=sharing,
        ),
        load_script.Step(at_seconds=0, gpu=1, watts=200, processes=(within,)),
        load_script.Step(at_seconds=0, gpu=2, gpu_percent=phase.whole, watts=600),
    ]


async def played(node: AgentNode, prometheus: Prometheus, agent: AgentEndpoint) -> Scripted:
    """Plays the phases; each lasts until Prometheus has scraped it a few times."""
    # Prometheus begins to scrape some seconds after it answers.
    first = 'DCGM_FI_DEV_GPU_UTIL{gpu="2"}[60s]'
    await agent.agent.until(lambda: prometheus.instant(first), "the first scrape")
    began: list[float] = []
    for phase in PHASES:
        for step in steps(node, phase):
            load_script.apply(node.hardware, step)
        began.append(time.time())

        async def scraped(since: float = began[-1]) -> float | None:
            raw = await prometheus.instant('DCGM_FI_DEV_GPU_UTIL{gpu="2"}[60s]')
            times = [at for series in raw for at, _ in series.points if at > since]
            return max(times) if len(times) >= SAMPLES_A_PHASE else None

        end = await agent.agent.until(scraped, f"samples of {phase}")
    return Scripted(began, end)


def expected(script: Scripted, levels: Sequence[int], *, start: float) -> float:
    """The mean of the script over the window, as a ratio."""
    edges = [*script.began, script.end]
    busy = sum(
        level * max(0.0, until - max(since, start))
        for level, since, until in zip(levels, edges, edges[1:], strict=False)
    )
    return busy / (script.end - start) / 100


def largest_error(
    script: Scripted, levels: Sequence[int], points: measured_devices.Points, *, start: float
) -> float:
    """What sampling can miss: each change of level lies somewhere between two samples."""
    missed = 0.0
    for number, moment in enumerate(script.began[1:], start=1):
        gap = next(
            (
                later - earlier
                for (earlier, _), (later, _) in itertools.pairwise(points)
                if earlier <= moment < later
            ),
            1.0,
        )
        missed += abs(levels[number] - levels[number - 1]) / 100 * (gap + 0.2)
    return missed / (script.end - start) + 0.01


def allocation(
    pod: str, uid: str, form: Form, asset: str, micro_gpu: int, claim: str
) -> Allocation:
    return Allocation(
        allocation=pod,
        asset=asset,
        node=NODE,
        micro_gpu=micro_gpu,
        form=form,
        owner=Owner(namespace="default", pod=pod, pod_uid=uid),
        start=0,
        profile="3g.40gb" if form is Form.MIG else "",
        claim=claim,
    )


async def stored_minutes(
    file: Path, source: prometheus_devices.PrometheusDevices, known: Records, script: Scripted
) -> tuple[Usage, ...]:
    """What history has after it was filled in from Prometheus, twice."""
    start = round(script.began[0] * 1000)
    end = round(script.end * 1000) + backfill.MINUTE
    usage = prometheus_usage.PrometheusUsage(source)

    async def in_thread(work: Callable[[], Any]) -> Any:
        return work()

    with stores.open_store(str(file), create=True) as store:
        store.append(known)
        for _ in range(2):
            await backfill.backfill(store, usage, start, end, in_thread=in_thread)
        return store.records(start - backfill.MINUTE, end).usage


@pytest.mark.parametrize("honor_labels", [True, False])
def test_what_pods_slices_and_shares_use_is_what_the_script_said(honor_labels: bool) -> None:
    async def story(node: AgentNode) -> None:
        agent = AgentEndpoint(node, "--shares=2")
        uids = await prepared(node, await agent.agent.registered())
        gpus = node.hardware.snapshot().gpus
        target = f"127.0.0.1:{agent.port}"
        async with (
            servers.scraping(
                node.folder, [target], labels=TARGET_LABELS, honor_labels=honor_labels
            ) as url,
            Prometheus(Endpoint(url=url)) as prometheus,
        ):
            script = await played(node, prometheus, agent)
            assert servers.remarks(await agent.text()) == []
            source = prometheus_devices.PrometheusDevices(prometheus, clock=clocks.SystemClock())
            # From the second sample of the first phase on: earlier ones may show the time before it.
            start = script.began[0] + 1.5
            held = (
                allocation("left", uids["left"], Form.REPLICA, gpus[0].uuid, 500_000, "pair"),
                allocation("right", uids["right"], Form.REPLICA, gpus[0].uuid, 500_000, "pair"),
                allocation("serve", uids["serve"], Form.MIG, gpus[1].uuid, 428_571, "part"),
                allocation("train", uids["train"], Form.WHOLE, gpus[2].uuid, MICRO_GPU, "whole"),
            )
            result = await source.usage(
                held,
                [gpu.uuid for gpu in gpus],
                start=round(start * 1000),
                end=round(script.end * 1000),
                max_gap_seconds=10,
            )
            there = tuple(Asset(gpu.uuid, NODE, "NVIDIA H100", start=0) for gpu in gpus)
            known = Records(assets=there, allocations=held)
            minutes = await stored_minutes(node.folder / "history.sqlite", source, known, script)
            raw = await prometheus.instant('DCGM_FI_DEV_GPU_UTIL{gpu="2"}[60s]')
            now, problem = await asyncio.to_thread(measured_use.measured_now, Endpoint(url=url))

        # History has the same holders, by the minute, and nothing twice when it is filled in again.
        assert {each.allocation for each in minutes} == {"", "left", "right", "serve", "train"}
        keys = [(each.asset, each.allocation, each.start) for each in minutes]
        assert len(keys) == len(set(keys))
        assert {each.end - each.start for each in minutes} <= {backfill.MINUTE}

        # What `dovetail top` shows is the last phase.
        assert problem == ""
        assert now.by_device["gpu.nvidia.com", NODE, "gpu-2"] == PHASES[-1].whole / 100
        shared = ("gpu.nvidia.com", NODE, "gpu-0")
        assert now.by_pod[shared, uids["left"]] == PHASES[-1].left / 100
        points = tuple(sorted(raw[0].points))
        usage = {(each.asset, each.allocation): each for each in result.usage}
        assert result.unmatched == 0
        cases = {
            "train": (gpus[2].uuid, [phase.whole for phase in PHASES], 1.0),
            "serve": (gpus[1].uuid, [phase.slice_ for phase in PHASES], 1.0),
            "left": (gpus[0].uuid, [phase.left for phase in PHASES], 2.0),
            "right": (gpus[0].uuid, [phase.right for phase in PHASES], 2.0),
        }
        for name, (asset, levels, factor) in cases.items():
            measured = usage[asset, name].busy_micro
            assert measured is not None, name
            right = expected(script, levels, start=start) * factor
            error = largest_error(script, levels, points, start=start) * factor
            assert measured / MICRO_GPU == pytest.approx(right, abs=error), name
        assert usage[gpus[0].uuid, "left"].memory_bytes == 2 * GIB
        assert usage[gpus[0].uuid, "right"].memory_bytes == 3 * GIB
        assert usage[gpus[1].uuid, "serve"].memory_bytes == pytest.approx(5 * GIB, abs=1 << 20)
        energy = usage[gpus[2].uuid, "train"].energy_millijoules
        assert energy is not None
        seconds = script.end - start
        assert energy / 1000 == pytest.approx(600 * seconds, rel=0.2), "600 W the whole time"

    agent_node.run(story, gpus=3)


QUEUE = {
    "apiVersion": "dovetail.dev/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "lab"},
    "spec": {
        "resources": {"gpu": {"quota": "1"}},
        "namespaceSelector": {},
        "idle": {"thresholdPercent": 5, "windowSeconds": 3, "graceSeconds": 2},
    },
}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
}


URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 100,
}


def gpu_pod(name: str, *, priority: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"dovetail.dev/queue": "lab"},
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": "dovetail",
            "priorityClassName": priority,
            "containers": [
                {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
    }


class IdleStory:
    """A cluster of one node with one GPU, the scheduler as a process, the test as the node's kubelet."""

    def __init__(self, node: AgentNode) -> None:
        self.node = node
        self.port = free_ports.reserve()  # of the scheduler

    async def metrics(self) -> str:
        """Of the scheduler."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}/metrics") as answer,
        ):
            return await answer.text()

    async def create(self, tree: dict[str, Any], kind: registry.Kind) -> None:
        namespace = tree["metadata"].get("namespace", "")
        await self.node.api.create(Target(kind, namespace=namespace), msgspec.json.encode(tree))

    async def pod(self, name: str) -> dict[str, Any] | None:
        try:
            document = await self.node.api.get(Target(registry.POD, "default", name))
        except failures.Missing:
            return None
        tree: dict[str, Any] = msgspec.json.decode(document)
        return tree

    async def submit(self, name: str, *, priority: str = "", **annotations: str) -> None:
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        }
        await self.create(claim, registry.CLAIM)
        await self.create(gpu_pod(name, priority=priority, **annotations), registry.POD)

    async def bound(self, name: str) -> str | None:
        tree = await self.pod(name)
        return tree["spec"].get("nodeName") if tree is not None else None

    async def started(self, name: str, socket: Path) -> None:
        """What the node's kubelet does once the pod is bound."""
        document = await self.node.api.get(Target(registry.CLAIM, "default", name))
        uid = msgspec.json.decode(document)["metadata"]["uid"]
        async with kubelet_side.connected(socket) as kubelet:
            entries = await kubelet.prepare(("default", name, uid))
        assert [entry.error for entry in entries.values()] == [""]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {"status": {"phase": "Running", "startTime": now}}
        target = Target(registry.POD, "default", name, "status")
        await self.node.api.patch(target, msgspec.json.encode(status))

    async def events(self, reason: str) -> list[dict[str, Any]]:
        documents, _ = await client.list_documents(self.node.over, registry.EVENT)
        trees: list[dict[str, Any]] = [msgspec.json.decode(document) for document in documents]
        return [tree for tree in trees if tree.get("reason") == reason]


@contextlib.asynccontextmanager
async def measured_by(source: str, lab: IdleStory, port: int) -> AsyncIterator[dict[str, Any]]:
    """The section `metrics` of the scheduler's configuration, for a Prometheus or for the agents themselves."""
    if source == "prometheus":
        async with servers.scraping(lab.node.folder, [f"127.0.0.1:{port}"]) as url:
            yield {"prometheus": {"url": url}}
        return
    endpoint = {"addresses": ["127.0.0.1"], "nodeName": NODE, "conditions": {"ready": True}}
    tree = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "agents-x",
            "namespace": "default",
            "labels": {agent_targets.SERVICE_LABEL: "agents"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": port}],
        "endpoints": [endpoint],
    }
    await lab.create(tree, agent_targets.ENDPOINT_SLICE)
    yield {"nodeAgents": {"service": "default/agents"}}


@pytest.mark.parametrize("source", ["prometheus", "agents"])
def test_a_gpu_that_is_held_and_unused_is_reclaimed_and_only_then(source: str) -> None:
    async def story(node: AgentNode) -> None:
        lab = IdleStory(node)
        agent = AgentEndpoint(node, "--mig=off")
        socket = await agent.agent.registered()
        allocatable = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True"}
        node_status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}
        await node.api.patch(
            Target(registry.NODE, name=NODE, subresource="status"),
            msgspec.json.encode({"status": node_status}),
        )
        await lab.create(CLASS, registry.DEVICE_CLASS)
        await lab.create(QUEUE, registry.QUEUE)
        await lab.create(URGENT, builtin_kinds.PRIORITY_CLASS)
        load_script.apply(
            node.hardware, load_script.Step(at_seconds=0, gpu=0, gpu_percent=80, watts=500)
        )
        async with measured_by(source, lab, agent.port) as metrics:
            configuration = {
                "apiVersion": "dovetail.dev/v1alpha1",
                "kind": "SchedulerConfiguration",
                "leaderElection": {"enabled": False},
                "serving": {"port": lab.port},
                "metrics": {**metrics, "intervalSeconds": 0.5},
            }
            file = node.folder / "scheduler.yaml"
            file.write_bytes(msgspec.json.encode(configuration))
            command = [sys.executable, "-m", "dovetail.boot.scheduler", "--config", str(file)]
            command += ["--kubeconfig", str(node.kubeconfig)]
            log = node.folder / "scheduler.log"
            with log.open("w") as out:
                scheduler = subprocess.Popen(command, stdout=out, stderr=out)
            try:
                await _reclaimed(lab, socket, log)
            finally:
                scheduler.terminate()
                await asyncio.to_thread(scheduler.wait)

    async def _reclaimed(lab: IdleStory, socket: Path, log: Path) -> None:
        # Nothing makes these pods again: only with this annotation may they be evicted at all.
        may_end = {"dovetail.dev/when-evicted": "end"}
        await lab.submit("notebook", **may_end, **{"dovetail.dev/preemptible": "false"})
        await waiting.until(lambda: lab.bound("notebook"), "binding", so_far=log.read_text)
        await lab.started("notebook", socket)
        await lab.submit("train", priority="urgent", **may_end)

        async def refused() -> bool:
            tree = await lab.pod("train")
            assert tree is not None
            return bool(tree.get("status", {}).get("conditions"))

        await waiting.until(refused, "a refusal", so_far=log.read_text)
        began = time.monotonic()

        async def is_measured() -> bool:
            """By the scheduler, for longer than window and grace together, all of it busy."""
            measured = (
                'dovetail_device_metrics_devices{state="measured"} 1.0' in await lab.metrics()
            )
            return measured and time.monotonic() - began > 6

        await waiting.until(is_measured, "measurements of the pod", so_far=log.read_text)
        assert await lab.bound("train") is None, "a busy GPU stays with its pod"
        assert await lab.events("IdleDevices") == []

        load_script.apply(
            lab.node.hardware, load_script.Step(at_seconds=0, gpu=0, gpu_percent=0, watts=90)
        )
        await waiting.until(lambda: lab.events("IdleDevices"), "a warning", so_far=log.read_text)

        async def evicted() -> bool:
            tree = await lab.pod("notebook")
            return tree is None or "deletionTimestamp" in tree["metadata"]

        await waiting.until(evicted, "the eviction", so_far=log.read_text)
        assert await lab.events("IdleMayYield")

    agent_node.run(story, gpus=1)


def test_promtool_reads_what_the_exporter_of_objects_serves() -> None:
    from tests.telemetry import test_object_metrics as objects

    metrics = objects.object_metrics.ObjectMetrics(has_partitions=True)
    metrics.changed(registry.CLAIM, objects.claim('we"ird\n', devices=("gpu-0",), pods=("p",)))
    metrics.changed(registry.SLICE, objects.gpu_slice("s"))
    for pod in (objects.pod("a", "g", node="n0", least="2"), objects.pod("b", "g")):
        metrics.changed(registry.POD, pod)
    assert servers.remarks(metrics.text().decode()) == []
    assert servers.remarks("not metrics at all {") != []
