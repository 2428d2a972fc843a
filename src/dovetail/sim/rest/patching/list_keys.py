"""How lists of built-in kinds are merged: the fields that tell one item from another.

Strategic merge patches know one merge key per list, server-side apply may need several fields. Other lists are
replaced whole. Custom resources say it in their schema. Given the name of a field and its items; never changes any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

Tree = dict[str, Any]
Keys = tuple[str, ...]

# patchMergeKey of the structs of k8s.io/api 1.37, by the name of the list.
MERGE_KEYS: Final = {
    "allocatedResourcesStatus": "name",
    "conditions": "type",
    "containers": "name",
    "drivers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "matchConditions": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "reservedFor": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "variables": "name",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
    "webhooks": "name",
}
# Lists of plain values that are merged as sets.
SETS: Final = frozenset({"finalizers", "podCIDRs"})
# Structs that are replaced, or keep only the fields of the patch.
REPLACED: Final = frozenset({"selector"})  # of a volume claim and of other LabelSelectors

# x-kubernetes-list-map-keys, where they are more than the merge key.
_APPLY_KEYS: Final[dict[str, Keys]] = {
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "claims": ("name",),
}


def merge_key(field: str, items: Sequence[Any]) -> str:
    """The merge key of a list; empty if the list is replaced whole."""
    structs = [item for item in items if isinstance(item, dict)]
    if len(structs) < len(items):
        return ""
    if field == "ports":
        return _port_key(structs)
    if field == "addresses":  # of a node; of endpoints they are plain values or have no type
        return "type" if all("type" in item for item in structs) else ""
    return MERGE_KEYS.get(field, "")


def _port_key(ports: list[Tree]) -> str:
    """Ports of a container and of a service are merged, those of a network policy are not."""
    if any("containerPort" in port for port in ports):
        return "containerPort"
    is_service = all("port" in port for port in ports) and any(
        "targetPort" in port or "nodePort" in port or "name" in port for port in ports
    )
    return "port" if is_service else ""


def apply_keys(field: str, items: Sequence[Any]) -> Keys:
    """The fields that identify an item for server-side apply; none if the list has one owner."""
    if field in _APPLY_KEYS:
        return _APPLY_KEYS[field]
    key = merge_key(field, items)
    if key in ("containerPort", "port"):
        return key, "protocol"
    return (key,) if key else ()


def schema_keys(schema: Any) -> Keys | None:
    """What the schema of a custom resource says about a list; None if it says nothing."""
    if not isinstance(schema, dict) or schema.get("x-kubernetes-list-type") != "map":
        return None
    return tuple(str(key) for key in schema.get("x-kubernetes-list-map-keys") or ())
