"""The pod that a workload without pods would create: from its template, as its controller writes it.

Given a stored workload. Returns an object to put into a replica; never creates anything in a cluster.
"""

from __future__ import annotations

from typing import Any

from dovetail import errors
from dovetail.kubetypes import codec
from dovetail.kubetypes.core import pods


def pod_of(workload: codec.Stored) -> codec.Stored | None:
    """One pod of the workload; None where its spec has no template of pods that can be read."""
    template = _template(workload.tree)
    if template is None:
        return None
    owner = workload.struct.metadata
    reference = {
        "apiVersion": workload.struct.api_version,
        "kind": workload.struct.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    metadata = {
        **(template.get("metadata") or {}),
        "name": f"{owner.name}-template",
        "namespace": owner.namespace,
        "uid": f"{owner.uid}/template",
        "ownerReferences": [reference],
    }
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")}
    try:
        stored = codec.decode({**tree, "status": {"phase": "Pending"}})
    except errors.InputError:
        return None
    return stored if isinstance(stored.struct, pods.Pod) else None


def _template(tree: dict[str, Any]) -> dict[str, Any] | None:
    spec = tree.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    is_complete = isinstance(template, dict) and isinstance(template.get("spec"), dict)
    return template if is_complete else None
