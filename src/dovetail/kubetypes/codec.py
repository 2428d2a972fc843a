"""Kubernetes objects by kind: decodes to structs, keeps what the structs do not model, encodes again.

Given JSON bytes or plain trees. `decode` keeps the document next to the struct, so that fields of newer API versions
survive a change; `decode_struct` is the fast way without that. Lists (`kind: List`, `ResourceSliceList`) expand.
Never validates values: a decoded object can still be refused.
"""

from typing import Any, Final, TypeVar

import msgspec

from dovetail import cache, errors
from dovetail.kubetypes import meta, registry, untyped
from dovetail.quantity import quantity

S = TypeVar("S", bound=msgspec.Struct)


class Generic(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """An object of a kind outside the World: only its identity is read."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()


Object = registry.WorldObject | Generic

KINDS: Final[dict[tuple[str, str], type[Object]]] = {
    (kind.api_version, kind.name): kind.struct for kind in registry.WORLD
}
NAMESPACED: Final = frozenset(kind.struct for kind in registry.WORLD if kind.is_namespaced)


class DecodeError(errors.InputError):
    """An object that does not decode. `misfits` lists every place that is wrong."""

    def __init__(self, subject: str, misfits: tuple[untyped.Misfit, ...]) -> None:
        lines = [
            f"{misfit.path}: {misfit.message}" if misfit.path else misfit.message
            for misfit in misfits
        ]
        super().__init__(f"{subject}: {'; '.join(lines)}")
        self.subject = subject
        self.misfits = misfits


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A decoded object and the JSON document it comes from."""

    struct: Object
    document: bytes

    @property
    def tree(self) -> dict[str, Any]:
        """The document as a plain tree, parsed on every call. Raises DecodeError where only the struct was sound."""
        return parsed(self.document)


def decode(data: bytes | str | dict[str, Any]) -> Stored:
    """One object of any kind. Raises DecodeError naming each wrong field; unknown fields are kept."""
    if isinstance(data, dict):
        document = encode_tree(data)
    else:
        document = data.encode() if isinstance(data, str) else data
    kind = kind_of(document)
    return Stored(decode_struct(kind, document), document)


def decode_all(data: bytes | str | dict[str, Any]) -> tuple[Stored, ...]:
    """One object, or every item of a list of objects."""
    if not isinstance(data, dict):
        data = parsed(data.encode() if isinstance(data, str) else data)
    return tuple(decode(item) for item in expanded(data))


def decode_struct(kind: type[S], document: bytes) -> S:
    """The struct alone. One pass when the document holds no null; linear otherwise too."""
    try:
        return _decoder(kind).decode(document)
    except (msgspec.ValidationError, errors.InputError) as error:
        return _decode_slowly(kind, document, error)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DecodeError(kind.__name__, (untyped.Misfit("", f"not JSON: {error}"),)) from None


def encode(stored: Stored) -> bytes:
    """The JSON document, unknown fields included."""
    return stored.document


def replace(stored: Stored, struct: Object) -> Stored:
    """The object with another struct of the same kind; what the struct does not model stays as stored."""
    if type(struct) is not type(stored.struct):
        raise TypeError(
            f"cannot replace a {type(stored.struct).__name__} by a {type(struct).__name__}"
        )
    return Stored(struct, encode_tree(untyped.overlaid(type(struct), tree_of(struct), stored.tree)))


def store(struct: Object) -> Stored:
    """A new object from its struct alone."""
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
        raise DecodeError(
            "object", (untyped.Misfit("", f"cannot be written as JSON: {error}"),)
        ) from None


def expanded(tree: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The items of a list object, nested lists included; any other object is its own only item."""
    kind = tree.get("kind")
    if not isinstance(kind, str) or not _is_list(kind, tree):
        return (tree,)
    objects: list[dict[str, Any]] = []
    for index, item in enumerate(tree.get("items") or ()):
        if not isinstance(item, dict):
            raise DecodeError(kind, (untyped.Misfit(f"items[{index}]", "expected an object"),))
        if kind != "List":  # typed lists leave out what each item's type would repeat
            item = {"apiVersion": tree.get("apiVersion"), "kind": kind.removesuffix("List")} | item
        objects.extend(expanded(item))
    return tuple(objects)


def _is_list(kind: str, tree: dict[str, Any]) -> bool:
    """Whether the object is a list, and not of a kind whose name merely ends like one."""
    if not kind.endswith("List") or not isinstance(tree.get("items"), list | None):
        return False
    return kind == "List" or "items" in tree


def kind_of(document: bytes) -> type[Object]:
    """The struct for the document's apiVersion and kind; Generic for kinds outside the World."""
    head = decode_struct(_TypeMeta, document)
    if not head.api_version or not head.kind:
        missing = "apiVersion" if not head.api_version else "kind"
        raise DecodeError(head.kind or "object", (untyped.Misfit(missing, "is required"),))
    return KINDS.get((head.api_version, head.kind), Generic)


def typed(stored: Stored, struct: type[S]) -> S | None:
    """The object as that struct; None where it is none.

    A set that holds objects of any kind, as a snapshot does, has those outside the World with their identity alone.
    """
    known: object = stored.struct
    if isinstance(known, struct):
        return known
    if not isinstance(known, Generic):
        return None
    try:
        return decode_struct(struct, stored.document)
    except errors.InputError:
        return None


def subject_of(struct: Object) -> str:
    """How messages name an object: kind, namespace and name."""
    return named(
        struct.kind,
        struct.metadata.namespace,
        struct.metadata.name or struct.metadata.generate_name,
    )


def named(kind: str, namespace: str, name: str) -> str:
    """`ResourceClaim train/a`, `Node b12`, `Pod <unnamed>`."""
    place = f"{namespace}/" if namespace else ""
    return f"{kind or 'object'} {place}{name or '<unnamed>'}"


class _TypeMeta(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


@cache.remembered()
def _decoder(kind: type[S]) -> msgspec.json.Decoder[S]:
    return msgspec.json.Decoder(kind, dec_hook=quantity.decode_hook)


def _decode_slowly(kind: type[S], document: bytes, error: Exception) -> S:
    """Separates nulls, which Kubernetes reads as absent, from wrong values."""
    tree = parsed(document)
    misfits = untyped.misfits(kind, tree)
    wrong = tuple(misfit for misfit in misfits if not misfit.is_unknown_field)
    if not wrong:
        try:
            return _decoder(kind).decode(msgspec.json.encode(untyped.without_nulls(kind, tree)))
        except (msgspec.ValidationError, errors.InputError) as second:
            error = second
    subject = str(tree.get("kind") or kind.__name__)
    raise DecodeError(subject, wrong or (untyped.Misfit("", str(error)),)) from None


def parsed(document: bytes) -> dict[str, Any]:
    """A JSON object as a plain tree. Raises DecodeError for anything else."""
    try:
        tree = msgspec.json.decode(document)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DecodeError("object", (untyped.Misfit("", f"not JSON: {error}"),)) from None
    if not isinstance(tree, dict):
        raise DecodeError("object", (untyped.Misfit("", "expected an object"),))
    return tree
