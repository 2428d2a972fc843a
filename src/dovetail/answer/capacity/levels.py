"""The largest gang that starts now on each level of the topology: in one node, one rack, one block, the whole cluster.

Given how many copies fit on each node: copies of one shape fill each node by themselves, so the largest gang in a
domain is what its nodes hold together. Never places anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dovetail.kubetypes.core import nodes
from dovetail.kubetypes.custom import topologies
from dovetail.schedule.gang import topology_domains
from dovetail.world.world import World

NODE = "node"
CLUSTER = "cluster"


class LevelCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The largest gang on one level, and the domain that holds it."""

    level: str
    largest: int  # pods
    domain: str
    topology: str = ""


def largest(world: World, by_node: Mapping[str, int]) -> tuple[LevelCapacity, ...]:
    """From the widest level to the narrowest."""
    cluster = LevelCapacity(level=CLUSTER, largest=sum(by_node.values()), domain="")
    return (cluster, *_in_topologies(world.topologies, world.nodes, by_node), _on_node(by_node))


def _in_topologies(
    topology_by_name: Mapping[str, topologies.Topology],
    node_by_name: Mapping[str, nodes.Node],
    by_node: Mapping[str, int],
) -> Iterator[LevelCapacity]:
    for name, topology in sorted(topology_by_name.items()):
        domains = topology_domains.Domains(topology, node_by_name)
        for depth, level in enumerate(topology.spec.levels):
            totals = {
                "/".join(domain.path): sum(by_node.get(node, 0) for node in domain.nodes)
                for domain in domains.at(depth)
            }
            best = min(totals, key=lambda path: (-totals[path], path), default="")
            yield LevelCapacity(
                level=level.alias or level.node_label,
                largest=totals.get(best, 0),
                domain=best,
                topology=name,
            )


def _on_node(by_node: Mapping[str, int]) -> LevelCapacity:
    best = min(by_node, key=lambda node: (-by_node[node], node), default="")
    return LevelCapacity(level=NODE, largest=by_node.get(best, 0), domain=best)
