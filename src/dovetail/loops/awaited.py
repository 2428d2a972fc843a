"""Decides what a refused pod waits for by name, and whom the change of an object concerns.

Pods are parked under the names of their claims and volumes, so that a change wakes those it could help and nobody else.
Given pods and kinds of objects. Never decides whether a pod can start.
"""

from __future__ import annotations

from typing import Final

from dovetail.model import kinds, pods
from dovetail.schedule import claims as pod_claims
from dovetail.world import crowd
from dovetail.world.events import ObjectKey

ANYBODY: Final[ObjectKey] = ("", "anybody")  # no namespace is empty, so no object is called so
VOLUMES: Final[ObjectKey] = ("", "volumes")  # pods that use volumes
NEIGHBOURS: Final[ObjectKey] = ("", "neighbours")  # pods that wait because of where other pods are, or are not


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
    volumes = tuple(_volume_claim(key) for key in crowd.volume_claims(pod))
    return (*claims_of(pod), *volumes, VOLUMES)


def concerned_by(kind: kinds.Kind, key: ObjectKey) -> ObjectKey:
    """Whom a change of an object could help, where it is neither a pod, a claim nor a node."""
    if kind is kinds.VOLUME_CLAIM:
        return _volume_claim(key)
    return VOLUMES if kind in kinds.STORAGE else ANYBODY


def _volume_claim(key: ObjectKey) -> ObjectKey:
    """Under another name than a claim for devices of the same name: no name holds a slash."""
    return key[0], f"volume-claim/{key[1]}"
