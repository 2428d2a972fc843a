"""The pods of a gang that have to start together, and how many of them nodes would take: now, or with other pods gone.

Given the World in a trial. Members are placed one by one by the engine's own search for a node; nodes are emptied only
as far as it can matter. Leaves the World as it was. Never chooses who starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from dovetail.kubetypes.core import pods
from dovetail.model import gangs, plan, policy
from dovetail.schedule.node import find_node, preconditions
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims
from dovetail.world import events
from dovetail.world.world import World


class Members(NamedTuple):
    """A gang as far as it waits."""

    gang: gangs.Gang
    waiting: tuple[pods.Pod, ...]  # by name
    active: int  # pods that have a node, by status or by plan
    needed: int  # how many more have to start at once


def members_of(world: World, pod: pods.Pod) -> Members | None:
    """The gang of a pod; None for a pod that starts alone."""
    member = world.gangs.of(events.pod_id(pod))
    if member is None:
        return None
    gang = world.gangs.definition(member.gang)
    all_pods = [world.pods[pod_id] for pod_id in world.gangs.members(member.gang)]
    present = [item for item in all_pods if not _is_over(item)]
    waiting = sorted((item for item in present if not _has_node(world, item)), key=events.key_of)
    active = len(present) - len(waiting)
    needed = max(least_pods(gang) - active, 0)
    if gang.is_loose or needed < 2:
        return None
    return Members(gang, tuple(waiting), active, needed)


def least_pods(gang: gangs.Gang) -> int:
    """The fewest pods with which the gang has its minimum."""
    return sum(sorted(_least(gang, group) for group in _below(gang, None))[: gang.min_groups])


def _least(gang: gangs.Gang, group: gangs.Group) -> int:
    if not group.holds_groups:
        return group.min
    return sum(sorted(_least(gang, child) for child in _below(gang, group.name))[: group.min])


def _below(gang: gangs.Gang, parent: str | None) -> list[gangs.Group]:
    return [group for group in gang.groups if group.parent == parent]


def placeable(
    world: World,
    policy_: policy.Policy,
    waiting: Iterable[pods.Pod],
    *,
    within: Collection[str] | None = None,
    emptied: Collection[str] = (),
) -> int:
    """How many of these pods find a node, one after the other, with the pods of the `emptied` nodes gone."""
    count = 0
    with world.trial():  # undone on exit
        nodes = frozenset(emptied)
        for pod_id in [key for key, (node, _) in world.running().items() if node in nodes]:
            world.vacate(pod_id)
        for pod_id, assumption in list(world.assumed.items()):
            if assumption.node in nodes:
                world.forget(world.pods[pod_id])
        search = find_node.NodeSearch(world, policy_, policy.UNLIMITED)
        for pod in waiting:
            needs = preconditions.needs(pod, ClaimLookup(world))
            if not isinstance(needs, PodClaims):
                continue
            placement = search.find(pod, needs, within=within)
            if isinstance(placement, plan.Refusal):
                continue
            devices = placement.allocations_to_assume(pod)
            world.assume(pod, placement.node, devices, volumes=placement.volumes)
            search.placed(placement)
            count += 1
    return count


def _has_node(world: World, pod: pods.Pod) -> bool:
    return bool(pod.spec.node_name) or events.pod_id(pod) in world.assumed


def _is_over(pod: pods.Pod) -> bool:
    return pod.status.phase in pods.TERMINAL_PHASES
