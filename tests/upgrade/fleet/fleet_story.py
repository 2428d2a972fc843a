"""A story of whole upgrades on a real API server: a fleet with work, NVIDIA's library, and lifecycle processes.

Given nodes. The player and the library act in threads and a process of their own, at once with whatever lives. Every
version of every object is recorded, for the checker. Takes everything away at the end.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from dovetail.devcluster import control_plane
from tests.support import live, rest
from tests.support.waiting import wait_until
from tests.upgrade import operator_story
from tests.upgrade.driver_player import DRIVER, SCENE, driver_image
from tests.upgrade.fleet import fleet_manifests as manifests
from tests.upgrade.fleet import fleet_plane, upgrade_history
from tests.upgrade.fleet.fleet_player import LOADED, FleetPlayer
from tests.upgrade.fleet.fleet_records import Records
from tests.upgrade.fleet.lives import Lives
from tests.upgrade.fleet.upgrade_checker import Checker
from tests.upgrade.fleet.upgrade_history import ENDED, STAYS, WORK
from tests.upgrade.operator_story import NEW, OLD

Tree = dict[str, Any]
NAMES: Final = "abcdefghij"
# The library may start as many nodes as there are: the waves of the upgrade decide.
FREE: Final = {"maxParallelUpgrades": 0}
QUICK: Final = {"applySeconds": 120, "validateSeconds": 120}
OUTCOMES: Final = ("Done", "Failed", "RolledBack", "Skipped")


class Fleet:
    """The fleet of one story."""

    def __init__(self, scene: operator_story.Story, lives: Lives, player: FleetPlayer) -> None:
        self.scene = scene
        self.api = scene.api
        self.namespace = scene.namespace
        self.lives = lives
        self.player = player
        self.kubeconfig = lives.kubeconfig
        self.cordoned: set[str] = set()
        self.upgrade_names: list[str] = []
        self._work: list[str] = []
        self.records = Records(scene.api, scene.namespace)

    def name(self, node: str) -> str:
        """The full name of a node."""
        return self.scene.name(node)

    # What runs

    def gang(self, name: str, nodes: str) -> None:
        """Pods on these nodes that need each other."""
        labels = {"dovetail.dev/gang": name, "dovetail.dev/gang-min": str(len(nodes))}
        self._replicas(name, nodes, labels)

    def lone(self, name: str, nodes: str, *, has_volume: bool = False) -> None:
        """Pods that come back elsewhere, each by itself."""
        self.player.returning.add(name)
        self._replicas(name, nodes, {}, has_volume=has_volume)

    def budget(self, work: str, **spec: Any) -> None:
        """A disruption budget over work, counted by the cluster."""
        tree = manifests.budget(work, spec)
        self.api.create("poddisruptionbudgets", tree, self.namespace)

        def is_counted() -> bool:
            status = self.api.read("poddisruptionbudgets", work, self.namespace).get("status", {})
            return bool(status.get("currentHealthy"))

        wait_until(is_counted, f"budget {work} to be counted")

    def bare(self, name: str, node: str, *, gpus: int = 0) -> None:
        """A pod without a controller. Without GPUs no driver upgrade concerns it."""
        label = WORK if gpus else STAYS
        tree = {
            "metadata": {"name": name, "labels": {label: name}},
            "spec": manifests.pod_spec(gpus),
        }
        tree["spec"]["nodeName"] = self.name(node)
        self.api.create("pods", tree, self.namespace)

    def daemon(self, name: str, *, only: str = "", gpus: int = 0) -> None:
        """A pod on every node, or on nodes with this label, that a drain leaves."""
        labels = {STAYS: name, WORK: name} if gpus else {STAYS: name}
        selector = {SCENE: self.namespace} | ({only: "true"} if only else {})
        tree = manifests.daemon_set(name, labels, selector, gpus=gpus)
        self.api.create("daemonsets", tree, self.namespace)

    def cordon(self, node: str) -> None:
        """Another party takes a node out of service."""
        self.cordoned.add(self.name(node))
        self.api.patch("nodes", self.name(node), {"spec": {"unschedulable": True}})

    def taint(self, node: str) -> None:
        """Another party taints a node."""
        taints = [{"key": "example.com/team", "value": "a", "effect": "PreferNoSchedule"}]
        self.api.patch("nodes", self.name(node), {"spec": {"taints": taints}})

    def upgrade(self, name: str = "", **spec: Any) -> str:
        """A person starts an upgrade of the fleet."""
        full = f"{self.namespace}{name}"
        selector = {"matchLabels": {SCENE: self.namespace}}
        spec = {"to": {"driver": NEW}, "nodeSelector": selector, "stop": QUICK} | spec
        tree = manifests.upgrade(full, spec)
        self.api.create("stackupgrades", tree)
        self.upgrade_names.append(full)
        return full

    def _replicas(
        self, name: str, nodes: str, labels: dict[str, str], *, has_volume: bool = False
    ) -> None:
        self.player.places[name] = [self.name(node) for node in nodes]
        tree = manifests.replica_set(
            name, labels | {WORK: name}, count=len(nodes), has_volume=has_volume
        )
        self.api.create("replicasets", tree, self.namespace)
        self._work.append(name)
        wait_until(lambda: self.running(name) == len(nodes), f"{len(nodes)} pods of {name}")

    def wait_work(self) -> None:
        """Waits until every pod runs."""

        def is_running() -> bool:
            pods = self.api.list("pods", self.namespace)
            return all(pod["status"].get("phase") == "Running" for pod in pods)

        wait_until(is_running, "every pod to run")

    def running(self, work: str) -> int:
        """How many pods of some work run."""
        pods = self.api.list("pods", self.namespace, labelSelector=f"{WORK}={work}")
        return sum(pod["status"].get("phase") == "Running" for pod in pods)

    # What is seen

    def status(self, name: str = "") -> Tree:
        """What an upgrade says, the first one by default."""
        read = self.api.read("stackupgrades", name or self.upgrade_names[0])
        status: Tree = read.get("status", {})
        return status

    def node(self, node: str) -> Tree:
        """What the upgrade says of a node."""
        nodes = self.status().get("nodes", ())
        return next((each for each in nodes if each["name"] == self.name(node)), {})

    def reason(self, node: str) -> str:
        """What a node of the upgrade waits for, or why it failed."""
        return str(self.node(node).get("reason", ""))

    def wait_reason(self, node: str, words: str) -> None:
        """Waits until the upgrade says so of a node."""
        self.wait(lambda: words in self.reason(node), f"{node} to say {words!r}")

    def moving(self) -> set[str]:
        """The nodes that are under way."""
        still = ("Waiting", *OUTCOMES)
        return {node for node, phase in self.phases().items() if phase not in still}

    def exists(self, name: str) -> bool:
        """Whether the object of an upgrade is there."""
        return any(each["metadata"]["name"] == name for each in self.api.list("stackupgrades"))

    def boot_id(self, node: str) -> str:
        """As the node's kubelet reported it."""
        status = self.api.read("nodes", self.name(node))["status"]
        return str(status.get("nodeInfo", {}).get("bootID", ""))

    def phases(self) -> dict[str, str]:
        """The phase of every node, by its short name."""
        prefix = len(self.namespace) + 1
        return {
            each["name"][prefix:]: each.get("phase", "Waiting")
            for each in self.status().get("nodes", ())
        }

    def drivers(self) -> dict[str, str]:
        """The driver's image on every node."""
        nodes = self.phases()
        return {node: self.scene.driver(node)[1] for node in nodes}

    def wait(self, is_so: Callable[[], Any], what: str) -> Any:
        """Waits for something, with what is known where it does not come."""
        return wait_until(
            is_so,
            what,
            at_most=240.0,
            so_far=lambda: f"{self.status()}\n{self.player.bugs}\n{self.lives.words()}",
        )

    def wait_ended(self, name: str = "") -> Tree:
        """Waits until the upgrade has ended and its last fence is settled; its status."""

        def is_over() -> bool:
            return self.status(name).get("phase") in ENDED

        self.wait(is_over, "the end of the upgrade")
        self.wait(self._is_settled, "the library to have nothing under way")
        return self.status(name)

    def _is_settled(self) -> bool:
        failed = {self.name(node) for node, phase in self.phases().items() if phase == "Failed"}
        nodes = self.api.list("nodes", labelSelector=f"{SCENE}={self.namespace}")
        others = [node for node in nodes if node["metadata"]["name"] not in failed]
        states = {node["metadata"]["labels"].get(upgrade_history.STATE) for node in others}
        return states <= {"upgrade-done", "upgrade-required", None}

    # What happened

    def checked(self, *, most: int) -> Checker:
        """The verdict over everything that happened. Fails where anything did that must not."""
        facts = upgrade_history.Scene(
            most_unavailable=most,
            driver_app=DRIVER,
            images={OLD: driver_image(OLD), NEW: driver_image(NEW)},
            cordoned=frozenset(self.cordoned),
        )
        checker = Checker(facts).replay(self.records.history())
        checker.end()
        assert not self.player.bugs, self.player.bugs
        assert not checker.violations, "\n".join(checker.violations)
        return checker

    def leftovers(self) -> list[str]:
        """What is left on the cluster, where the history was not recorded."""
        facts = upgrade_history.Scene(most_unavailable=0, driver_app=DRIVER, images={})
        checker = Checker(facts)
        for change in self.records.present():
            if change.kind != "pods":
                checker.objects[change.kind][change.name] = change.tree
        checker.end()
        return checker.violations


