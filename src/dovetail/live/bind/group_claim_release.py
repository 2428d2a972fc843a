"""Releases claims of PodGroups that no pod uses: none of the group is on a node or being bound.

Kubernetes keeps such a claim until its PodGroup is deleted, long after the last pod ended or was
evicted. A group that waits keeps no devices either: it chooses again where it starts. Claims of groups
whose pods belong to another scheduler are left alone. Given events of pods and claims. Never decides
who is evicted.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.live import handle as handles
from dovetail.live.bind import binding_cycle
from dovetail.model import reservations
from dovetail.schedule.node import pod_claims
from dovetail.world import events
from dovetail.world.events import ObjectKey

UNUSED: Final = "no pod of its PodGroup is on a node"


class GroupClaimRelease:
    """Claims that are reserved for PodGroups, with the scheduler of each group's pods."""

    def __init__(self, handle: handles.Handle, binding_cycles: binding_cycle.BindingCycles) -> None:
        self._world = handle.world
        self._settings = handle.settings
        self._binding_cycles = binding_cycles
        self._scheduler_names: dict[ObjectKey, str] = {}  # by claim; "" if no pod was seen yet

    def claim_changed(self, claim: claims.ResourceClaim, *, is_there: bool = True) -> None:
        """A claim is there, differs, or is gone."""
        key = events.key_of(claim)
        groups = [user for user in claim.status.reserved_for if reservations.is_group(user)]
        if not is_there or not groups:
            self._scheduler_names.pop(key, None)
            return
        members = self._world.gangs.owned(reservations.group_key(groups[0], key[0]))
        names = (self._world.pods[pod_id].spec.scheduler_name for pod_id in members)
        self._scheduler_names[key] = next(names, "") or self._scheduler_names.get(key, "")

    def pod_ended(self, pod: pods.Pod) -> None:
        """A pod ended or is gone: releases at once what its group leaves, before the next decision."""
        if pod.spec.scheduling_group is not None:
            for key in reservations.used_claims(pod):
                self._release_if_unused(key, last=pod.spec.scheduler_name)

    def release_unused(self) -> None:
        """Releases all unused claims. Linear in the claims reserved for groups."""
        for key, name in sorted(self._scheduler_names.items()):
            self._release_if_unused(key, last=name)

    def _release_if_unused(self, key: ObjectKey, *, last: str = "") -> None:
        claim = self._world.claims.get(key)
        name = (
            pod_claims.releasing_scheduler(claim, self._world, last=last)
            if claim is not None
            else None
        )
        if name is not None and self._settings.is_ours(name):
            self._binding_cycles.release_unused(key, UNUSED)
