"""Says which name was probably meant when one is not there. Never chooses it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from dovetail import errors

SHOWN = 5  # names listed where none is near


def unknown(what: str, name: str, known: Iterable[str], *, where: str = "") -> errors.InputError:
    """The error about a name that is not there: the nearest names, else some of those that are."""
    names = sorted(set(known))
    absent = f'there is no {what} "{name}"{where}'
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    if near:
        return errors.InputError(f"{absent}; did you mean {' or '.join(near)}?")
    if not names:
        return errors.InputError(f"{absent}; the cluster has none")
    more = "" if len(names) <= SHOWN else f" and {len(names) - SHOWN} more"
    return errors.InputError(f"{absent}; there are {', '.join(names[:SHOWN])}{more}")
