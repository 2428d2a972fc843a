"""Gives claims of PodGroups back that have devices for nobody: no pod of the group is on a node or on its way to one.

Kubernetes keeps such a claim until its PodGroup is deleted, long after the last pod ended or yielded. Given news of
pods and claims, and whoever writes. A group that waits holds nothing either: it chooses anew where it starts. Claims of
groups whose pods are another scheduler's are left alone. Never decides who yields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dovetail.loops import awaited
from dovetail.model import claims, pods, reservations
from dovetail.schedule import claims as pod_claims
from dovetail.world import events
from dovetail.world.events import ObjectKey
from dovetail.world.world import World

NOBODY: Final = "no pod of its PodGroup is on a node"

GiveBack = Callable[[ObjectKey, str], None]  # this claim, because of that


class Returning:
    """Claims that are reserved for PodGroups, and which of them nobody uses."""

    def __init__(self, world: World, *, is_ours: Callable[[str], bool], give_back: GiveBack) -> None:
        self._world = world
        self._is_ours = is_ours  # whether a scheduler of this name is us
        self._give_back = give_back
        self._claims: dict[ObjectKey, str] = {}  # by the claim, the scheduler of its group's pods, as far as seen

    def saw(self, claim: claims.ResourceClaim, *, is_there: bool = True) -> None:
        """A claim is there, differs, or is gone."""
        key = events.key_of(claim)
        groups = [user for user in claim.status.reserved_for if reservations.is_group(user)]
        if not is_there or not groups:
            self._claims.pop(key, None)
            return
        members = self._world.gangs.owned(reservations.group_key(groups[0], key[0]))
        found = next((self._world.pods[id_].spec.scheduler_name for id_ in members), "")
        self._claims[key] = found or self._claims.get(key, "")

    def left(self, pod: pods.Pod) -> None:
        """A pod ended or is gone: nobody is decided about before what its group leaves behind is being given back."""
        if pod.spec.scheduling_group is not None:
            for key in awaited.claims_of(pod):
                self._look_at(key, last=pod.spec.scheduler_name)

    def look(self) -> None:
        """Gives back what is left over. Linear in the claims that are reserved for groups."""
        for key, name in sorted(self._claims.items()):
            self._look_at(key, last=name)

    def _look_at(self, key: ObjectKey, *, last: str = "") -> None:
        claim = self._world.claims.get(key)
        name = pod_claims.left_to(claim, self._world, last=last) if claim is not None else None
        if name is not None and self._is_ours(name):
            self._give_back(key, NOBODY)
