"""Random rules of a pod about nodes and other pods: node affinity, tolerations, pod (anti-)affinity, spreading.

Written as users write them, before the API server fills anything in. Given a `random.Random`.
"""

from __future__ import annotations

import random
from typing import Any, Final

from tests.generators import constraints_nodes as places

Tree = dict[str, Any]

APPS: Final = ("a", "b", "c")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def node_rules(rng: random.Random, names: list[str], *, often: bool = False) -> Tree:
    """Parts of a pod's spec that pick nodes by label, name or taint."""
    spec: Tree = {}
    if rng.random() < 0.12:
        spec["nodeSelector"] = dict(
            rng.sample([("disk", "ssd"), (places.ZONE, "z1"), ("gpus", "8")], rng.choice((1, 2)))
        )
    if rng.random() < 0.45:
        spec["tolerations"] = [toleration(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    if rng.random() < (0.4 if often else 0.22):
        spec["affinity"] = {"nodeAffinity": _node_affinity(rng, names)}
    return spec


def toleration(rng: random.Random) -> Tree:
    """Any toleration the API server takes."""
    if rng.random() < 0.15:
        return {"operator": "Exists", **_effect(rng)}
    key, value = rng.choice(places.TAINTS)
    if rng.random() < 0.5:
        return {"key": key, "operator": "Exists", **_effect(rng)}
    made = {"key": key, "value": value if rng.random() < 0.8 else "other", **_effect(rng)}
    if rng.random() < 0.5:
        made["operator"] = "Equal"
    return made


def pod_rules(rng: random.Random, app: str, *, often: bool = False) -> Tree:
    """Pod affinity and anti-affinity of a pod, possibly none."""
    tree: Tree = {}
    if rng.random() < (0.4 if often else 0.18):
        tree["podAffinity"] = _toward_pods(rng, app)
    if rng.random() < (0.4 if often else 0.2):
        tree["podAntiAffinity"] = _toward_pods(rng, app)
    return tree


def spreading(rng: random.Random, app: str, *, often: bool = False) -> list[Tree]:
    """Topology spread constraints, one of each key and strictness as the API server demands."""
    if rng.random() >= (0.8 if often else 0.25):
        return []
    made = [_spread(rng, app) for _ in range(rng.choice((1, 1, 2, 3)))]
    return list({(item["topologyKey"], item["whenUnsatisfiable"]): item for item in made}.values())


def _effect(rng: random.Random) -> Tree:
    if rng.random() < 0.5:
        return {}
    tree: Tree = {"effect": rng.choice(places.EFFECTS)}
    if tree["effect"] == "NoExecute" and rng.random() < 0.5:
        tree["tolerationSeconds"] = 300
    return tree


def _node_affinity(rng: random.Random, names: list[str]) -> Tree:
    tree: Tree = {}
    if rng.random() < 0.8:
        terms = [_node_term(rng, names) for _ in range(rng.choice((1, 1, 2)))]
        tree[_REQUIRED] = {"nodeSelectorTerms": terms}
    if rng.random() < 0.4:
        tree[_PREFERRED] = [{"weight": rng.randint(1, 100), "preference": _node_term(rng, names)}]
    return tree


def _node_term(rng: random.Random, names: list[str]) -> Tree:
    tree: Tree = {}
    if rng.random() < 0.85:
        tree["matchExpressions"] = [_node_expression(rng) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.2:
        operator = rng.choice(("In", "In", "NotIn"))
        named = rng.choice([*names, "no-such-node"])
        tree["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [named]}]
    return tree


def _node_expression(rng: random.Random) -> Tree:
    operator = rng.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {
            "key": rng.choice(("gpus", "gpus", "disk")),
            "operator": operator,
            "values": [rng.choice(("0", "4", "5"))],
        }
    key, values = rng.choice(
        (
            ("disk", ("ssd", "hdd")),
            (places.ZONE, places.ZONES),
            ("gpus", ("0", "4", "8")),
            (places.RACK, ("k1", "k2", "k3")),
            (places.HOSTNAME, ("node-00", "node-01", "node-02")),
        )
    )
    tree: Tree = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        tree["values"] = rng.sample(values, rng.choice((1, min(2, len(values)))))
    return tree


def _toward_pods(rng: random.Random, app: str) -> Tree:
    tree: Tree = {}
    if rng.random() < 0.85:
        tree[_REQUIRED] = [_pod_term(rng, app) for _ in range(rng.choice((1, 1, 1, 2)))]
    if rng.random() < 0.3:
        tree[_PREFERRED] = [{"weight": rng.randint(1, 100), "podAffinityTerm": _pod_term(rng, app)}]
    return tree


def _pod_term(rng: random.Random, app: str) -> Tree:
    tree: Tree = {
        "topologyKey": rng.choice(
            places.TOPOLOGY_KEYS[:5] if rng.random() < 0.95 else places.TOPOLOGY_KEYS
        )
    }
    selector = label_selector(rng, app)
    if selector is not None:
        tree["labelSelector"] = selector
    if rng.random() < 0.2:
        tree["namespaces"] = rng.sample(places.NAMESPACES, rng.choice((1, 2)))
    if rng.random() < 0.2:
        tree["namespaceSelector"] = _namespace_selector(rng)
    if selector is not None and rng.random() < 0.2:
        kind = rng.choice(("matchLabelKeys", "matchLabelKeys", "mismatchLabelKeys"))
        tree[kind] = rng.choice((["version"], ["absent"]))
    return tree


def label_selector(rng: random.Random, app: str) -> Tree | None:
    """A selector over the labels of pods: like the pod itself, others, all, or none at all."""
    if rng.random() < 0.35:
        return {"matchLabels": {"app": app}}
    kind = rng.random()
    if kind < 0.08:
        return None
    if kind < 0.14:
        return {}
    if kind < 0.7:
        return {"matchLabels": {"app": rng.choice(APPS)}}
    tree: Tree = {
        "matchExpressions": [_label_expression(rng) for _ in range(rng.choice((1, 1, 2)))]
    }
    if rng.random() < 0.3:
        tree["matchLabels"] = {"tier": rng.choice(("web", "db"))}
    return tree


def _label_expression(rng: random.Random) -> Tree:
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    key, values = rng.choice((("app", APPS), ("tier", ("web", "db"))))
    tree: Tree = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        tree["values"] = rng.sample(values, rng.choice((1, 2)))
    return tree


def _namespace_selector(rng: random.Random) -> Tree:
    if rng.random() < 0.4:
        return {}
    if rng.random() < 0.5:
        return {"matchLabels": {"team": rng.choice(("one", "two"))}}
    return {
        "matchExpressions": [{"key": "team", "operator": rng.choice(("Exists", "DoesNotExist"))}]
    }


def _spread(rng: random.Random, app: str) -> Tree:
    tree: Tree = {
        "maxSkew": rng.choice((1, 1, 1, 2, 3)),
        "topologyKey": rng.choice(
            places.TOPOLOGY_KEYS if rng.random() < 0.3 else places.TOPOLOGY_KEYS[:4]
        ),
        "whenUnsatisfiable": rng.choice(
            ("DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
        ),
    }
    selector = label_selector(rng, app)
    if selector is not None:
        tree["labelSelector"] = selector
        if rng.random() < 0.2:
            tree["matchLabelKeys"] = rng.choice((["version"], ["absent"], ["version", "absent"]))
    if tree["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.25:
        tree["minDomains"] = rng.choice((1, 2, 3, 5))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.5:
            tree[policy] = rng.choice(("Honor", "Ignore"))
    return tree
