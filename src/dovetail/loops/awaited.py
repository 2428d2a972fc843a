"""Decides what a refused pod waits for by name.

Pods are parked under the names of their claims and volumes, so that a change wakes those it could help and nobody else.
Given pods. Never decides whether a pod can start.
"""

from __future__ import annotations

from typing import Final

from dovetail.model import pods
from dovetail.schedule import claims as pod_claims
from dovetail.world import crowd
from dovetail.world.events import ObjectKey

ANYBODY: Final[ObjectKey] = ("", "anybody")  # no namespace is empty, so no object is called so
VOLUMES: Final[ObjectKey] = ("", "volumes")  # pods that use volumes
NEIGHBOURS: Final[ObjectKey] = ("", "neighbours")  # pods that wait because of where other pods are, or are not
TOGETHER: Final[ObjectKey] = ("", "together")  # no pod is parked so: only where all are decided about together


def claims_of(pod: pods.Pod) -> tuple[ObjectKey, ...]:
    """The claims a pod names, as far as they have names."""
    names = (pod_claims.claim_name(pod, entry) for entry in pod.spec.resource_claims)
    found = [(pod.metadata.namespace, name) for name in names if name is not None]
    made = pod.status.extended_resource_claim_status
    if made is not None and made.resource_claim_name:
        found.append((pod.metadata.namespace, made.resource_claim_name))
    return tuple(dict.fromkeys(found))


def names_for(pod: pods.Pod) -> tuple[ObjectKey, ...]:
    """Everything whose change could help this pod in particular."""
    if not pod.spec.volumes:
        return claims_of(pod)
    volumes = tuple(volume_claim(key) for key in crowd.volume_claims(pod))
    return (*claims_of(pod), *volumes, VOLUMES)


def volume_claim(key: ObjectKey) -> ObjectKey:
    """Under another name than a claim for devices of the same name: no name holds a slash."""
    return key[0], f"volume-claim/{key[1]}"
