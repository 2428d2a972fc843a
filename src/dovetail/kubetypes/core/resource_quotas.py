"""What a namespace's quota says about devices and claims: which keys there are, and what a refusal by one means.

Given the API server's words or a ResourceQuota; answers amounts and a sentence with the next step. The server judges
quotas, when a claim or pod is created; never judged here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.resource import claims
from dovetail.quantity import quantity

# Keys of a ResourceQuota that count devices and claims, in Kubernetes 1.36 and 1.37 (pkg/quota/v1/evaluator/core).
DEVICES_SUFFIX: Final = (
    ".deviceclass.resource.k8s.io/devices"  # after the class: what its claims may ask for
)
IMPLICIT_PREFIX: Final = (
    "requests.deviceclass.resource.kubernetes.io/"  # before the class: as an extended resource
)
REQUESTS_PREFIX: Final = "requests."  # in front of the name of an extended resource
CLAIM_COUNT: Final = "count/resourceclaims.resource.k8s.io"
# A claim for all devices is charged the most a claim can have, whatever it gets; of alternatives the largest per class.
ALL_DEVICES_CHARGE: Final = 32  # AllocationResultsMaxSize, resource.k8s.io/v1

_EXCEEDED: Final = re.compile(
    r"exceeded quota: (?P<quota>[a-z0-9.-]+), "
    r"requested: (?P<requested>\S+), used: (?P<used>\S+), limited: (?P<limited>\S+)"
)


class ScopedRequirement(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A scope that pods must be in, or values that the scope's field must have."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Requirements that a pod must all meet to be counted."""

    match_expressions: tuple[ScopedRequirement, ...] = ()


class ResourceQuotaSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a namespace may have; with scopes, what the pods in all of them may have."""

    hard: dict[str, quantity.Quantity] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What is enforced, and what is used of it."""

    hard: dict[str, quantity.Quantity] = {}
    used: dict[str, quantity.Quantity] = {}


class ResourceQuota(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A limit on the sum of a namespace, of core v1."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class Shortage(NamedTuple):
    """One key of a quota that does not reach."""

    key: str
    requested: str
    used: str
    limit: str

    def __str__(self) -> str:
        return f"{self.used} of {self.limit} {words_of(self.key)} used, {self.requested} more asked for"


class Exceeded(NamedTuple):
    """A quota that keeps something from being created."""

    quota: str
    shortages: tuple[Shortage, ...]

    def message_for(self, namespace: str) -> str:
        """Numbers first, then what to do."""
        parts = "; ".join(map(str, self.shortages))
        return (
            f"quota {self.quota} of namespace {namespace} is used up: {parts}; ask for less, let something end, or "
            f"have it raised (kubectl -n {namespace} describe resourcequota {self.quota})"
        )


def exceeded(message: str) -> Exceeded | None:
    """The quota an API server's refusal is about; None if it is about something else."""
    parts = _EXCEEDED.search(message)
    if parts is None:
        return None
    requested, used, limited = (_amounts(parts[name]) for name in ("requested", "used", "limited"))
    keys = tuple(
        Shortage(key, requested[key], used.get(key, "0"), limited.get(key, "?"))
        for key in sorted(requested)
    )
    return Exceeded(parts["quota"], keys)


def words_of(key: str) -> str:
    """What a key counts, for people."""
    if key.endswith(DEVICES_SUFFIX):
        return f"devices of class {key.removesuffix(DEVICES_SUFFIX)}"
    if key.startswith(IMPLICIT_PREFIX):
        return f"devices of class {key.removeprefix(IMPLICIT_PREFIX)} asked for as a resource"
    if key == CLAIM_COUNT:
        return "claims"
    return key.removeprefix(REQUESTS_PREFIX) if "/" in key else key


def is_about_devices(key: str) -> bool:
    """Whether a key counts devices or claims."""
    is_extended = key.startswith(REQUESTS_PREFIX) and "/" in key
    return key.endswith(DEVICES_SUFFIX) or key == CLAIM_COUNT or is_extended


def charge(claim: claims.DeviceClaim) -> dict[str, int]:
    """What a claim is charged when it is created, by key."""
    charges = {CLAIM_COUNT: 1}
    for request in claim.requests:
        options = (
            [request.exactly] if request.exactly is not None else list(request.first_available)
        )
        worst: dict[str, int] = {}
        for option in options:
            key = option.device_class_name + DEVICES_SUFFIX
            count = (
                ALL_DEVICES_CHARGE
                if option.allocation_mode == claims.MODE_ALL
                else option.count or 1
            )
            worst[key] = max(worst.get(key, 0), count)
        for key, count in worst.items():
            charges[key] = charges.get(key, 0) + count
    return charges


def shortages(requested: Mapping[str, int], quota: ResourceQuota) -> tuple[Shortage, ...]:
    """The keys of a quota that leave no room for this."""
    hard, used = quota.status.hard, quota.status.used
    lacking = []
    for key in sorted(requested.keys() & hard.keys()):
        in_use = used.get(key, quantity.ZERO)
        if in_use.add(requested[key]) > hard[key]:
            lacking.append(Shortage(key, str(requested[key]), str(in_use), str(hard[key])))
    return tuple(lacking)


def _amounts(text: str) -> dict[str, str]:
    """`a=1,b=2` as the server prints it; a value that is no amount is left out, so nothing foreign is shown."""
    pairs = (pair.partition("=") for pair in text.rstrip(",").split(","))
    return {key: value for key, _, value in pairs if key and quantity.is_quantity(value)}
