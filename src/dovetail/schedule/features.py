"""Decides which declared features a pod needs of its node. Judges as kube-scheduler's NodeDeclaredFeatures does.

Only features that scheduling depends on are named; the others matter to updates of running pods. Never reads a world.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dovetail.model import nodes, pods

RESTART_ALL: Final = "RestartAllContainers"  # the action of a restart rule


def needed(spec: pods.PodSpec) -> tuple[str, ...]:
    """The features, by name."""
    if not spec.host_network and not spec.init_containers and not any(map(_says_more, spec.containers)):
        return ()  # as for most pods
    return tuple(name for name, is_needed in FEATURES.items() if is_needed(spec))


def missing(spec: pods.PodSpec, node: nodes.Node) -> str | None:
    """The first feature the node does not declare."""
    return next((name for name in needed(spec) if name not in node.status.declared_features), None)


def _says_more(container: pods.Container) -> bool:
    return bool(container.restart_policy_rules or container.volume_mounts)


def _restarts_all(spec: pods.PodSpec) -> bool:
    return any(
        rule.action == RESTART_ALL
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    )


def _maps_users_on_host_network(spec: pods.PodSpec) -> bool:
    return spec.host_network and spec.host_users is False


def _sets_bind_options(spec: pods.PodSpec) -> bool:
    return any(
        mount.bind_mount_options
        for container in (*spec.containers, *spec.init_containers)
        for mount in container.volume_mounts
    )


FEATURES: Final[dict[str, Callable[[pods.PodSpec], bool]]] = {  # nodedeclaredfeatures of component-helpers 0.37
    "RestartAllContainersOnContainerExits": _restarts_all,
    "UserNamespacesHostNetworkSupport": _maps_users_on_host_network,
    "VolumeBindMountOptions": _sets_bind_options,
}
