"""Users who come and go: pods of every kind, created, deleted, deleted by force, ended; all from one seed."""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

from tests.faults import checker_scene, client, disks, history, objects
from tests.faults.records import Tree

IMPOSSIBLE: Final = "too-many"
SHAPES: Final = {  # name -> how often
    "one": 5,
    "pair": 2,
    "half": 2,
    "quarter": 3,
    "either": 2,
    "share": 4,
    "one+share": 2,  # never on one node: its condition says so
    "one+one": 2,
    "both": 3,  # a claim shared by two pods
    "extended": 3,
    "counted": 2,
    "plain": 2,
    "apart": 2,  # no two on one node
    "port": 2,  # likewise, because of a port
    "disk": 3,  # a volume of the node
    IMPOSSIBLE: 1,
}
_SELF: Final = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"shape": "apart"}},
}
APART: Final = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_SELF]}}
NEVER_FIT: Final = (IMPOSSIBLE, "one+share")
GRACE_SECONDS: Final = 1
IMPORTANCES: Final = ("", "", "", *objects.PRIORITIES)  # most pods name none


class Sizes(NamedTuple):
    """How many pods there may be."""

    least: int = 20
    most: int = 45


class Workload:
    """The users."""

    def __init__(
        self,
        api: client.Client,
        recorder: history.Recorder,
        *,
        chance: random.Random,
        scheduler: str = objects.SCHEDULER,
        sizes: Sizes | None = None,
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._chance = chance
        self._sizes = sizes or Sizes()
        self._count = 0
        self._scheduler = scheduler
        self._mark = scheduler[:2]  # so that no two users' pods share a name
        self.created = 0

    async def act(self) -> None:
        """One thing a user does."""
        living = self.living()
        if len(living) < self._sizes.least or (
            len(living) < self._sizes.most and self._chance.random() < 0.6
        ):
            await self.create()
            return
        pod = self._chance.choice(living)
        choice = self._chance.random()
        # A pod that ended and stays makes kube-controller-manager 1.37 reserve and free a claim that is not the pod's
        # own in turns, hundreds of times a second, until the pod is deleted: such pods are not ended here.
        is_sharing = pod["metadata"]["labels"]["shape"] == "both"
        if choice < 0.2 and pod["status"].get("phase") == "Running" and not is_sharing:
            await self._api.patch(f"{_path(pod)}/status", {"status": {"phase": "Succeeded"}})
        elif choice < 0.4:
            await self._api.delete(_path(pod), grace=0)
        else:
            await self._api.delete(_path(pod))

    def living(self) -> list[Tree]:
        """Pods that are not deleted yet."""
        trees = history.find(self._recorder, "pods", objects.NAMESPACE)
        return [pod for pod in trees if not pod["metadata"].get("deletionTimestamp")]

    async def create(self) -> None:
        """One pod, or two that share a claim."""
        shape = self._chance.choices(list(SHAPES), list(SHAPES.values()))[0]
        self._count += 1
        name = f"{shape.replace('+', '-and-')}-{self._mark}{self._count}"
        if shape == "both":
            await self._api.create(objects.path_of("resourceclaims"), objects.claim(name))
            for part in ("left", "right"):
                await self._make(
                    f"{name}-{part}", shape, claims=[{"name": "c", "resourceClaimName": name}]
                )
        elif shape in ("extended", "counted", "plain", "apart", "port", "disk"):
            await self._make(name, shape)
        else:
            expected = enumerate(shape.split("+"))
            await self._make(
                name,
                shape,
                claims=[
                    {"name": f"c{at}", "resourceClaimTemplateName": one} for at, one in expected
                ],
            )

    async def _make(self, name: str, shape: str, *, claims: list[Tree] | None = None) -> None:
        asked = {
            "cpu": self._chance.choice(("250m", "1", "2")),
            "memory": self._chance.choice(("1Gi", "4Gi")),
        }
        extended = {"extended": objects.WHOLE_RESOURCE, "counted": objects.COUNTED_RESOURCE}.get(
            shape
        )
        if extended:
            asked[extended] = "1"
        resources: Tree = {"requests": asked, "limits": {extended: "1"} if extended else {}}
        container: Tree = {"name": "main", "image": "none", "resources": resources}
        if shape == "port":
            container["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
        if claims:
            resources["claims"] = [{"name": claim["name"]} for claim in claims]
        spec: dict[str, Any] = {
            "schedulerName": self._scheduler,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [container],
            "affinity": APART if shape == "apart" else {},
            "resourceClaims": claims or [],
            "volumes": [disks.of_pod()] if shape == "disk" else [],
            "priorityClassName": self._chance.choice(IMPORTANCES),
        }
        meta = {
            "name": name,
            "namespace": objects.NAMESPACE,
            "labels": {"shape": shape.replace("+", "-and-")},
        }
        await self._api.create(
            objects.path_of("pods"),
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
        )
        self.created += 1

    async def remove(self, *, is_forced: bool = False, only_bound: bool = False) -> int:
        """Deletes all pods, or those that have a node; how many."""
        chosen = [pod for pod in self.living() if checker_scene.node_of(pod) or not only_bound]
        for pod in chosen:
            await self._api.delete(_path(pod), grace=0 if is_forced else None)
        return len(chosen)

    async def remove_claims(self) -> None:
        """Deletes the claims that were made to be shared."""
        for claim in history.find(self._recorder, "resourceclaims", objects.NAMESPACE):
            if not checker_scene.owner_of(claim) and not claim["metadata"].get("deletionTimestamp"):
                await self._api.delete(objects.path_of("resourceclaims", claim["metadata"]["name"]))

    def could_fit(self, pod: Tree) -> bool:
        """Whether an empty cluster has room for the pod."""
        return pod["metadata"]["labels"]["shape"] not in [
            name.replace("+", "-and-") for name in NEVER_FIT
        ]


def _path(pod: Tree) -> str:
    return objects.path_of("pods", pod["metadata"]["name"])
