"""Constraints between the devices of a claim: which requests one covers, and the attribute values it compares.

Values are sets of typed elements, a scalar being a set of one. Devices match if one element is common to all of them,
and are distinct if no two share an element.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dovetail.allocate.ask.device_requests import InvalidRequest, Option, claim_name
from dovetail.kubetypes.resource import claims
from dovetail.kubetypes.resource.slices import DeviceAttribute
from dovetail.world.devices.device_columns import Devices

Elements = frozenset[Hashable]
_UNKNOWN: Elements = frozenset()  # present, but of no type that can be compared


class Constraint:
    """One constraint of one claim. Compared by identity."""

    __slots__ = ("attribute", "claim", "is_match", "requests")

    def __init__(
        self, claim: int, attribute: str, *, is_match: bool, requests: frozenset[str]
    ) -> None:
        self.claim = claim
        self.attribute = attribute
        self.is_match = is_match
        self.requests = requests

    def covers(self, option: Option) -> bool:
        """Whether devices of this option are compared."""
        if option.claim != self.claim:
            return False
        requests = self.requests
        return not requests or option.base_name in requests or option.name in requests

    def __str__(self) -> str:
        kind = "matchAttribute" if self.is_match else "distinctAttribute"
        return f"{kind} {self.attribute}"


def constraints_of(claims: Sequence[claims.ResourceClaim]) -> list[Constraint]:
    """The constraints of all claims. Raises InvalidRequest for one of an unknown kind."""
    constraints = []
    for number, claim in enumerate(claims):
        for place, written in enumerate(claim.spec.devices.constraints):
            is_match = written.match_attribute is not None
            attribute = written.match_attribute if is_match else written.distinct_attribute
            if attribute is None:
                detail = f"constraint {place} has neither matchAttribute nor distinctAttribute"
                raise InvalidRequest(claim_name(claim), detail)
            requests = frozenset(written.requests)
            constraints.append(Constraint(number, attribute, is_match=is_match, requests=requests))
    return constraints


def values_in(devices: Devices, attribute: str, *, lists: bool) -> list[Elements | None]:
    """The elements of each device, None without the attribute.

    Looked up under the attribute's full name, then, for the driver's own domain, under its bare id.
    """
    full = devices.column(attribute)
    domain, slash, bare = attribute.partition("/")
    own = devices.column(bare) if slash and domain == devices.driver else None
    values: list[Elements | None] = []
    for index in range(len(devices)):
        value = full[index] if full is not None else None
        if value is None and own is not None:
            value = own[index]
        values.append(None if value is None else elements(value, lists=lists))
    return values


def elements(value: DeviceAttribute, *, lists: bool) -> Elements:
    """The typed elements of an attribute: lists before scalars, versions as text. Without `lists` lists are ignored."""
    for kind, listed in (
        ("int", value.int_values),
        ("bool", value.bool_values),
        ("string", value.string_values),
        ("version", value.version_values),
    ):
        if listed and lists:
            return frozenset((kind, element) for element in listed)
    for kind, scalar in (
        ("int", value.int_value),
        ("bool", value.bool_value),
        ("string", value.string_value),
        ("version", value.version_value),
    ):
        if scalar is not None:
            return frozenset(((kind, scalar),))
    return _UNKNOWN
