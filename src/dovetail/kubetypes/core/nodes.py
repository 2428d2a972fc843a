"""Node of core v1, with the fields scheduling reads: labels, taints, allocatable, conditions, features, images.

Other fields Kubernetes knows are listed, not modelled; they stay in the document.
Never decides whether a node suits a pod.
"""

from typing import Final

import msgspec

from dovetail.kubetypes import meta
from dovetail.quantity import quantity


class Taint(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A mark on a node that keeps away pods without a matching toleration."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: meta.Time | None = None


class NodeSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What an administrator decides about a node."""

    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One observed aspect of a node."""

    type: str = ""
    status: str = ""
    last_heartbeat_time: meta.Time | None = None
    last_transition_time: meta.Time | None = None
    reason: str = ""
    message: str = ""


class ContainerImage(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """An image the node already holds."""

    names: tuple[str, ...] = ()
    size_bytes: meta.Int64 = 0


class AttachedVolume(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A volume attached to the node."""

    name: str = ""
    device_path: str = ""


class NodeStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a node has, reports and can do."""

    capacity: dict[str, quantity.Quantity] = {}
    allocatable: dict[str, quantity.Quantity] = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A machine that runs pods, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


UNMODELLED: Final[dict[type, frozenset[str]]] = {  # core/v1 of Kubernetes 1.37
    NodeSpec: frozenset(
        {"podCIDR", "podCIDRs", "configSource", "externalID", "podPreemptionPolicy"}
    ),
    NodeStatus: frozenset(
        {
            "phase",
            "addresses",
            "daemonEndpoints",
            "nodeInfo",
            "config",
            "runtimeHandlers",
            "features",
        }
    ),
}
