"""Random nodes to drain: pods of mixed owners, volumes, phases, annotations, labels and ends, and random options.

Given a seed. Times of deletion lie minutes away from every threshold, so that the two sides may look at the clock at
different moments.
"""

from __future__ import annotations

import datetime
import random
from typing import Any

from dovetail import timestamps

Tree = dict[str, Any]

NODES = ("a", "b")
NAMESPACES = ("default", "team", "team-a", "team0")
PHASES = ("Pending", "Running", "Running", "Running", "Succeeded", "Failed", "Unknown", "")
OWNERS = (
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1beta1", "DaemonSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("example.com/v1", "DaemonSet"),
    ("kubeflow.org/v1", "PyTorchJob"),
)
VOLUMES: tuple[Tree, ...] = (
    {"emptyDir": {}},
    {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    {"hostPath": {"path": "/dev/nvidia0"}},
    {"persistentVolumeClaim": {"claimName": "data"}},
    {"configMap": {"name": "settings"}},
    {"projected": {"sources": []}},
)
SELECTORS = ("", "", "", "app=a", "app!=a", "app in (a,b),!skip", "skip", "tier notin (x)")
AGES = (
    -600,
    600,
    3_600,
    86_400,
)  # seconds since the deletion was asked for; negative: the grace lasts
THRESHOLDS = (0, 0, 1_800, 7_200, 100_000)


def drain(seed: int, *, pods: int, now: datetime.datetime) -> Tree:
    """One request to kubectl's drain."""
    chance = random.Random(seed)
    daemon_sets = [f"{namespace}/agent" for namespace in NAMESPACES if chance.random() < 0.6]
    options = {
        "force": chance.random() < 0.5,
        "ignoreDaemonSets": chance.random() < 0.7,
        "deleteEmptyDirData": chance.random() < 0.6,
        "disableEviction": chance.random() < 0.3,
        "gracePeriodSeconds": chance.choice((-1, -1, 0, 30)),
        "skipDeletedSeconds": chance.choice(THRESHOLDS),
        "podSelector": chance.choice(SELECTORS),
    }
    # Some drains have nothing to refuse: otherwise the requests they send would never be compared.
    is_plain = chance.random() < 0.4
    return {
        "id": seed,
        "node": "a",
        "pods": [_pod(chance, number, now, is_plain=is_plain) for number in range(pods)],
        "daemonSets": daemon_sets,
        "options": options,
    }


def _pod(chance: random.Random, number: int, now: datetime.datetime, *, is_plain: bool) -> Tree:
    metadata: Tree = {
        "name": f"{chance.choice('xyz')}{chance.choice(('', '-', '.'))}p{number}",
        "namespace": chance.choice(NAMESPACES),
        "uid": f"uid-{number}",
        "labels": {key: chance.choice("abx") for key in ("app", "tier") if chance.random() < 0.7},
    }
    if chance.random() < 0.2:
        metadata["labels"]["skip"] = ""
    owners = OWNERS[:1] if is_plain else OWNERS
    count = 1 if is_plain else chance.choice((0, 1, 1, 1, 2))
    if count:
        metadata["ownerReferences"] = [_owner(chance, owners) for _ in range(count)]
    if chance.random() < 0.1:
        key = chance.choice(("kubernetes.io/config.mirror", "kubernetes.io/config.source"))
        metadata["annotations"] = {key: chance.choice(("", "file"))}
    if chance.random() < 0.2:
        metadata["finalizers"] = ["example.com/hold"]
    if chance.random() < 0.15:
        since = now - datetime.timedelta(seconds=chance.choice(AGES))
        metadata["deletionTimestamp"] = timestamps.to_text(since)
    spec: Tree = {
        "nodeName": chance.choice(NODES),
        "containers": [{"name": "main", "image": "train:1"}],
    }
    kinds = VOLUMES[2:] if is_plain else VOLUMES
    if chance.random() < 0.6:
        chosen = [chance.choice(kinds) for _ in range(chance.randint(1, 3))]
        spec["volumes"] = [{"name": f"v{place}", **kind} for place, kind in enumerate(chosen)]
    if chance.random() < 0.3:
        spec["terminationGracePeriodSeconds"] = chance.choice((0, 5, 600))
    status = {"phase": chance.choice(PHASES)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _owner(chance: random.Random, owners: tuple[tuple[str, str], ...]) -> Tree:
    api_version, kind = chance.choice(owners)
    owner: Tree = {
        "apiVersion": api_version,
        "kind": kind,
        "name": chance.choice(("agent", "agent", "gone")) if kind == "DaemonSet" else "train",
        "uid": f"owner-{kind}",
    }
    controls = True if len(owners) == 1 else chance.choice((True, True, True, False, None))
    return owner if controls is None else owner | {"controller": controls}
