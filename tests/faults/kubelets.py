"""Plays the kubelets: renews the leases of nodes, lets bound pods run, lets go of those that are deleted.

Acts on what the recorder sees in the store. Knows nothing about scheduling: whatever is bound runs.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import Final

from tests.faults import checker_scene, client, history, objects
from tests.faults.records import Tree

RENEW_SECONDS: Final = 10.0
LEASES: Final = "kube-node-lease"


class Kubelets:
    """All nodes of the estate."""

    def __init__(self, api: client.Client, recorder: history.Recorder) -> None:
        self._api = api
        self._recorder = recorder
        self._busy: set[str] = set()
        self.silent: set[str] = set()  # nodes that are lost

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_all())
            while True:
                for pod in list(self._recorder.objects["pods"].values()):
                    if (step := self._step(pod)) is not None:
                        self._busy.add(checker_scene.uid_of(pod))
                        group.create_task(self._do(pod, step))
                await self._recorder.change(1.0)

    def _step(self, pod: Tree) -> str | None:
        where = checker_scene.node_of(pod)
        if not where or where in self.silent or checker_scene.uid_of(pod) in self._busy:
            return None
        if pod["metadata"].get("deletionTimestamp"):
            return "let go"
        return "run" if pod["status"].get("phase") == "Pending" else None

    async def _do(self, pod: Tree, step: str) -> None:
        uid, name = checker_scene.uid_of(pod), pod["metadata"]["name"]
        path = objects.path_of("pods", name, namespace=pod["metadata"]["namespace"])
        try:
            if step == "run":
                ready = [
                    {"type": kind, "status": "True"}
                    for kind in ("Initialized", "ContainersReady", "Ready")
                ]
                kept = [
                    item
                    for item in pod["status"].get("conditions") or ()
                    if item["type"] == "PodScheduled"
                ]
                status = {"phase": "Running", "startTime": _now(), "conditions": [*kept, *ready]}
                await self._api.patch(
                    f"{path}/status", {"metadata": {"uid": uid}, "status": status}
                )
            else:
                await self._api.delete(path, grace=0, uid=uid)
        finally:
            self._busy.discard(uid)

    async def _renew_all(self) -> None:
        while True:
            await asyncio.gather(
                *(self._renew(name) for name in objects.NODES if name not in self.silent)
            )
            await asyncio.sleep(RENEW_SECONDS)

    async def _renew(self, name: str) -> None:
        path = objects.path_of("leases", namespace=LEASES)
        moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": moment}
        if not await self._api.patch(f"{path}/{name}", {"spec": spec}):
            meta = {"name": name, "namespace": LEASES}
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": meta,
                "spec": spec,
            }
            await self._api.create(path, lease)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
