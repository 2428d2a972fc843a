"""Records on a pod that a claim could not be created for it, as the claim controller of kube-controller-manager does.

Given the object store, the pod, the entry of its spec and the refusal; writes one Warning event per refusal and counts
its repetitions. Never tries to create the claim.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from dovetail.kubetypes import registry
from dovetail.kubetypes.core import pods
from dovetail.sim.server.object_store import ObjectStore

Tree = dict[str, Any]
REASON: Final = "FailedResourceClaimCreation"
COMPONENT: Final = "resource_claim"  # the event source of the claim controller upstream


def record(shelf: ObjectStore, pod: pods.Pod, entry: str, refusal: str) -> None:
    """Writes the event, or counts it once more if it is there."""
    note = f"PodResourceClaim {entry}: {refusal}"
    metadata = pod.metadata
    digest = hashlib.sha256(f"{metadata.uid}/{note}".encode()).hexdigest()[:16]
    name = f"{metadata.name}.{digest}"
    now = shelf.stamp()
    known = shelf.find(registry.EVENT, (metadata.namespace, name))
    if known is not None:
        tree = known.tree
        count = int(tree.get("deprecatedCount") or 1) + 1
        seen = {"deprecatedCount": count, "deprecatedLastTimestamp": now}
        shelf.put(registry.EVENT, tree | seen)
        return

    regarding = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
    }
    event = {
        "apiVersion": registry.EVENT.api_version,
        "kind": registry.EVENT.name,
        "metadata": {"name": name, "namespace": metadata.namespace},
        "reportingController": COMPONENT,
        "reason": REASON,
        "regarding": regarding,
        "note": note,
        "type": "Warning",
        "deprecatedSource": {"component": COMPONENT},
        "deprecatedFirstTimestamp": now,
        "deprecatedLastTimestamp": now,
        "deprecatedCount": 1,
    }
    shelf.put(registry.EVENT, event)
