"""What constraints compare: the values of an attribute, and which requests a constraint covers.

Given a claim's constraints and pools; values are sets of typed elements, a plain value being a set of one. Devices
match when one element is common to all of them, are distinct when no two share one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from dovetail.allocate.requests import InvalidRequest, Option, claim_name
from dovetail.model import claims as wire
from dovetail.model.slices import DeviceAttribute
from dovetail.world.devices import Devices

Elements = frozenset[Hashable]
_UNKNOWN: Elements = frozenset()  # there, but of no type that can be compared


class Constraint:
    """One constraint of one claim. Compared by identity."""

    __slots__ = ("attribute", "claim", "is_match", "requests")

    def __init__(self, claim: int, attribute: str, *, is_match: bool, requests: frozenset[str]) -> None:
        self.claim = claim
        self.attribute = attribute
        self.is_match = is_match
        self.requests = requests

    def covers(self, option: Option) -> bool:
        """Whether devices of this option are compared."""
        if option.claim != self.claim:
            return False
        return not self.requests or option.base_name in self.requests or option.name in self.requests

    def __str__(self) -> str:
        return f"{'matchAttribute' if self.is_match else 'distinctAttribute'} {self.attribute}"


def constraints_of(claims: Sequence[wire.ResourceClaim]) -> list[Constraint]:
    """The constraints of all claims. Raises InvalidRequest for one of a kind nobody knows."""
    found = []
    for number, claim in enumerate(claims):
        for place, one in enumerate(claim.spec.devices.constraints):
            attribute = one.match_attribute if one.match_attribute is not None else one.distinct_attribute
            if attribute is None:
                detail = f"constraint {place} has neither matchAttribute nor distinctAttribute"
                raise InvalidRequest(claim_name(claim), detail)
            is_match = one.match_attribute is not None
            found.append(Constraint(number, attribute, is_match=is_match, requests=frozenset(one.requests)))
    return found


def values_in(devices: Devices, attribute: str, *, lists: bool) -> list[Elements | None]:
    """The elements each device has under the attribute's full name, else under its bare id for the driver's own."""
    full = devices.column(attribute)
    domain, slash, bare = attribute.partition("/")
    own = devices.column(bare) if slash and domain == devices.driver else None
    found: list[Elements | None] = []
    for index in range(len(devices)):
        value = full[index] if full is not None else None
        if value is None and own is not None:
            value = own[index]
        found.append(None if value is None else elements(value, lists=lists))
    return found


def elements(value: DeviceAttribute, *, lists: bool) -> Elements:
    """The typed elements of an attribute: lists before scalars, versions as text. Lists can be unknown."""
    for kind, listed in (
        ("int", value.int_values),
        ("bool", value.bool_values),
        ("string", value.string_values),
        ("version", value.version_values),
    ):
        if listed and lists:
            return frozenset((kind, one) for one in listed)
    for kind, one in (
        ("int", value.int_value),
        ("bool", value.bool_value),
        ("string", value.string_value),
        ("version", value.version_value),
    ):
        if one is not None:
            return frozenset(((kind, one),))
    return _UNKNOWN
