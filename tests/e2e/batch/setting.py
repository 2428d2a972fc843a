"""Puts a scenario on a real server as its users and nodes would have left it, recreates lost pods, and wipes it all.

Nodes, slices, queues and topologies are created; pods that hold something are bound and have their claims' devices
written as a scheduler would have; the real controllers make claims of templates. Ages are given by the order in which
things are created. Given a connection. Never schedules.
"""

from __future__ import annotations

import datetime
import time
import uuid
from collections import Counter
from typing import Any

from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.kubetypes.resource import claims
from dovetail.model import gangs
from dovetail.replay.scenarios import (
    build_scenario,
    scenario_claims,
    scenario_format,
    scenario_state,
)
from dovetail.replay.scenarios.scenario_format import State
from tests.e2e.batch import asking
from tests.support import rest
from tests.support.waiting import wait_until

Tree = dict[str, Any]
PAUSE_SECONDS = 0.1  # between two looks at many lists: more often they keep the server busy
NAMESPACE = scenario_claims.NAMESPACE
STANDS_FOR = (
    "example.com/stands-for"  # label: the pod of the scenario that this one is, or is in place of
)
HOLLOW = "dovetail.dev/hollow"
FINALIZER = "resource.kubernetes.io/delete-protection"
CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
PLURALS = {
    "Node": "nodes",
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
    "Topology": "topologies",
}
WIPED = (
    "intents",
    "jobs",
    "pytorchjobs",
    "jobsets",
    "resourceclaimtemplates",
)  # of the namespace, pods and claims apart
CLUSTER_WIPED = ("queues", "topologies", "resourceslices", "deviceclasses", "nodes")


