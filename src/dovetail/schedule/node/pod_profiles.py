"""Keeps what scheduling reads of pending pods: which claims they need, what they request, and of which kind they are.

Given a pod and the World. A profile holds while the pod and its claims are the same objects and no pod has or awaits
devices of these claims; it is kept from decision to decision. Equal kinds are one object, so that comparing them costs
nothing. Never evaluates a node.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dovetail import cache
from dovetail.kubetypes.core import pods
from dovetail.model import pod_requests
from dovetail.schedule.node import equivalence, preconditions
from dovetail.schedule.node.pod_claims import ClaimLookup, PodClaims
from dovetail.world.world import World


class PodProfile(NamedTuple):
    """What scheduling reads of one pending pod that is ready, and whose claims have no devices."""

    pod: pods.Pod
    needs: PodClaims
    request: pod_requests.Resources
    kind: equivalence.Key  # of pods that fit the same nodes and cost the same there
    kind_with_images: equivalence.Key  # and hold the same images that some node has


class _Kept:
    """What outlives a decision. Never holds the World itself."""

    def __init__(self) -> None:
        self._profiles: dict[str, PodProfile] = {}  # by pod id
        self._kinds: dict[equivalence.Key, equivalence.Key] = {}
        self._images: object = None  # of all nodes

    def bring_up(self, world: World) -> None:
        """Forgets everything where nodes hold other images than before; pods that are gone once they are many."""
        if self._images is not world.images:
            self._images = world.images
            self._profiles.clear()
            self._kinds.clear()
        elif len(self._profiles) > 2 * len(world.pods) + 64:
            self._profiles = {
                pod_id: profile
                for pod_id, profile in self._profiles.items()
                if pod_id in world.pods
            }
            self._kinds = {kind: kind for kind in self._kinds_in_use()}

    def _kinds_in_use(self) -> set[equivalence.Key]:
        kinds = {profile.kind for profile in self._profiles.values()}
        return kinds.union(profile.kind_with_images for profile in self._profiles.values())

    def of(self, pod_id: str, pod: pods.Pod, lookup: ClaimLookup) -> PodProfile | None:
        profile = self._profiles.get(pod_id)
        if profile is None or profile.pod is not pod or not lookup.are_untouched(profile.needs):
            profile = self._worked_out(pod, lookup)
            if profile is not None:
                self._profiles[pod_id] = profile
        return profile

    def _worked_out(self, pod: pods.Pod, lookup: ClaimLookup) -> PodProfile | None:
        if pod.status.extended_resource_claim_status is not None:
            return None
        needs = preconditions.needs(pod, lookup)
        if not isinstance(needs, PodClaims) or not lookup.are_untouched(needs):
            return None
        kind, with_images = equivalence.pod_keys(pod, needs, lookup.images)
        return PodProfile(
            pod, needs, pod_requests.pod_request(pod), self._shared(kind), self._shared(with_images)
        )

    def _shared(self, kind: equivalence.Key) -> equivalence.Key:
        """The one object for equal kinds."""
        return self._kinds.setdefault(kind, kind)


_MEMORY: Final = cache.WeakMemo[World, None, _Kept](1)


class PodProfiles:
    """The profiles of pending pods in one decision."""

    def __init__(self, world: World, *, is_kept: bool) -> None:
        """With `is_kept`, profiles of earlier decisions about this World are used where they hold."""
        self._lookup = ClaimLookup(world)
        self._kept = _MEMORY.of(world, None, _Kept) if is_kept else _Kept()
        self._kept.bring_up(world)

    def of(self, pod_id: str, pod: pods.Pod) -> PodProfile | None:
        """The profile of a pod; None where it is not ready, or a claim of it has devices or is about to get some."""
        return self._kept.of(pod_id, pod, self._lookup)
