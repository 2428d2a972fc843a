"""A story with NVIDIA's upgrade library on a real API server: nodes with a driver, and our adapter beside it.

`turn` lets the player, the library and the adapter act once each. The adapter's writes are sent one at a time, after
which everything is read afresh: a process that dies between any two of them would do no other work.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from dovetail.devcluster import control_plane
from dovetail.kubetypes import gpu_stack_kinds, object_set, registry
from dovetail.upgrade.adapters import adapter, node_facts, operator_adapter
from dovetail.upgrade.adapters.node_facts import FleetFacts, NodeFacts
from tests.support import cluster as planes
from tests.support import oracle, rest, upgrade_library
from tests.support.waiting import PAUSE_SECONDS, wait_until
from tests.upgrade.driver_player import DRIVER, SCENE, VALIDATOR, Player, driver_image

Tree = dict[str, Any]
OLD: Final = "580.95.05"
NEW: Final = "595.91.07"
POLICY: Final = {
    "autoUpgrade": True,
    "maxParallelUpgrades": 1,
    "maxUnavailable": "100%",
    "podDeletion": {"timeoutSeconds": 300},  # without it the library stops for every node
}
STATE: Final = "nvidia.com/gpu-driver-upgrade-state"


class Story:
    """Nodes with a driver of the operator, in a namespace of a shared cluster."""

    def __init__(self, api: rest.Rest, library: oracle.Oracle | None, namespace: str) -> None:
        self.api = api
        self.library = library
        self.namespace = namespace
        self.player = Player(api, namespace)
        self.adapter = operator_adapter.OperatorAdapter()
        self.applying_seconds = 0
        self.writes: list[adapter.Write] = []
        self.answers: list[Tree] = []
        self._is_beside = False

    def name(self, node: str) -> str:
        """The full name of a node."""
        return f"{self.namespace}-{node}"

    # What acts

    def reconcile(self) -> Tree:
        """One reconcile of the operator's upgrade controller, with the policy of the ClusterPolicy."""
        assert self.library is not None, (
            "with autoUpgrade off the operator has no upgrade controller"
        )
        policy = self.api.read("clusterpolicies", self.namespace)["spec"]["driver"]["upgradePolicy"]
        request = {"namespace": self.namespace, "labels": {"app": DRIVER}, "policy": policy}
        answer = self.library.ask(request)
        self.answers.append(answer)
        return answer

    @contextlib.contextmanager
    def library_beside(self) -> Iterator[None]:
        """The library reconciles without a pause in a thread of its own, at once with the adapter."""
        if self.library is None:
            yield
            return
        is_over = threading.Event()

        def reconcile() -> None:
            while not is_over.wait(PAUSE_SECONDS):
                with contextlib.suppress(OSError, http.client.HTTPException, rest.RefusedError):
                    self.reconcile()  # else the API server is being restarted

        thread = threading.Thread(target=reconcile)
        self._is_beside = True
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._is_beside = False

    def apply(self, node: str, version: str) -> adapter.Outcome:
        """One answer of the adapter, the first of its writes carried out."""
        outcome = self.adapter.apply(self.facts(node), adapter.Target(driver=version))
        if isinstance(outcome, adapter.Working) and outcome.writes:
            self.send(outcome.writes[0])
        return outcome

    def turn(self, nodes: tuple[str, ...], version: str) -> list[adapter.Outcome]:
        """Everything acts once."""
        self.player.act()
        if not self._is_beside:
            self.reconcile()
        return [self.apply(node, version) for node in nodes]

    def drive(
        self, *nodes: str, to: str, until: Callable[[adapter.Outcome], Any]
    ) -> list[adapter.Outcome]:
        """Turns until every one of the nodes has such an outcome; the last ones."""
        last: list[adapter.Outcome] = []

        def is_there() -> bool:
            last[:] = self.turn(nodes, to)
            return all(until(outcome) for outcome in last)

        wait_until(is_there, f"{nodes} on {to}", so_far=lambda: f"{last}, {self.answers[-1]}")
        return last

    def send(self, write: adapter.Write) -> None:
        """Carries out one write, as an executor would."""
        self.writes.append(write)
        match write:
            case adapter.NodePatch():
                metadata = {"labels": write.labels, "annotations": write.annotations}
                self.api.patch("nodes", write.node, {"metadata": metadata})
            case adapter.ObjectPatch():
                self.api.patch(write.kind.plural, write.name, write.patch)
            case adapter.PodDelete():
                self.api.delete(
                    "pods", write.name, write.namespace, preconditions={"uid": write.uid}
                )

    # What there is

    def fleet(self) -> FleetFacts:
        """The facts of the scene."""
        selector = f"{SCENE}={self.namespace}"
        policy = self.api.read("clusterpolicies", self.namespace)
        stored = [
            *_stored(registry.NODE, self.api.list("nodes", labelSelector=selector)),
            *_stored(registry.POD, self.api.list("pods", self.namespace)),
            *_stored(gpu_stack_kinds.DAEMON_SET, self.api.list("daemonsets", self.namespace)),
            *_stored(gpu_stack_kinds.CLUSTER_POLICY, [policy]),
        ]
        return node_facts.read(object_set.of("test", stored))

    def facts(self, node: str) -> NodeFacts:
        """The facts of one node."""
        facts = self.fleet().of(self.name(node), applying_seconds=self.applying_seconds)
        assert facts is not None
        return facts

    def state(self, node: str) -> str:
        """Where the library has a node."""
        tree = self.api.read("nodes", self.name(node))
        return str(tree["metadata"]["labels"].get(STATE, ""))

    def driver(self, node: str) -> tuple[str, str]:
        """Uid and image of the driver's pod on a node; empty where there is none that stays."""
        for pod in self.api.list("pods", self.namespace, labelSelector=f"app={DRIVER}"):
            is_going = pod["metadata"].get("deletionTimestamp")
            if pod["spec"].get("nodeName") == self.name(node) and not is_going:
                return pod["metadata"]["uid"], pod["spec"]["containers"][0]["image"]
        return "", ""

    def label(self, node: str, labels: dict[str, str | None]) -> None:
        """Changes labels of a node."""
        self.api.patch("nodes", self.name(node), {"metadata": {"labels": labels}})

    def set_policy(self, **changes: Any) -> None:
        """Changes the upgrade policy."""
        patch = {"spec": {"driver": {"upgradePolicy": changes}}}
        self.api.patch("clusterpolicies", self.namespace, patch)


