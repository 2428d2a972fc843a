"""What queues and gangs take with a real API server: pods in queues, or one gang, from first write to last binding.

The control plane, nodes and measures of the live benchmark; our scheduler alone takes part. Decisions are in it, and so
is everything else: reading, writing claims and bindings, and on two cores the API server's own work.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import live_cluster, live_contenders, live_run
from dovetail.devcluster import control_plane, kube_binaries
from dovetail.install import chart
from dovetail.kube.http import paths
from dovetail.kubetypes import registry
from dovetail.model import gangs

QUEUES: Final = ("a", "b", "c", "d")
GANG_PODS: Final = 512
PATIENCE_SECONDS: Final = 15.0
SERVED_SECONDS: Final = 60.0  # for the API server to know our kinds
DEFINITION: Final = registry.Kind(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    False,
    registry.QUEUE.struct,
)
Tree = dict[str, Any]


async def measured(nodes: int, *, pods: int | None, say: control_plane.Say) -> dict[str, Tree]:
    """A fill of all GPUs, or of so many, and one gang: figures by what was done."""
    with tempfile.TemporaryDirectory(
        prefix="dovetail-bench-", ignore_cleanup_errors=True
    ) as scratch:
        async with live_cluster.started(nodes, directory=Path(scratch), say=say) as cluster:
            count = min(pods or len(cluster.gpus), len(cluster.gpus))
            await _open_queues(cluster)
            works = {
                f"fill, {nodes} nodes, {count} pods in {len(QUEUES)} queues": [
                    _lone(at) for at in range(count)
                ],
                f"one gang of {min(GANG_PODS, count)} pods, {nodes} nodes": _gang(
                    min(GANG_PODS, count)
                ),
            }
            return {
                name: await _run(cluster, name, trees, say=say) for name, trees in works.items()
            }


async def _run(
    cluster: live_cluster.Cluster, name: str, pods: list[Tree], *, say: control_plane.Say
) -> Tree:
    names = [pod["metadata"]["name"] for pod in pods]
    await cluster.create(
        registry.CLAIM, [live_cluster.claim_tree(live_cluster.WORK, name) for name in names]
    )
    await cluster.create(registry.POD, pods)
    try:
        await live_run.quiet(cluster, PATIENCE_SECONDS)
        command = live_contenders.COMMANDS[live_contenders.OURS](cluster, len(pods))
        log = cluster.plane.log_of("batch")
        found = await live_run.run(cluster, command, count=len(pods), log=log)
    finally:
        await cluster.clear_work()
    say(f"{name}: {found.pods_per_second:.0f} pods/s, others {found.others_share:.0%}")
    spent = found.cpu_milliseconds_per_pod
    return {
        "pods": found.pods,
        "seconds": round(found.pods / found.pods_per_second, 1),
        "podsPerSecond": round(found.pods_per_second, 1),
        "firstBindingSeconds": round(found.first_binding_seconds, 1),
        "ownCpuMillisecondsPerPod": round(spent[live_run.CONTENDER], 2),
        "apiServerCpuMillisecondsPerPod": round(spent[kube_binaries.APISERVER], 2),
        "othersShare": round(found.others_share, 2),
    }


async def _open_queues(cluster: live_cluster.Cluster) -> None:
    """Our kinds, and queues that share all GPUs."""
    values = chart.values_of(settings=["image.repository=example"])
    trees = chart.objects(values)
    await cluster.create(DEFINITION, [tree for tree in trees if tree["kind"] == DEFINITION.name])
    async with asyncio.timeout(SERVED_SECONDS):
        while not (await cluster.over.request("GET", paths.collection(registry.QUEUE))).is_success:
            await asyncio.sleep(0.2)
    share = {"gpu": {"quota": str(len(cluster.gpus) // len(QUEUES))}}
    spec = {"namespaceSelector": {}, "resources": share}
    version = registry.QUEUE.api_version
    made = [
        {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        for name in QUEUES
    ]
    await cluster.create(registry.QUEUE, made)


def _lone(number: int) -> Tree:
    pod = live_cluster.pod_tree(live_cluster.WORK, live_cluster.work_name(number))
    pod["metadata"]["labels"] = {gangs.QUEUE_LABEL: QUEUES[number % len(QUEUES)]}
    return pod


def _gang(count: int) -> list[Tree]:
    pods = [
        live_cluster.pod_tree(live_cluster.WORK, live_cluster.work_name(number))
        for number in range(count)
    ]
    for pod in pods:
        pod["metadata"]["labels"] = {gangs.QUEUE_LABEL: QUEUES[0], gangs.GANG_LABEL: "llama"}
        pod["metadata"]["annotations"] = {gangs.MIN_LABEL: str(count)}
    return pods


def store(output: Path, rows: dict[str, Tree]) -> None:
    """Keeps them beside the times of decisions alone."""
    found: Tree = (
        msgspec.json.decode(output.read_bytes()) if output.exists() else {"benchmark": "batch"}
    )
    found["live"] = rows
    output.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
