"""Users whose pods start together: gangs of two queues and two importances on a cluster too small for them.

They are created and deleted whole. Also what such a phase needs of a cluster: our own kinds, queues that each are due
half of the devices, a priority. All choices follow from a seed.
"""

from __future__ import annotations

import random
from typing import Any, Final

from tests.faults import client, history, objects
from tests.faults.records import Tree
from tests.support import live
from tests.support.waiting import until

HIGH: Final = "chaos-high"
GROUP: Final = "/apis/dovetail.dev/v1alpha1"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PRIORITIES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUEUES: Final = f"{GROUP}/queues"
NAMES: Final = ("left", "right")
QUOTA: Final = {"whole.deviceclass.resource.k8s.io/devices": {"quota": "6"}}
SIZES: Final = (2, 3, 4)


class Gangs:
    """The users."""

    def __init__(
        self, api: client.Client, recorder: history.Recorder, *, chance: random.Random
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._chance = chance
        self._count = 0
        self.created = 0

    async def act(self) -> None:
        """One thing a user does: more gangs than fit, so that some wait, and others yield."""
        living = self._living()
        if len(living) < 4 or (len(living) < 7 and self._chance.random() < 0.5):
            await self._create()
            return
        gang = self._chance.choice(sorted(living))
        for name in living[gang]:
            await self._api.delete(objects.path_of("pods", name))

    def _living(self) -> dict[str, list[str]]:
        result: dict[str, list[str]] = {}
        for pod in history.find(self._recorder, "pods", objects.NAMESPACE):
            labels = pod["metadata"].get("labels") or {}
            if labels.get("shape") == "gang" and not pod["metadata"].get("deletionTimestamp"):
                result.setdefault(labels["dovetail.dev/gang"], []).append(pod["metadata"]["name"])
        return result

    async def _create(self) -> None:
        self._count += 1
        size = self._chance.choice(SIZES)
        is_high = self._chance.random() < 0.3
        gang, queue = f"g{self._count}", self._chance.choice(NAMES)
        for number in range(size):
            tree = _pod(f"{gang}-{number}", gang, size, queue=queue, is_high=is_high)
            await self._api.create(objects.path_of("pods"), tree)
            self.created += 1


def _pod(name: str, gang: str, size: int, *, queue: str, is_high: bool) -> Tree:
    claims = [{"name": "c", "resourceClaimTemplateName": "one"}]
    resources = {"requests": {"cpu": "250m", "memory": "1Gi"}, "claims": [{"name": "c"}]}
    spec: dict[str, Any] = {
        "schedulerName": objects.SCHEDULER,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "none", "resources": resources}],
        "resourceClaims": claims,
    }
    if is_high:
        spec["priorityClassName"] = HIGH
    labels = {"shape": "gang", "dovetail.dev/gang": gang, "dovetail.dev/gang-min": str(size)}
    labels["dovetail.dev/queue"] = queue
    notes = {"dovetail.dev/when-evicted": "end"}
    meta = {"name": name, "namespace": objects.NAMESPACE, "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def furnish(api: client.Client) -> None:
    """Our own kinds, the queues, and an importance above the others'."""
    for tree in live.installed():
        if tree["kind"] == "CustomResourceDefinition":
            await api.create(DEFINITIONS, tree)
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await api.create(PRIORITIES, head | {"metadata": {"name": HIGH}, "value": 50})
    for name in NAMES:
        queue = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}}
        await _served(api, queue | {"spec": {"namespaceSelector": {}, "resources": QUOTA}})


async def _served(api: client.Client, queue: Tree) -> None:
    """A definition is served a moment after it was made."""
    refusals: list[str] = []

    async def is_created() -> bool:
        try:
            await api.create(QUEUES, queue)
        except client.Refused as refused:
            refusals.append(str(refused))
            return False
        return True

    await until(is_created, "the server to serve queues", pause=0.5, so_far=lambda: refusals[-1])


async def clear(api: client.Client) -> None:
    """Without queues every pod is decided as before."""
    for name in NAMES:
        await api.delete(f"{QUEUES}/{name}")
