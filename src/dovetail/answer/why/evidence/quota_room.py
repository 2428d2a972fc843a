"""Whether a ResourceQuota still refuses what it refused, who uses it, and what raising it would take.

Given the refusal that an event quotes and the objects of the namespace as they are now: the quota's own status decides,
not the numbers in the event. Never changes a quota.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dovetail import errors
from dovetail.answer.replica import patches
from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.evidence.sources import quoting
from dovetail.answer.why.why_answer import Fix, Who
from dovetail.kubetypes import codec, object_set, registry
from dovetail.kubetypes.core import pods, resource_quotas
from dovetail.kubetypes.resource import claims
from dovetail.model import pod_requests
from dovetail.quantity import quantity

QUOTA: Final = "ResourceQuota"
_QUOTA_KEY: Final = object_set.unique_kind("v1", QUOTA)
_MOST_MISSING: Final = 10_000  # pods that a quota is raised for at once
_LIMITS: Final = "limits."
_COUNTS: Final = frozenset({"pods", "count/pods"})


class Room(NamedTuple):
    """How a quota stands now."""

    is_there: bool  # the quota was read
    suffices: bool  # what was refused would pass now
    users: tuple[str, ...]  # such as "train/a: 8", the largest first
    fixes: tuple[Fix, ...]


UNKNOWN: Final = Room(False, False, (), ())


def exceeded_by(replica: Replica, namespace: str, pod: pods.Pod) -> resource_quotas.Exceeded | None:
    """The first quota that would refuse the pod, by its own counts. Quotas for some pods alone are left out."""
    for stored in replica.listed(_QUOTA_KEY, namespace=namespace):
        quota = _quota(replica, namespace, stored.struct.metadata.name)
        if quota is None or quota.spec.scopes or quota.spec.scope_selector is not None:
            continue
        shortages = []
        for key, hard in sorted(quota.spec.hard.items()):
            used = quota.status.used.get(key, quantity.ZERO)
            asked = _amount_text(key, _of_pod(pod, key))
            shortage = resource_quotas.Shortage(key, asked, str(used), str(hard))
            if asked != "0" and _is_short(quota, shortage):
                shortages.append(shortage)
        if shortages:
            return resource_quotas.Exceeded(quota.metadata.name, tuple(shortages))
    return None


def room(
    replica: Replica, namespace: str, exceeded: resource_quotas.Exceeded, *, pods_missing: int = 1
) -> Room:
    """How the quota that refused something stands now, and what it has to be for as many pods as are missing."""
    quota = _quota(replica, namespace, exceeded.quota)
    if quota is None:
        return UNKNOWN
    lacking = [shortage for shortage in exceeded.shortages if _is_short(quota, shortage)]
    if not lacking:
        return Room(True, True, (), ())
    users = tuple(_users(replica, namespace, lacking[0].key))
    return Room(True, False, users, _raised(quota, lacking, pods_missing))


def _quota(replica: Replica, namespace: str, name: str) -> resource_quotas.ResourceQuota | None:
    stored = replica.get(object_set.Key(_QUOTA_KEY, namespace, name))
    if stored is None:
        return None
    try:
        return codec.decode_struct(resource_quotas.ResourceQuota, stored.document)
    except errors.InputError:
        return None


def _is_short(quota: resource_quotas.ResourceQuota, shortage: resource_quotas.Shortage) -> bool:
    hard = _hard(quota, shortage.key)
    if hard is None:  # the quota no longer limits it
        return False
    used = quota.status.used.get(shortage.key, quantity.ZERO)
    return used.add(quantity.parse(shortage.requested)) > hard


def _hard(quota: resource_quotas.ResourceQuota, key: str) -> quantity.Quantity | None:
    return quota.spec.hard.get(key, quota.status.hard.get(key))


def _raised(
    quota: resource_quotas.ResourceQuota,
    lacking: list[resource_quotas.Shortage],
    pods_missing: int,
) -> tuple[Fix, ...]:
    hard = {}
    for shortage in lacking:
        amount = quota.status.used.get(shortage.key, quantity.ZERO)
        for _ in range(min(pods_missing, _MOST_MISSING)):
            amount = amount.add(quantity.parse(shortage.requested))
        hard[shortage.key] = str(amount)
    reference = patches.ObjectRef(
        api_version="v1",
        kind=QUOTA,
        namespace=quota.metadata.namespace,
        name=quota.metadata.name,
    )
    amounts = ", ".join(f"{resource_quotas.words_of(key)} to {hard[key]}" for key in sorted(hard))
    return (
        Fix(
            who=Who.CLUSTER_ADMIN,
            title=f"raise ResourceQuota {quota.metadata.name}: {quoting.words(amounts)}",
            patch=(patches.Patch(object=reference, merge={"spec": {"hard": hard}}),),
            verified=False,  # the pods do not exist yet, so no placement was tried
            effect="the quota has room for what was refused; the controller tries again by itself",
        ),
    )


def _users(replica: Replica, namespace: str, key: str) -> Iterator[str]:
    """Who is charged on a key now, the largest first."""
    charges: list[tuple[int, str]] = []
    for name, amount in _charges(replica, namespace, key):
        if amount > 0:
            charges.append((-amount, name))
    for amount, name in sorted(charges):
        yield f"{namespace}/{name}: {_amount_text(key, -amount)}"


def _charges(replica: Replica, namespace: str, key: str) -> Iterator[tuple[str, int]]:
    for stored in replica.listed(registry.CLAIM.unique_name, namespace=namespace):
        if isinstance(stored.struct, claims.ResourceClaim):
            charge = resource_quotas.charge(stored.struct.spec.devices)
            yield stored.struct.metadata.name, charge.get(key, 0)
    for stored in replica.listed(registry.POD.unique_name, namespace=namespace):
        if isinstance(stored.struct, pods.Pod):
            yield stored.struct.metadata.name, _of_pod(stored.struct, key)


def _of_pod(pod: pods.Pod, key: str) -> int:
    if key == "count/pods":
        return 1
    if pod.status.phase in pods.TERMINAL_PHASES:
        return 0
    if key in _COUNTS:
        return 1
    if key.startswith(_LIMITS):
        amounts = pod_requests.limit_amounts(pod)
    else:
        amounts = pod_requests.request_amounts(pod)
    resource = key.removeprefix(_LIMITS).removeprefix(resource_quotas.REQUESTS_PREFIX)
    amount = amounts.get(resource)
    return 0 if amount is None else _in_units(resource, amount)


def _in_units(resource: str, amount: quantity.Quantity) -> int:
    return amount.milli_value() if resource == pod_requests.CPU else amount.value()


def _amount_text(key: str, amount: int) -> str:
    resource = key.removeprefix(_LIMITS).removeprefix(resource_quotas.REQUESTS_PREFIX)
    return pod_requests.amount_text(resource, amount)