@contextlib.contextmanager
def fleet(
    nodes: int,
    *,
    plane: control_plane.ControlPlane | None = None,
    is_recorded: bool = True,
    has_slices: bool = True,
    **policy: Any,
) -> Iterator[Fleet]:
    """A fleet whose nodes have the old driver. The player and the library act until the end of the block."""
    names = NAMES[:nodes]
    plane = plane or fleet_plane.plane()
    with (
        tempfile.TemporaryDirectory(prefix="dovetail-fleet-") as scratch,
        operator_story.story(*names, plane=plane, **FREE | policy) as scene,
        Lives(plane, scene.api, scene.namespace, Path(scratch)) as lives,
    ):
        _define_upgrades(scene.api)
        player = FleetPlayer(scene.api, scene.player, has_slices=has_slices)
        story = Fleet(scene, lives, player)
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(player)
                stack.enter_context(scene.library_beside())
                wait_until(lambda: _shown(scene) == nodes, "the driver of every node to be shown")
                if is_recorded:
                    story.records.begin(stack)
                yield story
                lives.stop(kill=True)
        finally:
            _clean_up(story)


def _shown(scene: operator_story.Story) -> int:
    return len(scene.api.list("nodes", labelSelector=f"{SCENE}={scene.namespace},{LOADED}"))