@contextlib.contextmanager
def story(
    *nodes: str, plane: control_plane.ControlPlane | None = None, **policy: Any
) -> Iterator[Story]:
    """A story whose nodes all have the old driver, known to the library."""
    plane = plane or planes.control_plane()
    api = planes.api(plane)
    namespace = planes.fresh_namespace(plane)
    define(api)
    with contextlib.ExitStack() as stack:
        library = None
        if policy.get("autoUpgrade", True):
            library = stack.enter_context(upgrade_library.start(plane.kubeconfig))
        scene = Story(api, library, namespace)
        try:
            _set_up(scene, nodes, POLICY | policy)
            yield scene
        finally:
            clean_up(scene, nodes)


def _set_up(scene: Story, nodes: tuple[str, ...], policy: Tree) -> None:
    driver = {"version": OLD, "enabled": True, "upgradePolicy": policy}
    scene.api.create(
        "clusterpolicies",
        {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": scene.namespace},
            "spec": {"driver": driver},
        },
    )
    for node in nodes:
        scene.api.create("nodes", _node(scene, node))
    for app, image in ((DRIVER, driver_image(OLD)), (VALIDATOR, "test/validator:26.7.0")):
        scene.api.create("daemonsets", _daemon_set(scene, app, image), scene.namespace)

    def is_settled() -> bool:
        scene.player.act()
        if scene.library is None:
            return all(scene.driver(node)[1] for node in nodes)
        return scene.reconcile().get("states") == {"upgrade-done": len(nodes)}

    wait_until(is_settled, "the old driver on every node", so_far=lambda: str(scene.answers[-1:]))


def clean_up(scene: Story, nodes: tuple[str, ...]) -> None:
    """Takes everything of a story away."""
    for app in (DRIVER, VALIDATOR):
        scene.api.delete("daemonsets", app, scene.namespace)
    for node in nodes:
        scene.api.delete("nodes", scene.name(node))
    scene.api.delete("clusterpolicies", scene.namespace)
    for pod in scene.api.list("pods", scene.namespace):
        scene.api.delete("pods", pod["metadata"]["name"], scene.namespace, gracePeriodSeconds=0)
    scene.api.delete("namespaces", scene.namespace)


def _node(scene: Story, node: str) -> Tree:
    offered = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    labels = {
        SCENE: scene.namespace,
        "nvidia.com/gpu.present": "true",
        "feature.node.kubernetes.io/kernel-version.full": "6.8.0-60-generic",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
        "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu.deploy.operator-validator": "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": scene.name(node), "labels": labels},
        "status": {"capacity": offered, "allocatable": offered},
    }


def _daemon_set(scene: Story, app: str, image: str) -> Tree:
    deploy = "driver" if app == DRIVER else "operator-validator"
    selector = {SCENE: scene.namespace, f"nvidia.com/gpu.deploy.{deploy}": "true"}
    template = {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "nodeSelector": selector,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "driver" if app == DRIVER else "validator", "image": image}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": app, "labels": {"app": app}},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "updateStrategy": {"type": "OnDelete"},
            "template": template,
        },
    }


def define(api: rest.Rest) -> None:
    """The operator's kind, with any fields: its schema is not at hand."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": "clusterpolicies", "singular": "clusterpolicy", "kind": "ClusterPolicy"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterpolicies.nvidia.com"},
        "spec": {
            "group": "nvidia.com",
            "scope": "Cluster",
            "names": names,
            "versions": [version],
        },
    }
    with contextlib.suppress(rest.RefusedError):  # another story defined it
        api.create("customresourcedefinitions", definition)

    def is_served() -> bool:
        with contextlib.suppress(rest.RefusedError, ValueError):  # a plain text until it is served
            api.list("clusterpolicies")
            return True
        return False

    wait_until(is_served, "ClusterPolicy to be served")


def _stored(kind: registry.Kind, items: list[Tree]) -> list[Any]:
    return [object_set.stored_item(kind, msgspec.json.encode(item)) for item in items]
