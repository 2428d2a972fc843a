"""The small cluster that campaigns run on, as plain objects: nodes, what they publish, classes, templates, rights.

Small on purpose: pods must compete. Whole devices, partitions that draw on counters, shareable devices, a counted
extended resource and one that is backed by devices.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support import live

Tree = dict[str, Any]

NAMESPACE: Final = "chaos"
DRIVER: Final = "gpu.example.com"
WHOLE_RESOURCE: Final = "gpu.example.com/whole"  # backed by devices
COUNTED_RESOURCE: Final = "example.com/port"  # counted by the node itself
SCHEDULER: Final = "dovetail"
RESOURCE: Final = "resource.k8s.io/v1"

WHOLE_NODES: Final = ("whole-1", "whole-2", "whole-3")
PART_NODES: Final = ("part-1", "part-2")
SHARE_NODES: Final = ("share-1", "share-2")
NODES: Final = (*WHOLE_NODES, *PART_NODES, *SHARE_NODES)
DEVICES_PER_NODE: Final = 4
TAINT_VERSIONS: Final = (
    RESOURCE,
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1alpha3",
)  # the newest that is served
SLICES: Final = 4  # of one partitionable device
PRIORITIES: Final = {"chaos-low": -10, "chaos-middle": 10, "chaos-polite": 20}


def path_of(kind: str, name: str = "", *, namespace: str = NAMESPACE) -> str:
    """Where objects of a kind are served."""
    bases = {
        "nodes": "/api/v1/nodes",
        "namespaces": "/api/v1/namespaces",
        "pods": f"/api/v1/namespaces/{namespace}/pods",
        "leases": f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        "resourceclaims": f"/apis/{RESOURCE}/namespaces/{namespace}/resourceclaims",
        "resourceclaimtemplates": f"/apis/{RESOURCE}/namespaces/{namespace}/resourceclaimtemplates",
        "resourceslices": f"/apis/{RESOURCE}/resourceslices",
        "deviceclasses": f"/apis/{RESOURCE}/deviceclasses",
        "devicetaintrules": f"/apis/{RESOURCE}/devicetaintrules",
        "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    }
    return f"{bases[kind]}/{name}" if name else bases[kind]


def priority_classes() -> list[Tree]:
    """Importances that pods of plain users name, without any queue; one of them never makes others yield."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    policies = {"chaos-polite": {"preemptionPolicy": "Never"}}
    return [
        head | {"metadata": {"name": name}, "value": value} | policies.get(name, {})
        for name, value in PRIORITIES.items()
    ]


def node(name: str) -> Tree:
    """A node that says it is ready."""
    room = {"cpu": "16", "memory": "64Gi", "pods": "12"}
    if name in SHARE_NODES:
        room[COUNTED_RESOURCE] = "3"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def slices(name: str, *, generation: int = 1, lost: str = "") -> list[Tree]:
    """What a node publishes; a newer generation may lack a device."""
    devices = {"whole": _wholes, "part": _parts, "share": _shares}[name.rpartition("-")[0]]()
    parts: list[Tree] = [{"devices": [device for device in devices if device["name"] != lost]}]
    if name in PART_NODES:
        sets = [
            {"name": f"gpu-{index}", "counters": {"slices": {"value": str(SLICES)}}}
            for index in range(2)
        ]
        parts.append({"sharedCounters": sets})
    pool = {"name": name, "generation": generation, "resourceSliceCount": len(parts)}
    return [
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{index}"},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, **part},
        }
        for index, part in enumerate(parts)
    ]


def _wholes() -> list[Tree]:
    return [
        {"name": f"gpu-{index}", "attributes": _typed("whole")} for index in range(DEVICES_PER_NODE)
    ]


def _parts() -> list[Tree]:
    """Two devices, each as quarters, as halves or as a whole."""
    result = []
    for gpu in range(2):
        for size, profile in ((1, "quarter"), (2, "half"), (4, "all")):
            for start in range(0, SLICES, size):
                drawn = {"counterSet": f"gpu-{gpu}", "counters": {"slices": {"value": str(size)}}}
                attributes = {**_typed("part"), "profile": {"string": profile}}
                name = f"gpu-{gpu}-{profile}-{start}"
                result.append({"name": name, "attributes": attributes, "consumesCounters": [drawn]})
    return result


def _shares() -> list[Tree]:
    policy = {"default": "10Gi", "validRange": {"min": "5Gi", "step": "5Gi"}}
    capacity = {"memory": {"value": "40Gi", "requestPolicy": policy}}
    return [
        {
            "name": f"gpu-{index}",
            "attributes": _typed("share"),
            "allowMultipleAllocations": True,
            "capacity": capacity,
        }
        for index in range(2)
    ]


def _typed(kind: str) -> Tree:
    return {"type": {"string": kind}}


def classes() -> list[Tree]:
    """One per kind of device; that of whole ones can be asked for as an extended resource."""
    result = []
    for kind in ("whole", "part", "share"):
        test = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
        spec: Tree = {"selectors": [{"cel": {"expression": test}}]}
        if kind == "whole":
            spec["extendedResourceName"] = WHOLE_RESOURCE
        result.append(
            {
                "apiVersion": RESOURCE,
                "kind": "DeviceClass",
                "metadata": {"name": kind},
                "spec": spec,
            }
        )
    return result


def templates() -> list[Tree]:
    """The claims that pods ask for, by name."""
    half, quarter = _profile("half"), _profile("quarter")
    requests = {
        "one": _exactly("whole"),
        "pair": _exactly("whole", count=2),
        "half": _exactly("part", selectors=half),
        "quarter": _exactly("part", selectors=quarter),
        "share": _exactly("share", capacity={"requests": {"memory": "12Gi"}}),
        "too-many": _exactly("whole", count=9),
        "either": {
            "firstAvailable": [
                {"name": "half", "deviceClassName": "part", "selectors": half},
                {"name": "quarter", "deviceClassName": "part", "selectors": quarter},
            ]
        },
    }
    return [
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"spec": {"devices": {"requests": [{"name": "r", **request}]}}},
        }
        for name, request in requests.items()
    ]


def _exactly(class_name: str, **more: Any) -> Tree:
    return {"exactly": {"deviceClassName": class_name, **more}}


def _profile(name: str) -> list[Tree]:
    return [{"cel": {"expression": f"device.attributes['{DRIVER}'].profile == '{name}'"}}]


def claim(name: str) -> Tree:
    """A claim of its own, to be shared by pods."""
    spec = {"devices": {"requests": [{"name": "r", **_exactly("whole")}]}}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def taint_rule(name: str, pool: str, *, version: str = RESOURCE) -> Tree:
    """Keeps new work off a pool."""
    spec = {
        "deviceSelector": {"driver": DRIVER, "pool": pool},
        "taint": {"key": "chaos", "effect": "NoSchedule"},
    }
    return {
        "apiVersion": version,
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": spec,
    }


def rights(users: tuple[str, ...]) -> list[Tree]:
    """What the chart lets a scheduler do, and no more; its lease is another one here."""
    (granted,) = (right["rules"] for right in live.rights() if right["kind"] == "ClusterRole")
    rules = [*granted, _rule("coordination.k8s.io", ["leases"], ["get", "create", "patch"])]
    group = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "chaos"},
        "rules": rules,
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "chaos"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "chaos"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user} for user in users],
    }
    return [role, binding]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Tree:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
