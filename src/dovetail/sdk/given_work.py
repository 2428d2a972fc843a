"""Work that does not exist yet, as a program gives it: a path, YAML or JSON text, an object or several.

Returns the contents with a name for messages. Reads files; never a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.ask import given_manifests
from dovetail.manifest import manifests
from dovetail.sdk import change_list

NAME: Final = "work"  # of what is no file


def objects_of(
    given: change_list.Work, *, name: str, namespace: str
) -> list[manifests.ManifestObject]:
    """All objects. Raises InputError with every problem."""
    given_contents = list(contents(given, name))
    objects, problems = given_manifests.read(
        given_contents, namespace=None, default_namespace=namespace
    )
    if problems:
        raise errors.InputError("\n".join(problems))
    if not objects:
        raise errors.InputError(
            f"{name}: no objects found; expected at least one Kubernetes object"
        )
    return objects


def name_of(given: change_list.Work, number: int) -> str:
    """What answers call it: the path, or a word."""
    if isinstance(given, os.PathLike) or (isinstance(given, str) and not is_text(given)):
        return str(given)
    return NAME if number == 1 else f"{NAME} {number}"


def is_text(given: str) -> bool:
    """Whether it is a manifest itself: paths have neither line breaks nor braces in front."""
    return "\n" in given or given.lstrip().startswith("{")


def contents(given: change_list.Work, name: str) -> Iterator[tuple[str, bytes]]:
    """What was given, with its name. Reads files."""
    if isinstance(given, Mapping):
        yield name, _encoded(name, given)
    elif isinstance(given, os.PathLike):
        yield from given_manifests.contents([os.fspath(given)])
    elif isinstance(given, str):
        if given == given_manifests.STDIN:
            raise errors.InputError("standard input is not read here; give a path, text or objects")
        if is_text(given):
            yield name, given.encode()
        else:
            yield from given_manifests.contents([given])
    elif isinstance(given, Sequence):
        for each in given:
            yield from contents(each, name)
    else:
        raise errors.InputError(f"{name}: expected a path, text or objects, got {given!r}")


def _encoded(name: str, tree: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(tree)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise errors.InputError(f"{name}: cannot be written as JSON: {error}") from None
