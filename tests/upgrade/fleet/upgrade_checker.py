"""Judges the whole history of upgrades on an API server: what was never allowed to happen, at any revision.

Given every version of nodes, pods, StackUpgrades and DeviceTaintRules in the order of the store, and what belongs to
others. Replays them and returns each violation with its revision. Shares no rule with the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.upgrade.fleet.upgrade_history import (
    ENDED,
    FENCE,
    GANG_MIN,
    NODE,
    SKIP,
    STATE,
    STAYS,
    WORK,
    Change,
    Scene,
    Tree,
    begins_to_end,
    fence_of,
    foreign_taints,
    nodes_of,
)

IDLE: Final = ("", "upgrade-done", "upgrade-required")
# Phases of a node while the library may work on it, and those in which its fence may go.
AT_WORK: Final = ("Applying", "Validating", "Unfencing", "Failed")
OPENING: Final = ("Unfencing", "Done", "RolledBack")
OUR_SKIP: Final = "dovetail.dev/driver-skip"
LEFTOVERS: Final = (
    OUR_SKIP,
    "dovetail.dev/driver-retried",
    "dovetail.dev/validation-baseline",
)
_GOES_BACK: Final = ("Applying", "Fencing")
_NEXT: Final = {
    "Waiting": ("Fencing", "Skipped"),
    "Fencing": ("Draining", "Skipped", "Failed"),
    "Draining": ("Applying", "Failed", "Skipped"),
    "Applying": ("Validating", "Failed", *_GOES_BACK),
    "Validating": ("Unfencing", "Failed", *_GOES_BACK),
    "Unfencing": ("Done", "RolledBack", "Failed", "Skipped", *_GOES_BACK),
    "Done": ("Failed", "Fencing", "Applying", "Waiting"),
    "Failed": ("Applying", "Fencing"),
    "Skipped": (),
    "RolledBack": (),
}


class Checker:
    """Replays one history."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.violations: list[str] = []
        self.evictions = 0
        self.unfenced = 0
        self.objects: dict[str, dict[str, Tree]] = {
            "nodes": {},
            "pods": {},
            "stackupgrades": {},
            "devicetaintrules": {},
        }
        self._placed: dict[str, str] = {}  # node by pod's uid, also of pods that are gone
        self._revision = 0

    def replay(self, history: Iterable[Change]) -> Checker:
        """All of it, in the order of the store."""
        for change in sorted(history, key=lambda each: each.revision):
            self._revision = change.revision
            known = self.objects[change.kind]
            key = change.tree["metadata"]["uid"] if change.kind == "pods" else change.name
            before = known.get(key)
            if change.type == "DELETED":
                known.pop(key, None)
            else:
                known[key] = change.tree
            if change.kind == "pods":
                self._placed[key] = change.tree["spec"].get("nodeName", "")
            self._judge(change, before)
        return self

    def end(self) -> None:
        """What must not be left when every upgrade has ended."""
        statuses = [
            node
            for upgrade in self.objects["stackupgrades"].values()
            for node in nodes_of(upgrade).values()
        ]
        # The library would install once more what a node went back from.
        held = {node["name"] for node in statuses if node.get("phase") == "RolledBack"}
        failed = {
            node["name"]
            for node in statuses
            if node.get("phase") == "Failed" and not node.get("isGivenBack")
        }
        for name, node in self.objects["nodes"].items():
            if name in failed:
                continue
            metadata = node["metadata"]
            marks = {**metadata.get("annotations", {}), **metadata.get("labels", {})}
            left = [key for key in (*LEFTOVERS, SKIP) if key in marks]
            if name in held:
                left = [key for key in left if key not in (SKIP, OUR_SKIP)]
            if fence_of(node):
                left.append(FENCE)
            if node["spec"].get("unschedulable") and name not in self.scene.cordoned:
                left.append("unschedulable")
            is_done = metadata.get("labels", {}).get(STATE, "") in ("", "upgrade-done")
            if not is_done and name not in held:
                left.append(metadata["labels"][STATE])
            if left:
                self._violated(f"left on node {name}: {', '.join(left)}")
        for rule in self.objects["devicetaintrules"].values():
            node_name = rule["metadata"]["annotations"].get(NODE, "")
            if node_name in self.objects["nodes"] and node_name not in failed:
                self._violated(f"left: rule {rule['metadata']['name']}")

    def _violated(self, what: str) -> None:
        self.violations.append(f"revision {self._revision}: {what}")

    def _judge(self, change: Change, before: Tree | None) -> None:
        if change.kind == "nodes" and before is not None and change.type != "DELETED":
            self._node(change.tree, before)
        elif change.kind == "pods" and begins_to_end(change, before):
            self._pod(change.tree)
        elif change.kind == "stackupgrades" and before is not None and change.type != "DELETED":
            self._upgrade(change.tree, before)

    # Nodes

    def _node(self, node: Tree, before: Tree) -> None:
        name = node["metadata"]["name"]
        was, now = fence_of(before), fence_of(node)
        if was != now:
            self._fence_changed(name, was, now)
        lost = set(foreign_taints(before)) - set(foreign_taints(node))
        if lost:
            self._violated(f"foreign taints of {name} went: {sorted(lost)}")
        is_cordoned = bool(node["spec"].get("unschedulable"))
        was_cordoned = bool(before["spec"].get("unschedulable"))
        if name in self.scene.cordoned:
            if was_cordoned and not is_cordoned:
                self._violated(f"the cordon of another on {name} was removed")
        elif is_cordoned and not was_cordoned and not now:
            self._violated(f"{name} was cordoned without our fence")
        state = node["metadata"].get("labels", {}).get(STATE, "")
        if state not in IDLE and state != before["metadata"].get("labels", {}).get(STATE, ""):
            self._library_began(name, state, now)

    def _fence_changed(self, name: str, was: str, now: str) -> None:
        if "," in now:
            self._violated(f"{name} has two owners: {now}")
        if was and now:
            self._violated(f"the fence of {name} went from {was} to {now} at once")
            return
        if now:
            phase = self._status(now, name).get("phase")
            if phase not in ("Fencing", "Failed"):
                self._violated(f"{name} was fenced in phase {phase}")
            out = {each for each, tree in self.objects["nodes"].items() if self._is_out(tree)}
            if len(out) > self.scene.most_unavailable:
                self._violated(f"{len(out)} nodes are unavailable: {sorted(out)}")
            return
        self.unfenced += 1
        status = self._status(was, name)
        if status.get("isGivenBack"):
            return
        if status.get("phase") not in OPENING:
            self._violated(f"{name} was unfenced in phase {status.get('phase')}")
        upgrade = self.objects["stackupgrades"].get(was, {})
        versions = (
            status.get("previous", {})
            if status.get("isGoingBack")
            else upgrade.get("spec", {}).get("to", {})
        )
        image = self.scene.images.get(versions.get("driver", ""))
        if image not in self._ready_drivers(name):
            self._violated(f"{name} was unfenced without a ready driver {versions}")

    def _is_out(self, node: Tree) -> bool:
        conditions = node.get("status", {}).get("conditions", ())
        ready = [each["status"] for each in conditions if each["type"] == "Ready"]
        is_ready = all(status == "True" for status in ready)
        return bool(fence_of(node) or node["spec"].get("unschedulable") or not is_ready)

    def _library_began(self, name: str, state: str, fence: str) -> None:
        phase = self._status(fence, name).get("phase") if fence else None
        if phase not in AT_WORK:
            self._violated(f"the library has {name} in {state} in phase {phase}, fence {fence!r}")

    def _ready_drivers(self, node: str) -> list[str]:
        return [
            pod["spec"]["containers"][0]["image"]
            for pod in self._on(node)
            if pod["metadata"].get("labels", {}).get("app") == self.scene.driver_app
            and all(each["ready"] for each in pod["status"].get("containerStatuses", ()))
        ]

    # Pods

    def _pod(self, pod: Tree) -> None:
        metadata = pod["metadata"]
        labels, name = metadata.get("labels", {}), metadata["name"]
        node = pod["spec"].get("nodeName", "")
        if not node:
            return
        if STAYS in labels:
            self._violated(f"{name} was ended, and had to stay")
        elif labels.get("app") == self.scene.driver_app:
            self._driver_ended(node)
        elif WORK in labels:
            self.evictions += 1
            self._work_ended(pod, node)

    def _driver_ended(self, node: str) -> None:
        if node in self.scene.restarting:
            return
        busy = [
            pod["metadata"]["name"]
            for pod in self._on(node)
            if WORK in pod["metadata"].get("labels", {})
        ]
        if busy:
            self._violated(f"the driver of {node} ended under {busy}")
        fence = fence_of(self.objects["nodes"][node])
        phase = self._status(fence, node).get("phase") if fence else None
        if phase not in AT_WORK:
            self._violated(f"the driver of {node} ended in phase {phase}, fence {fence!r}")

    def _work_ended(self, pod: Tree, node: str) -> None:
        """Evicted only behind a whole fence, and only what the status names before."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        own = self._whole_fence(node)
        is_lone = int(pod["metadata"]["labels"].get(GANG_MIN, "1")) < 2
        if is_lone and own and self._status(own, node).get("phase") == "Draining":
            return
        for upgrade in self.objects["stackupgrades"].values():
            drain = upgrade.get("status", {}).get("drain") or {}
            if uid not in drain.get("pods", ()) or not drain.get("isEvicting"):
                continue
            nodes = self._nodes_of_pods(drain["pods"])
            behind = [each for each in nodes if self._whole_fence(each)]
            if behind:
                return
            self._violated(f"{name} was evicted, and no node of its gang is fenced: {nodes}")
            return
        self._violated(f"{name} on {node} was evicted without a fence or a status that names it")

    def _nodes_of_pods(self, uids: Iterable[str]) -> list[str]:
        return sorted({self._placed[uid] for uid in uids if uid in self._placed})

    def _on(self, node: str) -> list[Tree]:
        return [pod for pod in self.objects["pods"].values() if pod["spec"].get("nodeName") == node]

    def _whole_fence(self, node: str) -> str:
        """The upgrade whose taint and rule stand for a node."""
        fence = fence_of(self.objects["nodes"].get(node, {"spec": {}}))
        rules = [
            rule
            for rule in self.objects["devicetaintrules"].values()
            if rule["metadata"].get("labels", {}).get(FENCE) == fence
            and rule["metadata"].get("annotations", {}).get(NODE) == node
        ]
        return fence if rules else ""

    # Upgrades

    def _upgrade(self, upgrade: Tree, before: Tree) -> None:
        was = before.get("status", {}).get("drain") or {}
        now = upgrade.get("status", {}).get("drain") or {}
        if was.get("isEvicting") and was.get("pods") != now.get("pods"):
            left = [uid for uid in was["pods"] if uid in self.objects["pods"]]
            if left:
                self._violated(f"gang {was.get('gang')} is half evicted: {len(left)} pods stay")
        if before.get("status", {}).get("phase") in ENDED:
            self._ended_again(upgrade, before)
        earlier = nodes_of(before)
        for name, node in nodes_of(upgrade).items():
            self._moved(name, earlier.get(name, {}).get("phase"), node)

    def _ended_again(self, upgrade: Tree, before: Tree) -> None:
        phase, was = upgrade["status"]["phase"], before["status"]["phase"]
        if phase != was:
            self._violated(f"upgrade {upgrade['metadata']['name']} went from {was} to {phase}")

    def _moved(self, name: str, was: str | None, node: Tree) -> None:
        phase = node.get("phase", "Waiting")
        if was is None or was == phase:
            return
        if phase not in _NEXT[was]:
            self._violated(f"node {name} went from {was} to {phase}")

    def _status(self, upgrade: str, node: str) -> Tree:
        return nodes_of(self.objects["stackupgrades"].get(upgrade, {})).get(node, {})
