"""Every pod we bind has what it needs at that very revision, on a node that has room; and keeps it.

`Bindings` judges the moment of binding, `Allocations` that what was given stays as it was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from tests.allocate.checker_pools import amount
from tests.faults import checker_neighbours, checker_scene
from tests.faults.checker_scene import Bounds, Judge, Scene, Step, Violation
from tests.faults.records import Tree

COUNTED_ALWAYS: Final = ("cpu", "memory", "ephemeral-storage")

Amounts = dict[str, Fraction]


class Bindings:
    """Pods get their node once, when all is ready."""

    def __init__(self, judge: Judge, bounds: Bounds) -> None:
        self._judge = judge
        self._bounds = bounds
        self._bound: dict[str, tuple[float, bool]] = {}  # pod identity -> when, and whether by us

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """Judges bindings."""
        if step.revision.kind != "pods" or step.after is None:
            return
        before, after = checker_scene.node_of(step.before), checker_scene.node_of(step.after)
        if (
            before
            and before != after
            and checker_scene.uid_of(step.before or {}) == checker_scene.uid_of(step.after)
        ):
            yield step.violates("moved", f"was bound to {before}, now {after or 'to nothing'}")
        if before or not after:
            return
        is_by_us = step.revision.writer in self._judge.ours
        self._bound[checker_scene.uid_of(step.after)] = step.revision.seconds, is_by_us
        if is_by_us:
            yield from self._judged(step.after, after, step=step, scene=scene)

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """Nothing: bindings were judged when they happened."""
        return iter(())

    def _judged(
        self, pod: Tree, node_name: str, *, step: Step, scene: Scene
    ) -> Iterator[Violation]:
        if not self._judge.is_ours(pod):
            yield step.violates(
                "moved",
                f"asks for scheduler {pod['spec'].get('schedulerName')}, and was bound by us",
            )
        node = scene.get("nodes", node_name)
        if node is None:
            if scene.since("nodes", node_name) < step.revision.seconds - self._bounds.visible:
                yield step.violates("stale", f"bound to node {node_name}, which is not there")
            return
        for text in _claim_problems(pod, node, scene):
            yield step.violates("unready", text)
        for text in (*_missing_mappings(pod, node), *_volume_problems(pod, node, scene)):
            yield step.violates("unready", text)
        for text in self._closed(pod, node, seconds=step.revision.seconds, scene=scene):
            yield step.violates("stale", text)
        for text in self._overcommitted(pod, node, seconds=step.revision.seconds, scene=scene):
            yield step.violates("overcommitted", text)
        there = self._on(node_name, seconds=step.revision.seconds, scene=scene)
        uid = checker_scene.uid_of(pod)
        for text in checker_neighbours.problems(
            pod, (item for item in there if checker_scene.uid_of(item) != uid)
        ):
            yield step.violates("beside", text)

    def _closed(self, pod: Tree, node: Tree, *, seconds: float, scene: Scene) -> Iterator[str]:
        name = node["metadata"]["name"]
        if scene.since("nodes", name) > seconds - self._bounds.visible:
            return
        if node["spec"].get("unschedulable"):
            yield f"node {name} is unschedulable"
        for taint in node["spec"].get("taints") or ():
            if taint["effect"] == "PreferNoSchedule":
                continue
            if not checker_scene.tolerates(pod["spec"].get("tolerations") or (), taint):
                yield f"node {name} has taint {taint['key']}"

    def _overcommitted(
        self, pod: Tree, node: Tree, *, seconds: float, scene: Scene
    ) -> Iterator[str]:
        name = node["metadata"]["name"]
        room = {
            key: amount(text) for key, text in (node["status"].get("allocatable") or {}).items()
        }
        taken: Amounts = {}
        for item in self._on(name, seconds=seconds, scene=scene):
            _add(taken, {**demand_of(item), "pods": Fraction(1)})
        for resource in sorted({*demand_of(pod), "pods"}):
            is_counted = resource in room or resource in COUNTED_ALWAYS or resource == "pods"
            if is_counted and taken[resource] > room.get(resource, Fraction(0)):
                yield f"node {name} promises {taken[resource]} {resource} of {room.get(resource, Fraction(0))}"

    def _on(self, name: str, *, seconds: float, scene: Scene) -> Iterator[Tree]:
        """The pods of a node that we had to know of."""
        for item in scene.all("pods"):
            if (
                checker_scene.node_of(item) == name
                and not checker_scene.is_over(item)
                and self._counts(item, seconds)
            ):
                yield item

    def _counts(self, pod: Tree, seconds: float) -> bool:
        """Those we bound, and those of others that we must have seen."""
        when, is_by_us = self._bound.get(checker_scene.uid_of(pod), (float("-inf"), False))
        return is_by_us or when < seconds - self._bounds.visible


class Allocations:
    """What was given stays."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def see(self, step: Step, scene: Scene) -> Iterator[Violation]:
        """Judges changes of claims."""
        if step.revision.kind != "resourceclaims" or step.before is None or step.after is None:
            return
        if checker_scene.uid_of(step.before) != checker_scene.uid_of(step.after):
            return
        before, after = (checker_scene.allocation_of(item) for item in (step.before, step.after))
        if before and after and before != after:
            yield step.violates("changed", "the allocation is another one")
        if step.revision.writer not in self._judge.ours:
            return
        for uid, name in checker_scene.users_of(step.before).items():
            pod = scene.pod(uid)
            is_running = (
                pod is not None
                and checker_scene.node_of(pod) != ""
                and not checker_scene.is_over(pod)
            )
            if is_running and (uid not in checker_scene.users_of(step.after) or not after):
                yield step.violates("changed", f"taken from pod {name}, which is bound")

    def end(self, scene: Scene, seconds: float) -> Iterator[Violation]:
        """Nothing."""
        return iter(())


