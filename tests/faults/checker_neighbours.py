"""Whether two pods may share a node: host ports, and required anti-affinity by host, in either direction.

Reads plain objects as the run's users write them: selectors by labels only, ports without addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.faults.records import Tree

HOST = "kubernetes.io/hostname"


def problems(pod: Tree, others: Iterable[Tree]) -> Iterator[str]:
    """What stands between the pod and those on its node."""
    for other in others:
        name = other["metadata"]["name"]
        for port in sorted(_ports(pod) & _ports(other)):
            yield f"port {port[1]} of the node is taken by {name}"
        if _shuns(pod, other) or _shuns(other, pod):
            yield f"bound beside {name}, although they are to be apart"


def _ports(pod: Tree) -> set[tuple[str, int]]:
    return {
        (port.get("protocol", "TCP"), port["hostPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }


def _shuns(pod: Tree, other: Tree) -> bool:
    side = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    labels = (other["metadata"].get("labels") or {}).items()
    return any(
        term["topologyKey"] == HOST and term["labelSelector"]["matchLabels"].items() <= labels
        for term in side.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        if pod["metadata"]["namespace"] == other["metadata"]["namespace"]
    )
