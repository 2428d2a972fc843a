"""A cluster for the answers of the dashboard's server: nodes of several kinds, queues, work in two namespaces.

`train` is what a tenant sees; `secret` is work of others. Objects only: no server, no scheduler.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dovetail.answer.cost import cost_ledger, cost_window, price_file, price_list
from dovetail.answer.replica.replica import Replica
from dovetail.ask import cluster_view, recorded_history, replicas, scheduler_policy
from dovetail.kubetypes import codec, object_set
from dovetail.model import policy
from dovetail.model.accounting import records
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.web import asked
from dovetail.web.source import watched_kinds

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
QUEUES = {"train": "train", "secret": "others"}
DRIVER = "gpu.nvidia.com"
NAMESPACED = frozenset(
    object_set.unique_kind(read.kind.api_version, read.kind.name)
    for read in watched_kinds.READS
    if read.kind.is_namespaced
)
TENANT = asked.Visibility(
    everywhere=frozenset({"Node", "Queue", "ResourceSlice", "StackUpgrade"}),
    in_namespaces=frozenset((kind, "train") for kind in NAMESPACED),
)
STRANGER = asked.Visibility()

Tree = dict[str, Any]
T = TypeVar("T")


def at(minutes: float) -> str:
    """A time so many minutes before now."""
    moment = NOW - datetime.timedelta(minutes=minutes)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def fleet(*pools: fleet_spec.Pool) -> list[Tree]:
    """The nodes, slices and classes of pools, all nodes ready."""
    trees = fleet_objects.objects_of(fleet_spec.Fleet(name="test", pools=pools))
    return [ready(tree) if tree["kind"] == "Node" else tree for tree in trees]


def ready(node: Tree, status: str = "True", minutes: float = 3000) -> Tree:
    """The node with this condition Ready since so many minutes."""
    condition = {"type": "Ready", "status": status, "reason": "Kubelet" + status}
    condition["lastTransitionTime"] = at(minutes)
    metadata = {"creationTimestamp": at(5000)} | node["metadata"]
    return node | {
        "metadata": metadata,
        "status": node.get("status", {}) | {"conditions": [condition]},
    }


def namespace(name: str) -> Tree:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def queue(name: str, *, quota: str = "8", **spec: Any) -> Tree:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name, "creationTimestamp": at(4000)},
        "spec": {"resources": {"gpu": {"quota": quota}}, "namespaceSelector": {}} | spec,
    }


def pod(name: str, *, where: str, node: str = "", job: str = "", **more: Any) -> Tree:
    """A pod of a namespace; with a node it runs."""
    minutes = more.pop("minutes", 30.0)
    metadata: Tree = {
        "namespace": where,
        "name": name,
        "uid": f"{where}-{name}",
        "creationTimestamp": at(minutes),
        "labels": {"dovetail.dev/queue": more.pop("queue", QUEUES[where])} | more.pop("labels", {}),
        "annotations": more.pop("annotations", {}),
    }
    if job:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"job-{where}-{job}"}
        metadata["ownerReferences"] = [owner | {"controller": True}]
    container: Tree = {"name": "main", "image": "none"}
    if gpus := more.pop("gpus", 0):
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec: Tree = {"containers": [container]} | more.pop("spec", {})
    status: Tree = {"phase": "Pending"}
    if node:
        spec["nodeName"] = node
        status = {"phase": "Running", "startTime": at(minutes)}
    status |= more.pop("status", {})
    assert not more, more
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def running(name: str, *, where: str, node: str, devices: Iterable[str], **more: Any) -> list[Tree]:
    """A pod that runs with devices, and its claim."""
    held = list(devices)
    claim_entry = {"resourceClaims": [{"name": "gpus", "resourceClaimName": f"{name}-gpus"}]}
    bound = pod(name, where=where, node=node, spec=claim_entry, **more)
    return [bound, claim(f"{name}-gpus", where=where, node=node, devices=held, user=name)]


def claim(name: str, *, where: str, node: str, devices: list[str], user: str = "") -> Tree:
    results = [
        {"request": "gpus", "driver": DRIVER, "pool": node, "device": each} for each in devices
    ]
    exactly = {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": len(devices),
    }
    allocation = {"devices": {"results": results}, "allocationTimestamp": at(20)}
    reserved = [{"resource": "pods", "name": user, "uid": f"{where}-{user}"}] if user else []
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": where, "name": name, "uid": f"claim-{where}-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        "status": {"allocation": allocation, "reservedFor": reserved},
    }


def plugin_node(name: str, count: int) -> Tree:
    """A node whose GPUs a device plugin counts."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.count": str(count)}
    allocatable = {"nvidia.com/gpu": str(count), "cpu": "32", "memory": "128Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }
    return ready(node)


def event(
    name: str, *, where: str, pod: str, reason: str, note: str, minutes: float, **more: Any
) -> Tree:
    """An event on a pod, as the scheduler writes it."""
    regarding = {"kind": "Pod", "namespace": where, "name": pod, "uid": f"{where}-{pod}"}
    stamp = at(minutes).removesuffix("Z") + ".000000Z"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": where, "name": name, "creationTimestamp": at(minutes)},
        "eventTime": stamp,
        "reportingController": "dovetail",
        "reason": reason,
        "regarding": regarding,
        "note": note,
        "type": "Normal",
    } | more


