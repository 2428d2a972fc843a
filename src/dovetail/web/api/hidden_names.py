"""Takes the names of work that a user may not see out of answers.

Given the objects of a cluster and what the user may see. In a sentence, a name is hidden with the namespace before it;
in a struct that names a hidden namespace every text is hidden. A name that something visible has as well stays: it says
nothing. Errs towards hiding. Never changes numbers or states.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from dovetail import errors
from dovetail.kubetypes import registry
from dovetail.tables.fleet import fleet_map
from dovetail.web import asked, problems

OTHER: Final = fleet_map.OTHER_NAMESPACE
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


class HiddenNames:
    """What one user may not read."""

    def __init__(self, namespaces: frozenset[str], names: frozenset[str]) -> None:
        self._namespaces = namespaces
        self._names = names

    def text(self, written: str) -> str:
        """The text with hidden names replaced."""
        if not self._namespaces or not written:
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
        return value if not self._namespaces else self._without(value)

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
        return OTHER + token[len(name) :] if is_place or is_name else token

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
            return msgspec.structs.replace(struct, **(hidden | {"name": OTHER}))
        changed = {}
        for name, value in fields.items():
            after = self._without(value)
            if after is not value and after != value:
                changed[name] = after
        return msgspec.structs.replace(struct, **changed) if changed else struct


NOTHING_HIDDEN: Final = HiddenNames(frozenset(), frozenset())


def of(question: asked.Asked) -> HiddenNames:
    """What the user of a question may not read; made once for all users who see the same."""
    may = question.may
    if may.sees_all:
        return NOTHING_HIDDEN
    return question.memo(("hidden names", may), lambda: _made(question))


def _made(question: asked.Asked) -> HiddenNames:
    may = question.may
    namespaces: set[str] = set()
    hidden: set[str] = set()
    visible: set[str] = set(_WORDS)
    for kind, table in question.view.objects.by_kind.items():
        if kind == registry.EVENT.unique_name:
            continue
        for key, stored in table.items():
            owners = [owner.name for owner in stored.struct.metadata.owner_references]
            is_visible = not key.namespace or may.see_namespace(key.namespace)
            if kind == registry.NAMESPACE.name and not may.see_namespace(key.name):
                namespaces.add(key.name)
                is_visible = False
            elif not is_visible:
                namespaces.add(key.namespace)
            (visible if is_visible else hidden).update((key.name, *owners))
    return HiddenNames(frozenset(namespaces), frozenset((hidden | namespaces) - visible))
