"""Queues and topologies that make sense and that do not, for the definition on a real server and our own rules."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]
WHOLE: Spec = {
    "parent": "research",
    "priority": 10,
    "resources": {
        "nvidia.com/gpu": {"quota": 8, "limit": "16", "weight": 2},
        "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": {"quota": "500m"},
        "gpu/product.NVIDIA-H100-80GB-HBM3": {"limit": "4"},
        "gpu/architecture.Hopper": {"limit": 8},
        "gpu/mig.3g.40gb": {"quota": "1500m"},
        "memory": {"quota": "80Gi", "limit": "1Ti"},
        "cpu": {},
    },
    "namespaceSelector": {
        "matchLabels": {"team": "vision"},
        "matchExpressions": [{"key": "stage", "operator": "In", "values": ["dev", "prod"]}],
    },
    "aliases": ["team-queue", "kai.vision", "team-a/user-queue"],
    "minRuntimeSeconds": 60,
    "preemptMinRuntimeSeconds": 120,
    "reclaimMinRuntimeSeconds": 0,
    "maxRuntimeSeconds": 3600,
    "idle": {"thresholdPercent": 10, "windowSeconds": 600, "graceSeconds": 60},
    "powerCapWatts": 5600,
}
REFUSED: dict[str, tuple[Spec, str]] = {
    "quota above limit": (
        {"resources": {"cpu": {"quota": "2", "limit": "1999m"}}},
        "limit must be at least quota",
    ),
    "negative quota": ({"resources": {"cpu": {"quota": -1}}}, "quota must not be negative"),
    "negative limit": ({"resources": {"cpu": {"limit": "-1Gi"}}}, "limit must not be negative"),
    "quota no quantity": (
        {"resources": {"cpu": {"quota": "lots"}}},
        "quota must be a quantity such as 8",
    ),
    "limit no quantity": (
        {"resources": {"cpu": {"limit": "8 GB"}}},
        "limit must be a quantity such as 8",
    ),
    "negative weight": (
        {"resources": {"cpu": {"weight": -1}}},
        "should be greater than or equal to 0",
    ),
    "bad resource name": ({"resources": {"nvidia.com/gpu/x": {}}}, "resources are named like cpu"),
    "bad part of GPUs": (
        {"resources": {"gpu/vendor.x": {}}},
        "of GPUs there are gpu, gpu/product.",
    ),
    "GPUs twice": (
        {"resources": {"gpu": {}, "nvidia.com/gpu": {}}},
        "are the same resource; keep one of them",
    ),
    "bad parent name": ({"parent": "Research_1"}, "parent must be the name of a queue"),
    "bad alias": ({"aliases": ["-no"]}, "an alias must be a label value"),
    "alias of three parts": ({"aliases": ["a/b/c"]}, "an alias must be a label value"),
    "alias twice": ({"aliases": ["a", "a"]}, "Duplicate value"),
    "runtimes crossed": (
        {"minRuntimeSeconds": 2, "maxRuntimeSeconds": 1},
        "minRuntimeSeconds must not be larger",
    ),
    "preemption crossed": (
        {"preemptMinRuntimeSeconds": 2, "maxRuntimeSeconds": 1},
        "preemptMinRuntimeSeconds must not be larger",
    ),
    "reclaim crossed": (
        {"reclaimMinRuntimeSeconds": 2, "maxRuntimeSeconds": 1},
        "reclaimMinRuntimeSeconds must not be larger",
    ),
    "idle beyond all": ({"idle": {"thresholdPercent": 101}}, "should be less than or equal to 100"),
    "no power": ({"powerCapWatts": 0}, "should be greater than or equal to 1"),
    "runtime beyond the calendar": (
        {"maxRuntimeSeconds": 2**62},
        "should be less than or equal to 3153600000",
    ),
    "idle beyond the calendar": (
        {"idle": {"windowSeconds": 2**62}},
        "should be less than or equal to 3153600000",
    ),
    "negative runtime": ({"minRuntimeSeconds": -1}, "should be greater than or equal to 0"),
    "values missing": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "In and NotIn need values",
    ),
    "values too many": (
        {
            "namespaceSelector": {
                "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
            }
        },
        "Exists and DoesNotExist have none",
    ),
    "operator unknown": (
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
        "Unsupported value",
    ),
    "unknown field": ({"weight": 1}, "unknown field"),
    "priority out of range": (
        {"priority": 2_000_000_000},
        "should be less than or equal to 1000000000",
    ),
}

LEVELS: list[dict[str, Any]] = [
    {"nodeLabel": "topology.kubernetes.io/zone"},
    {"nodeLabel": "example.com/rack", "alias": "rack", "powerCapWatts": 40_000},
    {"nodeLabel": "kubernetes.io/hostname", "alias": "host"},
]
REFUSED_LEVELS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no power": ([{"nodeLabel": "a", "powerCapWatts": 0}], "should be greater than or equal to 1"),
    "none": ([], "should have at least 1 items"),
    "too many": ([{"nodeLabel": f"level-{n}"} for n in range(17)], "must have at most 16 items"),
    "a label twice": (
        [LEVELS[1], {"nodeLabel": "example.com/rack"}],
        "each level needs a label of its own",
    ),
    "an alias twice": (
        [LEVELS[1], {"nodeLabel": "b", "alias": "rack"}],
        "each level needs an alias of its own",
    ),
    "an alias that is a label": (
        [LEVELS[0], {"nodeLabel": "b", "alias": LEVELS[0]["nodeLabel"]}],
        "label",
    ),
    "a node first": ([LEVELS[2], LEVELS[0]], "can only be the last level"),
    "no label": ([{"nodeLabel": "not a key"}], "nodeLabel must be a label key"),
}
