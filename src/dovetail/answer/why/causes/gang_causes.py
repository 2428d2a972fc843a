"""Why the pods of a gang do not start together, where each of them might start alone.

Given the gang of the pod and the ways of its members. Says which number is short: pods, nodes, or those of one domain
of a topology. Asks the same counterfactuals as for a pod: no other pods, a healthy platform. Never places a gang.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dovetail.answer.why.cause_codes import CauseCode
from dovetail.answer.why.causes import gang_members
from dovetail.answer.why.causes.gang_members import Members
from dovetail.answer.why.causes.node_sentences import amount, counted, names
from dovetail.answer.why.causes.reason_causes import cause
from dovetail.answer.why.obstacles import ways
from dovetail.answer.why.obstacles.blocks import Layer, Step
from dovetail.answer.why.obstacles.node_blocks import NodeBlocks
from dovetail.answer.why.why_answer import Cause
from dovetail.model import gangs, pod_requests
from dovetail.model.reasons import Reason, ReasonCode
from dovetail.schedule.gang import topology_domains

MOST_DOMAINS: Final = 16  # tried, those with most nodes first
MOST_PLACED: Final = 2_000  # pods placed on trial in all of them


class _Domain(NamedTuple):
    name: str
    nodes: frozenset[str]


def causes_of(
    obstacles: NodeBlocks, members: Members, reasons: Iterable[Reason], own: tuple[Cause, ...]
) -> tuple[Cause, ...]:
    """The causes of a gang each of whose pods could start alone; none where nothing about its size is short."""
    topology = [reason for reason in reasons if reason.code is ReasonCode.TOPOLOGY]
    request = _request(members.gang)
    if request is not None and request.required is not None:
        chosen = topology_domains.choice(
            request,
            topology_domains.TopologyIndex(obstacles.world.topologies, obstacles.world.nodes),
        )
        if isinstance(chosen, Reason):
            return (cause(CauseCode.TOPOLOGY_UNKNOWN, chosen.detail),)
        if chosen.required is not None:
            level = request.required
            domains = [
                _Domain("/".join(domain.path[1:]) or "/".join(domain.path), domain.nodes)
                for domain in chosen.domains.at(chosen.required)
            ]
            return _in_domains(obstacles, members, level, domains, own)
    if topology:
        return (cause(CauseCode.TOPOLOGY, topology[0].detail), *own)
    return _anywhere(obstacles, members, own)


def _request(gang: gangs.Gang) -> gangs.TopologyRequest | None:
    if gang.topology is not None:
        return gang.topology
    return next((group.topology for group in gang.groups if group.topology is not None), None)


def _anywhere(obstacles: NodeBlocks, members: Members, own: tuple[Cause, ...]) -> tuple[Cause, ...]:
    waiting = members.waiting[: members.needed]
    fitting = gang_members.placeable(obstacles.world, obstacles.policy, waiting)
    if fitting >= len(waiting):
        return ()
    lacking = _need_text(obstacles)
    by_layer = _nodes_by_layer(obstacles)
    emptied = (by_layer[0] + by_layer[Layer.OTHERS])[: members.needed]
    fitting_empty = gang_members.placeable(
        obstacles.world, obstacles.policy, waiting, emptied=_emptied(by_layer, members)
    )
    rest = own if own and fitting == 0 else ()
    if fitting_empty >= len(waiting):
        text = (
            f"{fitting} of {len(waiting)} pods of its gang fit now, and they start together; "
            f"{'the others need' if len(waiting) - fitting > 1 else 'the last one needs'} {lacking}"
            f"{_most_left(obstacles, by_layer[Layer.OTHERS])}"
        )
        return (cause(CauseCode.GANG_CANNOT_START, text), *rest)
    unhealthy = by_layer[Layer.PLATFORM]
    per_node = max(fitting_empty // max(len(emptied), 1), 1)
    if unhealthy and fitting_empty + per_node * len(unhealthy) >= len(waiting):
        return (_unhealthy(obstacles, unhealthy, fitting_empty, len(waiting)), *rest)
    text = (
        f"its gang needs {len(waiting)} pods at once ({lacking} each); with every node empty "
        f"only {fitting_empty} of them fit"
    )
    return (cause(CauseCode.GANG_TOO_LARGE, text), *rest)


def _most_left(obstacles: NodeBlocks, nodes: list[str]) -> str:
    """How much the best of the nodes that are too full has left, in brackets."""
    best: tuple[int, str] | None = None
    for name in nodes:
        for block in obstacles.by_node()[name]:
            is_counted = block.step is Step.DEVICES or pod_requests.is_extended(block.subject)
            if is_counted and block.have > (best[0] if best is not None else 0):
                best = (block.have, name)
    return f" (node {best[1]} has {best[0]} left)" if best is not None else ""


def _unhealthy(obstacles: NodeBlocks, nodes: list[str], fitting: int, needed: int) -> Cause:
    """The platform keeps nodes from the gang that it needs."""
    blocks = [block for block in obstacles.by_node()[nodes[0]] if block.layer is Layer.PLATFORM]
    why = {CauseCode.CORDONED: "cordoned", CauseCode.NOT_READY: "not ready"}.get(
        blocks[0].code, "not usable"
    )
    text = (
        f"only {fitting} of {needed} pods of its gang fit; {counted(len(nodes), 'node')} that could "
        f"take the others {'is' if len(nodes) == 1 else 'are'} {why} ({names(nodes)})"
    )
    return cause(blocks[0].code, text)


def _in_domains(
    obstacles: NodeBlocks,
    members: Members,
    level: str,
    domains: list[_Domain],
    own: tuple[Cause, ...],
) -> tuple[Cause, ...]:
    """The same within one domain of a topology: the best of them, as it is and with other pods gone."""
    waiting = members.waiting[: members.needed]
    by_layer = _nodes_by_layer(obstacles)
    usable = frozenset(by_layer[0] + by_layer[Layer.OTHERS])
    ranked = sorted(domains, key=lambda domain: (-len(domain.nodes & usable), domain.name))
    best_now, best_empty = (0, ""), (0, "")
    most = max(min(MOST_DOMAINS, MOST_PLACED // max(len(waiting), 1)), 1)
    for domain in ranked[:most]:
        fitting = gang_members.placeable(
            obstacles.world, obstacles.policy, waiting, within=domain.nodes
        )
        best_now = max(best_now, (fitting, domain.name), key=lambda best: best[0])
        if best_empty[0] >= len(waiting):
            continue
        emptied = sorted(domain.nodes & usable)
        fitting = gang_members.placeable(
            obstacles.world, obstacles.policy, waiting, within=domain.nodes, emptied=emptied
        )
        best_empty = max(best_empty, (fitting, domain.name), key=lambda best: best[0])
    needed, count = len(waiting), counted(len(domains), "domain")
    if best_now[0] >= needed:
        return ()
    if best_empty[0] >= needed:
        short = needed - best_now[0]
        text = (
            f"needs {counted(needed, 'pod')} in one {level}; the best of {count}, "
            f"{best_now[1] or 'any'}, takes {best_now[0]} now: {short} short"
        )
        return (cause(CauseCode.TOPOLOGY, text), *own)
    text = (
        f"needs {counted(needed, 'pod')} in one {level}; even empty, the largest of {count}, "
        f"{best_empty[1] or 'any'}, takes {best_empty[0]}"
    )
    return (cause(CauseCode.TOPOLOGY_TOO_SMALL, text), *own)


def _nodes_by_layer(obstacles: NodeBlocks) -> dict[int, list[str]]:
    """Nodes that would take one of its pods, by what would have to change first."""
    by_layer: dict[int, list[str]] = {0: [], **{layer: [] for layer in Layer}}
    for way in ways.all_ways(obstacles.by_node()):
        by_layer[way.layer] += way.nodes
    return by_layer


def _emptied(by_layer: dict[int, list[str]], members: Members) -> list[str]:
    """Every node that is full takes at least one pod when it is empty: as many nodes as pods are enough."""
    return by_layer[Layer.OTHERS][: members.needed]


def _need_text(obstacles: NodeBlocks) -> str:
    """What one pod needs, in the scarcest terms."""
    need = obstacles.kind.need
    extended = [
        f"{amount(name, value)} {name}"
        for name, value in need.scalars
        if pod_requests.is_extended(name)
    ]
    claims = [
        f"{option.count} {option.device_class_name}"
        for claim in obstacles.kind.fresh
        for request in claim.spec.devices.requests
        for option in (request.exactly, *request.first_available[:1])
        if option is not None
    ]
    parts = extended + claims
    if not parts:
        parts = [f"{amount(pod_requests.CPU, need.milli_cpu)} cpu"]
    return ", ".join(parts)
