"""Requests that fail, before they took effect or after: the controllers try again, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ports import failures
from dovetail.sim.controllers import workload_controllers
from tests.sim.controllers.tiny_store import Cluster, TinyStore, job, node, workload

Tree = dict[str, Any]
# Per request of a controller: carried out, not carried out, or carried out with the answer lost.
FATES = st.lists(st.sampled_from(["done", "refused", "lost"]), max_size=40)


class FlakyStore(TinyStore):
    """A store whose first requests fail as the list says; users are spared."""

    def __init__(self, fates: list[str]) -> None:
        super().__init__()
        self.fates = list(fates)
        self.is_flaky = False

    def create(self, tree: Tree) -> Tree:
        return self._fated(lambda: TinyStore.create(self, tree))

    def patch(self, key: Any, patch: Tree) -> Tree:
        return self._fated(lambda: TinyStore.patch(self, key, patch))

    def set_status(self, key: Any, status: Tree, *, uid: str) -> Tree:
        return self._fated(lambda: TinyStore.set_status(self, key, status, uid=uid))

    def delete(self, key: Any, *, uid: str = "", propagation: str = "Background") -> None:
        self._fated(lambda: TinyStore.delete(self, key, uid=uid, propagation=propagation))

    def _fated(self, request: Callable[[], Any]) -> Any:
        fate = self.fates.pop(0) if self.is_flaky and self.fates else "done"
        if fate == "refused":
            raise failures.Unavailable("connection refused", status=503)
        answer = request()
        if fate == "lost":
            raise failures.Unavailable("connection lost", status=504)
        return answer


class FlakyCluster(Cluster):
    """A cluster on a flaky store."""

    def __init__(self, fates: list[str]) -> None:
        self.flaky = FlakyStore(fates)
        self.store = self.flaky
        self.controllers = workload_controllers.WorkloadControllers(self.store)
        self.store.observers.append(self.controllers.observe)

    def settle(self) -> None:
        self.flaky.is_flaky = True
        super().settle()
        self.flaky.is_flaky = False


@given(FATES, st.booleans())
def test_a_job_counts_every_pod_once(fates: list[str], is_indexed: bool) -> None:
    cluster = FlakyCluster(fates)
    mode = "Indexed" if is_indexed else "NonIndexed"
    cluster.apply(job(completions=4, parallelism=2, completionMode=mode, backoffLimit=50))
    ended: set[str] = set()
    for number in range(30):
        cluster.wait(700)
        active = [pod for pod in cluster.pods if pod["status"]["phase"] == "Pending"]
        if not active:
            continue
        names = [pod["metadata"]["name"] for pod in active]
        if number == 1:
            cluster.fail(names[0])
        else:
            # Together, so that one may be counted while the other still has its finalizer.
            ended |= {pod["metadata"]["uid"] for pod in active}
            cluster.finish(*names)
    cluster.wait(5000)
    status = cluster.status("Job", "train")
    assert cluster.condition("Job", "train", "Complete") is not None
    assert status.get("failed", 0) == 1
    assert status["succeeded"] == len(ended) == 4
    assert status["uncountedTerminatedPods"] == {}


@settings(max_examples=25)  # each is three rollouts
@given(FATES)
def test_rollouts_of_every_kind_arrive(fates: list[str]) -> None:
    cluster = FlakyCluster(fates)
    cluster.apply(node("n0"))
    for image in ("v1", "v2"):
        cluster.apply(workload("Deployment", "web", image=image, replicas=3))
        cluster.apply(workload("StatefulSet", "db", image=image, replicas=2))
        cluster.apply(workload("DaemonSet", "agent", image=image))
        for _ in range(4):
            cluster.wait(2000)
            cluster.run()
    pods = [(pod["metadata"]["labels"]["app"], image_of(pod)) for pod in cluster.pods]
    assert sorted(pods) == [
        ("agent", "v2"),
        ("db", "v2"),
        ("db", "v2"),
        ("web", "v2"),
        ("web", "v2"),
        ("web", "v2"),
    ]
    for kind, name in (("Deployment", "web"), ("StatefulSet", "db"), ("DaemonSet", "agent")):
        cluster.delete(kind, name)
    for _ in range(5):
        cluster.wait(2000)
        cluster.confirm_deletions()
    assert {key.kind for key in cluster.store.trees} == {"Node"}


def image_of(pod: Tree) -> str:
    return str(pod["spec"]["containers"][0]["image"])
