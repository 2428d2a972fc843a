"""Decides under which names a refused pod is parked.

A name is that of a claim or a volume, or one of the groups below, so that an event wakes only the pods
it may help. Given pods. Never decides whether a pod can start.
"""

from __future__ import annotations

from typing import Final

from dovetail.kubetypes.core import pods
from dovetail.model import reservations
from dovetail.world import pod_index
from dovetail.world.events import ObjectKey

# The names of groups. No object has an empty namespace here, so none can be confused with them.
ALL_PODS: Final[ObjectKey] = ("", "*")  # every parked pod
VOLUMES: Final[ObjectKey] = ("", "volumes")  # pods that use volumes
NEIGHBOURS: Final[ObjectKey] = ("", "neighbours")  # pods held back by where other pods are
TOGETHER: Final[ObjectKey] = ("", "together")  # every pod, while one cycle decides about all


def names_for(pod: pods.Pod) -> tuple[ObjectKey, ...]:
    """Every object whose change may help this pod in particular."""
    if not pod.spec.volumes:
        return reservations.used_claims(pod)
    volume_claims = tuple(volume_claim(key) for key in pod_index.volume_claims(pod))
    return (*reservations.used_claims(pod), *volume_claims, VOLUMES)


def volume_claim(key: ObjectKey) -> ObjectKey:
    """A volume claim's name, distinct from a device claim's: no object name contains a slash."""
    return key[0], f"volume-claim/{key[1]}"
