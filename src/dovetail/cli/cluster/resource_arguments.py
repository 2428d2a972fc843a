"""Reads `RESOURCE NAME...`, `RESOURCE/NAME...` and `RESOURCE,RESOURCE`, as kubectl does, against a server's kinds.

Given words and what the server serves; returns kinds with names. Raises InputError for a word that means no kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from dovetail import errors

if TYPE_CHECKING:
    from dovetail.kube import resource_names

# Words of our tables that are no names of the server's.
OWN_WORDS = {
    "claim": "resourceclaims.resource.k8s.io",
    "claims": "resourceclaims.resource.k8s.io",
    "template": "resourceclaimtemplates.resource.k8s.io",
    "templates": "resourceclaimtemplates.resource.k8s.io",
    "class": "deviceclasses.resource.k8s.io",
    "classes": "deviceclasses.resource.k8s.io",
    "slice": "resourceslices.resource.k8s.io",
    "slices": "resourceslices.resource.k8s.io",
    "queue": "queues.dovetail.dev",
    "queues": "queues.dovetail.dev",
    "topology": "topologies.dovetail.dev",
    "topologies": "topologies.dovetail.dev",
}


class Named(NamedTuple):
    """A word for a kind, and the names given with it; none means all."""

    word: str
    names: tuple[str, ...]


def split(words: Sequence[str]) -> list[Named]:
    """The words sorted by kind, in the order given."""
    if not any("/" in word for word in words):
        kinds, *names = words
        return [Named(kind, tuple(names)) for kind in kinds.split(",") if kind]
    names_by_word: dict[str, list[str]] = {}
    for word in words:
        kind, slash, name = word.partition("/")
        if not (kind and slash and name):
            raise click.BadParameter(f'"{word}": expected RESOURCE/NAME, as in the other arguments')
        names_by_word.setdefault(kind, []).append(name)
    return [Named(word, tuple(names)) for word, names in names_by_word.items()]


def resource_of(word: str, served: resource_names.Resources) -> resource_names.Resource:
    """The kind that a word means. Raises InputError with what was probably meant."""
    resource = served.of_word(OWN_WORDS.get(word.lower(), word))
    if resource is not None:
        return resource
    near = served.near(word)
    hint = f"; did you mean {near}?" if near else "; kubectl api-resources lists them"
    raise errors.InputError(f'the cluster serves no resource "{word}"{hint}')
