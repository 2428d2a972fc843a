"""Decides whether the host ports a pod wants are free on a node. Judges as kube-scheduler's NodePorts does."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dovetail.model import nodes, pods
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.world import crowd as crowds
from dovetail.world.world import World


class PortTie:
    """The ports a pod wants."""

    def __init__(self, wanted: tuple[crowds.Port, ...], world: World) -> None:
        self._wanted = wanted
        self._world = world

    def misfit(self, node: nodes.Node) -> Reason | None:
        """The first port that is taken there."""
        port = clash_with(self._wanted, self._world.crowd.ports_on(node.metadata.name))
        if port is None:
            return None
        return Reason(code=ReasonCode.HOST_PORT, subject=f"host port {port.number}/{port.protocol}")


def tie(pod: pods.Pod, world: World) -> PortTie | None:
    """The tie of a pod that wants ports of its node; None where it does not."""
    wanted = crowds.host_ports(pod)
    return PortTie(wanted, world) if wanted else None


def clash_with(wanted: Iterable[crowds.Port], taken: Collection[crowds.Port]) -> crowds.Port | None:
    """The first of the wanted ports that is taken."""
    if not taken:
        return None
    return next((port for port in wanted if any(_clash(port, other) for other in taken)), None)


def _clash(one: crowds.Port, other: crowds.Port) -> bool:
    if (one.protocol, one.number) != (other.protocol, other.number):
        return False
    return one.address == other.address or crowds.ANY_ADDRESS in (one.address, other.address)
