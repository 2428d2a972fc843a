"""Decides whether the host ports of a pod are free on a node: kube-scheduler's NodePorts. Never reads resources."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dovetail.kubetypes.core import nodes, pods
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world import pod_index
from dovetail.world.world import World


class HostPortFilter:
    """The host ports of a pod, as a filter."""

    def __init__(self, ports: tuple[pod_index.Port, ...], world: World) -> None:
        self._wanted = ports
        self._world = world

    def misfit(self, node: nodes.Node) -> Reason | None:
        """The first port that is in use there."""
        port = clash_with(self._wanted, self._world.pod_index.ports_on(node.metadata.name))
        if port is None:
            return None
        return Reason(code=ReasonCode.HOST_PORT, subject=f"host port {port.number}/{port.protocol}")


def filter_(pod: pods.Pod, world: World) -> HostPortFilter | None:
    """The filter for a pod with host ports; None where it has none."""
    ports = pod_index.host_ports(pod)
    return HostPortFilter(ports, world) if ports else None


def clash_with(
    ports: Iterable[pod_index.Port], ports_in_use: Collection[pod_index.Port]
) -> pod_index.Port | None:
    """The first port that is in use."""
    if not ports_in_use:
        return None
    return next(
        (port for port in ports if any(_clash(port, port_in_use) for port_in_use in ports_in_use)),
        None,
    )


def _clash(port: pod_index.Port, port_in_use: pod_index.Port) -> bool:
    if (port.protocol, port.number) != (port_in_use.protocol, port_in_use.number):
        return False
    return port.address == port_in_use.address or pod_index.ANY_ADDRESS in (
        port.address,
        port_in_use.address,
    )
