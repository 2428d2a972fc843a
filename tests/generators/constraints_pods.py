"""Random pods that carry any mix of constraints, and the names of the kinds a pod carries.

Written as users write them: what the API server fills in is its own doing. Given a `random.Random`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from tests.generators import constraints_affinity as affinity
from tests.generators import constraints_nodes as places

Tree = dict[str, Any]

_CREATED: Final = "2026-01-01T00:00:00Z"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST_IPS: Final = ("", "0.0.0.0", "127.0.0.1", "127.0.0.1", "10.0.0.1", "10.0.0.1", "::")
_PORTS: Final = (80, 80, 443, 8080)


def pod(
    rng: random.Random, number: int, *, nodes: list[str], name: str = "pod", theme: str = ""
) -> Tree:
    """One pod without a node and without volumes. The theme of a story is what more of its pods ask for than usual."""
    labels = _labels(rng)
    spec: Tree = affinity.node_rules(rng, nodes, often=theme == "spread")
    if rules := affinity.pod_rules(rng, labels["app"], often=theme == "neighbours"):
        spec["affinity"] = {**spec.get("affinity", {}), **rules}
    if spread := affinity.spreading(rng, labels["app"], often=theme == "spread"):
        spec["topologySpreadConstraints"] = spread
    spec |= _room(rng)
    if rng.random() < (0.6 if theme == "ports" else 0.12):
        _add_ports(rng, spec)
    if rng.random() < 0.05:
        _ask_for_a_feature(spec)
    if rng.random() < 0.5:
        spec["priority"] = rng.choice((0, 10, -5))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{number:04}",
            "namespace": rng.choice(
                places.NAMESPACES[:2] if rng.random() < 0.9 else places.NAMESPACES
            ),
            "uid": f"uid-{name}-{number:04}",
            "creationTimestamp": _CREATED,
            "labels": labels,
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def bound(rng: random.Random, tree: Tree, nodes: list[str]) -> Tree:
    """The pod as it runs somewhere, wherever that is: others do not ask us."""
    node = rng.choice(nodes) if rng.random() < 0.97 else "node-that-left"
    made = {**tree, "spec": {**tree["spec"], "nodeName": node}, "status": {"phase": "Running"}}
    fate = rng.random()
    if fate < 0.08:
        return terminating(made)
    if fate < 0.14:
        made["status"] = {"phase": rng.choice(("Succeeded", "Failed"))}
    return made


def relabelled(rng: random.Random, tree: Tree) -> Tree:
    """The pod with other labels."""
    return {**tree, "metadata": {**tree["metadata"], "labels": _labels(rng)}}


def nominated(rng: random.Random, tree: Tree, nodes: list[str], *, alone: set[str]) -> Tree:
    """The pod as it waits for a node that it is nominated to.

    It keeps no other pod away, by a rule or by a claim for one pod `alone`: upstream checks these only if pods
    that are there make it ask.
    """
    spec = {key: value for key, value in tree["spec"].items() if key != "affinity"}
    if rules := {
        key: value
        for key, value in (tree["spec"].get("affinity") or {}).items()
        if key != "podAntiAffinity"
    }:
        spec["affinity"] = rules
    spec["volumes"] = [
        volume
        for volume in spec.get("volumes") or ()
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") not in alone
    ]
    return {
        **tree,
        "spec": spec,
        "status": {"phase": "Pending", "nominatedNodeName": rng.choice(nodes)},
    }


def beside_nominated(tree: Tree) -> Tree:
    """The pod without empty selectors in its spreading: upstream counts nominated pods for them, and no others."""
    rules = [
        {**rule, "labelSelector": {"matchLabels": {"app": "a"}}}
        if rule.get("labelSelector") == {}
        else rule
        for rule in tree["spec"].get("topologySpreadConstraints") or ()
    ]
    return {**tree, "spec": {**tree["spec"], "topologySpreadConstraints": rules}} if rules else tree


def terminating(tree: Tree) -> Tree:
    """The pod after a client deleted it."""
    metadata = {
        **tree["metadata"],
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "deletionGracePeriodSeconds": 30,
    }
    return {**tree, "metadata": metadata}


def kinds_of(tree: Tree) -> list[str]:
    """The kinds of constraints the pod carries, sorted."""
    return sorted(set(_kinds(tree["spec"])))


def _labels(rng: random.Random) -> dict[str, str]:
    labels = {"app": rng.choice(affinity.APPS)}
    if rng.random() < 0.7:
        labels["tier"] = rng.choice(("web", "db"))
    if rng.random() < 0.7:
        labels["version"] = rng.choice(("v1", "v2"))
    return labels


def _room(rng: random.Random) -> Tree:
    """Containers of all sorts and what they ask for."""
    containers = [_container(rng, f"c{at}") for at in range(rng.choice((1, 1, 1, 2)))]
    spec: Tree = {"containers": containers}
    if rng.random() < 0.15:
        spec["initContainers"] = [
            _init_container(rng, f"i{at}") for at in range(rng.choice((1, 2)))
        ]
    if rng.random() < 0.08:
        spec["overhead"] = {"cpu": "250m", "memory": "64Mi"}
        spec["runtimeClassName"] = "sandbox"
    if rng.random() < 0.08:
        spec["resources"] = {"requests": {"cpu": "2", "memory": rng.choice(("1Gi", "3Gi"))}}
        for container in containers:
            container["resources"] = {"requests": {"cpu": "100m"}}
        spec.pop("initContainers", None)
    return spec


def _container(rng: random.Random, name: str) -> Tree:
    tree: Tree = {"name": name, "image": rng.choice(places.IMAGES)}
    asked: dict[str, str] = {}
    if rng.random() < 0.7:
        asked["cpu"] = rng.choice(("100m", "100m", "500m", "1", "0.1"))
    if rng.random() < 0.5:
        asked["memory"] = rng.choice(("64Mi", "128Mi", "1Gi", "1500M"))
    if rng.random() < 0.05:
        asked["ephemeral-storage"] = "20Gi"
    resources: Tree = {"requests": asked} if asked else {}
    if rng.random() < 0.08:
        resources["limits"] = {places.EXTENDED: rng.choice(("1", "2"))}
    elif asked and rng.random() < 0.1:
        resources = {"limits": {"cpu": "1", "memory": "512Mi"}}  # requests follow from limits
    if rng.random() < 0.02:
        pages = {"hugepages-2Mi": "2Mi", "memory": "64Mi", "cpu": "100m"}
        resources = {"requests": pages, "limits": pages}
    if resources:
        tree["resources"] = resources
    return tree


def _init_container(rng: random.Random, name: str) -> Tree:
    tree = _container(rng, name)
    tree["resources"] = {"requests": {"cpu": rng.choice(("200m", "1", "3"))}}
    if rng.random() < 0.5:
        tree["restartPolicy"] = "Always"
    return tree


def _add_ports(rng: random.Random, spec: Tree) -> None:
    """Ports of the node the pod sits on; no two alike in one pod, which the API server refuses."""
    sidecars = [
        item for item in spec.get("initContainers", ()) if item.get("restartPolicy") == "Always"
    ]
    holder = rng.choice([*spec["containers"], *sidecars])
    expected: dict[tuple[int, str], Tree] = {}
    for at in range(rng.choice((1, 1, 2))):
        port, protocol = rng.choice(_PORTS), rng.choice(("TCP", "TCP", "UDP", "SCTP"))
        tree: Tree = {"name": f"p{at}", "containerPort": port, "hostPort": port}
        if protocol != "TCP" or rng.random() < 0.5:
            tree["protocol"] = protocol
        if ip := rng.choice(_HOST_IPS):
            tree["hostIP"] = ip
        expected[port, protocol] = tree
    holder["ports"] = list(expected.values())
    if rng.random() < 0.15:
        spec["hostNetwork"] = True
        for item in holder["ports"]:
            item.pop("hostIP", None)


def _ask_for_a_feature(spec: Tree) -> None:
    """A rule that only nodes with the feature can follow."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}


