"""Jobs for an in-memory cluster: pods that arrive at a set time, run for a set time, and are recreated when evicted.

A work acts as a Job controller: it creates its pods, recreates each one that failed or was evicted, and deletes them
all once all have succeeded. Given the object store, whose changes to pods it follows; records the history. Never
places a pod.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from dovetail.hollow import pod_stages
from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.model import gangs, workload_annotations
from dovetail.sim.server import watchers
from dovetail.sim.server.api_server import SimApi

SCHEDULER: Final = "dovetail"
WORK_LABEL: Final = "work"
ARRIVED: Final = "arrived"
BOUND: Final = "bound"
ENDED: Final = "ended"
FAILED: Final = "failed"
LOST: Final = "lost"
DONE: Final = "done"

Tree = dict[str, Any]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that belong together. Only the nodes know their true runtime."""

    name: str
    at: float = 0.0  # seconds after the beginning
    seconds: float = 60.0  # each pod runs so long
    pods: int = 1
    least: int | None = None  # of a gang; None: all of them. 0: every pod alone
    gpus: int = 0  # whole GPUs of each pod
    cpu: str = "1"
    priority: int = 0
    queue: str = ""
    expected: int | None = None  # seconds it says it takes
    most: int | None = None  # stated maximum runtime in seconds
    is_recreated: bool = True
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}  # of every pod, besides those set above
    namespace: str = "default"


class Entry(NamedTuple):
    """One event of the history."""

    at: float
    what: str
    work: str
    pod: str = ""
    node: str = ""


class Works:
    """All works of one cluster, and their history."""

    def __init__(self, api: SimApi, *, grace_seconds: int = 30) -> None:
        self.history: list[Entry] = []
        self.left: dict[str, int] = {}  # by work, pods that have not ended yet
        self._api = api
        self._grace = grace_seconds
        self._known: dict[str, Work] = {}
        self._serial: dict[str, int] = {}
        self._bound: set[str] = set()  # by uid
        self._over: set[str] = set()
        self._finished: dict[
            str, list[tuple[str, str]]
        ] = {}  # by work: pods that ended stay until all of it has
        self._ended: list[tuple[str, str]] = []
        self._lost: list[Work] = []
        api.subscribe(registry.POD, self._noticed)

    def arrive(self, work: Work) -> None:
        """Submits the work; its pods are pending."""
        self._known[work.name] = work
        self.left[work.name] = work.pods
        self._note(ARRIVED, work.name)
        for _ in range(work.pods):
            self._make(work)

    def sweep(self) -> None:
        """Deletes the pods of finished work and recreates those that were lost."""
        while self._ended:
            self._api.shelf.delete(registry.POD, self._ended.pop(0), grace_seconds=0)
        while self._lost:
            self._make(self._lost.pop(0))

    @property
    def is_done(self) -> bool:
        """Whether all submitted work has ended."""
        return not any(self.left.values())

    def _noticed(self, event: str, pod: pods.Pod) -> None:
        work = self._known.get(pod.metadata.labels.get(WORK_LABEL, ""))
        if work is None:
            return
        uid, name, node, phase = (
            pod.metadata.uid,
            pod.metadata.name,
            pod.spec.node_name,
            pod.status.phase,
        )
        is_leaving = pod.metadata.deletion_timestamp is not None
        if event == watchers.DELETED:
            if uid not in self._over:
                self._note(LOST, work.name, name, node)
                if work.is_recreated:
                    self._lost.append(work)
                else:
                    self._count_down(work)
            self._over.discard(uid)
        elif phase in pods.TERMINAL_PHASES and not is_leaving:
            if uid not in self._over:
                self._over.add(uid)
                self._note(
                    ENDED if phase == pod_stages.SUCCEEDED else FAILED, work.name, name, node
                )
                self._finished.setdefault(work.name, []).append((pod.metadata.namespace, name))
                self._count_down(work)
        elif node and uid not in self._bound:
            self._bound.add(uid)
            self._note(BOUND, work.name, name, node)

    def _count_down(self, work: Work) -> None:
        self.left[work.name] -= 1
        if not self.left[work.name]:
            self._note(DONE, work.name)
            self._ended += self._finished.pop(work.name, [])

    def _note(self, what: str, work: str, pod: str = "", node: str = "") -> None:
        self.history.append(Entry(self._api.clock.monotonic(), what, work, pod, node))

    def _make(self, work: Work) -> None:
        number = self._serial[work.name] = self._serial.get(work.name, -1) + 1
        self._api.put(self._pod(work, f"{work.name}-{number}"))

    def _pod(self, work: Work, name: str) -> Tree:
        resources: Tree = {"requests": {"cpu": work.cpu}}
        spec: Tree = {
            "schedulerName": SCHEDULER,
            "priority": work.priority,
            "terminationGracePeriodSeconds": self._grace,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "work", "resources": resources}],
        }
        if work.gpus:
            template = self._template(work)
            spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": template}]
            resources["claims"] = [{"name": "gpus"}]
        metadata: Tree = {
            "name": name,
            "namespace": work.namespace,
            "labels": _labels(work) | work.labels,
            "annotations": _annotations(work) | work.annotations,
        }
        if work.is_recreated:
            owner = {
                "apiVersion": "dovetail.dev/v1",
                "kind": "Work",
                "name": work.name,
                "uid": f"work-{work.name}",
            }
            metadata["ownerReferences"] = [owner | {"controller": True}]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec | work.spec}

    def _template(self, work: Work) -> str:
        name = f"gpus-{work.gpus}"
        if self._api.find(registry.TEMPLATE, name, namespace=work.namespace) is None:
            request = {"deviceClassName": "gpu.nvidia.com", "count": work.gpus}
            devices = {"requests": [{"name": "gpu", "exactly": request}]}
            self._api.put(
                {
                    "apiVersion": registry.TEMPLATE.api_version,
                    "kind": registry.TEMPLATE.name,
                    "metadata": {"name": name, "namespace": work.namespace},
                    "spec": {"spec": {"devices": devices}},
                }
            )
        return name


def _labels(work: Work) -> dict[str, str]:
    labels = {WORK_LABEL: work.name}
    if work.queue:
        labels[gangs.QUEUE_LABEL] = work.queue
    least = work.pods if work.least is None else work.least
    if least and work.pods > 1:
        labels |= {gangs.GANG_LABEL: work.name, gangs.MIN_LABEL: str(least)}
    return labels


def _annotations(work: Work) -> dict[str, str]:
    annotations = {pod_stages.RUN_SECONDS: f"{work.seconds:g}"}
    if work.expected is not None:
        annotations[workload_annotations.EXPECTED_RUNTIME] = str(work.expected)
    if work.most is not None:
        annotations[workload_annotations.MAX_RUNTIME] = str(work.most)
    return annotations
