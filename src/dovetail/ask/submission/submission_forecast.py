"""What the engine would do with a job that is not submitted yet: where it starts, who yields, or when it starts.

Given the objects of a cluster and those of the job. Adds the pods and claims that controllers would make of them to a
replica, and asks `decide` and `when`. Never writes to a cluster.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from dovetail import timestamps
from dovetail.admission import defaults
from dovetail.answer import simulate, when
from dovetail.ask.submission import job_manifest
from dovetail.kubetypes import codec, object_set
from dovetail.kubetypes.resource import claims
from dovetail.live.intents import stored_promises
from dovetail.model import plan, policy
from dovetail.world.owners import facts_of_objects

UID: Final = "dovetail-run"  # of objects that exist on paper only
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"  # resource.k8s.io/v1
PRIORITY_CLASS: Final = "PriorityClass"

Tree = dict[str, Any]


class Start(msgspec.Struct, frozen=True):
    """Where a pod would start: its node and the names of its devices there."""

    pod: str
    node: str
    devices: tuple[str, ...] = ()


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to the job now. Without starts it waits: why, and until when as far as that is known."""

    starts: tuple[Start, ...] = ()
    nominated: tuple[Start, ...] = ()  # nodes that are free once others have yielded
    evictions: tuple[plan.Eviction, ...] = ()
    cause: str = ""  # why it waits, in one sentence
    reason: str = ""  # the same as the scheduler's condition will say it
    expected: when.Expectation | None = None


def forecast(
    objects: object_set.ObjectSet,
    trees: list[Tree],
    *,
    rules: policy.Policy,
    now: plan.Instant,
) -> Forecast:
    """What would happen if the job were submitted now."""
    added = [_admitted(tree) for tree in _as_controllers_make_it(objects, trees, now)]
    replica = object_set.joined(objects, object_set.of(objects.cluster, added))
    facts = facts_of_objects.facts_of(replica)
    promises = stored_promises.promises_of(objects)
    pods = {each.struct.metadata.uid for each in added if each.struct.kind == "Pod"}

    simulation = simulate.Simulation(facts, rules, now, promises=promises)
    memberships = [simulation.world.gangs.of(pod_id) for pod_id in pods]
    gang_ref = next(plan.GangRef(*each.gang) for each in memberships if each is not None)
    simulation.turn()
    decided = simulation.plan
    starts = [_start(each) for each in decided.placements if each.pod.uid in pods]
    if len(starts) == len(pods):
        return Forecast(starts=tuple(starts))

    refusals = [each for each in decided.refusals if each.pod.uid in pods]
    expected = None
    if not starts:
        expectations = when.when(facts, rules, now, promises=promises)
        expected = next((each for each in expectations if each.gang == gang_ref), None)
    return Forecast(
        starts=tuple(starts),
        nominated=tuple(
            Start(each.pod.name, each.node) for each in decided.nominations if each.pod.uid in pods
        ),
        evictions=tuple(each for each in decided.evictions if each.beneficiary == gang_ref),
        cause=_cause(replica, refusals, rules, now),
        reason=refusals[0].summary if refusals else "",
        expected=expected,
    )


def _cause(
    objects: object_set.ObjectSet,
    refusals: list[plan.Refusal],
    rules: policy.Policy,
    now: plan.Instant,
) -> str:
    """The cause as `dovetail why` will state it; nothing where it finds none."""
    if not refusals:
        return ""
    from dovetail.answer.replica.replica import Replica  # only work that waits needs them
    from dovetail.answer.why import why

    promises = stored_promises.promises_of(objects)
    copy_of_cluster = Replica(objects, rules, now, promises=promises)
    refused = refusals[0].pod
    pod = copy_of_cluster.pod(refused.namespace, refused.name)
    if pod is None:
        return ""
    answer = why.about_pod(copy_of_cluster, pod, seeks_fixes=False)
    return "" if answer.cause is None else answer.cause.sentence