def _kinds(spec: Tree) -> Iterator[str]:
    if spec.get("nodeSelector"):
        yield "node selector"
    if spec.get("tolerations"):
        yield "toleration"
    rules = spec.get("affinity") or {}
    yield from _node_kinds(rules.get("nodeAffinity") or {})
    for name, kind in (("podAffinity", "pod affinity"), ("podAntiAffinity", "pod anti-affinity")):
        yield from _pod_kinds(rules.get(name) or {}, kind)
    for item in spec.get("topologySpreadConstraints") or ():
        yield from _spread_kinds(item)
    yield from _room_kinds(spec)
    for volume in spec.get("volumes") or ():
        yield from _volume_kinds(volume)


def _node_kinds(rules: Tree) -> Iterator[str]:
    if _PREFERRED in rules:
        yield "preferred node affinity"
    for term in (rules.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ():
        yield "node affinity"
        if term.get("matchFields"):
            yield "node affinity: fields"
        for item in term.get("matchExpressions") or ():
            yield f"node affinity: {item['operator']}"


def _pod_kinds(rules: Tree, kind: str) -> Iterator[str]:
    if rules.get(_PREFERRED):
        yield f"preferred {kind}"
    for term in rules.get(_REQUIRED) or ():
        yield kind
        for field in ("namespaces", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys"):
            if field in term:
                yield f"{kind}: {field}"
        if term.get("labelSelector") is None:
            yield f"{kind}: no selector"


def _spread_kinds(tree: Tree) -> Iterator[str]:
    is_hard = tree["whenUnsatisfiable"] == "DoNotSchedule"
    yield "topology spread" if is_hard else "soft topology spread"
    for field in ("minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys"):
        if is_hard and tree.get(field):
            yield f"topology spread: {field}"


def _room_kinds(spec: Tree) -> Iterator[str]:
    inits = spec.get("initContainers") or ()
    if inits:
        yield "init container"
    if any(init.get("restartPolicy") == "Always" for init in inits):
        yield "sidecar"
    if spec.get("overhead"):
        yield "overhead"
    if spec.get("resources"):
        yield "pod-level resources"
    for item in (*spec["containers"], *inits):
        asked = (item.get("resources") or {}).get("requests") or {}
        if asked or (item.get("resources") or {}).get("limits"):
            yield "resources"
        if places.EXTENDED in {**asked, **((item.get("resources") or {}).get("limits") or {})}:
            yield "extended resource"
        if any(port.get("hostPort") for port in item.get("ports") or ()):
            yield "host port"
        if item.get("restartPolicyRules"):
            yield "declared feature"


def _volume_kinds(volume: Tree) -> Iterator[str]:
    for field, kind in (
        ("persistentVolumeClaim", "volume claim"),
        ("ephemeral", "ephemeral volume"),
        ("gcePersistentDisk", "inline disk"),
        ("awsElasticBlockStore", "inline disk"),
        ("iscsi", "inline disk"),
        ("rbd", "inline disk"),
    ):
        if field in volume:
            yield kind
