"""What every Kubernetes object carries: metadata, owners, label selectors, conditions, and basic wire types.

Absent lists read as empty: `NO_ITEMS` is an empty tuple that remembers it was never written, for the few
rules where an absent list and an empty one differ. Never interprets a label, never compares times.
"""

from typing import Annotated, Final

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
TIME_PATTERN: Final = (
    r"^[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(?:[.,][0-9]+)?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\Z"
)
Time = Annotated[str, msgspec.Meta(pattern=TIME_PATTERN)]  # RFC 3339, kept as text


class _Absent(tuple[()]):
    """The type of NO_ITEMS alone. Copies and pickles are NO_ITEMS again."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NO_ITEMS"


NO_ITEMS: Final = _Absent()  # compares and iterates like (); distinguish it with `is`
NO_RAW: Final = msgspec.Raw()  # a free-form JSON value that was not written


class OwnerReference(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Who this object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Name, identity, labels and life cycle of an object. Times stay RFC 3339 text."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = NO_ITEMS
    finalizers: tuple[str, ...] = NO_ITEMS


class LabelSelectorRequirement(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One test of one label."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Tests that must all hold. Without any test it selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Condition(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One observed aspect of an object, as conditions of resource.k8s.io are written."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 = 0
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""


# Fields Kubernetes knows and this package does not model: kept in the document, never refused as unknown.
UNMODELLED: Final[dict[type, frozenset[str]]] = {
    ObjectMeta: frozenset({"selfLink", "managedFields"}),
}