def _claim_problems(pod: Tree, node: Tree, scene: Scene) -> Iterator[str]:
    uid, namespace = checker_scene.uid_of(pod), pod["metadata"]["namespace"]
    for local, name in checker_scene.claims_of(pod):
        claim = scene.get("resourceclaims", f"{namespace}/{name}") if name else None
        if claim is None:
            yield f"bound without claim {local}"
            continue
        allocation = checker_scene.allocation_of(claim)
        owner = checker_scene.owner_of(claim)
        if allocation is None:
            yield f"bound while claim {name} is not allocated"
        elif not reaches(allocation.get("nodeSelector"), node):
            yield f"bound to {node['metadata']['name']}, which claim {name} does not reach"
        if uid not in checker_scene.users_of(claim):
            yield f"bound while claim {name} is not reserved for it"
        if owner and owner != uid:
            yield f"bound with claim {name}, which was made for another pod"


def _volume_problems(pod: Tree, node: Tree, scene: Scene) -> Iterator[str]:
    """Volumes made for a pod must be bound to disks within reach."""
    for volume in pod["spec"].get("volumes") or ():
        if "ephemeral" not in volume:
            continue
        name = f"{pod['metadata']['name']}-{volume['name']}"
        claim = scene.get("persistentvolumeclaims", f"{pod['metadata']['namespace']}/{name}") or {}
        disk = scene.get("persistentvolumes", (claim.get("spec") or {}).get("volumeName") or "")
        if disk is None or (claim.get("status") or {}).get("phase") != "Bound":
            yield f"bound while volume claim {name} is not"
        elif not reaches((disk["spec"].get("nodeAffinity") or {}).get("required"), node):
            yield f"bound to {node['metadata']['name']}, which the disk of {name} is not on"


def _missing_mappings(pod: Tree, node: Tree) -> Iterator[str]:
    """Extended resources that the node does not count itself must be served by a claim, container by container."""
    counted = node["status"].get("allocatable") or {}
    messages = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get(
        "requestMappings"
    ) or ()
    mapped = {(message["containerName"], message["resourceName"]) for message in messages}
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        for resource, text in _requests(container).items():
            is_ours = "/" in resource and resource not in counted and amount(text) > 0
            if is_ours and (container["name"], resource) not in mapped:
                yield f"container {container['name']} has no devices for {resource}"


def demand_of(pod: Tree) -> Amounts:
    """What a pod asks of its node: containers and sidecars together, or the largest moment of its start."""
    spec = pod["spec"]
    running: Amounts = {}
    for container in spec["containers"]:
        _add(running, _amounts(_requests(container)))
    started: Amounts = {}  # sidecars so far
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = _amounts(_requests(container))
        if container.get("restartPolicy") == "Always":
            _add(started, asked)
            moment = dict(started)
        else:
            moment = dict(started)
            _add(moment, asked)
        peak = _larger(peak, moment)
    _add(running, started)
    total = _larger(running, peak)
    total |= _amounts(_requests(spec))  # resources of the pod as a whole take the place of the sum
    _add(total, _amounts(spec.get("overhead") or {}))
    return total


def _requests(holder: Tree) -> Tree:
    """Requests; a limit without a request is one, as the API server would have stored it."""
    resources = holder.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _amounts(texts: Tree) -> Amounts:
    return {name: amount(text) for name, text in texts.items()}


def _add(total: Amounts, more: Amounts) -> None:
    for name, value in more.items():
        total[name] = total.get(name, Fraction(0)) + value


def _larger(amounts: Amounts, other: Amounts) -> Amounts:
    return {
        name: max(amounts.get(name, Fraction(0)), other.get(name, Fraction(0)))
        for name in {*amounts, *other}
    }


def reaches(selector: Tree | None, node: Tree) -> bool:
    """Whether an allocation can be used on the node; one without a selector can be used anywhere."""
    if selector is None:
        return True
    return any(_picks(term, node) for term in selector.get("nodeSelectorTerms") or ())


def _picks(term: Tree, node: Tree) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    tests = [
        *_tests(term.get("matchExpressions"), labels),
        *_tests(term.get("matchFields"), fields),
    ]
    return bool(tests) and all(tests)


def _tests(wanted: Iterable[Tree] | None, values: Tree) -> Iterator[bool]:
    for item in wanted or ():
        value, listed = values.get(item["key"]), item.get("values") or ()
        match item["operator"]:
            case "In":
                yield value in listed
            case "NotIn":
                yield value not in listed
            case "Exists":
                yield value is not None
            case "DoesNotExist":
                yield value is None
            case operator:  # Gt and Lt are never written into allocations of a run
                raise AssertionError(f"unexpected operator {operator!r} in an allocation")