class Setting:
    """One scenario on one server."""

    def __init__(
        self, asked: rest.Rest, scenario: scenario_format.Scenario, *, is_prompt: bool = True
    ) -> None:
        self.rest = asked
        self.scenario = scenario
        self._is_prompt = (
            is_prompt  # controllers recreate a pod when it begins to end; else when it is gone
        )
        self._times: Counter[str] = Counter()  # that a pod was recreated
        self._job_objects = {job.name: asking.objects_of(job, scenario) for job in scenario.jobs}
        self._owners: dict[tuple[str, str], str] = {}  # uid by plural and name
        self._pods: dict[str, Tree] = {}  # as they are made, by name
        self._stays = {
            pod.name
            for job in scenario.jobs
            for pod in job.pods
            if job.after_eviction == "stays_terminating" or pod.state is State.STUCK
        }

    def put(self) -> None:
        """Everything as the scenario begins."""
        began = scenario_state.begin(self.scenario)
        objects = list(build_scenario.objects(self.scenario, began))
        for item in objects:
            tree = codec.tree_of(item) if not isinstance(item, gangs.Gang) else {}
            if (plural := PLURALS.get(tree.get("kind", ""))) is not None:
                self.rest.create(plural, _published(tree))
        self._in_order(
            [(_queue(item), item.spec.parent) for item in objects if isinstance(item, queues.Queue)]
        )
        self._put_jobs()
        result = [item for item in objects if isinstance(item, claims.ResourceClaim)]
        for item in result:
            self._put_claim(item)
        for item in objects:
            if isinstance(item, pods.Pod):
                self._put_pod(item)
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.all_pods()}
        self._wait_for_claims(uids)
        self._give(result, uids)
        for name, where in began.pods.items():
            self._stand(name, where)

    # What there is

    def all_pods(self) -> list[Tree]:
        """All pods."""
        return self.rest.list("pods", NAMESPACE)

    def all_claims(self) -> list[Tree]:
        """All claims."""
        return self.rest.list("resourceclaims", NAMESPACE)

    def is_staying(self, pod: Tree) -> bool:
        """Whether the pod never ends once it is deleted."""
        return stands_for(pod) in self._stays

    def renew(self, present: list[Tree]) -> bool:
        """Recreates lost pods, as their owners' controllers would; returns whether there were any."""
        is_there = {stands_for(pod) for pod in present if self._counts(pod)}
        lost = [name for name in self._pods if name not in is_there]
        for name in lost:
            self._times[name] += 1
            tree = self._pods[name]
            text = f"{name}-{self._times[name]}"
            self.rest.create(
                "pods", tree | {"metadata": tree["metadata"] | {"name": text}}, NAMESPACE
            )
        return bool(lost)

    def _counts(self, pod: Tree) -> bool:
        """Whether a controller takes the pod for one it has."""
        is_ending = bool(pod["metadata"].get("deletionTimestamp"))
        return not is_ending or self.is_staying(pod) or not self._is_prompt

    def has_claims(self, pod: Tree, trees: list[Tree]) -> bool:
        """Whether every claim the pod is to have of its own is there."""
        expected = {
            item["name"]
            for item in pod["spec"].get("resourceClaims", ())
            if "resourceClaimTemplateName" in item
        }
        known = {item["name"] for item in pod["status"].get("resourceClaimStatuses", ())}
        mine = {role_of(tree) for tree in trees if owner_of(tree) == pod["metadata"]["uid"]}
        return expected <= known and expected <= mine

    # Putting it there

    def _put_jobs(self) -> None:
        """Creates owners by age: each is younger than the one before, or its name comes later."""
        jobs = sorted(self.scenario.jobs, key=lambda job: (-job.age_s, job.name))
        firsts = []
        for job in jobs:
            job_objects = self._job_objects[job.name]
            (plural, tree), *others = job_objects.objects
            firsts.append((_Owned(plural, tree, f"{job_objects.source}/{job.name}"), job.queue))
            for other, below in others:
                self._own(other, below)
            self._classed(job.priority)
        self._in_order(firsts)

    def _in_order(self, wanted: list[tuple[_Owned, str]]) -> None:
        """Creates these so that their ages, and for equal ages their names, have the given order among equals."""
        last: dict[
            str, tuple[str, str]
        ] = {}  # by whom they are compared with: age and name of the last
        for item, circle in wanted:
            before = last.get(circle)
            if before is not None and item.key <= before[1]:
                _until_after(before[0])
            made = self._own(item.plural, item.tree)
            last[circle] = (made["metadata"]["creationTimestamp"], item.key)

    def _own(self, plural: str, tree: Tree) -> Tree:
        namespace = "" if plural == "queues" else NAMESPACE
        made = self.rest.create(plural, tree, namespace)
        self._owners[plural, tree["metadata"]["name"]] = made["metadata"]["uid"]
        return made

    def _classed(self, priority: int) -> None:
        tree = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": priority}
        try:
            self.rest.create("priorityclasses", tree | {"metadata": {"name": f"p{priority}"}})
        except rest.RefusedError as refused:
            if refused.status != 409:  # there already, from another scenario
                raise

    def _put_claim(self, claim: claims.ResourceClaim) -> None:
        """What pods name is created, what they bring along becomes the template of it."""
        tree = codec.tree_of(claim)
        head = {"name": claim.metadata.name, "labels": claim.metadata.labels}
        if not claim.metadata.owner_references:
            self.rest.create("resourceclaims", {**tree, "metadata": head, "status": {}}, NAMESPACE)
            return
        spec = {"metadata": {"annotations": claim.metadata.annotations}, "spec": tree["spec"]}
        template = {
            "apiVersion": tree["apiVersion"],
            "kind": "ResourceClaimTemplate",
            "metadata": head,
            "spec": spec,
        }
        self.rest.create("resourceclaimtemplates", template, NAMESPACE)

    def _put_pod(self, pod: pods.Pod) -> None:
        name = pod.metadata.name
        job = next(job for job in self.scenario.jobs if any(item.name == name for item in job.pods))
        stated = next(item for item in job.pods if item.name == name)
        seat = self._job_objects[job.name].seats[stated.group]
        unused = (gangs.GANG_LABEL, gangs.GROUP_LABEL)  # its owner says what they would
        labels = {key: word for key, word in pod.metadata.labels.items() if key not in unused}
        metadata = {
            "name": name,
            "labels": labels | seat.labels | {STANDS_FOR: name},
            "annotations": pod.metadata.annotations,
            "ownerReferences": [self._owner(seat)],
        }
        spec = _spec(pod, priority=job.priority)
        tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        again = {key: value for key, value in spec.items() if key != "nodeName"}
        self._pods[name] = tree | {"spec": again}
        held = {"finalizers": list(pod.metadata.finalizers)}
        self.rest.create("pods", tree | {"metadata": metadata | held}, NAMESPACE)

    def _owner(self, seat: asking.Seat) -> Tree:
        plural, name = seat.owner
        version, kind = {
            "jobs": ("batch/v1", "Job"),
            "pytorchjobs": ("kubeflow.org/v1", "PyTorchJob"),
        }[plural]
        return {
            "apiVersion": version,
            "kind": kind,
            "name": name,
            "uid": self._owners[seat.owner],
            "controller": True,
        }

    def _wait_for_claims(self, uids: dict[str, str]) -> None:
        def there() -> bool:
            trees = self.all_claims()
            return all(self.has_claims(pod, trees) for pod in self.all_pods())

        wait_until(there, "claims of templates", pause=PAUSE_SECONDS)

    def _give(self, resource_claims: list[claims.ResourceClaim], uids: dict[str, str]) -> None:
        """Devices to claims, as a scheduler would have written them."""
        outcome = {
            (owner_of(body), role_of(body)): body["metadata"]["name"] for body in self.all_claims()
        }
        for resource_claim in resource_claims:
            tree = codec.tree_of(resource_claim)
            status = tree.get("status", {})
            if "allocation" not in status and "reservedFor" not in status:
                continue
            name = resource_claim.metadata.name
            if resource_claim.metadata.owner_references:
                pod = resource_claim.metadata.owner_references[0].name
                name = outcome[uids[pod], name.removeprefix(f"own.{pod}.")]
            for result in status.get("allocation", {}).get("devices", {}).get("results", ()):
                if "shareID" in result:
                    result["shareID"] = str(uuid.uuid4())
            for user in status.get("reservedFor", ()):
                user["uid"] = uids[user["name"]]
            self.rest.patch(
                "resourceclaims", name, {"metadata": {"finalizers": [FINALIZER]}}, NAMESPACE
            )
            self.rest.patch("resourceclaims", name, {"status": status}, NAMESPACE, "status")

    def _stand(self, name: str, where: scenario_state.PodState) -> None:
        """The pod's state, as its node would have reported it."""
        phases = {State.SUCCEEDED: "Succeeded", State.FAILED: "Failed"}
        if where.state in (State.RUNNING, State.TERMINATING, State.STUCK):
            phases[where.state] = "Running"
        status: Tree = {}
        if where.state in phases:
            began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(
                seconds=where.started_s_ago or 0
            )
            status = {
                "phase": phases[where.state],
                "startTime": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        if where.state is State.NOMINATED:
            status["nominatedNodeName"] = where.node
        if status:
            self.rest.patch("pods", name, {"status": status}, NAMESPACE, "status")
        if where.state in (State.TERMINATING, State.STUCK):
            self.rest.delete("pods", name, NAMESPACE)


class _Owned:
    def __init__(self, plural: str, tree: Tree, key: str) -> None:
        self.plural = plural
        self.tree = tree
        self.key = key


def _spec(pod: pods.Pod, *, priority: int) -> Tree:
    """The pod's spec as a user would write it."""
    spec: Tree = codec.tree_of(pod)["spec"]
    del spec["priority"]  # the server's to say, by the class
    for item in spec.get("resourceClaims", ()):
        if "resourceClaimTemplateName" in item:
            item["resourceClaimTemplateName"] = scenario_claims.own_name(
                pod.metadata.name, item["name"]
            )
    (container,) = spec["containers"]
    container["image"] = "example"
    resources = container["resources"]
    counted = {
        key: much for key, much in resources["requests"].items() if "/" in key
    }  # a server wants limits of these
    resources["limits"] = counted | resources.get("limits", {})
    return spec | {
        "schedulerName": "dovetail",
        "priorityClassName": f"p{priority}",
        "restartPolicy": "Never",
    }


def wipe(asked: rest.Rest) -> None:
    """Removes every scenario's objects, pods first, and waits until they are gone."""
    for pod in asked.list("pods", NAMESPACE):
        name = pod["metadata"]["name"]
        if pod["metadata"].get("finalizers"):
            asked.patch("pods", name, {"metadata": {"finalizers": None}}, NAMESPACE)
        asked.delete("pods", name, NAMESPACE, gracePeriodSeconds=0)
    for plural in WIPED:
        for item in asked.list(plural, NAMESPACE):
            asked.delete(
                plural, item["metadata"]["name"], NAMESPACE, propagationPolicy="Background"
            )
    for plural in CLUSTER_WIPED:
        for item in asked.list(plural):
            asked.delete(plural, item["metadata"]["name"])
    wait_until(lambda: _is_empty(asked), "an empty server", pause=PAUSE_SECONDS)


def _is_empty(asked: rest.Rest) -> bool:
    for claim in asked.list("resourceclaims", NAMESPACE):
        name = claim["metadata"]["name"]
        asked.delete("resourceclaims", name, NAMESPACE)
        if claim["metadata"].get("finalizers"):
            _let_go(asked, name)
    left = [asked.list(plural, NAMESPACE) for plural in ("pods", "resourceclaims", *WIPED)]
    return not any(left) and not any(asked.list(plural) for plural in CLUSTER_WIPED)


def _let_go(asked: rest.Rest, name: str) -> None:
    try:
        asked.patch("resourceclaims", name, {"metadata": {"finalizers": None}}, NAMESPACE)
    except rest.RefusedError as refused:
        if refused.status != 404:
            raise


def stands_for(pod: Tree) -> str:
    """The pod of the scenario that this one is, or is in place of."""
    return str(pod["metadata"]["labels"][STANDS_FOR])


def owner_of(claim: Tree) -> str:
    """The uid of the pod a claim was made for; nothing where users name it."""
    return next((str(item["uid"]) for item in claim["metadata"].get("ownerReferences", ())), "")


def role_of(claim: Tree) -> str:
    """What its pod calls a claim."""
    return str(claim["metadata"].get("annotations", {}).get(CLAIM_NAME, ""))


def _published(tree: Tree) -> Tree:
    """A node is ready and has no kubelet."""
    if tree["kind"] != "Node":
        return tree
    status = tree["status"]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return tree | {
        "metadata": tree["metadata"] | {"annotations": {HOLLOW: "true"}},
        "status": status | {"capacity": status["allocatable"], "conditions": [ready]},
    }


def _queue(queue: queues.Queue) -> _Owned:
    tree = codec.tree_of(queue)
    tree["metadata"] = {"name": queue.metadata.name}
    tree["spec"]["namespaceSelector"] = {}  # every namespace
    return _Owned("queues", tree, queue.metadata.name)


def _until_after(moment: str) -> None:
    """Waits for the next second: objects tell their ages in whole ones."""
    expected = datetime.datetime.fromisoformat(moment).timestamp() + 1
    wait_until(lambda: time.time() >= expected, "the next second")