def typical() -> list[Tree]:
    """H100s, A100s that are cut into MIG slices, counted L4s; full enough that work waits."""
    trees = fleet(
        fleet_spec.Pool(name="h100", count=3, gpu="H100-SXM5-80GB", rack="r1"),
        fleet_spec.Pool(name="a100", count=1, gpu="A100-SXM4-80GB", gpus_per_node=4, mig=True),
    )
    trees += [namespace("train"), namespace("secret"), plugin_node("l4-0", 4)]
    trees += [queue("train"), queue("others", quota="16")]
    all_gpus = [f"gpu-{index}" for index in range(8)]
    trees += running("llama-0", where="train", node="h100-0", devices=all_gpus[:4], job="llama")
    trees += running("vault-0", where="secret", node="h100-0", devices=all_gpus[4:], job="vault")
    trees += running("vault-1", where="secret", node="h100-1", devices=all_gpus, job="vault")
    trees += running("vault-2", where="secret", node="h100-2", devices=all_gpus[:6], job="vault")
    trees += [pod("eval", where="train", node="l4-0", gpus=1)]
    trees += [pod("wide-0", where="train", job="wide", gpus=8, minutes=200)]
    trees += [pod("deep-0", where="secret", job="deep", gpus=8, minutes=300)]
    return trees


class Frame:
    """One version of a cluster, as the server would keep it."""

    def __init__(self, view: cluster_view.View, version: int = 1) -> None:
        self.view = view
        self.version = version
        self.policy: policy.Policy = scheduler_policy.default(view)
        self._memos: dict[Hashable, Any] = {}
        self._replica: Replica | None = None

    def replica(self) -> Replica:
        if self._replica is None:
            self._replica = replicas.replica_of(self.view, self.policy)
        return self._replica

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._memos:
            self._memos[key] = make()
        value: T = self._memos[key]
        return value


def stored(trees: Iterable[Tree]) -> list[codec.Stored]:
    return [codec.decode(tree) for tree in trees]


def frame_of(objects: Iterable[codec.Stored], *, name: str, version: int = 1) -> Frame:
    """The frame of objects. A name of its own for each test keeps what is remembered apart."""
    view = cluster_view.View(object_set.of(name, objects), NOW, name, True, is_snapshot=True)
    return Frame(view, version)


class Accounted:
    """Records and prices that a test holds itself."""

    def __init__(self, recorded: records.Records, until: int | None = None) -> None:
        self._recorded = recorded_history.Recorded(recorded, until)

    def prices(self) -> price_list.PriceList:
        text = "currency: USD\nprices: [{perHour: 2}]\nbudgets: [{queue: train, perMonth: 100}]\n"
        return price_file.read(text, "prices.yaml")

    def until(self, now: int) -> int:
        return self._recorded.until_or(now)

    def account(self, question: cost_ledger.Question, now: int) -> recorded_history.Account:
        return recorded_history.of_records(self._recorded, question, now)


def _held(namespace: str, pod_name: str, asset: str) -> records.Allocation:
    owner = records.Owner(
        namespace,
        pod_name,
        f"uid-{pod_name}",
        "Job",
        pod_name,
        QUEUES[namespace],
        {"team": pod_name},
    )
    return records.Allocation(
        pod_name,
        asset,
        "h100-0",
        500_000,
        records.Form.SHARE,
        owner,
        millis(600),
        claim=f"{pod_name}-claim",
    )


def millis(minutes: float) -> int:
    """A time so many minutes before now, as records hold it."""
    return cost_window.millis_of(NOW - datetime.timedelta(minutes=minutes))


# Ten hours of one GPU: half for the tenant, half for others until five hours ago.
RECORDED = records.Records(
    assets=(records.Asset("GPU-0", "h100-0", "NVIDIA H100 80GB HBM3", millis(600)),),
    allocations=(
        _held("train", "llama-0", "GPU-0"),
        msgspec.structs.replace(_held("secret", "vault-0", "GPU-0"), end=millis(300)),
    ),
    waiting=(
        records.Waiting(_held("secret", "deep-0", "GPU-0").owner, 1_000_000, millis(60), None),
    ),
)


def asked_of(
    trees: Iterable[Tree], *, name: str, may: asked.Visibility = asked.EVERYTHING
) -> asked.Asked:
    """A question about a cluster of these objects."""
    frame = frame_of(stored(trees), name=name)
    return asked.Asked(frame, may, accounting=Accounted(RECORDED))


def saved(trees: Iterable[Tree], path: Path) -> Path:
    """The objects as kubectl prints them, for commands that read a snapshot."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(trees)}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
