"""Kubernetes objects by kind: decoding to structs, keeping what the structs do not know, encoding again.

Given JSON bytes or plain trees. `decode` keeps the document beside the struct so that fields of newer API
versions survive a change; `decode_struct` is the fast way without that. Lists (`kind: List`,
`ResourceSliceList`) expand.
Never validates values: a decoded object can still be refused.
"""

from typing import Any, Final, TypeVar

import msgspec

from dovetail import errors
from dovetail.model import (
    claims,
    classes,
    meta,
    namespaces,
    nodes,
    pods,
    quantity,
    queues,
    slices,
    taintrules,
    topologies,
    trees,
    volumes,
)

RESOURCE_V1: Final = "resource.k8s.io/v1"
CORE_V1: Final = "v1"
STORAGE_V1: Final = "storage.k8s.io/v1"
DOVETAIL_V1ALPHA1: Final = "dovetail.dev/v1alpha1"

S = TypeVar("S", bound=msgspec.Struct)


class Generic(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """An object of a kind this package has no use for: only its identity is read."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()


Object = (
    slices.ResourceSlice
    | classes.DeviceClass
    | claims.ResourceClaim
    | claims.ResourceClaimTemplate
    | taintrules.DeviceTaintRule
    | pods.Pod
    | nodes.Node
    | namespaces.Namespace
    | queues.Queue
    | topologies.Topology
    | volumes.Object
    | Generic
)

KINDS: Final[dict[tuple[str, str], type[Object]]] = {
    (RESOURCE_V1, "ResourceSlice"): slices.ResourceSlice,
    (RESOURCE_V1, "DeviceClass"): classes.DeviceClass,
    (RESOURCE_V1, "ResourceClaim"): claims.ResourceClaim,
    (RESOURCE_V1, "ResourceClaimTemplate"): claims.ResourceClaimTemplate,
    (RESOURCE_V1, "DeviceTaintRule"): taintrules.DeviceTaintRule,
    (CORE_V1, "Pod"): pods.Pod,
    (CORE_V1, "Node"): nodes.Node,
    (CORE_V1, "Namespace"): namespaces.Namespace,
    (CORE_V1, "PersistentVolume"): volumes.PersistentVolume,
    (CORE_V1, "PersistentVolumeClaim"): volumes.PersistentVolumeClaim,
    (STORAGE_V1, "StorageClass"): volumes.StorageClass,
    (STORAGE_V1, "CSINode"): volumes.CSINode,
    (STORAGE_V1, "CSIDriver"): volumes.CSIDriver,
    (STORAGE_V1, "CSIStorageCapacity"): volumes.CSIStorageCapacity,
    (STORAGE_V1, "VolumeAttachment"): volumes.VolumeAttachment,
    (DOVETAIL_V1ALPHA1, "Queue"): queues.Queue,
    (DOVETAIL_V1ALPHA1, "Topology"): topologies.Topology,
}
NAMESPACED: Final = frozenset(
    {
        claims.ResourceClaim,
        claims.ResourceClaimTemplate,
        pods.Pod,
        volumes.PersistentVolumeClaim,
        volumes.CSIStorageCapacity,
    }
)


class DecodeError(errors.InputError):
    """An object that does not decode. `misfits` lists every place that is wrong."""

    def __init__(self, subject: str, misfits: tuple[trees.Misfit, ...]) -> None:
        lines = "; ".join(f"{misfit.path}: {misfit.message}" if misfit.path else misfit.message for misfit in misfits)
        super().__init__(f"{subject}: {lines}")
        self.subject = subject
        self.misfits = misfits


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A decoded object beside the JSON document it stands for."""

    struct: Object
    document: bytes

    @property
    def tree(self) -> dict[str, Any]:
        """The document as a plain tree, parsed anew each time. Raises DecodeError where only the struct was sound."""
        return _parsed(self.document)


def decode(data: bytes | str | dict[str, Any]) -> Stored:
    """One object of any kind. Raises DecodeError naming each wrong field; unknown fields are kept."""
    document = data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else encode_tree(data)
    kind = kind_of(document)
    return Stored(decode_struct(kind, document), document)


def decode_all(data: bytes | str | dict[str, Any]) -> tuple[Stored, ...]:
    """One object, or every item of a list of objects."""
    tree = data if isinstance(data, dict) else _parsed(data.encode() if isinstance(data, str) else data)
    return tuple(decode(item) for item in expanded(tree))


def decode_struct(kind: type[S], document: bytes) -> S:
    """The struct alone. One pass when the document holds no null; linear otherwise too."""
    try:
        return _decoder(kind).decode(document)
    except (msgspec.ValidationError, errors.InputError) as error:
        return _decode_slowly(kind, document, error)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DecodeError(kind.__name__, (trees.Misfit("", f"not JSON: {error}"),)) from None


def encode(stored: Stored) -> bytes:
    """The JSON document, unknown fields included."""
    return stored.document


def replace(stored: Stored, struct: Object) -> Stored:
    """The object with another struct of the same kind; what it does not model stays as it was stored."""
    if type(struct) is not type(stored.struct):
        raise TypeError(f"cannot replace a {type(stored.struct).__name__} by a {type(struct).__name__}")
    return Stored(struct, encode_tree(trees.overlaid(type(struct), tree_of(struct), stored.tree)))


def store(struct: Object) -> Stored:
    """An object made here, without a document of its own yet."""
    return Stored(struct, encode_struct(struct))


def encode_struct(struct: msgspec.Struct) -> bytes:
    """The struct as JSON; fields at their default are left out."""
    return msgspec.json.encode(struct, enc_hook=quantity.encode_hook)


def tree_of(struct: msgspec.Struct) -> dict[str, Any]:
    """The struct as a plain tree; fields at their default are left out."""
    tree: dict[str, Any] = msgspec.json.decode(encode_struct(struct))
    return tree


def encode_tree(tree: dict[str, Any]) -> bytes:
    """A plain tree as JSON. Raises DecodeError for what JSON cannot carry."""
    try:
        return msgspec.json.encode(tree)
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError) as error:
        raise DecodeError("object", (trees.Misfit("", f"cannot be written as JSON: {error}"),)) from None


