"""What to say about a name that is not there: where an object of that name is, or which name was probably meant.

Given the names that exist. Never reads a cluster, never chooses another name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_NAMED = 2  # near names, and namespaces that have the name
_CUTOFF = 0.6  # of difflib's likeness

Name = tuple[str, str]  # namespace, empty for cluster-scoped objects; name


def sentence(plural: str, name: str, namespace: str | None, present: Iterable[Name]) -> str:
    """`pods "trian" not found in namespace a; did you mean train?` Namespace None: all were looked in."""
    where = f" in namespace {namespace}" if namespace else ""
    return f'{plural} "{name}" not found{where}{hint(name, namespace, present)}'


def hint(name: str, namespace: str | None, present: Iterable[Name]) -> str:
    """The end of such a sentence; empty where nothing is near."""
    names = sorted(set(present))
    elsewhere = [place for place, each in names if each == name and place != namespace]
    if elsewhere:
        shown = " and ".join(elsewhere[:MOST_NAMED])
        return f"; namespace {shown} has it: -n {elsewhere[0]}"
    own = [each for place, each in names if namespace is None or place in ("", namespace)]
    if near := _near(name, own):
        return f"; did you mean {near}?"
    homes = {each: place for place, each in names}
    nearest = difflib.get_close_matches(name, homes, n=1, cutoff=_CUTOFF)
    return f"; did you mean {nearest[0]} in namespace {homes[nearest[0]]}?" if nearest else ""


def near_words(name: str, known: Iterable[str]) -> str:
    """`; did you mean a or b?` for names without a namespace; empty where nothing is near."""
    near = _near(name, sorted(set(known)))
    return f"; did you mean {near}?" if near else ""


def _near(name: str, known: list[str]) -> str:
    return " or ".join(difflib.get_close_matches(name, known, n=MOST_NAMED, cutoff=_CUTOFF))
