"""Just enough protobuf to write a claim and a binding as client-go does, for the experiment with forms of writes.

Field numbers are those of Kubernetes' generated.proto files. A message is extended by putting fields after it: readers
merge messages and take the last of single values. Never a general codec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.resource import claims

MAGIC: Final = b"k8s\x00"  # before every message of Kubernetes
METADATA, STATUS = 1, 3  # of ResourceClaim
NAME, NAMESPACE, UID, RESOURCE_VERSION, FINALIZERS, MANAGED_FIELDS = (
    1,
    3,
    5,
    6,
    14,
    17,
)  # of ObjectMeta
RAW: Final = 2  # of Unknown
LENGTH_DELIMITED, VARINT = 2, 0


def items(listed: bytes) -> dict[str, bytes]:
    """The objects of a list by name, without managedFields: the server fills them in again."""
    found = {}
    for number, message in _fields(_raw(listed)):
        if number == 2:  # items of every list
            parts = list(_fields(message))
            about = next(part for at, part in parts if at == METADATA)
            kept = b"".join(_field(at, part) for at, part in _fields(about) if at != MANAGED_FIELDS)
            name = next(part for at, part in _fields(about) if at == NAME).decode()
            rest = b"".join(_field(at, part) for at, part in parts if at != METADATA)
            found[name] = _field(METADATA, kept) + rest
    return found


def protected(document: bytes, version: str) -> bytes:
    """The claim with the finalizer, as of this version."""
    return with_version(_with_finalizer(document), version.encode())


def allocated(
    document: bytes,
    *,
    allocation: claims.AllocationResult,
    user: claims.ResourceClaimConsumerReference,
    seconds: int,
) -> bytes:
    """The claim with a device and a user, still without a version."""
    (result,) = allocation.devices.results
    assert allocation.node_selector is not None
    (node,) = allocation.node_selector.node_selector_terms[0].match_fields[0].values
    device = _texts({1: result.request, 2: result.driver, 3: result.pool, 4: result.device})
    requirement = _texts({1: "metadata.name", 2: "In", 3: node})
    selector = _field(1, _field(2, requirement))
    given = _field(1, _field(1, device)) + _field(3, selector) + _field(5, _number(1, seconds))
    reference = _texts({3: user.resource, 4: user.name, 5: user.uid})
    return _with_finalizer(document) + _field(STATUS, _field(1, given) + _field(2, reference))


def binding(about: meta.ObjectMeta, node: str) -> bytes:
    """A Binding of the pod to the node."""
    pod = _texts({NAME: about.name, NAMESPACE: about.namespace, UID: about.uid})
    target = _texts({1: "Node", 3: node, 5: "v1"})
    return _message("v1", "Binding", _field(1, pod) + _field(2, target))


def with_version(claim: bytes, version: bytes) -> bytes:
    """A claim's message, ready to send, as of this version."""
    return _message(
        registry.CLAIM.api_version,
        "ResourceClaim",
        claim + _field(METADATA, _field(RESOURCE_VERSION, version)),
    )


def version_of(answer: bytes) -> bytes:
    """The resourceVersion of an answer that is an object or only its metadata."""
    about = next(part for number, part in _fields(_raw(answer)) if number == METADATA)
    return next(part for number, part in _fields(about) if number == RESOURCE_VERSION)


def _with_finalizer(document: bytes) -> bytes:
    return document + _field(
        METADATA, _field(FINALIZERS, claims.DELETE_PROTECTION_FINALIZER.encode())
    )


def _message(api_version: str, kind: str, raw: bytes) -> bytes:
    return MAGIC + _field(1, _texts({1: api_version, 2: kind})) + _field(RAW, raw)


def _raw(message: bytes) -> bytes:
    assert message.startswith(MAGIC), message[:80]
    return next(part for number, part in _fields(message[len(MAGIC) :]) if number == RAW)


def _texts(values: dict[int, str]) -> bytes:
    return b"".join(_field(number, text.encode()) for number, text in values.items())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each length-delimited field; the numbers of others are of no use here."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if key & 7 == LENGTH_DELIMITED:
            yield key >> 3, message[at : at + value]
            at += value
        else:
            assert key & 7 == VARINT, f"field {key >> 3} of an unexpected type"


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