def _admitted(tree: Tree) -> codec.Stored:
    """The object with what an API server fills in."""
    stored = codec.decode(tree)
    if not isinstance(stored.struct, claims.ResourceClaim):
        return stored
    spec = defaults.claim_spec(stored.struct.spec)
    return codec.replace(stored, msgspec.structs.replace(stored.struct, spec=spec))


def _start(placement: plan.Placement) -> Start:
    devices = [
        result.device
        for allocation in placement.allocations
        for result in allocation.result.devices.results
    ]
    if placement.made is not None:
        devices += [result.device for result in placement.made.result.devices.results]
    return Start(placement.pod.name, placement.node, tuple(devices))


def _as_controllers_make_it(
    objects: object_set.ObjectSet, trees: list[Tree], now: plan.Instant
) -> list[Tree]:
    """The objects as an API server stores them, with the pods and claims that controllers make of them."""
    created = timestamps.to_text(now)
    stored = [_stored(tree, tree["kind"].lower(), created) for tree in trees]
    job = next(tree for tree in stored if tree["kind"] == "Job")
    templates = [tree for tree in stored if tree["kind"] == "ResourceClaimTemplate"]
    priority = _priority(objects, job["spec"]["template"]["spec"].get("priorityClassName", ""))

    made: list[Tree] = []
    for index in range(job["spec"]["parallelism"]):
        pod = _pod(job, index, created)
        pod["spec"]["priority"] = priority
        made.append(pod)
        for template in templates:
            claim = _claim(template, pod, created)
            pod["status"]["resourceClaimStatuses"] = [
                {
                    "name": claim["metadata"]["annotations"][POD_CLAIM_NAME],
                    "resourceClaimName": claim["metadata"]["name"],
                }
            ]
            made.append(claim)
    return [*stored, *made]


def _pod(job: Tree, index: int, created: str) -> Tree:
    name = job["metadata"]["name"]
    template = copy.deepcopy(job["spec"]["template"])
    for container in template["spec"]["containers"]:
        resources = container.get("resources") or {}
        if "limits" in resources:  # what is limited is requested, too
            resources["requests"] = resources["limits"] | resources.get("requests", {})
    labels = template.get("metadata", {}).get("labels", {})
    controller_labels = {
        job_manifest.JOB_NAME_LABEL: name,
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{index}",
            "namespace": job["metadata"]["namespace"],
            "labels": labels | controller_labels,
            "ownerReferences": [_owner(job)],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }
    return _stored(pod, str(index), created)


def _claim(template: Tree, pod: Tree, created: str) -> Tree:
    entry = pod["spec"]["resourceClaims"][0]
    claim = {
        "apiVersion": template["apiVersion"],
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{pod['metadata']['name']}-{entry['name']}",
            "namespace": pod["metadata"]["namespace"],
            "annotations": {POD_CLAIM_NAME: entry["name"]},
            "ownerReferences": [_owner(pod)],
        },
        "spec": copy.deepcopy(template["spec"]["spec"]),
    }
    return _stored(claim, f"claim-{pod['metadata']['uid']}", created)


def _stored(tree: Tree, identity: str, created: str) -> Tree:
    metadata = {"uid": f"{UID}-{identity}", "creationTimestamp": created} | tree["metadata"]
    return tree | {"metadata": metadata}


def _owner(tree: Tree) -> Tree:
    return {
        "apiVersion": tree["apiVersion"],
        "kind": tree["kind"],
        "name": tree["metadata"]["name"],
        "uid": tree["metadata"]["uid"],
        "controller": True,
    }


def _priority(objects: object_set.ObjectSet, class_name: str) -> int:
    """The priority of a class, or of the default one; 0 where the objects hold none."""
    for stored in objects.listed(PRIORITY_CLASS):
        tree = stored.tree
        is_default = not class_name and tree.get("globalDefault") is True
        if stored.struct.metadata.name == class_name or is_default:
            return int(tree.get("value") or 0)
    return 0
