"""Takes the names of objects that a user may not list out of answers.

Given the objects of a cluster and what the user may list, kind by kind. In a sentence, a name is hidden with the
namespace before it; in a struct that names a hidden namespace every text is hidden. A name that something visible has
or mentions as well stays: the user knows it from there. Errs towards hiding. Never changes numbers, kinds or states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from dovetail import errors
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims, slices
from dovetail.tables import claim_tables, pod_table
from dovetail.tables.fleet import fleet_map
from dovetail.web import asked, problems

HIDDEN: Final = fleet_map.HIDDEN_NAME
T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
# Words of our own sentences, which stay although a hidden object has such a name.
_VOCABULARY: Final = """
    a an and after all any at be by can claim claims cpu device devices ends first for free from gang
    gangs gpu gpus has in is it its job jobs main memory more most namespace namespaces needs no node
    nodes not of on one or pod pods queue queues room runs start starts states taint than that the then
    there to until use user wait waits when with work
"""
_WORDS: Final = frozenset(_VOCABULARY.split())
# Fields that hold one of a few words of our own, never a name.
_CLOSED_FIELDS: Final = frozenset(
    {"api_version", "class_", "code", "kind", "of", "severity", "state", "status", "who"}
)


class HiddenNames:
    """What one user may not read."""

    def __init__(self, namespaces: frozenset[str], names: frozenset[str]) -> None:
        self._namespaces = namespaces
        self._names = names
        self._hides_nothing = not namespaces and not names

    def text(self, written: str) -> str:
        """The text with hidden names replaced."""
        if self._hides_nothing or not written:
            return written
        return _NAME.sub(self._replaced, written)

    def has(self, written: str) -> bool:
        """Whether the text names something hidden."""
        return self.text(written) != written

    def namespace(self, name: str) -> bool:
        """Whether a namespace is hidden."""
        return name in self._namespaces

    def without(self, value: T) -> T:
        """The struct, list or text with hidden names replaced."""
        return value if self._hides_nothing else self._without(value)

    def refusal(self, error: errors.InputError) -> problems.Refusal:
        """What is wrong with a question, without names that the user may not read."""
        return problems.bad_request(self.text(str(error)))

    def _replaced(self, match: re.Match[str]) -> str:
        token = match[0]
        name = token.rstrip("./-")
        parts = name.split("/")
        # namespace/name, namespace/kind/name, and kind/namespace/name as `what-if` writes it.
        is_place = len(parts) > 1 and parts[0] in self._namespaces
        is_place = is_place or (len(parts) == 3 and parts[1] in self._namespaces)
        is_name = any(part in self._names for part in parts)
        return HIDDEN + token[len(name) :] if is_place or is_name else token

    def _without(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if isinstance(value, tuple | list):
            return type(value)(map(self._without, value))
        if isinstance(value, Mapping):
            return {self._without(key): self._without(inner) for key, inner in value.items()}
        return value

    def _struct(self, struct: msgspec.Struct) -> msgspec.Struct:
        fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
        if fields.get("namespace") in self._namespaces:
            hidden = {name: "" for name, value in fields.items() if isinstance(value, str)}
            return msgspec.structs.replace(struct, **(hidden | {"name": HIDDEN}))
        changed = {}
        for name, value in fields.items():
            if name in _CLOSED_FIELDS:
                continue
            after = self._without(value)
            if after is not value and after != value:
                changed[name] = after
        return msgspec.structs.replace(struct, **changed) if changed else struct


NOTHING_HIDDEN: Final = HiddenNames(frozenset(), frozenset())


def of(question: asked.Asked) -> HiddenNames:
    """What the user of a question may not read; made once for all users who see the same."""
    may = question.may
    if may.sees_everything:
        return NOTHING_HIDDEN
    return question.memo(("hidden names", may), lambda: _made(question))


def _made(question: asked.Asked) -> HiddenNames:
    may = question.may
    namespaces: set[str] = set()
    hidden: set[str] = set()
    visible: set[str] = set(_WORDS)
    for table in question.view.objects.by_kind.values():
        kind = next((key.kind for key in table), "")
        if kind == registry.EVENT.unique_name:
            continue  # their names are made of the names of what they are about
        is_namespace = kind == registry.NAMESPACE.name
        is_seen_in: dict[str, bool] = {}
        for key, stored in table.items():
            place = key.name if is_namespace else key.namespace
            is_visible = is_seen_in.get(place)
            if is_visible is None:
                is_open = not place or may.see_namespace(place)
                if not is_open:
                    namespaces.add(place)
                is_visible = is_open and (is_namespace or may.lists(kind, place))
                is_seen_in[place] = is_visible
            if is_visible:
                visible.add(key.name)
                visible.update(_mentioned(stored.struct))
            else:
                owners = stored.struct.metadata.owner_references
                hidden.update((key.name, *(owner.name for owner in owners)))
    names = {name for name in (hidden | namespaces) - visible if not name.isdecimal()}
    return HiddenNames(frozenset(namespaces), frozenset(names))


def _mentioned(struct: codec.Object) -> Iterator[str]:
    """The names of other objects that one shows to those who may list it."""
    metadata = struct.metadata
    yield from (owner.name for owner in metadata.owner_references)
    if isinstance(struct, pods.Pod):
        yield from metadata.labels.values()
        yield struct.spec.node_name or ""
        yield struct.spec.priority_class_name or ""
        yield from pod_table.claim_names(struct)
        for volume in struct.spec.volumes:
            if volume.persistent_volume_claim is not None:
                yield volume.persistent_volume_claim.claim_name
    elif isinstance(struct, claims.ResourceClaim):
        for request in struct.spec.devices.requests:
            options = (request.exactly, *request.first_available)
            yield from (option.device_class_name for option in options if option is not None)
        yield from (result.pool for result in claim_tables.results_of(struct))
    elif isinstance(struct, slices.ResourceSlice):
        yield struct.spec.node_name or ""