def _clean_up(story: Fleet) -> None:
    api = story.api
    for name in story.upgrade_names:
        with contextlib.suppress(rest.RefusedError):
            api.patch("stackupgrades", name, {"metadata": {"finalizers": None}})
        api.delete("stackupgrades", name)
    for rule in api.list("devicetaintrules"):
        if story.records.is_ours(rule["metadata"]["name"]):
            api.delete("devicetaintrules", rule["metadata"]["name"])
    for daemon in api.list("daemonsets", story.namespace):
        api.delete("daemonsets", daemon["metadata"]["name"], story.namespace)
    for work in story._work:
        api.delete("replicasets", work, story.namespace)
    for published in api.list("resourceslices"):
        if published["metadata"]["name"].startswith(story.namespace):
            api.delete("resourceslices", published["metadata"]["name"])


def _define_upgrades(api: rest.Rest) -> None:
    """The kind as the chart installs it."""
    wanted = "stackupgrades.dovetail.dev"
    for item in live.installed():
        if item["kind"] == "CustomResourceDefinition" and item["metadata"]["name"] == wanted:
            with contextlib.suppress(rest.RefusedError):  # another story defined it
                api.create("customresourcedefinitions", item)

    def is_served() -> bool:
        with contextlib.suppress(rest.RefusedError, ValueError):
            api.list("stackupgrades")
            return True
        return False

    wait_until(is_served, "StackUpgrade to be served")