def expanded(tree: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The items of a list object, nested lists included; any other object is its own only item."""
    kind = tree.get("kind")
    items = tree.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list | None):
        return (tree,)
    if items is None and "items" not in tree and kind != "List":
        return (tree,)  # a kind that merely ends like a list
    found: list[dict[str, Any]] = []
    for index, item in enumerate(items or ()):
        if not isinstance(item, dict):
            raise DecodeError(kind, (trees.Misfit(f"items[{index}]", "expected an object"),))
        if kind != "List":  # typed lists leave out what each item's type would repeat
            item = {"apiVersion": tree.get("apiVersion"), "kind": kind.removesuffix("List")} | item
        found.extend(expanded(item))
    return tuple(found)


def kind_of(document: bytes) -> type[Object]:
    """The struct for the document's apiVersion and kind; Generic for kinds this package has no use for."""
    head = decode_struct(_TypeMeta, document)
    if not head.api_version or not head.kind:
        missing = "apiVersion" if not head.api_version else "kind"
        raise DecodeError(head.kind or "object", (trees.Misfit(missing, "is required"),))
    return KINDS.get((head.api_version, head.kind), Generic)


def subject_of(struct: Object) -> str:
    """How messages name an object: kind, namespace and name."""
    return named(struct.kind, struct.metadata.namespace, struct.metadata.name or struct.metadata.generate_name)


def named(kind: str, namespace: str, name: str) -> str:
    """`ResourceClaim train/a`, `Node b12`, `Pod <unnamed>`."""
    place = f"{namespace}/" if namespace else ""
    return f"{kind or 'object'} {place}{name or '<unnamed>'}"


class _TypeMeta(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {}


def _decoder(kind: type[S]) -> msgspec.json.Decoder[S]:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=quantity.decode_hook)
    return decoder


def _decode_slowly(kind: type[S], document: bytes, error: Exception) -> S:
    """Tells nulls, which Kubernetes reads as absent, from values that are wrong."""
    tree = _parsed(document)
    wrong = tuple(misfit for misfit in trees.misfits(kind, tree) if not misfit.is_unknown_field)
    if not wrong:
        try:
            return _decoder(kind).decode(msgspec.json.encode(trees.without_nulls(kind, tree)))
        except (msgspec.ValidationError, errors.InputError) as second:
            error = second
    subject = str(tree.get("kind") or kind.__name__) if isinstance(tree, dict) else kind.__name__
    raise DecodeError(subject, wrong or (trees.Misfit("", str(error)),)) from None


def _parsed(document: bytes) -> dict[str, Any]:
    try:
        tree = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DecodeError("object", (trees.Misfit("", f"not JSON: {error}"),)) from None
    if not isinstance(tree, dict):
        raise DecodeError("object", (trees.Misfit("", "expected an object"),))
    return tree
