"""The changes that `Cluster.what_if` tries, in order: each applies to what those before it left.

Given texts as `dovetail what-if` takes them, and manifests. Knows nothing of a cluster: what a text means, and whether
it can be, is found out when the question is asked. Immutable.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from dovetail import errors

VERBS: Final = ("add", "remove", "cordon", "uncordon", "drain", "set", "end")
WORK: Final = "work"

Work: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any] | str | os.PathLike[str]]"
Texts: TypeAlias = "str | Iterable[str]"
Settings: TypeAlias = "str | Iterable[str] | Mapping[str, object]"
Change: TypeAlias = "tuple[str, Any]"  # a verb and its text, or "work" and manifests


class Changes:
    """Changes in an order of one's own. Every method returns more changes and leaves these as they are.

    Changes().drain("node/h100-0").add("2xh100").work("job.yaml")
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[Change] = ()) -> None:
        self._entries = tuple(_checked(entry) for entry in entries)

    def add(self, *nodes: str) -> Changes:
        """More nodes: 2xh100, 2xnode/gpu-3."""
        return self._and("add", nodes)

    def remove(self, *nodes: str) -> Changes:
        """Nodes that go: node/a, 3xh100, rack/r1."""
        return self._and("remove", nodes)

    def cordon(self, *nodes: str) -> Changes:
        """Nodes that take no new pods."""
        return self._and("cordon", nodes)

    def uncordon(self, *nodes: str) -> Changes:
        """Nodes that take pods again."""
        return self._and("uncordon", nodes)

    def drain(self, *nodes: str) -> Changes:
        """Nodes that also lose their pods."""
        return self._and("drain", nodes)

    def set(self, settings: Settings) -> Changes:
        """Fields of queues, work and nodes: {"queue/x.quota": 8}, or "queue/x.quota=8"."""
        return self._and("set", texts_of_settings(settings))

    def end(self, *work: str) -> Changes:
        """Work that is over: job/ns/x, pod/x."""
        return self._and("end", work)

    def work(self, given: Work) -> Changes:
        """Work that does not exist yet: a path, YAML or JSON text, an object or several."""
        return Changes((*self._entries, (WORK, given)))

    def _and(self, verb: str, texts: Iterable[str]) -> Changes:
        return Changes((*self._entries, *((verb, text) for text in texts)))

    def __iter__(self) -> Iterator[Change]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Changes) and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]  # manifests may be dicts

    def __repr__(self) -> str:
        return f"Changes({list(self._entries)!r})"


def of_keywords(given: Mapping[str, Any]) -> Changes:
    """The changes of keywords, in the order of VERBS, work last."""
    entries: list[Change] = []
    for verb in VERBS:
        value = given.get(verb, ())
        texts = texts_of_settings(value) if verb == "set" else _texts(value)
        entries += [(verb, text) for text in texts]
    if given.get(WORK) is not None:
        entries.append((WORK, given[WORK]))
    return Changes(entries)


def texts_of_settings(settings: Settings) -> list[str]:
    """FIELD=VALUE, as the command line takes it."""
    if isinstance(settings, Mapping):
        return [f"{field}={value}" for field, value in settings.items()]
    return _texts(settings)


def _texts(given: Any) -> list[str]:
    if not isinstance(given, Iterable):
        raise errors.InputError(f"expected a text or several, such as 2xh100; got {given!r}")
    return [given] if isinstance(given, str) else list(given)


def _checked(entry: Change) -> Change:
    if not isinstance(entry, tuple | list) or len(entry) != 2:
        raise errors.InputError(f'{entry!r}: expected a verb and a text, such as ("add", "2xh100")')
    verb, given = entry
    if verb not in (*VERBS, WORK):
        near = difflib.get_close_matches(str(verb), (*VERBS, WORK), 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join((*VERBS, WORK))}"
        raise errors.InputError(f'"{verb}" is no change; {hint}')
    if verb != WORK and not isinstance(given, str):
        raise errors.InputError(f"{verb}: expected a text, such as 2xh100; got {given!r}")
    return verb, given
