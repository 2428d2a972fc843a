"""The names of placement policies as people give them, and which of them use a mix.

Known without numpy, so that a wrong name is reported before anything is loaded.
"""

from __future__ import annotations

from typing import Final

from dovetail import errors

NAMES: Final = (
    "random",
    "first-fit",
    "best-fit",
    "spread",
    "dot-product",
    "gpu-packing",
    "gpu-clustering",
    "fgd",
    "pwr",
    "dovetail",
)
WITH_MIX: Final = frozenset({"fgd", "pwr", "dovetail"})


def named(given: str) -> str:
    """The policy of this name, written with or without hyphens."""
    by_letters = {_letters(name): name for name in NAMES}
    name = by_letters.get(_letters(given))
    if name is None:
        raise errors.NotFound(f'no policy "{given}"; there are: {", ".join(NAMES)}')
    return name


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
